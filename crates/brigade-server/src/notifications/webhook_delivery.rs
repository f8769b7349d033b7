//! One attempt with a webhook: a signed POST.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_model::truncate::truncate_chars;
use chrono::DateTime;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use ring::hmac;

use super::notification::Notification;
use super::notifier::Notifier;
use super::sender::DeliveryResult;
use super::webhook::{SecretText, Webhook, is_loopback};

const KEY_HEADER: &str = "brigade-notification-key";
const TIMESTAMP_HEADER: &str = "brigade-timestamp";
const SIGNATURE_HEADER: &str = "brigade-signature";

/// The longest pause that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
const PROBLEM_CHARS_MAX: usize = 300;

/// The HTTP clients of webhooks, by the name of the notifier.
#[derive(Debug, Default)]
pub(super) struct WebhookClients(Mutex<HashMap<Arc<str>, Client>>);

impl WebhookClients {
    /// Sends a notification. Its answer is the status: the body is not read.
    pub(super) async fn post(
        &self,
        notifier: &Notifier,
        webhook: &Webhook,
        notification: &Notification,
        now: Time,
    ) -> DeliveryResult {
        match self.try_post(notifier, webhook, notification, now).await {
            Ok(result) => result,
            Err(problem) => DeliveryResult::failed(problem),
        }
    }

    async fn try_post(
        &self,
        notifier: &Notifier,
        webhook: &Webhook,
        notification: &Notification,
        now: Time,
    ) -> Result<DeliveryResult, String> {
        let client = self.client(notifier, webhook)?;
        let body = serde_json::to_vec(notification).map_err(|error| error.to_string())?;
        let seconds = now.0 / 1000;
        let mut request = client
            .post(webhook.read_url()?)
            .timeout(notifier.timeout)
            .header(CONTENT_TYPE, "application/json")
            .header(KEY_HEADER, &notification.key)
            .header(TIMESTAMP_HEADER, seconds);
        if let Some(secret) = webhook.read_secret()? {
            request = request.header(SIGNATURE_HEADER, sign(&secret, seconds, &body));
        }
        let response = request.body(body).send().await.map_err(render_error)?;
        Ok(judge(response.status(), response.headers(), now))
    }

    fn client(&self, notifier: &Notifier, webhook: &Webhook) -> Result<Client, String> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&notifier.name) {
            return Ok(client.clone());
        }
        let client = build_client(webhook)?;
        clients.insert(notifier.name.clone(), client.clone());
        Ok(client)
    }
}

fn build_client(webhook: &Webhook) -> Result<Client, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have installed it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let url = webhook.read_url()?;
    // A redirect would send the notification to its target.
    let mut client = Client::builder().redirect(Policy::none()).http1_only();
    if is_loopback(&url) {
        // A proxy cannot reach this machine.
        client = client.no_proxy();
    }
    if url.scheme() == "http" {
        // Loading the system's certificates takes time, and plain HTTP needs none.
        client = client.tls_certs_only([]);
    }
    client.build().map_err(render_error)
}

/// Returns the signature of a request: its time in seconds, and the HMAC-SHA256 of time, `.` and
/// body.
fn sign(secret: &SecretText, seconds: u64, body: &[u8]) -> String {
    let time = seconds.to_string();
    let parts = [time.as_bytes(), b".", body];
    format!("t={time},v1={}", hmac_hex(secret.expose().as_bytes(), &parts))
}

fn hmac_hex(key: &[u8], parts: &[&[u8]]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn judge(status: StatusCode, headers: &HeaderMap, now: Time) -> DeliveryResult {
    if status.is_success() {
        return DeliveryResult::Delivered;
    }
    let problem = format!("the receiver answered {}", status.as_u16());
    let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    if status.is_client_error() && !is_busy {
        return DeliveryResult::Rejected(problem);
    }
    let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| parse_retry_after(text, now));
    DeliveryResult::Failed { problem, retry_after }
}

/// Parses a number of seconds, or a date.
fn parse_retry_after(text: &str, now: Time) -> Option<Duration> {
    let pause = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DateTime::parse_from_rfc2822(text.trim()).ok()?.timestamp_millis();
            Time(u64::try_from(at).ok()?).since(now).into()
        }
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

/// Renders an error with its causes and without the URL, which may be a secret.
fn render_error(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    truncate_chars(&text, PROBLEM_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4231, test cases 1 and 2.
    #[test]
    fn the_signature_is_an_hmac_of_time_and_body() {
        let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hmac_hex(b"Jefe", &[b"what do ya want ", b"for nothing?"]), known);
        let known = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hmac_hex(&[0x0b; 20], &[b"Hi There"]), known);
        let signed = hmac_hex(b"0123456789abcdef", &[b"17.{}"]);
        let secret = SecretText::from("0123456789abcdef".to_owned());
        assert_eq!(sign(&secret, 17, b"{}"), format!("t=17,v1={signed}"));
    }

    #[test]
    fn the_status_decides_about_the_next_attempt() {
        let judge = |status: u16, after: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert(RETRY_AFTER, after.parse().unwrap());
            }
            judge(StatusCode::from_u16(status).unwrap(), &headers, Time(784_111_777_000))
        };
        let pause = |seconds| Some(Duration::from_secs(seconds));
        for status in [200, 202, 204] {
            assert_eq!(judge(status, None), DeliveryResult::Delivered);
        }
        for status in [400, 401, 404, 410] {
            assert!(matches!(judge(status, None), DeliveryResult::Rejected(_)), "{status}");
        }
        for (status, after, expect) in [
            (302, None, None),
            (408, None, None),
            (429, Some("7"), pause(7)),
            (503, Some("Sun, 06 Nov 1994 08:49:47 GMT"), pause(10)),
            (503, Some("Sun, 06 Nov 1994 08:00:00 GMT"), pause(0)),
            (503, Some("99999999999999999"), pause(3600)),
            (500, Some("soon"), None),
        ] {
            let DeliveryResult::Failed { retry_after, problem } = judge(status, after) else {
                panic!("{status}");
            };
            assert_eq!(retry_after, expect, "{status} {after:?}");
            assert_eq!(problem, format!("the receiver answered {status}"));
        }
    }
}
