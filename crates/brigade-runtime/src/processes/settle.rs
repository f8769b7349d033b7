//! What to say of an execution whose shim is gone, or of which there is nothing left.

use std::io;
use std::path::PathBuf;

use brigade_model::command::{End, EndedHow};
use brigade_model::outcome::Failure;
use brigade_process::orphans::end_orphans;
use brigade_process::{Found, Record, Shim, Survivor, find};

use super::places::Execution;
use super::report::{end_of, names, verified};

/// What became of it.
#[derive(Debug)]
pub(crate) enum Settled {
    Alive(Shim),
    Ended(End),
    NeverBegan,
}

/// An execution to look for.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    pub(crate) execution: Execution,
    pub(crate) dir: PathBuf,
    pub(crate) boot: [u8; 16],
    /// Whether there must be a directory: none is not always one that was never made.
    pub(crate) was_begun: bool,
}

impl Sought {
    /// Looks for it, and ends what is left of one whose shim is dead, which takes a while.
    pub(crate) fn settle(&self) -> io::Result<Settled> {
        Ok(match find(&self.dir, &self.boot)? {
            Found::Alive(shim) => Settled::Alive(shim),
            Found::NeverBegan => Settled::NeverBegan,
            Found::Finished(record) => match end_of(&record, &self.dir, &record.survivors) {
                Some(end) => Settled::Ended(end),
                None => Settled::Ended(self.lost("its shim finished without an ending", None)),
            },
            Found::Abandoned { record: Some(record), evidence } => {
                Settled::Ended(self.abandoned(&record, &evidence))
            }
            Found::Abandoned { record: None, evidence } => {
                Settled::Ended(self.lost(&evidence, None))
            }
            Found::Vanished if self.was_begun => {
                Settled::Ended(self.lost("its directory is gone", None))
            }
            Found::Vanished => Settled::NeverBegan,
        })
    }

    /// The shim is dead. The command's ending may be known all the same.
    fn abandoned(&self, record: &Record, evidence: &str) -> End {
        if record.ending.is_some() {
            let survivors = self.end_orphans(Some(record));
            if let Some(end) = end_of(record, &self.dir, &survivors) {
                return end;
            }
        }
        self.lost(evidence, Some(record))
    }

    /// Nobody can say how it ended. Whatever is left of it can no longer be followed, so it is ended.
    fn lost(&self, evidence: &str, record: Option<&Record>) -> End {
        let survivors = self.end_orphans(record);
        let failure = Failure::Lost {
            by: "the runtime that looked for it".into(),
            evidence: evidence.into(),
        };
        End {
            how: EndedHow::Failed { failure, partial: None },
            verified: verified(names(&survivors)),
        }
    }

    fn end_orphans(&self, record: Option<&Record>) -> Vec<Survivor> {
        end_orphans(&self.execution.mark(), &self.boot, record)
    }
}
