//! Tests of failures and their error kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_llm::wire_server::{WireFault, WireFormat, WireReply, WireServer, WireStatus};
use brigade_llm::{
    KeySource, Model, ModelErrorKind, Provider, ProviderKind, ProviderOptions, TransportLimits,
};
use futures_util::StreamExt;

use crate::{Bench, ask, each, hello, quick, reply, text};

async fn error_of(format: WireFormat, answer: WireReply) -> brigade_llm::ModelError {
    Bench::new(format, move |_| answer.clone()).await.refused().await
}

fn long() -> brigade_llm::ModelReply {
    reply(vec![text("A reply of a few words."), text("And of a few more.")])
}

#[tokio::test]
async fn a_rate_limit_reports_retry_after() {
    each(|format| async move {
        let status = WireStatus::new(429, r#"{"error":{"message":"Slow down."}}"#);
        let error =
            error_of(format, WireReply::Status(status.clone().header("retry-after", "7"))).await;
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert_eq!(error.status, Some(429));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        let dated = status
            .header("date", "Tue, 15 Nov 1994 08:12:31 GMT")
            .header("retry-after", "Tue, 15 Nov 1994 08:13:01 GMT");
        let error = error_of(format, WireReply::Status(dated)).await;
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
        assert!(error.message.contains("Slow down."), "{error}");
    })
    .await;
}

#[tokio::test]
async fn each_status_has_its_kind() {
    let table = [
        (500, "", ModelErrorKind::Server),
        (502, "<html>Bad gateway</html>", ModelErrorKind::Server),
        (503, r#"{"error":{"message":"busy"}}"#, ModelErrorKind::Server),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ModelErrorKind::Server,
        ),
        (401, r#"{"error":{"message":"wrong key"}}"#, ModelErrorKind::Auth),
        (403, r#"{"error":{"message":"not yours"}}"#, ModelErrorKind::Auth),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, ModelErrorKind::Exhausted),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ModelErrorKind::Exhausted,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
            ModelErrorKind::Exhausted,
        ),
        (
            400,
            r#"{"error":{"message":"bad schema","type":"invalid_request_error"}}"#,
            ModelErrorKind::Invalid,
        ),
        (404, r#"{"error":"model 'nope' not found"}"#, ModelErrorKind::Invalid),
        (
            400,
            r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
            ModelErrorKind::TooLong,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            ModelErrorKind::TooLong,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            ModelErrorKind::TooLong,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"request (6031 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":6031,"n_ctx":4096}}"#,
            ModelErrorKind::TooLong,
        ),
        (413, "", ModelErrorKind::TooLong),
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            ModelErrorKind::Auth,
        ),
        (301, "", ModelErrorKind::Invalid),
        (204, "", ModelErrorKind::Server),
    ];
    each(|format| async move {
        let next = AtomicUsize::new(0);
        let bench = Bench::new(format, move |_| {
            let (status, body, _) = table[next.fetch_add(1, Ordering::Relaxed)];
            WireReply::Status(WireStatus::new(status, body))
        })
        .await;
        for (status, body, kind) in table {
            let error = bench.refused().await;
            assert_eq!((error.kind, error.status), (kind, Some(status)), "{format:?} {body}");
        }
    })
    .await;
}

#[tokio::test]
async fn gemini_reports_retry_after_in_the_body() {
    let body = r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 13.5s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"13.5s"}]}}"#;
    let error = error_of(WireFormat::Gemini, WireReply::Status(WireStatus::new(429, body))).await;
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.retry_after, Some(Duration::from_millis(13_500)));
}

#[tokio::test]
async fn an_error_in_mid_stream_has_the_same_kind() {
    each(|format| async move {
        let error = error_of(format, WireReply::FailMidway(long(), WireFault::Overloaded)).await;
        assert_eq!(error.kind, ModelErrorKind::Server, "{error}");
        assert!(error.message.contains("verloaded"), "{error}");
        let error = error_of(format, WireReply::FailMidway(long(), WireFault::RateLimited)).await;
        let kind = match format {
            // Ollama reports it only in text.
            WireFormat::Ollama => ModelErrorKind::Server,
            _ => ModelErrorKind::RateLimited,
        };
        assert_eq!(error.kind, kind, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_truncated_stream_is_a_connection_error() {
    each(|format| async move {
        for answer in [WireReply::DisconnectMidway(long()), WireReply::EndMidway(long())] {
            let error = error_of(format, answer).await;
            assert_eq!(error.kind, ModelErrorKind::Connection, "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_auth_error_without_a_key_names_the_setting() {
    let status = || WireReply::Status(WireStatus::new(401, r#"{"error":{"message":"a key?"}}"#));
    let format = WireFormat::Chat;
    let with = error_of(format, status()).await;
    assert!(with.message.contains("(the key is in /"), "{with}");
    let server = WireServer::start(move |_| status()).await.expect("a server");
    let options = server.options(format).key(KeySource::None).limits(quick());
    let without = ask(&Provider::new(options).unwrap(), hello()).await.expect_err("an error");
    assert_eq!(without.kind, ModelErrorKind::Auth, "{without}");
    assert!(without.message.contains("(no key is sent; `key` of the provider"), "{without}");
}

#[tokio::test]
async fn silence_is_a_timeout() {
    each(|format| async move {
        for answer in [WireReply::Hang, WireReply::HangMidway(long())] {
            let bench = Bench::limited(format, quick(), move |_| answer.clone()).await;
            let error = bench.refused().await;
            assert_eq!(error.kind, ModelErrorKind::Timeout, "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_connection_is_a_connection_error() {
    for kind in [ProviderKind::OpenAiChat, ProviderKind::Gemini] {
        let options = ProviderOptions::new(kind)
            .base_url("http://127.0.0.1:1/?token=1")
            .key(KeySource::None)
            .limits(quick());
        let error = ask(&Provider::new(options).unwrap(), hello()).await.expect_err("an error");
        assert_eq!(error.kind, ModelErrorKind::Connection, "{error}");
        assert!(!error.message.contains("token"), "{error}");
    }
}

#[tokio::test]
async fn bytes_outside_the_protocol_are_garbage() {
    each(|format| async move {
        let answers: [&[u8]; 3] =
            [b"data: {\"half\": \n\n", b"<html>Hello</html>\n\n", b"data: \xff\xfe\x00\n\n{]\n"];
        for answer in answers {
            let error = error_of(format, WireReply::Bytes(answer.to_vec())).await;
            assert_eq!(error.kind, ModelErrorKind::Garbage, "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_stream_closes_its_connection() {
    each(|format| async move {
        for answer in [WireReply::Hang, WireReply::HangMidway(long())] {
            let reads = matches!(answer, WireReply::HangMidway(_));
            let mut bench =
                Bench::limited(format, TransportLimits::default(), move |_| answer.clone()).await;
            let mut stream = bench.provider.call(Arc::new(hello()));
            assert_eq!(bench.server.open_connections(), 0, "sent before it was polled");
            if reads {
                stream.next().await.unwrap().unwrap();
            } else {
                tokio::select! {
                    part = stream.next() => panic!("{part:?}"),
                    () = bench.server.wait_for_connections(1) => {}
                }
            }
            drop(stream);
            tokio::time::timeout(Duration::from_secs(5), bench.server.wait_for_connections(0))
                .await
                .expect("the connection stays open");
        }
    })
    .await;
}
