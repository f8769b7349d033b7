//! Renders the output of tasks, and other short texts.

use brigade_delegation::output_tail::{OutputTail, TAIL_BYTES};
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_line;
use jiff::Timestamp;

use super::summary::summarize_task;
use super::tool_call::McpCallContext;
use brigade_protocol::RequestClient;
use brigade_protocol::requests::{
    OutputOffset, OutputPageItem, ReadOutputRequest, StreamSelection,
};
use brigade_protocol::task_info::TaskInfo;

const LAST_LINE_BYTES: usize = 1_000;
const LAST_LINE_CHARS: usize = 200;

/// Reads the end of a process's output.
pub(super) async fn read_tail<C: RequestClient>(
    call: &McpCallContext<C>,
    address: &str,
) -> Result<OutputTail, Refusal> {
    let page = read_output_end(call, address, TAIL_BYTES).await?;
    Ok(OutputTail::from_text(&page.text(), page.from))
}

/// Renders the current activity of a task in one line.
pub(super) async fn render_status_line<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Option<String> {
    match info.is_agent() {
        true => summarize_task(call, info).status_line(),
        false => read_last_line(call, &call.address(info)).await,
    }
}

async fn read_last_line<C: RequestClient>(
    call: &McpCallContext<C>,
    address: &str,
) -> Option<String> {
    let page = read_output_end(call, address, LAST_LINE_BYTES).await.ok()?;
    let text = page.text();
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(truncate_line(line, LAST_LINE_CHARS))
}

async fn read_output_end<C: RequestClient>(
    call: &McpCallContext<C>,
    address: &str,
    bytes: usize,
) -> Result<OutputPageItem, Refusal> {
    let read = || ReadOutputRequest {
        target: call.target(address),
        streams: StreamSelection::Combined,
        from: OutputOffset::FromEnd(bytes as u64),
        max_bytes: bytes,
    };
    call.request_client.call(read).await
}

/// Renders the command line that waits for the task.
pub(super) fn render_wait_command<C: RequestClient>(
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> String {
    let mut words: Vec<String> =
        call.options.wait_command.iter().map(|word| shell_quote(word)).collect();
    words.push(shell_quote(&call.address(info)));
    words.join(" ")
}

/// Quotes a word for a shell.
fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Renders a time in the protocol's format. A time out of range becomes the last one in range.
pub(super) fn render_timestamp(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rendered() {
        for (millis, expect) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-30T22:00:00.999Z"),
        ] {
            assert_eq!(render_timestamp(millis), expect);
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_quote("/srv/a-b"), "/srv/a-b");
        assert_eq!(shell_quote("it's mine"), r"'it'\''s mine'");
        assert_eq!(shell_quote(""), "''");
    }
}
