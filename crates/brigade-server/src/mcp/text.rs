//! The output of tasks as text, and other small texts.

use brigade_delegation::output::{OutputTail, TAIL_BYTES};
use brigade_delegation::span::truncate_line;
use brigade_model::refusal::Refusal;
use jiff::Timestamp;

use super::summary::summary;
use super::tool::Call;
use crate::info::TaskInfo;
use crate::requests::{Beginning, OutputPage, Read, Which};

const LAST_LINE_BYTES: usize = 1_000;
const LAST_LINE_SHOWN: usize = 200;

/// Reads the end of a command's output.
pub(super) async fn read_tail(call: &Call, address: &str) -> Result<OutputTail, Refusal> {
    let page = end(call, address, TAIL_BYTES).await?;
    Ok(OutputTail::of(&page.text(), page.from))
}

/// What there is to see of it now, in a line.
pub(super) async fn glance(call: &Call, info: &TaskInfo) -> Option<String> {
    match info.is_agent() {
        true => summary(call, info).glance(),
        false => last_line(call, &call.address(info)).await,
    }
}

async fn last_line(call: &Call, address: &str) -> Option<String> {
    let page = end(call, address, LAST_LINE_BYTES).await.ok()?;
    let text = page.text();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(truncate_line(line, LAST_LINE_SHOWN))
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
    fn words_for_a_shell() {
        assert_eq!(quoted("/srv/a-b"), "/srv/a-b");
        assert_eq!(quoted("it's mine"), r"'it'\''s mine'");
        assert_eq!(quoted(""), "''");
    }
}
