//! A collector of spans: the part of OTLP over HTTP that an exporter needs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::story_env::poll;

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    received: Arc<Received>,
}

/// The bodies and keys of the received requests.
#[derive(Default)]
struct Received {
    bodies: Mutex<Vec<Vec<u8>>>,
    keys: Mutex<Vec<String>>,
}

impl Collector {
    /// Starts a collector that runs until the end of the test.
    pub(crate) fn new() -> Self {
        Self::answering("200 OK")
    }

    /// Starts a collector that answers every request with this status.
    pub(crate) fn answering(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Received::default());
        let shared = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let received = shared.clone();
                std::thread::spawn(move || serve(stream, status, &received));
            }
        });
        Self { endpoint, received }
    }

    /// Returns the `authorization` headers of the requests.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.received.keys.lock().unwrap().clone()
    }

    /// Returns all received bodies.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.received.bodies.lock().unwrap().concat()
    }

    pub(crate) fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let bodies = self.received.bodies.lock().unwrap();
        bodies.iter().map(|body| ExportTraceServiceRequest::decode(&**body).unwrap()).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    pub(crate) fn named(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    #[track_caller]
    pub(crate) fn until_named(&self, name: &str) -> Vec<Span> {
        poll(name, || Some(self.named(name)).filter(|found| !found.is_empty()))
    }
}

/// Serves requests until the connection ends.
fn serve(stream: TcpStream, status: &str, received: &Received) -> Option<()> {
    let mut responses = stream.try_clone().ok()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = String::new();
        requests.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        assert_eq!(line.trim_end(), "POST /v1/traces HTTP/1.1");
        let mut length = 0;
        loop {
            let mut header = String::new();
            requests.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => received.keys.lock().unwrap().push(value.to_owned()),
                "content-type" => assert_eq!(value, "application/x-protobuf"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).ok()?;
        received.bodies.lock().unwrap().push(body);
        write!(responses, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn value_of(attributes: &[KeyValue], name: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone().and_then(|AnyValue { value }| value)
}

#[track_caller]
pub(crate) fn text(attributes: &[KeyValue], name: &str) -> String {
    match value_of(attributes, name) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

#[track_caller]
pub(crate) fn number(span: &Span, name: &str) -> i64 {
    match value_of(&span.attributes, name) {
        Some(Value::IntValue(number)) => number,
        other => panic!("{name} of {} is {other:?}", span.name),
    }
}

pub(crate) fn has(span: &Span, name: &str) -> bool {
    value_of(&span.attributes, name).is_some()
}
