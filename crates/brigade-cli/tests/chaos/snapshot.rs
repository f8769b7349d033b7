//! Reads the stored state after a run, from the tables and from the feed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use brigade_model::event::Event;
use brigade_model::ids::Owner;
use brigade_model::outcome::Outcome;
use brigade_model::work::Work;
use brigade_protocol::requests::EventItem;

use crate::database::ReplicatedDatabase;
use crate::evidence::{
    Effect, EventFact, EventPlace, RunEnding, StoredEvent, StoredLane, StoredSession,
};

/// The sessions that do not exist before the run have names with this prefix.
pub(crate) const SESSION_PREFIX: &str = "s-";

/// The rows of a statement, as texts.
type Rows = Vec<Vec<String>>;

/// Reads the rows of a statement from the primary.
pub(crate) fn read_rows(database: &ReplicatedDatabase, sql: &str) -> Result<Rows, String> {
    let text = database.query(sql)?;
    Ok(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

fn number<N: std::str::FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

pub(crate) fn read_sessions(database: &ReplicatedDatabase) -> Vec<StoredSession> {
    let sql = "SELECT key, name, epoch, seq FROM brigade.sessions ORDER BY key";
    let rows = read_rows(database, sql).expect("the database answers");
    let session = |row: Vec<String>| StoredSession {
        key: number(&row[0]),
        name: row[1].clone(),
        epoch: number(&row[2]),
        seq: number(&row[3]),
    };
    rows.into_iter().map(session).collect()
}

pub(crate) fn read_lanes(database: &ReplicatedDatabase) -> Vec<StoredLane> {
    let sql = "SELECT lane, head FROM brigade.lanes ORDER BY lane";
    let rows = read_rows(database, sql).expect("the database answers");
    let lane = |row: Vec<String>| StoredLane { lane: number(&row[0]), head: number(&row[1]) };
    rows.into_iter().map(lane).collect()
}

/// Reads all events. The facts are those of the feed.
pub(crate) fn read_events(
    database: &ReplicatedDatabase,
    feed: &[(EventPlace, EventFact)],
) -> Vec<StoredEvent> {
    let mut facts: BTreeMap<EventPlace, &EventFact> = BTreeMap::new();
    for (place, fact) in feed {
        facts.insert(*place, fact);
    }
    let sql = "SELECT lane, pos, session, seq, after_lane, after_pos FROM brigade.events";
    let rows = read_rows(database, sql).expect("the database answers");
    let place =
        |lane: &str, position: &str| EventPlace { lane: number(lane), position: number(position) };
    let event = |row: Vec<String>| {
        let own = place(&row[0], &row[1]);
        StoredEvent {
            place: own,
            session: number(&row[2]),
            seq: number(&row[3]),
            after: (!row[4].is_empty()).then(|| place(&row[4], &row[5])),
            fact: facts.get(&own).map_or(EventFact::Other, |fact| (*fact).clone()),
        }
    };
    rows.into_iter().map(event).collect()
}

/// Parses the lines of `brigade events --all --json`.
pub(crate) fn parse_feed(text: &str) -> Vec<(EventPlace, EventFact)> {
    let items = text.lines().map(|line| serde_json::from_str::<EventItem>(line).expect(line));
    let item = |item: EventItem| match item {
        EventItem::Event { position, lane, event, .. } => {
            let place = EventPlace { lane: i64::from(lane.0), position };
            (place, read_fact(&event))
        }
        EventItem::Gap { .. } => panic!("nothing was removed from the feed"),
    };
    items.map(item).collect()
}

fn read_fact(event: &Event) -> EventFact {
    match event {
        Event::Spawned(spawned) => EventFact::Spawned {
            task: u64::from(spawned.no.get()),
            key: spawned.spec.key.as_ref().map(|key| key.as_str().to_owned()),
            parent: match spawned.owner {
                Owner::Task(task) => Some(u64::from(task.get())),
                Owner::Session => None,
            },
            is_process: matches!(spawned.spec.work, Work::Process(_)),
        },
        Event::Started { no, attempt, .. } => {
            EventFact::Started { task: u64::from(no.get()), attempt: u64::from(attempt.0) }
        }
        Event::RunOpened { no, .. } => EventFact::RunOpened { task: u64::from(no.get()) },
        Event::Ended { no, run, outcome, .. } => EventFact::Ended {
            task: u64::from(no.get()),
            run: u64::from(run.0),
            ending: match &**outcome {
                Outcome::Succeeded { .. } => RunEnding::Succeeded,
                Outcome::Cancelled(_) => RunEnding::Cancelled,
                Outcome::Failed(_) => RunEnding::Failed(outcome.to_string()),
            },
        },
        Event::Collected { runs } => EventFact::Collected {
            runs: runs.iter().map(|run| (u64::from(run.no.get()), u64::from(run.run.0))).collect(),
        },
        Event::StopRequested { no, .. } => EventFact::StopRequested { task: u64::from(no.get()) },
        Event::MessageSent(message) => EventFact::MessageSent {
            message: message.no.0,
            to: message.to.task().map(|task| u64::from(task.get())),
            key: message.key.as_ref().map(|key| key.key.as_str().to_owned()),
        },
        Event::MessageDelivered { message, .. } => {
            EventFact::MessageDelivered { message: message.0 }
        }
        _ => EventFact::Other,
    }
}

/// Reads the lines of all performers.
pub(crate) fn read_effects(directory: &Path) -> Vec<Effect> {
    let files = fs::read_dir(directory).expect("it is ours").map_while(Result::ok);
    let texts = files.map(|file| fs::read_to_string(file.path()).expect("it is text"));
    let parse = |line: &str| Effect::parse(line).unwrap_or_else(|| panic!("a line: {line:?}"));
    texts.flat_map(|text| text.lines().map(parse).collect::<Vec<_>>()).collect()
}
