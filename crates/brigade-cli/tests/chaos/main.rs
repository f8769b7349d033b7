//! Chaos: real nodes on a real database, with faults, clients that keep histories, and a checker.
//!
//! ```text
//! clients ── HTTP ──> nodes ── proxies ──> primary ──> replica
//!    │                  │         faults at each arrow and at each process
//! histories       lines of processes          │
//!    └──────────────────┴──────> checker <── tables and feed
//! ```
//!
//! In reading order:
//! - `settings`, `random`: the size of a run, and its seed.
//! - `run_directory`, `database`, `proxy`, `node`: the processes of a run. All end with it.
//! - `http_client`, `history`, `workload`: the clients.
//! - `faults`, `fault_injector`: the faults.
//! - `evidence`, `snapshot`, `checker`, `checker_tests`: the guarantees, and corruptions that are detected.
//! - `chaos_run`: one run.
//!
//! `cargo xtask chaos --store postgres` and `cargo xtask test --only fleet` run it.

mod chaos_run;
mod checker;
mod checker_tests;
mod database;
mod evidence;
mod fault_injector;
mod faults;
mod history;
mod http_client;
mod node;
mod proxy;
mod random;
mod run_directory;
mod settings;
mod snapshot;
mod workload;

use settings::ChaosSettings;

#[test]
#[ignore = "takes minutes; run `cargo xtask test --only fleet`"]
fn nothing_is_lost_or_repeated() {
    for settings in ChaosSettings::runs() {
        let violations = chaos_run::run(&settings);
        let text: String = violations.iter().map(|found| format!("\n  {found}")).collect();
        assert!(violations.is_empty(), "seed {}:{text}", settings.seed);
    }
}
