//! The subcommands, one file each.

use std::ffi::OsStr;

use clap::Args as _;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};

macro_rules! subcommands {
    ($($(#[$doc:meta])* $module:ident :: $variant:ident($args:ident)),* $(,)?) => {
        $(pub(crate) mod $module;)*

        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Subcommand {
            $($(#[$doc])* $variant($module::$args),)*
        }

        impl Subcommand {
            /// Adds the subcommand with this name and its options. Returns `None` if there is none.
            pub(crate) fn add_named(command: clap::Command, name: &OsStr) -> Option<clap::Command> {
                $(let own_name = stringify!($module).trim_start_matches("r#");
                if name == own_name {
                    let subcommand = clap::Command::new(own_name);
                    return Some(command.subcommand($module::$args::augment_args(subcommand)));
                })*
                None
            }

            pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
                match self {
                    $(Self::$variant(args) => args.run(context).await,)*
                }
            }
        }
    };
}

subcommands! {
    exec::Exec(ExecArgs),
    run::Run(RunArgs),
    ps::Ps(PsArgs),
    tree::Tree(TreeArgs),
    show::Show(ShowArgs),
    logs::Logs(LogsArgs),
    events::Events(EventsArgs),
    wait::Wait(WaitArgs),
    send::Send(SendArgs),
    stop::Stop(StopArgs),
    answer::Answer(AnswerArgs),
    inbox::Inbox(InboxArgs),
    approve::Approve(ApproveArgs),
    resume::Resume(ResumeArgs),
    agents::Agents(AgentsArgs),
    trust::Trust(TrustArgs),
    top::Top(TopArgs),
    serve::Serve(ServeArgs),
    dashboard::Dashboard(DashboardArgs),
    token::Token(TokenArgs),
    sessions::Sessions(SessionsArgs),
    close::Close(CloseArgs),
    nodes::Nodes(NodesArgs),
    drain::Drain(DrainArgs),
    r#move::Move(MoveArgs),
    require::Require(RequireArgs),
    prune::Prune(PruneArgs),
    store::Store(StoreArgs),
    metrics::Metrics(MetricsArgs),
    doctor::Doctor(DoctorArgs),
    config::Config(ConfigArgs),
    daemon::Daemon(DaemonArgs),
    mcp::Mcp(McpArgs),
    acp::Acp(AcpArgs),
    demo::Demo(DemoArgs),
    completions::Completions(CompletionsArgs),
}

impl Subcommand {
    pub(crate) fn runs_daemon(&self) -> bool {
        match self {
            Self::Daemon(daemon) => daemon.is_foreground(),
            Self::Serve(_) => true,
            _ => false,
        }
    }
}
