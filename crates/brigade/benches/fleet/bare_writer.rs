//! A program without Brigade that writes the same rows to the same tables in the same batches: one
//! transaction each, with prepared and pipelined statements.

use std::time::{Duration, Instant};

use brigade::{Clock, SystemClock};
use futures_util::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::node_process::read_commands;
use crate::{BenchResult, database};

const SESSIONS: usize = 16;

/// The mean rows of one commit, and the mean bytes of their bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitRows {
    pub(crate) sessions: f64,
    pub(crate) new_tasks: f64,
    pub(crate) changed_tasks: f64,
    pub(crate) events: f64,
    pub(crate) spans: f64,
    pub(crate) session_bytes: f64,
    pub(crate) task_bytes: f64,
    pub(crate) event_bytes: f64,
}

impl CommitRows {
    pub(crate) fn to_words(self) -> String {
        let values = [
            self.sessions,
            self.new_tasks,
            self.changed_tasks,
            self.events,
            self.spans,
            self.session_bytes,
            self.task_bytes,
            self.event_bytes,
        ];
        values.map(|value| value.to_string()).join(",")
    }

    fn parse(words: &str) -> BenchResult<Self> {
        let values: Result<Vec<f64>, _> = words.split(',').map(str::parse).collect();
        let values = values?.try_into().map_err(|_| "not the rows of a commit")?;
        let [
            sessions,
            new_tasks,
            changed_tasks,
            events,
            spans,
            session_bytes,
            task_bytes,
            event_bytes,
        ]: [f64; 8] = values;
        Ok(Self {
            sessions,
            new_tasks,
            changed_tasks,
            events,
            spans,
            session_bytes,
            task_bytes,
            event_bytes,
        })
    }
}

/// Writes commits for the times that it is asked for.
pub(crate) async fn run(url: &str, schema: &str, rows: &str) -> BenchResult<()> {
    let (client, _connection) = database::connect(url).await?;
    let mut writer = BareWriter::open(client, schema, CommitRows::parse(rows)?).await?;
    println!("ready");
    let mut lines = read_commands();
    while let Some(line) = lines.recv().await {
        let duration = Duration::from_millis(line.parse()?);
        writer.write_for(duration / 4).await?;
        let (before, began_at) = (writer.written_tasks, Instant::now());
        writer.write_for(duration / 2).await?;
        let (after, took) = (writer.written_tasks, began_at.elapsed());
        writer.write_for(duration / 4).await?;
        println!("{} {}", after - before, took.as_secs_f64());
    }
    Ok(())
}

struct BareWriter {
    client: Client,
    lane: i32,
    /// The keys of the sessions.
    sessions: Vec<i64>,
    rows: CommitRows,
    statements: Vec<Statement>,
    written_tasks: u64,
    changed_tasks: u64,
    written_events: i64,
    commits: u64,
}

/// Counts whole rows of a mean that is not whole.
fn count(mean: f64, commits: u64) -> usize {
    (mean * (commits + 1) as f64) as usize - (mean * commits as f64) as usize
}

fn bodies(count: usize, bytes: f64) -> Vec<Vec<u8>> {
    // The server compresses large values; bodies are smaller than that.
    (0..count).map(|number| vec![number.to_le_bytes()[0]; bytes as usize]).collect()
}

impl BareWriter {
    async fn open(client: Client, schema: &str, rows: CommitRows) -> BenchResult<Self> {
        let sql = |text: &str| text.replace("{schema}", schema);
        let opened = client
            .query_one(&sql("INSERT INTO {schema}.lanes(node) VALUES (0) RETURNING lane"), &[])
            .await?;
        let lane: i32 = opened.try_get(0)?;
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let insert = sql(
                "INSERT INTO {schema}.sessions(id, name, state, lane, epoch, seq, last_lane, last_pos, \
                     opened_at, body) \
                 VALUES (gen_random_uuid(), $1, 0, $2, 1, 1, $2, 0, 0, $3) RETURNING key",
            );
            let name = format!("bare-{lane}-{number}");
            let body = vec![0_u8; rows.session_bytes as usize];
            let row = client.query_one(&insert, &[&name, &lane, &body]).await?;
            sessions.push(row.try_get(0)?);
        }
        let mut statements = Vec::new();
        for text in STATEMENTS {
            statements.push(client.prepare(&sql(text)).await?);
        }
        Ok(Self {
            client,
            lane,
            sessions,
            rows,
            statements,
            written_tasks: 0,
            changed_tasks: 0,
            written_events: 0,
            commits: 0,
        })
    }

    async fn write_for(&mut self, duration: Duration) -> BenchResult<()> {
        let began_at = Instant::now();
        while began_at.elapsed() < duration {
            self.write_commit().await?;
        }
        Ok(())
    }

    /// Returns the session and the number of a task.
    fn place_of(&self, task: u64) -> (i64, i64) {
        let sessions = self.sessions.len() as u64;
        let session = usize::try_from(task % sessions).unwrap_or_default();
        (self.sessions[session], i64::try_from(task / sessions + 1).unwrap_or(i64::MAX))
    }

    async fn write_commit(&mut self) -> BenchResult<()> {
        let (rows, commits, lane) = (self.rows, self.commits, self.lane);
        let now = i64::try_from(SystemClock.now().0)?;
        let new_tasks: Vec<(i64, i64)> = (0..count(rows.new_tasks, commits) as u64)
            .map(|number| self.place_of(self.written_tasks + number))
            .collect();
        let known = self.written_tasks + new_tasks.len() as u64;
        let changes = count(rows.changed_tasks, commits) as u64;
        let changed: Vec<(i64, i64)> = (0..changes)
            .map(|number| self.place_of((self.changed_tasks + number) % known.max(1)))
            .collect();
        let touched = count(rows.sessions, commits).min(self.sessions.len());
        let sessions: Vec<i64> = self.sessions[..touched].to_vec();
        let events = count(rows.events, commits);
        let first = self.written_events + 1;
        let last = self.written_events + i64::try_from(events)?;
        let positions: Vec<i64> = (first..=last).collect();
        let of_session: Vec<i64> =
            (0..events).map(|number| self.sessions[number % self.sessions.len()]).collect();
        let spans: Vec<i64> = sessions.iter().copied().take(count(rows.spans, commits)).collect();
        let (new_sessions, new_numbers): (Vec<i64>, Vec<i64>) = new_tasks.iter().copied().unzip();
        let (old_sessions, old_numbers): (Vec<i64>, Vec<i64>) = changed.iter().copied().unzip();
        let session_bodies = bodies(sessions.len(), rows.session_bytes);
        let new_bodies = bodies(new_tasks.len(), rows.task_bytes);
        let old_bodies = bodies(changed.len(), rows.task_bytes);
        let event_bodies = bodies(events, rows.event_bytes);
        let written = i64::try_from(events)?;
        let parameters: [Vec<&(dyn ToSql + Sync)>; 8] = [
            vec![],
            vec![&lane, &written],
            vec![&sessions, &session_bodies, &lane, &last],
            vec![&new_sessions, &new_numbers, &new_bodies],
            vec![&old_sessions, &old_numbers, &old_bodies, &now],
            vec![&lane, &positions, &of_session, &now, &event_bodies],
            vec![&spans, &lane, &last, &first, &now],
            vec![],
        ];
        // Each future sends its statement when it is polled first, so all are sent in this order.
        let statements = self.statements.iter().zip(&parameters);
        try_join_all(statements.map(|(statement, values)| self.client.execute(statement, values)))
            .await?;
        self.written_tasks = known;
        self.changed_tasks += changes;
        self.written_events = last;
        self.commits += 1;
        Ok(())
    }
}

const STATEMENTS: [&str; 8] = [
    "BEGIN",
    "UPDATE {schema}.lanes SET head = head + $2 WHERE lane = $1",
    "UPDATE {schema}.sessions AS s SET seq = s.seq + 1, last_lane = $3, last_pos = $4, body = d.body \
     FROM unnest($1::bigint[], $2::bytea[]) AS d(key, body) WHERE s.key = d.key",
    "INSERT INTO {schema}.tasks(session, no, owner, owner_run, residency, body) \
     SELECT d.session, d.no, 0, 0, 0, d.body \
     FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS d(session, no, body)",
    "UPDATE {schema}.tasks AS t SET residency = 3, ended_at = $4, body = d.body \
     FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS d(session, no, body) \
     WHERE t.session = d.session AND t.no = d.no",
    "INSERT INTO {schema}.events(lane, pos, session, seq, at, body) \
     SELECT $1, d.pos, d.session, d.pos, $4, d.body \
     FROM unnest($2::bigint[], $3::bigint[], $5::bytea[]) AS d(pos, session, body)",
    "INSERT INTO {schema}.event_spans(session, lane, last_pos, first_pos, at) \
     SELECT d.session, $2, $3, $4, $5 FROM unnest($1::bigint[]) AS d(session)",
    "COMMIT",
];
