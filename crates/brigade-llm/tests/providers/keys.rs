//! Tests of keys: their sources, the header that carries them, and their redaction.

use std::io::Write;
use std::sync::{Arc, Mutex};

use brigade_llm::wire_server::{WireFormat, WireReply, WireStatus};
use brigade_llm::{
    KeySource, ModelErrorKind, ModelName, Provider, ProviderCatalog, ProviderKind, ProviderOptions,
};

use crate::{Bench, KEY, ask, each, hello, reply, text};

#[tokio::test]
async fn a_missing_key_is_an_error_before_anything_is_sent() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
        let options = bench.server.options(format);
        let sources = [
            (KeySource::Env("BRIGADE_TEST_NO_SUCH_KEY".into()), "BRIGADE_TEST_NO_SUCH_KEY"),
            (KeySource::File("/nonexistent/key".into()), "/nonexistent/key"),
            (KeySource::File("/dev/null".into()), "/dev/null"),
        ];
        for (source, named) in sources {
            let provider = Provider::new(options.clone().key(source)).unwrap();
            let error = ask(&provider, hello()).await.expect_err("an error");
            assert_eq!(error.kind, ModelErrorKind::Auth);
            assert!(error.message.contains(named), "{error}");
        }
        assert!(bench.server.requests().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_key_goes_into_a_header_and_never_into_the_url() {
    each(|format| async move {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
        bench.ask(hello()).await.unwrap();
        let request = &bench.server.requests()[0];
        let bearer = format!("Bearer {KEY}");
        let (header, value) = match format {
            WireFormat::Anthropic => ("x-api-key", KEY),
            WireFormat::Gemini => ("x-goog-api-key", KEY),
            _ => ("authorization", bearer.as_str()),
        };
        assert_eq!(request.header(header), Some(value));
        assert!(!request.target.contains("key"), "{}", request.target);
        assert!(!request.body.to_string().contains(KEY));
    })
    .await;
}

#[tokio::test]
async fn without_a_key_none_is_sent() {
    for format in [WireFormat::Chat, WireFormat::Responses, WireFormat::Ollama] {
        let bench = Bench::new(format, |_| WireReply::Reply(reply(vec![text("Yes.")]))).await;
        ask(&Provider::new(bench.server.options(format)).unwrap(), hello()).await.unwrap();
        assert_eq!(bench.server.requests()[0].header("authorization"), None);
    }
}

#[tokio::test]
async fn a_key_in_an_error_text_is_redacted() {
    each(|format| async move {
        let echo =
            format!(r#"{{"error":{{"message":"Incorrect key provided: {KEY}. ?key={KEY}"}}}}"#);
        let body = format!("data: {echo}\n\n{echo}\n");
        let answers = [
            WireReply::Status(WireStatus::new(401, echo.clone())),
            WireReply::Status(WireStatus::new(500, format!("stack trace with {KEY}"))),
            WireReply::Bytes(body.into_bytes()),
            WireReply::Bytes(format!("data: \"{KEY}\": \n\n\"{KEY}\n").into_bytes()),
        ];
        for answer in answers {
            // `refused` checks that the key is redacted.
            Bench::new(format, move |_| answer.clone()).await.refused().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_error_about_the_key_names_its_source() {
    let bench = Bench::new(WireFormat::Anthropic, |_| {
        WireReply::Status(WireStatus::new(401, r#"{"error":{"message":"invalid x-api-key"}}"#))
    })
    .await;
    let error = bench.refused().await;
    let KeySource::File(path) = &bench.provider.options().key else { panic!() };
    assert!(error.message.contains(&path.display().to_string()), "{error}");
}

#[tokio::test]
async fn a_redirect_does_not_receive_the_key() {
    let elsewhere =
        Bench::new(WireFormat::Chat, |_| WireReply::Reply(reply(vec![text("!")]))).await;
    let url = elsewhere.server.base_url(WireFormat::Chat) + "/chat/completions";
    let bench = Bench::new(WireFormat::Chat, move |_| {
        WireReply::Status(WireStatus::new(307, "").header("location", &url))
    })
    .await;
    assert_eq!(bench.refused().await.kind, ModelErrorKind::Invalid);
    assert!(elsewhere.server.requests().is_empty());
}

/// A collector of all logs, also those of dependencies.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_log_contains_the_key() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || written.clone())
        .finish();
    // The whole test runs in one thread.
    let _logging = tracing::subscriber::set_default(subscriber);
    for format in WireFormat::ALL {
        let status = WireStatus::new(401, format!("the key was {KEY}"));
        for answer in [WireReply::Reply(reply(vec![text("Yes.")])), WireReply::Status(status)] {
            let bench = Bench::new(format, move |_| answer.clone()).await;
            let _ = bench.ask(hello()).await;
        }
    }
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("TRACE"), "nothing was logged");
    let found = log.lines().find(|line| line.contains(KEY));
    assert_eq!(found, None);
}

#[test]
fn a_password_in_a_base_url_is_a_secret() {
    let options =
        ProviderOptions::new(ProviderKind::OpenAiChat).base_url("https://me:hidden@host/v1");
    let provider = Provider::new(options).unwrap();
    assert!(!format!("{provider:?} {:?}", provider.options()).contains("hidden"));
}

#[test]
fn options_are_read_from_settings() {
    let read = |text| serde_json::from_str::<ProviderOptions>(text);
    let options = read(r#"{ "kind": "groq", "key": { "env": "MY_KEY" } }"#).unwrap();
    assert_eq!(options.kind.name(), "groq");
    assert_eq!(options.key, KeySource::Env("MY_KEY".into()));
    let options = read(r#"{ "kind": "anthropic", "base_url": "https://proxy.example" }"#).unwrap();
    assert_eq!(options.key, KeySource::Env("ANTHROPIC_API_KEY".into()));
    assert_eq!(options.base_url.as_deref(), Some("https://proxy.example"));
    assert!(read(r#"{ "kind": "nobody" }"#).unwrap_err().to_string().contains("anthropic"));
    assert!(read(r#"{ "kind": "ollama", "key": "sk-in-the-file" }"#).is_err());
}

#[test]
fn a_model_is_named_with_its_provider() {
    let name: ModelName = "openrouter/anthropic/claude-sonnet-4.5".parse().unwrap();
    assert_eq!((&*name.provider, &*name.model), ("openrouter", "anthropic/claude-sonnet-4.5"));
    for wrong in ["claude", "/claude", "anthropic/"] {
        let error = wrong.parse::<ModelName>().expect_err("no name");
        assert_eq!(error.kind, ModelErrorKind::Invalid);
    }
}

#[tokio::test]
async fn a_catalog_finds_configured_and_default_providers() {
    let bench = Bench::new(WireFormat::Chat, |request| {
        WireReply::Reply(reply(vec![text(&format!("I am {}.", request.model))]))
    })
    .await;
    let catalog =
        ProviderCatalog::new().with_provider("mine", bench.server.options(WireFormat::Chat));
    let found = catalog.find("mine/tiny").unwrap();
    let mut request = hello();
    request.model = found.model;
    let (_, reply) = ask(&*found.provider, request).await.unwrap();
    assert_eq!(reply.message.text(), "I am tiny.");
    for kind in ProviderKind::all() {
        catalog.find(&format!("{kind}/some-model")).unwrap();
    }
    let error = catalog.find("nobody/some-model").expect_err("nobody");
    assert!(error.message.contains("anthropic"), "{error}");
}

#[test]
fn a_key_goes_over_http_only_to_this_machine() {
    let options_for = |url: &str| ProviderOptions::new(ProviderKind::OpenAiChat).base_url(url);
    for (url, with_key, without) in [
        ("https://models.example.com/v1", true, true),
        ("http://localhost:8000/v1", true, true),
        ("http://127.0.0.9:8000/v1", true, true),
        ("http://[::1]:8000/v1", true, true),
        ("http://192.168.1.5:8000/v1", false, true),
        ("http://localhost.example.com/v1", false, true),
        ("http://127.0.0.1.example.com/v1", false, true),
        ("http://localhost@192.168.1.5/v1", false, false),
        ("http://me:secret@192.168.1.5/v1", false, false),
    ] {
        let create = |options: ProviderOptions| Provider::new(options).map(|_| ());
        assert_eq!(create(options_for(url)).is_ok(), with_key, "{url}");
        assert_eq!(
            create(options_for(url).key(KeySource::None)).is_ok(),
            without,
            "{url} without a key"
        );
        assert!(create(options_for(url).allow_http()).is_ok(), "{url}");
    }
    let error = Provider::new(options_for("http://192.168.1.5/v1")).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Invalid);
    assert!(error.message.contains("allow_http = true"), "{error}");
}
