//! Results as text for a model: short, with the way to read the rest.

use serde::Deserialize;

use crate::json::Json;

/// The head of a long text, and how to get at the rest.
pub fn truncate_with_hint(text: &str, shown: usize, what: &str, read_on: &str) -> String {
    if text.len() <= shown {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(shown)];
    let how = if read_on.is_empty() { String::new() } else { format!(" Read on with {read_on}.") };
    format!("{head}\n[{what} is cut: {} of {} bytes are shown.{how}]", head.len(), text.len())
}

/// A result as text: words as they are, the report of a command in short, anything else as JSON.
pub fn render_result(result: &Json) -> String {
    #[derive(Deserialize)]
    struct ProcessReportFields {
        exit_code: Option<i32>,
        signal: Option<i32>,
        stdout_bytes: u64,
        stderr_bytes: u64,
        tail: String,
    }
    let Ok(report) = result.decode::<ProcessReportFields>() else { return render_json(result) };
    let how = match (report.exit_code, report.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let bytes = report.stdout_bytes.saturating_add(report.stderr_bytes);
    match (report.tail.is_empty(), bytes > report.tail.len() as u64) {
        (true, _) => format!("{how}, no output"),
        (false, true) => format!(
            "{how}; the last {} of {bytes} bytes of output:\n{}",
            report.tail.len(),
            report.tail
        ),
        (false, false) => format!("{how}\n{}", report.tail),
    }
}

/// A JSON string as its text, anything else as JSON.
pub fn render_json(json: &Json) -> String {
    json.decode::<String>().unwrap_or_else(|_| json.as_str().to_owned())
}
