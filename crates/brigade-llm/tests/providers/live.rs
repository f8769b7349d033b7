//! A test with a real model:
//!
//! ```text
//! BRIGADE_LIVE_MODEL=ollama/qwen3 cargo test -p brigade-llm --test providers live -- --ignored
//! ```
//!
//! `BRIGADE_LIVE_URL` sets another base URL. The key comes from the provider's usual environment
//! variable; none is sent to another base URL.

use std::env;

use brigade_llm::{
    ChatMessage, KeySource, ModelName, Provider, ProviderKind, ProviderOptions, StopReason,
    ToolArguments, ToolResult,
};

use crate::{ask, request};

#[tokio::test]
#[ignore = "needs a model: set BRIGADE_LIVE_MODEL"]
async fn a_real_model_answers_and_uses_a_tool() {
    let name = env::var("BRIGADE_LIVE_MODEL").expect("BRIGADE_LIVE_MODEL=provider/model");
    let name: ModelName = name.parse().expect("provider/model");
    let kind: ProviderKind = name.provider.parse().expect("a provider");
    let mut options = ProviderOptions::new(kind);
    if let Ok(url) = env::var("BRIGADE_LIVE_URL") {
        options = options.base_url(url).key(KeySource::None);
    }
    let provider = Provider::new(options).expect("a provider");
    let mut messages =
        vec![ChatMessage::user("What is at the path /tmp/note? Use the tool to look.")];
    for _ in 0..4 {
        let mut next_request = request(messages.clone());
        next_request.model = name.model.clone();
        let (_, reply) = ask(&provider, next_request).await.expect("a reply");
        println!("{reply:?}");
        assert!(reply.usage.input > 0 && reply.usage.output > 0);
        assert_ne!(reply.stop, StopReason::Filtered);
        let calls: Vec<_> = reply.message.calls().cloned().collect();
        messages.push(ChatMessage::Assistant(reply.message.into()));
        if calls.is_empty() {
            return;
        }
        messages.push(ChatMessage::Results(
            calls
                .iter()
                .map(|call| ToolResult {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    text: "Buy milk.".into(),
                    failed: matches!(call.arguments, ToolArguments::Malformed { .. }),
                })
                .collect(),
        ));
    }
}
