//! Everything that a daemon can be asked, a file each.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::{Ask, Items, Way, raw};
use crate::desk::Desk;

/// Declares the questions, each with its module.
macro_rules! requests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        $(mod $module; pub use $module::*;)*

        /// A question on its way.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Request {
            $($name($name),)*
        }

        $(impl From<$name> for Request {
            fn from(asked: $name) -> Self {
                Self::$name(asked)
            }
        })*

        impl Request {
            /// Finds the answer, whatever it is about.
            pub(crate) async fn answer(
                self,
                desk: &Desk,
                way: Way,
            ) -> Result<Box<RawValue>, Refusal> {
                match self {
                    $(Self::$name(asked) => {
                        raw(&Ask::answer(asked, desk, &Items::new(way)).await?)
                    })*
                }
            }
        }
    };
}

requests! {
    agents::Agents,
    answer::Answer,
    approvals::Approvals,
    approve::Approve,
    below::Below,
    close::Close,
    events::Events,
    exec::Exec,
    follow::Follow,
    heed::Heed,
    inbox::Inbox,
    leave::Leave,
    lease::RenewLease,
    list::List,
    list_pages::ListPages,
    metrics::Metrics,
    prune::Prune,
    read::Read,
    resume::Resume,
    revoke::Revoke,
    run::Run,
    search::Search,
    send::Send,
    sessions::Sessions,
    show::Show,
    status::Status,
    stop::Stop,
    transcript::Transcript,
    trust_grant::GrantTrust,
    trust_list::ListTrust,
    trust_revoke::RevokeTrust,
    trust_show::ShowTrust,
    wait::Wait,
    write_input::WriteInput,
}

impl Request {
    /// Whether it does no harm to ask it twice.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::Exec(exec) => exec.key.is_some(),
            Self::Run(run) => run.key.is_some(),
            Self::Inbox(inbox) => !inbox.take,
            Self::Approve(approve) => approve.call.is_some(),
            Self::Send(_)
            | Self::Answer(_)
            | Self::Resume(_)
            | Self::Revoke(_)
            | Self::Leave(_) => false,
            _ => true,
        }
    }

    /// Whether it is the same in every version of the protocol.
    pub(crate) fn is_of_all_versions(&self) -> bool {
        matches!(self, Self::Leave(_) | Self::Status(_))
    }

    /// Whether it may take for ever to answer.
    pub(crate) fn lasts(&self) -> bool {
        matches!(
            self,
            Self::Events(_) | Self::Follow(_) | Self::Heed(_) | Self::Wait(_) | Self::WriteInput(_)
        )
    }
}
