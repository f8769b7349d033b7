//! Tests of well-formed replies.

use std::sync::Arc;
use std::time::Duration;

use brigade_llm::wire_server::{WireFormat, WireReply, WireServer};
use brigade_llm::{
    ContentBlock, Model, ModelError, ModelErrorKind, ModelRequest, PartStream, Provider,
    ReasoningEffort, ReplyPart, StopReason, TokenUsage, ToolArguments, TransportLimits,
};
use serde_json::json;

use crate::{Bench, ask, call, each, hello, plain, reply, text, thought};

#[tokio::test]
async fn text_arrives_in_pieces_and_whole() {
    each(|format| async move {
        let bench =
            Bench::new(format, |_| WireReply::Reply(reply(vec![text("Grüße aus dem Test.")])))
                .await;
        let (parts, reply) = bench.ask(hello()).await.unwrap();
        let pieces = parts.iter().map(|part| match part {
            ReplyPart::Text(text) => text.as_str(),
            other => panic!("{other:?}"),
        });
        let pieces: Vec<_> = pieces.collect();
        assert!(pieces.len() >= 2, "{pieces:?}");
        assert_eq!(pieces.concat(), "Grüße aus dem Test.");
        assert_eq!(plain(&reply.message), [text("Grüße aus dem Test.")]);
        assert_eq!(reply.stop, StopReason::EndOfTurn);
    })
    .await;
}

#[tokio::test]
async fn the_request_contains_everything() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
        bench.ask(hello()).await.unwrap();
        let request = &bench.server.requests()[0];
        assert_eq!(request.format, format);
        assert_eq!(request.model, "some-model");
        assert_eq!(request.system, "You are a test.");
        assert_eq!(request.messages, hello().messages);
        assert_eq!(request.max_output, Some(1000));
        assert_eq!(request.tools.len(), 1);
        assert_eq!(&*request.tools[0].name, "look");
        assert_eq!(request.tools[0].parameters["properties"]["path"]["type"], "string");
    })
    .await;
}

#[tokio::test]
async fn usage_counts_the_cache_as_input() {
    each(|format| async move {
        let usage = TokenUsage { input: 120, cached: 100, cache_written: 10, output: 30 };
        let bench = Bench::new(format, move |_| {
            let mut reply = reply(vec![text("Yes.")]);
            reply.usage = usage;
            WireReply::Reply(reply)
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        let cache_written = match format {
            WireFormat::Anthropic | WireFormat::Responses => 10,
            _ => 0,
        };
        assert_eq!(reply.usage, TokenUsage { cache_written, ..usage });
    })
    .await;
}

#[tokio::test]
async fn parallel_calls_keep_their_order() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            WireReply::Reply(reply(vec![
                thought("I look twice."),
                text("Looking."),
                call("call_1", json!({ "path": "/a" })),
                call("call_2", json!({ "path": "/b", "deep": { "list": [1, 2.5, null] } })),
            ]))
        })
        .await;
        let (parts, reply) = bench.ask(hello()).await.unwrap();
        let started =
            parts.iter().filter(|part| matches!(part, ReplyPart::Call { name } if name == "look"));
        assert_eq!(started.count(), 2);
        let thoughts = parts.iter().filter_map(|part| match part {
            ReplyPart::Reasoning(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(thoughts.collect::<String>(), "I look twice.");
        assert_eq!(
            plain(&reply.message),
            [
                thought("I look twice."),
                text("Looking."),
                call("call_1", json!({ "path": "/a" })),
                call("call_2", json!({ "path": "/b", "deep": { "list": [1, 2.5, null] } })),
            ]
        );
        assert_eq!(reply.stop, StopReason::EndOfTurn);
    })
    .await;
}

#[tokio::test]
async fn the_last_call_of_a_truncated_reply_is_malformed() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            let mut cut = call("call_1", json!({}));
            if let ContentBlock::Call(cut) = &mut cut {
                cut.arguments = ToolArguments::Malformed { problem: "cut".into() };
            }
            let mut reply = reply(vec![text("So"), cut]);
            reply.stop = StopReason::Length;
            WireReply::Reply(reply)
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        assert_eq!(reply.stop, StopReason::Length);
        let calls: Vec<_> = reply.message.calls().collect();
        assert_eq!(calls.len(), 1);
        assert!(matches!(calls[0].arguments, ToolArguments::Malformed { .. }), "{calls:?}");
    })
    .await;
}

#[tokio::test]
async fn a_call_truncated_before_its_arguments_is_malformed() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            let mut reply = reply(vec![call("call_1", json!({}))]);
            reply.stop = StopReason::Length;
            WireReply::Reply(reply)
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        let calls: Vec<_> = reply.message.calls().collect();
        assert!(matches!(calls[0].arguments, ToolArguments::Malformed { .. }), "{calls:?}");
    })
    .await;
}

#[tokio::test]
async fn broken_arguments_are_malformed_also_at_the_end_of_a_turn() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            let mut broken = call("call_1", json!({}));
            if let ContentBlock::Call(broken) = &mut broken {
                broken.arguments = ToolArguments::Malformed { problem: "cut".into() };
            }
            WireReply::Reply(reply(vec![broken, call("call_2", json!({ "path": "/b" }))]))
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        let calls: Vec<_> = reply.message.calls().collect();
        assert!(matches!(calls[0].arguments, ToolArguments::Malformed { .. }), "{calls:?}");
        assert_eq!(calls[1].arguments, ToolArguments::Json(json!({ "path": "/b" })));
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_filtered() {
    for format in
        [WireFormat::Chat, WireFormat::Responses, WireFormat::Anthropic, WireFormat::Gemini]
    {
        println!("{format:?}");
        let bench = Bench::new(format, |_| {
            let mut reply = reply(vec![text("I can")]);
            reply.stop = StopReason::Filtered;
            WireReply::Reply(reply)
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        assert_eq!(reply.stop, StopReason::Filtered);
    }
}

#[tokio::test]
async fn an_effort_is_sent_where_the_model_supports_it() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
        let mut request = hello();
        request.effort = Some(ReasoningEffort::Low);
        bench.ask(request).await.unwrap();
    })
    .await;
    let bench =
        Bench::new(WireFormat::Responses, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
    let mut request = hello();
    request.model = "gpt-5".into();
    request.effort = Some(ReasoningEffort::Low);
    bench.ask(request).await.unwrap();
    let body = &bench.server.requests()[0].body;
    assert_eq!(body["reasoning"]["effort"], "low", "{body}");
}

#[tokio::test]
async fn a_slow_stream_is_not_idle() {
    let limits = TransportLimits {
        header_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        ..TransportLimits::default()
    };
    each(|format| async move {
        let bench = Bench::limited(format, limits, move |_| {
            let thoughts = (0..6).map(|n| thought(&format!("Thought {n}.")));
            WireReply::Slow(
                reply(thoughts.chain([text("So.")]).collect()),
                Duration::from_millis(100),
            )
        })
        .await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        assert_eq!(reply.message.text(), "So.");
    })
    .await;
}

#[tokio::test]
async fn a_stream_in_single_bytes_is_reassembled() {
    each(|format| async move {
        let content =
            || vec![thought("Ä…"), text("日本 🎌\r\n\n"), call("c", json!({ "path": "ü\n" }))];
        let bench = Bench::new(format, move |_| WireReply::ByteByByte(reply(content()))).await;
        let (_, reply) = bench.ask(hello()).await.unwrap();
        assert_eq!(plain(&reply.message), content());
    })
    .await;
}

/// A model that fails with this kind of error.
#[derive(Debug)]
struct Failing(ModelErrorKind);

impl Model for Failing {
    fn call(&self, _request: Arc<ModelRequest>) -> PartStream {
        let error = ModelError::new(self.0, "scripted failure");
        Box::pin(futures_util::stream::iter([Ok(ReplyPart::Text("So".into())), Err(error)]))
    }
}

#[tokio::test]
async fn errors_of_a_served_model_keep_their_kind() {
    each(|format| async move {
        let mut kinds = vec![
            ModelErrorKind::RateLimited,
            ModelErrorKind::Server,
            ModelErrorKind::Auth,
            ModelErrorKind::Invalid,
        ];
        if format != WireFormat::Ollama {
            // Ollama has no error codes.
            kinds.extend([ModelErrorKind::TooLong, ModelErrorKind::Exhausted]);
        }
        for kind in kinds {
            let server = WireServer::start_with_model(Arc::new(Failing(kind))).await.unwrap();
            let provider = Provider::new(server.options(format)).unwrap();
            let error = ask(&provider, hello()).await.expect_err("an error");
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains("scripted failure"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_model_is_served_through_the_wire() {
    each(|format| async move {
        let inner = Bench::new(WireFormat::Chat, |request| {
            assert_eq!(request.system, "You are a test.");
            assert_eq!(request.tools.len(), 1);
            WireReply::Reply(reply(vec![text("From within."), call("c", json!({ "path": "/" }))]))
        })
        .await;
        let outer = WireServer::start_with_model(Arc::new(inner.provider.clone())).await.unwrap();
        let provider = Provider::new(outer.options(format)).unwrap();
        let (_, reply) = ask(&provider, hello()).await.unwrap();
        assert_eq!(
            plain(&reply.message),
            [text("From within."), call("c", json!({ "path": "/" }))]
        );
    })
    .await;
}
