//! Tests with a provider that sends too much.

use brigade_llm::wire_server::{WireFormat, WireReply};
use brigade_llm::{ModelErrorKind, ToolArguments, TransportLimits};
use serde_json::json;

use crate::{Bench, call, each, hello, plain, reply, text};

#[tokio::test]
async fn a_line_is_bounded() {
    each(|format| async move {
        let limits = TransportLimits { line_bytes: 64 * 1024, ..TransportLimits::default() };
        for line in [vec![b'x'; 1 << 20], [vec![b'x'; 1 << 20], vec![b'\n'; 2]].concat()] {
            let mut bytes = b"data: ".to_vec();
            bytes.extend(line);
            let bench =
                Bench::limited(format, limits, move |_| WireReply::Bytes(bytes.clone())).await;
            let error = bench.refused().await;
            assert_eq!(error.kind, ModelErrorKind::Garbage);
            assert!(error.message.contains("65536"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_is_bounded() {
    each(|format| async move {
        let limits = TransportLimits { body_bytes: 64 * 1024, ..TransportLimits::default() };
        let bytes = b": ping\n\n".repeat(20_000);
        let bench = Bench::limited(format, limits, move |_| WireReply::Bytes(bytes.clone())).await;
        let error = bench.refused().await;
        assert_eq!(error.kind, ModelErrorKind::Garbage, "{error}");
    })
    .await;
}

#[tokio::test]
async fn long_arguments_are_malformed() {
    each(|format| async move {
        let limits = TransportLimits { argument_bytes: 1000, ..TransportLimits::default() };
        let bench = Bench::limited(format, limits, |_| {
            WireReply::Reply(reply(vec![
                call("call_1", json!({ "path": "x".repeat(2000) })),
                call("call_2", json!({ "path": "/b" })),
            ]))
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        let calls: Vec<_> = reply.message.calls().collect();
        assert!(
            matches!(&calls[0].arguments, ToolArguments::Malformed { problem } if problem.contains("1000"))
        );
        assert!(matches!(calls[1].arguments, ToolArguments::Json(_)));
    })
    .await;
}

#[tokio::test]
async fn the_number_of_parts_is_bounded() {
    each(|format| async move {
        let limits = TransportLimits { parts: 100, ..TransportLimits::default() };
        let bench = Bench::limited(format, limits, |_| {
            let calls = (0..200).map(|n| call(&format!("call_{n}"), json!({ "path": "/" })));
            WireReply::Reply(reply(calls.collect()))
        })
        .await;
        let error = bench.refused().await;
        assert_eq!(error.kind, ModelErrorKind::Garbage, "{error}");
        assert!(error.message.contains("100 parts"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_large_index_is_rejected() {
    for index in ["20000000", "18446744073709551615", "99999999999999999999999"] {
        let event = format!(
            r#"data: {{"id":"1","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"id":"a","type":"function","function":{{"name":"look","arguments":"{{}}"}}}}]}}}}]}}"#
        );
        let bytes = format!("{event}\n\n").into_bytes();
        let bench = Bench::new(WireFormat::Chat, move |_| WireReply::Bytes(bytes.clone())).await;
        assert_eq!(bench.refused().await.kind, ModelErrorKind::Garbage);
    }
}

/// The decoder reports no calls without a name and no blocks without content.
#[tokio::test]
async fn empty_parts_count_too() {
    let nameless = |n: usize| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"id\":\"{n}\"}}]}}}}]}}\n\n")
    };
    let empty = |n: usize| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{n},\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\n"
        )
    };
    let item = |n: usize| {
        format!(
            "data: {{\"type\":\"response.output_item.added\",\"output_index\":{n},\"item\":{{\"type\":\"message\",\"id\":\"m{n}\"}}}}\n\n"
        )
    };
    let streams = [
        (WireFormat::Chat, (0..20_000).map(nameless).collect::<String>()),
        (WireFormat::Anthropic, (0..20_000).map(empty).collect()),
        (WireFormat::Responses, (0..20_000).map(item).collect()),
    ];
    for (format, stream) in streams {
        println!("{format:?}");
        let bench =
            Bench::new(format, move |_| WireReply::Bytes(stream.clone().into_bytes())).await;
        let error = bench.refused().await;
        assert_eq!(error.kind, ModelErrorKind::Garbage, "{error}");
        assert!(error.message.contains("parts"), "{error}");
    }
}

#[tokio::test]
async fn the_parts_of_one_event_are_bounded() {
    let many = |part: &str| vec![part; 100_000].join(",");
    let calls = many(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}"#);
    let functions = many(r#"{"function":{"name":"look","arguments":{}}}"#);
    let parts = many(r#"{"functionCall":{"name":"look","args":{}}}"#);
    let items = many(r#"{"type":"function_call","call_id":"a","name":"look","arguments":"{}"}"#);
    let streams = [
        (
            WireFormat::Chat,
            format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{calls}]}}}}]}}"#),
        ),
        (WireFormat::Ollama, format!(r#"{{"message":{{"tool_calls":[{functions}]}}}}"#)),
        (
            WireFormat::Gemini,
            format!(r#"data: {{"candidates":[{{"content":{{"parts":[{parts}]}}}}]}}"#),
        ),
        (
            WireFormat::Responses,
            format!(r#"data: {{"type":"response.completed","response":{{"output":[{items}]}}}}"#),
        ),
    ];
    for (format, stream) in streams {
        println!("{format:?}");
        let bytes = format!("{stream}\n\n").into_bytes();
        let bench = Bench::new(format, move |_| WireReply::Bytes(bytes.clone())).await;
        let error = bench.refused().await;
        assert_eq!(error.kind, ModelErrorKind::Garbage, "{error}");
        assert!(error.message.contains("1024 parts"), "{error}");
    }
}

#[tokio::test]
async fn large_arguments_are_accepted() {
    each(|format| async move {
        let rows: Vec<_> = (0..3_000).map(|n| json!({ "id": n, "text": "{\\\"{{{" })).collect();
        let arguments = json!({ "rows": rows });
        let sent = arguments.clone();
        let bench = Bench::new(format, move |_| {
            WireReply::Reply(reply(vec![call("call_1", sent.clone())]))
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        let calls: Vec<_> = reply.message.calls().collect();
        assert_eq!(calls[0].arguments, ToolArguments::Json(arguments));
    })
    .await;
}

/// Text of a model is not taken for the protocol.
#[tokio::test]
async fn text_that_looks_like_the_protocol_is_text() {
    each(|format| async move {
        let content = r#"{"type":"content_block_start","tool_calls":[{"index":20000000}],"response.output_item.added":1}"#;
        let content = content.repeat(40);
        let again = content.clone();
        let bench = Bench::new(format, move |_| WireReply::Reply(reply(vec![text(&again)]))).await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        assert_eq!(plain(&reply.message), [text(&content)]);
    })
    .await;
}
