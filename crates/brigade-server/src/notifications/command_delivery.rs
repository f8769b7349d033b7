//! One attempt with a command.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use brigade_model::plain_text::PlainText;
use brigade_model::truncate::truncate_chars;
use brigade_process::helper_program::{HelperLimits, HelperOutput, feed_helper};
use tokio_util::sync::CancellationToken;

use super::notification::Notification;
use super::sender::DeliveryResult;

/// The most characters of stderr in a problem.
const STDERR_CHARS_MAX: usize = 500;

/// The variables of the daemon that commands get: those of a user's session. The others may be
/// secrets.
const PASSED_VARIABLES: [&str; 16] = [
    "BRIGADE_STATE",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];
const PASSED_VARIABLE_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// Runs a command with a notification on its stdin. Dropping the future ends the command.
pub(super) async fn run_command(
    command: &[String],
    notification: &Notification,
    timeout: Duration,
) -> DeliveryResult {
    let body = match serde_json::to_vec(notification) {
        Ok(body) => body,
        Err(error) => return DeliveryResult::failed(error.to_string()),
    };
    let Some(mut built) = build_command(command, notification) else {
        return DeliveryResult::failed("the command is empty".to_owned());
    };
    let dropped = CancellationToken::new();
    let _guard = dropped.clone().drop_guard();
    let ended = tokio::task::spawn_blocking(move || {
        let is_cancelled = || dropped.is_cancelled();
        let limits = HelperLimits { timeout, stdout_max: 0, is_cancelled: &is_cancelled };
        feed_helper(&mut built, &body, limits)
    });
    let program = &command[0];
    match ended.await {
        Ok(Ok(output)) if output.status.success() => DeliveryResult::Delivered,
        Ok(Ok(output)) => DeliveryResult::failed(render_failure(&output)),
        Ok(Err(error)) => DeliveryResult::failed(render_error(program, &error, timeout)),
        Err(error) => DeliveryResult::failed(error.to_string()),
    }
}

fn build_command(command: &[String], notification: &Notification) -> Option<Command> {
    let (program, arguments) = command.split_first()?;
    let mut built = Command::new(program);
    built.args(arguments).env_clear().current_dir(working_directory());
    for (name, value) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_passed = PASSED_VARIABLES.contains(&&*text)
            || PASSED_VARIABLE_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if is_passed {
            built.env(name, value);
        }
    }
    built.env("BRIGADE_NOTIFICATION_KEY", &notification.key);
    built.env("BRIGADE_NOTIFICATION_SUMMARY", &notification.summary);
    Some(built)
}

/// Returns the user's home. The directory of the daemon may be any.
fn working_directory() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.filter(|path| path.is_dir()).unwrap_or_else(|| PathBuf::from("/"))
}

fn render_failure(output: &HelperOutput) -> String {
    let end = render_status(output.status);
    let text = String::from_utf8_lossy(&output.stderr);
    let line = PlainText::line(text.trim());
    match line.as_str() {
        "" => format!("the command ended with {end}"),
        line => {
            format!("the command ended with {end}: {}", truncate_chars(line, STDERR_CHARS_MAX))
        }
    }
}

fn render_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn render_error(program: &str, error: &io::Error, timeout: Duration) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("the command was ended after {timeout:?}"),
        io::ErrorKind::Interrupted => "the daemon shut down during the command".to_owned(),
        io::ErrorKind::NotFound => {
            format!("{program} cannot be found; name its absolute path in the configuration")
        }
        _ => format!("{program} cannot be started: {error}"),
    }
}
