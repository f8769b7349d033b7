//! Renders results as text for a model.

use serde::Deserialize;

use crate::json::Json;

/// Renders a result: a string as its text, a process report in short, anything else as JSON.
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
    let end = match (report.exit_code, report.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let bytes = report.stdout_bytes.saturating_add(report.stderr_bytes);
    match (report.tail.is_empty(), bytes > report.tail.len() as u64) {
        (true, _) => format!("{end}, no output"),
        (false, true) => format!(
            "{end}; the last {} of {bytes} bytes of output:\n{}",
            report.tail.len(),
            report.tail
        ),
        (false, false) => format!("{end}\n{}", report.tail),
    }
}

/// Renders a JSON string as its text, anything else as JSON.
pub fn render_json(json: &Json) -> String {
    json.decode::<String>().unwrap_or_else(|_| json.as_str().to_owned())
}
