//! The `brigade` command.
//!
//! Each subcommand is a file in [`subcommands`]. It holds the arguments, whose doc comments are the
//! help text, and the behaviour. The other modules serve several subcommands:
//!
//! - [`context`]: global options and calls to the daemon; [`workspace`]: the session of a
//!   directory; [`config`], [`config_error`] and [`configured_models`]: the user's configuration
//!   and its models. [`configured_store`] and [`store_binding`]: the store of the daemon, and the
//!   store to which a state directory belongs. [`configured_server`], [`server_url`] and
//!   [`server_token`]: the servers in place of this machine's daemon; [`server_stream`]: a connection
//!   to one.
//! - [`attach`]: staying with a task; [`reader_lease`]: output without gaps; [`byte_forward`] and
//!   [`stdin_forward`]: input as bytes and as lines; [`output_printer`]: the output of a process.
//! - [`live_view`]: the task tree of a run; [`top_view`]: the full-screen task list;
//!   [`transcript`]: the transcript of an agent; [`pending_input`] and [`call_card`]: questions and
//!   pending approvals.
//! - [`limit_args`], [`override_args`], [`sandbox_args`]: options that `exec` and `run` share.
//! - [`exit_code`], [`render`], [`styled_line`], [`duration`]: exit codes, errors and text.
//! - [`telemetry`]: logs, spans and metrics of the daemon.

mod attach;
mod byte_forward;
mod call_card;
mod config;
mod config_error;
mod config_values;
mod configured_limits;
mod configured_models;
mod configured_node;
mod configured_notifiers;
mod configured_server;
mod configured_store;
mod context;
mod duration;
mod exit_code;
mod limit_args;
mod live_view;
mod output_printer;
mod override_args;
mod pending_input;
mod reader_lease;
mod render;
mod sandbox_args;
mod server_stream;
mod server_token;
mod server_url;
mod stdin_forward;
mod store_binding;
mod styled_line;
mod subcommands;
mod task_author;
mod telemetry;
mod top_view;
mod transcript;
mod workspace;

use std::ffi::{OsStr, OsString};

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use crate::context::{CliContext, GlobalArgs};
use crate::exit_code::CliExitCode;
use crate::subcommands::Subcommand;

/// Background work that survives: run a process or an agent that outlives your terminal, and get
/// its result
#[derive(Debug, Parser)]
#[command(name = "brigade", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct BrigadeArgs {
    #[command(flatten)]
    global_args: GlobalArgs,
    #[command(subcommand)]
    subcommand: Subcommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade exec -- cargo test         run a process; exit with its exit code
  brigade exec --detach --name Tests -- cargo test
  brigade ps                         list the tasks of this workspace
  brigade logs -f Tests              follow the output
  brigade wait Tests                 wait; exit with the task's exit code
  brigade stop Tests                 stop a task and its descendants
  brigade run 'Explain this repo'    give an agent a task

Exit codes:
  0    success                       123  input required
  2    usage                         124  timed out
  119  state directory taken         125  internal error
  120  task failed                   126  forbidden
  121  task cancelled                127  not found
  122  budget exhausted              130  detached by a third Ctrl-C
  A process's own exit code is passed on; 128 + N after signal N.";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // On systems that cannot execute the companion binary, this program is its own shim.
    brigade_process::companion::run_shim_if_requested();
    if subcommands::daemon::is_detached(std::env::args_os()) {
        brigade_process::hardening::close_inherited_descriptors();
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let parsed = parse_args(&words).unwrap_or_else(|error| exit_with_usage_error(&error));
    let exit = match CliContext::new(parsed.global_args) {
        Ok(context) => run_subcommand(parsed.subcommand, context),
        Err(error) => error.report(),
    };
    exit.into()
}

fn parse_args(words: &[OsString]) -> Result<BrigadeArgs, clap::Error> {
    let mut command = command_for(words);
    let mut matches = command.try_get_matches_from_mut(words)?;
    BrigadeArgs::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns the definition of the command line. If its first word decides what happens, the
/// definition has no other subcommands: to define all of them takes longer than to run one.
fn command_for(words: &[OsString]) -> clap::Command {
    let Some(first) = words.get(1) else { return BrigadeArgs::command() };
    if first == "--version" || first == "-V" {
        return bare_command();
    }
    command_of_subcommand(first).unwrap_or_else(BrigadeArgs::command)
}

fn command_of_subcommand(name: &OsStr) -> Option<clap::Command> {
    Subcommand::add_named(GlobalArgs::augment_args(bare_command()), name)
}

fn bare_command() -> clap::Command {
    clap::Command::new("brigade").version(env!("CARGO_PKG_VERSION"))
}

/// Prints a usage error. For an `exec` without `--`, it also prints the correct form.
fn exit_with_usage_error(error: &clap::Error) -> ! {
    let is_exec = std::env::args_os().nth(1).is_some_and(|word| word == "exec");
    let unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
    if is_exec && unknown {
        let _ = error.print();
        render::print_note("put the command line after `--`: brigade exec -- make -j4");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

fn run_subcommand(subcommand: Subcommand, context: CliContext) -> CliExitCode {
    if subcommand.runs_daemon()
        && let Err(error) = subcommands::daemon::harden()
    {
        return exit_code::CliError::from(error).report();
    }
    let mut runtime = if subcommand.runs_daemon() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit_code::CliError::from(error).report(),
    };
    let exit = match runtime.block_on(subcommand.run(&context)) {
        Ok(exit) => exit,
        Err(error) => error.report(),
    };
    // A blocked read of a terminal must not delay the exit.
    runtime.shutdown_background();
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{path}: longer than 80 columns: {line}");
        }
        for subcommand in command.get_subcommands() {
            check(subcommand, &path);
        }
    }

    #[test]
    fn examples_fit_a_terminal() {
        check(&BrigadeArgs::command(), "");
    }

    /// Returns all texts that a definition renders for a subcommand, and an error of each kind.
    fn render(mut command: clap::Command, name: &str) -> Vec<String> {
        let lines = [
            &[name, "--help"][..],
            &[name, "-h"],
            &[name, "--no-such-option"],
            &[name, "--stat", "x"],
            &[name, "--json", "--json"],
            &[name, "--version"],
            &[name, "no-such-word", "no-such-word", "no-such-word"],
            &[name, "help"],
        ];
        let texts = lines.map(|line| {
            let words = ["brigade"].iter().chain(line);
            match command.try_get_matches_from_mut(words) {
                Ok(matches) => format!("{:?}", BrigadeArgs::from_arg_matches(&matches).is_ok()),
                Err(error) => error.render().ansi().to_string(),
            }
        });
        texts.to_vec()
    }

    #[test]
    fn a_subcommand_alone_is_the_same_as_among_all() {
        let all = BrigadeArgs::command();
        let mut count = 0;
        for subcommand in all.get_subcommands() {
            let name = subcommand.get_name();
            let alone = command_of_subcommand(OsStr::new(name));
            let alone = alone.unwrap_or_else(|| panic!("{name}: no definition"));
            assert_eq!(alone.get_subcommands().count(), 1);
            assert_eq!(render(alone, name), render(BrigadeArgs::command(), name), "{name}");
            count += 1;
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn the_version_needs_no_subcommands() {
        for line in [&["--version"][..], &["-V"], &["--version", "exec"], &["-V", "--no-such"]] {
            let words: Vec<OsString> = ["brigade"].iter().chain(line).map(Into::into).collect();
            let error = command_for(&words).try_get_matches_from(&words).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayVersion, "{words:?}");
            let all = BrigadeArgs::command().try_get_matches_from(&words).unwrap_err();
            assert_eq!(error.to_string(), all.to_string(), "{words:?}");
        }
    }

    #[test]
    fn other_first_words_get_the_whole_definition() {
        for words in [&["brigade"][..], &["brigade", "help"], &["brigade", "--json", "ps"]] {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            assert!(command_for(&words).get_subcommands().count() > 30, "{words:?}");
        }
    }

    #[test]
    fn the_arguments_are_consistent() {
        BrigadeArgs::command().debug_assert();
    }
}
