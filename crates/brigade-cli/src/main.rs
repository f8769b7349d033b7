//! The `brigade` command.
//!
//! Every subcommand is a file in `commands`, holding its arguments (whose doc comments are its help)
//! and its behaviour. Around them: [`context`] (options, the daemon), [`workspace`] (which session is
//! meant), [`config`] (the user's file), [`attach`] (staying with a command), [`lease`] (not missing its output), [`byte_forward`] and [`feed`]
//! (sending it bytes and lines), [`output`] (what it wrote), [`live`] (a tree of agents as it works), [`transcript`] (what one
//! of them said), [`models`] (whom they ask), [`telemetry`] (what is seen of
//! them from outside), [`exit`] (what the exit code says), [`show`] and [`span`] (how things look).

mod attach;
mod byte_forward;
mod call_card;
mod config;
mod config_error;
mod configured_models;
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
mod stdin_forward;
mod styled_line;
mod subcommands;
mod telemetry;
mod top_view;
mod transcript;
mod workspace;

use clap::Parser;

use crate::context::{CliContext, GlobalArgs};
use crate::exit_code::CliExitCode;
use crate::subcommands::Subcommand;

/// Background work that survives: hand a command to something that outlives your session, and get the
/// true result back.
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
  brigade exec -- cargo test         run it, see it through, exit with its code
  brigade exec --detach --name Tests -- cargo test
  brigade ps                         what runs here
  brigade logs -f Tests              its output as it comes
  brigade wait Tests                 wait for it; the exit code is its own
  brigade stop Tests                 end it with all that came of it
  brigade run 'Explain this repo'    give an agent a task

Exit codes:
  0    it succeeded                  124  time is up
  2    usage                         125  Brigade itself failed
  120  it failed otherwise           126  forbidden
  121  it was cancelled              127  not found
  122  a budget was spent            130  left with a third Ctrl-C
  123  it waits for an answer
  Of a command its own code, or 128 and the number of the signal.";

fn main() -> std::process::ExitCode {
    // Where the companion binary cannot be executed, this program is its own shim.
    brigade_process::companion::run_shim_if_requested();
    if subcommands::daemon::is_detached(std::env::args_os()) {
        brigade_process::machine_identity::close_inherited_descriptors();
    }
    let parsed = BrigadeArgs::try_parse().unwrap_or_else(|error| exit_with_usage_error(&error));
    let exit = match CliContext::new(parsed.global_args) {
        Ok(context) => run_subcommand(parsed.subcommand, context),
        Err(error) => error.report(),
    };
    exit.into()
}

/// Says what is wrong with the arguments, and of the commonest mistake what would be right.
fn exit_with_usage_error(error: &clap::Error) -> ! {
    let is_exec = std::env::args_os().nth(1).is_some_and(|word| word == "exec");
    let unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
    if is_exec && unknown {
        let _ = error.print();
        render::print_note(
            "the command and its arguments stand after `--`: brigade exec -- make -j4",
        );
        std::process::exit(error.exit_code());
    }
    error.exit()
}

fn run_subcommand(command: Subcommand, context: CliContext) -> CliExitCode {
    if command.runs_daemon()
        && let Err(error) = subcommands::daemon::harden()
    {
        return exit_code::CliError::from(error).report();
    }
    let mut runtime = if command.runs_daemon() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit_code::CliError::from(error).report(),
    };
    let exit = match runtime.block_on(command.run(&context)) {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    };
    // A blocked read of a terminal must not keep the program.
    runtime.shutdown_background();
    exit
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{path}: a terminal tears this apart: {line}");
        }
        for below in command.get_subcommands() {
            check(below, &path);
        }
    }

    #[test]
    fn examples_fit_a_terminal() {
        check(&BrigadeArgs::command(), "");
    }

    #[test]
    fn the_arguments_are_sound() {
        BrigadeArgs::command().debug_assert();
    }
}
