//! The subcommands, a file each.

use crate::context::Context;
use crate::exit::{Exit, Failure};

macro_rules! commands {
    ($($(#[$doc:meta])* $module:ident :: $name:ident),* $(,)?) => {
        $(pub(crate) mod $module;)*

        #[derive(Debug, clap::Subcommand)]
        #[expect(clippy::large_enum_variant, reason = "a program has one of them")]
        pub(crate) enum Command {
            $($(#[$doc])* $name($module::$name),)*
        }

        impl Command {
            pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
                match self {
                    $(Self::$name(command) => command.run(context).await,)*
                }
            }
        }
    };
}

commands! {
    exec::Exec,
    run::Run,
    ps::Ps,
    tree::Tree,
    show::Show,
    logs::Logs,
    events::Events,
    wait::Wait,
    send::Send,
    stop::Stop,
    answer::Answer,
    inbox::Inbox,
    approve::Approve,
    resume::Resume,
    agents::Agents,
    trust::Trust,
    top::Top,
    sessions::Sessions,
    close::Close,
    prune::Prune,
    metrics::Metrics,
    doctor::Doctor,
    #[command(name = "config")]
    config::ShowConfig,
    daemon::Daemon,
    mcp::Mcp,
    demo::Demo,
    completions::Completions,
}

impl Command {
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self, Self::Daemon(daemon) if daemon.is_foreground())
    }
}
