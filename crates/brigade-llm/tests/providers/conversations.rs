//! Tests of the conversation that goes back to a provider in the next request.

use brigade_llm::wire_server::{WireFormat, WireReply};
use brigade_llm::{ChatMessage, ContentBlock, Provider, ToolArguments, ToolResult};
use serde_json::json;

use crate::{Bench, ask, call, each, hello, plain, reply, request, text, thought};

fn result(id: &str, text: &str, failed: bool) -> ToolResult {
    ToolResult { id: id.into(), name: "look".into(), text: text.into(), failed }
}

/// Makes a request, adds the results, and makes a second request.
async fn two_turns(bench: &Bench, results: Vec<ToolResult>) {
    let (_, first) = bench.ask(hello()).await.expect("a reply");
    // A transcript stores it as JSON.
    let stored =
        serde_json::to_string(&ChatMessage::Assistant(first.message.into())).expect("JSON");
    let mut messages = hello().messages;
    messages.push(serde_json::from_str(&stored).expect("a message"));
    messages.push(ChatMessage::Results(results));
    bench.ask(request(messages)).await.expect("a reply");
}

#[tokio::test]
async fn results_go_back_with_their_calls() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            WireReply::Reply(reply(vec![
                text("Looking."),
                call("call_1", json!({ "path": "/a" })),
                call("call_2", json!({ "path": "/b" })),
            ]))
        })
        .await;
        two_turns(&bench, vec![result("call_1", "one", false), result("call_2", "two", true)])
            .await;
        let messages = &bench.server.requests()[1].messages;
        let ChatMessage::Assistant(message) = &messages[1] else { panic!("{messages:?}") };
        let calls: Vec<_> = message.calls().collect();
        assert_eq!(message.text(), "Looking.");
        assert_eq!(calls.len(), 2);
        let ChatMessage::Results(results) = &messages[2] else { panic!("{messages:?}") };
        assert_eq!(results.len(), 2);
        for (call, result) in calls.iter().zip(results) {
            assert_eq!((&call.id, &call.name), (&result.id, &result.name));
        }
        assert_eq!((&*results[0].text, results[0].failed), ("one", false));
        assert!(results[1].text.contains("two"));
        if matches!(format, WireFormat::Anthropic | WireFormat::Gemini) {
            assert!(results[1].failed);
        }
        assert_eq!(messages.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn two_calls_with_one_id_both_get_their_results() {
    each(|format| async move {
        let bench = Bench::new(format, |request| match request.messages.len() {
            1 => WireReply::Reply(reply(vec![
                call("same", json!({ "path": "/a" })),
                call("same", json!({ "path": "/b" })),
            ])),
            _ => WireReply::Reply(reply(vec![text("Done.")])),
        })
        .await;
        let (_, first) = bench.ask(hello()).await.unwrap();
        let calls: Vec<_> = first.message.calls().cloned().collect();
        assert_eq!(calls.len(), 2);
        let results = vec![result(&calls[0].id, "one", false), result(&calls[1].id, "two", false)];
        let mut messages = hello().messages;
        messages.push(ChatMessage::Assistant(first.message.into()));
        messages.push(ChatMessage::Results(results));
        bench.ask(request(messages)).await.unwrap();
        let messages = &bench.server.requests()[1].messages;
        let ChatMessage::Results(results) = &messages[2] else { panic!("{messages:?}") };
        let texts: Vec<_> = results.iter().map(|result| &*result.text).collect();
        assert_eq!(texts, ["one", "two"]);
        if format != WireFormat::Gemini {
            assert_ne!(results[0].id, results[1].id);
        }
    })
    .await;
}

#[tokio::test]
async fn two_results_with_one_id_keep_their_order() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Done.")]))).await;
        let mut messages = hello().messages;
        let calls =
            vec![call("same", json!({ "path": "/a" })), call("same", json!({ "path": "/b" }))];
        messages.push(ChatMessage::Assistant(reply(calls).message.into()));
        messages.push(ChatMessage::Results(vec![
            result("same", "one", false),
            result("same", "two", false),
        ]));
        bench.ask(request(messages)).await.unwrap();
        let messages = &bench.server.requests()[0].messages;
        let ChatMessage::Results(results) = &messages[2] else { panic!("{messages:?}") };
        let texts: Vec<_> = results.iter().map(|result| &*result.text).collect();
        assert_eq!(texts, ["one", "two"]);
    })
    .await;
}

#[tokio::test]
async fn reasoning_goes_back_unchanged() {
    each(|format| async move {
        let bench = Bench::new(format, |_| {
            WireReply::Reply(reply(vec![
                thought("First I look."),
                text("Looking."),
                call("call_1", json!({ "path": "/a" })),
            ]))
        })
        .await;
        two_turns(&bench, vec![result("call_1", "one", false)]).await;
        let request = &bench.server.requests()[1];
        let messages = &request.messages;
        let ChatMessage::Assistant(message) = &messages[1] else { panic!("{messages:?}") };
        let Some(ContentBlock::Reasoning(again)) = message.content.first() else {
            panic!("{message:?}")
        };
        assert_eq!(&*again.text, "First I look.");
        match format {
            WireFormat::Responses => {
                assert_eq!(again.opaque["encrypted_content"], "sealed:First I look.");
                assert_eq!(request.body["store"], false);
                assert_eq!(request.body["include"], json!(["reasoning.encrypted_content"]));
            }
            WireFormat::Anthropic => {
                assert_eq!(again.opaque["signature"], "signed:First I look.");
            }
            WireFormat::Gemini => assert_eq!(again.opaque["thoughtSignature"], "c2lnbmVk"),
            WireFormat::Chat | WireFormat::Ollama => {}
        }
        assert_eq!(
            plain(message),
            [
                thought("First I look."),
                text("Looking."),
                call(&message.calls().next().unwrap().id, json!({ "path": "/a" }))
            ]
        );
    })
    .await;
}

/// The second request contains the first reply word for word.
#[tokio::test]
async fn items_go_back_exactly_and_are_stored_once() {
    each(|format| async move {
        let long = "word ".repeat(500);
        let message = long.clone();
        let bench = Bench::new(format, move |_| {
            WireReply::Reply(reply(vec![
                thought(&message),
                text(&message),
                call("call_1", json!({ "z": 1, "path": message, "a": null })),
            ]))
        })
        .await;
        let (_, first) = bench.ask(hello()).await.unwrap();
        let stored = serde_json::to_string(&first.message).unwrap();
        // Anthropic and Responses repeat the reasoning in a signature or an encrypted copy.
        assert!(stored.matches(&long).count() <= 4, "{} times", stored.matches(&long).count());
        two_turns(&bench, vec![result("call_1", "one", false)]).await;
        let request = &bench.server.requests()[2];
        let ChatMessage::Assistant(again) = &request.messages[1] else { panic!("{request:?}") };
        assert_eq!(again.text(), long);
        let arguments = &again.calls().next().unwrap().arguments;
        assert_eq!(*arguments, ToolArguments::Json(json!({ "z": 1, "path": long, "a": null })));
        let body = request.body.to_string();
        match format {
            WireFormat::Anthropic => assert!(body.contains(&format!("signed:{long}"))),
            WireFormat::Responses => {
                assert!(body.contains(&format!("sealed:{long}")));
                assert!(body.contains("msg_1") && body.contains("fc_2"), "{body}");
            }
            WireFormat::Gemini => {
                assert!(body.contains("c2lnbmVk") && body.contains("Y2FsbA=="), "{body}");
            }
            WireFormat::Chat | WireFormat::Ollama => {}
        }
    })
    .await;
}

#[tokio::test]
async fn opaque_data_goes_only_to_its_provider() {
    let from = Bench::new(WireFormat::Anthropic, |_| {
        WireReply::Reply(reply(vec![
            thought("Secret thoughts."),
            text("Hm."),
            call("call_1", json!({})),
        ]))
    })
    .await;
    let (_, first) = from.ask(hello()).await.unwrap();
    let mut messages = hello().messages;
    messages.push(ChatMessage::Assistant(first.message.into()));
    messages.push(ChatMessage::Results(vec![result("call_1", "one", false)]));
    for format in WireFormat::ALL {
        println!("{format:?}");
        let to = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Done.")]))).await;
        let mut request = request(messages.clone());
        request.model = "another-model".into();
        to.ask(request).await.unwrap();
        let body = to.server.requests()[0].body.to_string();
        assert!(!body.contains("signed:"), "{body}");
    }
}

#[tokio::test]
async fn calls_stay_calls_in_a_request_without_tools() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Done.")]))).await;
        let mut messages = hello().messages;
        let message = reply(vec![call("call_1", json!({ "path": "/a" }))]).message;
        messages.push(ChatMessage::Assistant(message.into()));
        messages.push(ChatMessage::Results(vec![result("call_1", "one", false)]));
        let mut request = request(messages);
        request.tools = [].into();
        bench.ask(request).await.unwrap();
        let messages = &bench.server.requests()[0].messages;
        let ChatMessage::Assistant(message) = &messages[1] else { panic!("{messages:?}") };
        assert_eq!(message.calls().count(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_conversation_can_be_continued() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Done.")]))).await;
        let messages = vec![
            ChatMessage::user("One"),
            ChatMessage::Assistant(reply(Vec::new()).message.into()),
            ChatMessage::user("Two"),
            ChatMessage::Assistant(reply(vec![call("", json!({}))]).message.into()),
            ChatMessage::Results(vec![result("", "found", false)]),
            ChatMessage::user("Three"),
        ];
        bench.ask(request(messages)).await.unwrap();
        let body = bench.server.requests()[0].body.to_string();
        for word in ["One", "Two", "found", "Three"] {
            assert!(body.contains(word), "{word} is not in {body}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_model_without_reasoning_is_not_asked_for_it() {
    let bench =
        Bench::new(WireFormat::Responses, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
    let mut request = hello();
    request.model = "gpt-4.1".into();
    bench.ask(request).await.unwrap();
    let body = &bench.server.requests()[0].body;
    assert_eq!(body["store"], false);
    assert_eq!(body.get("include"), None);
}

#[tokio::test]
async fn extra_fields_are_sent() {
    let bench =
        Bench::new(WireFormat::Ollama, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
    let mut options = bench.server.options(WireFormat::Ollama);
    options.extra.insert("options".into(), json!({ "num_ctx": 32768 }));
    ask(&Provider::new(options).unwrap(), hello()).await.unwrap();
    let body = &bench.server.requests()[0].body;
    assert_eq!(body["options"]["num_ctx"], 32768);
    assert_eq!(body["options"]["num_predict"], 1000);
}
