//! What to say of an execution whose shim is gone, or of which there is nothing left.

use std::io;
use std::path::PathBuf;

use brigade_model::command::{End, EndedHow};
use brigade_model::outcome::Failure;
use brigade_process::control_group;
use brigade_process::orphans::{DeadShim, Remains, end_orphans};
use brigade_process::{Found, Record, Shim, find};

use super::places::Execution;
use super::report::{CommandNames, end_of, names, verified};

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
    pub(crate) names: CommandNames,
    /// Whether it is known to have been executed: without a claim or a directory it cannot be told.
    pub(crate) was_begun: bool,
    /// Whether its shim was held until it died just now.
    pub(crate) saw_it_die: bool,
}

impl Sought {
    /// Looks for it, and ends what is left of one whose shim is dead, which takes a while. An error
    /// means that it could not be looked: nothing follows from it.
    pub(crate) fn settle(&self) -> io::Result<Settled> {
        Ok(match find(&self.dir, &self.boot)? {
            Found::Alive(shim) => Settled::Alive(shim),
            Found::NeverBegan => Settled::NeverBegan,
            Found::Finished(record) => {
                match end_of(&record, &self.dir, &self.names, &record.survivors) {
                    Some(end) => Settled::Ended(end),
                    None => Settled::Ended(self.lost("its shim finished without an ending", None)?),
                }
            }
            Found::Abandoned { record: Some(record), evidence } => {
                Settled::Ended(self.abandoned(&record, &evidence)?)
            }
            Found::Abandoned { record: None, evidence } => {
                Settled::Ended(self.lost(&evidence, None)?)
            }
            Found::Unclaimed => self.missing("its claim is gone")?,
            Found::Vanished => self.missing("its directory is gone")?,
        })
    }

    /// Never begun, unless it is known to have been, or something of it runs.
    fn missing(&self, evidence: &str) -> io::Result<Settled> {
        let remains = self.end_orphans(None)?;
        // One process is a shim that comes too late; it and its command are two.
        if self.was_begun || remains.found > 1 {
            return Ok(Settled::Ended(lost(evidence, &remains)));
        }
        Ok(Settled::NeverBegan)
    }

    /// The shim is dead. The command's ending may be known all the same.
    fn abandoned(&self, record: &Record, evidence: &str) -> io::Result<End> {
        if record.ending.is_some() {
            let remains = self.end_orphans(Some(record))?;
            if let Some(mut end) = end_of(record, &self.dir, &self.names, &remains.survivors) {
                if !remains.unknown.is_empty() {
                    end.verified = verified(left_names(&remains));
                }
                return Ok(end);
            }
        }
        self.lost(evidence, Some(record))
    }

    /// Nobody can say how it ended. Whatever is left of it can no longer be followed, so it is ended.
    fn lost(&self, evidence: &str, record: Option<&Record>) -> io::Result<End> {
        Ok(lost(evidence, &self.end_orphans(record)?))
    }

    fn end_orphans(&self, record: Option<&Record>) -> io::Result<Remains> {
        // Finds what left its session and wiped its environment too, where the command had a group.
        if let Err(error) = control_group::kill(&self.dir) {
            tracing::debug!(%error, "the control group of a command is gone");
        }
        let leaders = record.filter(|_| self.saw_it_die).map(Record::leaders).unwrap_or_default();
        let mark = self.execution.mark();
        let id = record.map(|record| record.shim);
        end_orphans(&DeadShim { mark: &mark, id, died_now: &leaders })
    }
}

fn lost(evidence: &str, remains: &Remains) -> End {
    let failure =
        Failure::Lost { by: "the runtime that looked for it".into(), evidence: evidence.into() };
    let verified = verified(left_names(remains));
    End { how: EndedHow::Failed { failure, partial: None }, verified }
}

/// The processes that are left, and those of which nobody can say whether they are.
fn left_names(remains: &Remains) -> Vec<String> {
    let unknown = names(&remains.unknown).into_iter();
    let unknown =
        unknown.map(|name| format!("{name}, which may be another's: it hides its environment"));
    names(&remains.survivors).into_iter().chain(unknown).collect()
}
