//! How tasks and their output look to a model: short, and never all of it.

use std::fmt::Write;
use std::iter;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brigade_model::refusal::Refusal;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::agents;
use super::tool::Call;
use crate::info::{ConversationState, TaskInfo};
use crate::requests::{Beginning, OutputPage, Read, Which};

/// What of a command's output is shown without being asked for.
const TAIL_BYTES: usize = 4_000;
const TAIL_LINES: usize = 40;
const COMMAND_SHOWN: usize = 80;
const LAST_LINE_BYTES: usize = 1_000;
const LAST_LINE_SHOWN: usize = 200;

/// `process:4 "Tests" succeeded (exit code 0) after 3.2s`.
pub(super) fn headline(call: &Call, info: &TaskInfo) -> String {
    let mut line = call.address(info);
    if let Some(name) = &info.name {
        let _ = write!(line, " {name:?}");
    }
    let detail = info.detail.as_deref().filter(|detail| *detail != info.state);
    match (detail, info.living) {
        (Some(detail), false) => _ = write!(line, " {detail}"),
        (Some(detail), true) => _ = write!(line, " {} ({detail})", info.state),
        (None, _) => _ = write!(line, " {}", info.state),
    }
    match (info.exit_code, info.signal) {
        (Some(code), _) if !line.contains("exit code") => _ = write!(line, " (exit code {code})"),
        (_, Some(signal)) if !line.contains("signal") => _ = write!(line, " (signal {signal})"),
        _ => {}
    }
    let how = if info.living { "for" } else { "after" };
    let _ = write!(line, " {how} {}", span(elapsed(info)));
    if let Some(standing) = agents::standing(info) {
        let _ = write!(line, ", {standing}");
    }
    if is_of_another(info) {
        line.push_str(", of another conversation");
    }
    if info.collected_before {
        line.push_str(" (its result had been returned before)");
    }
    line
}

/// Whether it was started in another conversation, which has not lapsed.
pub(super) fn is_of_another(info: &TaskInfo) -> bool {
    info.conversation.as_ref().is_some_and(|one| one.state == ConversationState::Other)
}

/// The headline with what it does; of an agent also what it says and asks.
pub(super) fn listed(call: &Call, info: &TaskInfo) -> String {
    let line = format!("{}: {}", headline(call, info), clip(&info.what, COMMAND_SHOWN));
    if !info.is_agent() {
        return line;
    }
    let lines: Vec<String> = iter::once(line).chain(agents::remarks(call, info)).collect();
    lines.join("\n")
}

/// What a program reads of a task.
pub(super) fn structured(call: &Call, info: &TaskInfo) -> Value {
    let mut value = json!({
        "address": call.address(info),
        "session": info.session,
        "state": info.state,
        "living": info.living,
        "elapsed_ms": elapsed(info),
    });
    let what = if info.is_agent() { "task" } else { "command" };
    value[what] = json!(clip(&info.what, 1_000));
    if info.is_agent() {
        agents::add_to(&mut value, info);
    }
    let optional = [
        ("name", json!(info.name)),
        ("detail", json!(info.detail)),
        ("exit_code", json!(info.exit_code)),
        ("signal", json!(info.signal)),
        ("other_conversation", if is_of_another(info) { json!(true) } else { Value::Null }),
        ("returned_before", if info.collected_before { json!(true) } else { Value::Null }),
    ];
    for (key, part) in optional {
        if !part.is_null() {
            value[key] = part;
        }
    }
    value
}

/// The end of a command's output.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) text: String,
    total: u64,
    before: u64,
}

impl Tail {
    pub(super) async fn read(call: &Call, address: &str) -> Result<Self, Refusal> {
        let page = end(call, address, TAIL_BYTES).await?;
        let whole = page.text();
        let mut text = last_lines(&whole, TAIL_LINES);
        if page.from > 0 && text.len() == whole.len() {
            // A line that is there in part only, unless it is most of what there is.
            text = text
                .split_once('\n')
                .map_or(text, |(part, rest)| if part.len() < TAIL_BYTES / 4 { rest } else { text });
        }
        let before = page.from + (whole.len() - text.len()) as u64;
        Ok(Self { text: text.to_owned(), total: page.total, before })
    }

    /// With the way to read what comes before it.
    pub(super) fn shown(&self, address: &str) -> String {
        let text = self.text.trim_end_matches('\n');
        if self.before == 0 {
            return text.to_owned();
        }
        format!(
            "[... {} bytes before this: read_output with task {address:?} and from 0 ...]\n{text}",
            self.before
        )
    }

    pub(super) fn structured(&self) -> Value {
        json!({ "text": self.text, "from": self.before, "total_bytes": self.total })
    }
}

fn last_lines(text: &str, most: usize) -> &str {
    let body = text.trim_end_matches('\n');
    match body.rmatch_indices('\n').nth(most - 1) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

/// What there is to see of it now, in a line.
pub(super) async fn glance(call: &Call, info: &TaskInfo) -> Option<String> {
    match info.is_agent() {
        true => agents::glance(info),
        false => last_line(call, &call.address(info)).await,
    }
}

async fn last_line(call: &Call, address: &str) -> Option<String> {
    let page = end(call, address, LAST_LINE_BYTES).await.ok()?;
    let text = page.text();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(clip(line, LAST_LINE_SHOWN))
}

async fn end(call: &Call, address: &str, bytes: usize) -> Result<OutputPage, Refusal> {
    let question = || Read {
        target: call.target(address),
        which: Which::Combined,
        from: Beginning::End(bytes as u64),
        max_bytes: bytes,
    };
    call.line.ask(question).await
}

/// The line for a shell that waits for the task.
pub(super) fn wake_line(call: &Call, info: &TaskInfo) -> String {
    let mut words: Vec<String> = call.options.wake.iter().map(|word| quoted(word)).collect();
    words.push(quoted(&call.address(info)));
    words.join(" ")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The first so many characters of the first line.
pub(super) fn clip(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut clipped: String = line.chars().take(most).collect();
    if clipped.len() < text.trim_end().len() {
        clipped.push_str("..");
    }
    clipped
}

/// Milliseconds from its beginning to its end, or to now.
fn elapsed(info: &TaskInfo) -> u64 {
    info.ended.unwrap_or_else(now).saturating_sub(info.spawned)
}

/// How long nothing has happened to it.
pub(super) fn quiet(info: &TaskInfo) -> u64 {
    now().saturating_sub(info.moved)
}

fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "an age is shown; nothing is decided by it")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(super) fn span(millis: u64) -> String {
    let span = Duration::from_millis(millis);
    match span.as_secs() {
        0 => format!("{millis}ms"),
        secs @ 1..60 => format!("{secs}.{}s", span.subsec_millis() / 100),
        secs @ 60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        secs => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
    }
}

/// A time as the protocol writes it. What no calendar has is shown as the last moment that one has.
pub(super) fn timestamp(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written() {
        for (millis, expect) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ] {
            assert_eq!(timestamp(millis), expect);
        }
    }

    #[test]
    fn spans_are_short() {
        let shown = [5, 1_250, 61_000, 7_260_000].map(span);
        assert_eq!(shown, ["5ms", "1.2s", "1m01s", "2h01m"]);
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("/srv/a-b"), "/srv/a-b");
        assert_eq!(quoted("it's mine"), r"'it'\''s mine'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn the_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb\nc", 3), "a\nb\nc");
        assert_eq!(last_lines("", 3), "");
    }

    #[test]
    fn long_text_is_clipped() {
        assert_eq!(clip("short", 10), "short");
        assert_eq!(clip("two\nlines", 10), "two..");
        assert_eq!(clip("abcdef", 3), "abc..");
    }
}
