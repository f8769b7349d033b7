//! A collector of spans: OTLP over HTTP, as much of it as an exporter needs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::kitchen::poll;

pub(crate) struct Collector {
    pub(crate) endpoint: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    /// Listens until the test is over.
    pub(crate) fn new() -> Self {
        Self::answering("200 OK")
    }

    /// The same with another answer to all that comes.
    pub(crate) fn answering(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let keys: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = (bodies.clone(), keys.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (bodies, keys) = kept.clone();
                std::thread::spawn(move || serve(stream, status, (&bodies, &keys)));
            }
        });
        Self { endpoint, bodies, keys }
    }

    /// What the requests were signed with.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }

    /// All that came, as it came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bodies.lock().unwrap().concat()
    }

    pub(crate) fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        let bodies = self.bodies.lock().unwrap();
        bodies.iter().map(|body| ExportTraceServiceRequest::decode(&**body).unwrap()).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|one| one.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    pub(crate) fn named(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    #[track_caller]
    pub(crate) fn until_named(&self, name: &str) -> Vec<Span> {
        poll(name, || Some(self.named(name)).filter(|found| !found.is_empty()))
    }
}

/// Takes one request after the other, until there is none.
fn serve(
    stream: TcpStream,
    status: &str,
    (bodies, keys): (&Mutex<Vec<Vec<u8>>>, &Mutex<Vec<String>>),
) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut asked = BufReader::new(stream);
    loop {
        let mut line = String::new();
        asked.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        assert_eq!(line.trim_end(), "POST /v1/traces HTTP/1.1");
        let mut length = 0;
        loop {
            let mut header = String::new();
            asked.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "authorization" => keys.lock().unwrap().push(value.to_owned()),
                "content-type" => assert_eq!(value, "application/x-protobuf"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        asked.read_exact(&mut body).ok()?;
        bodies.lock().unwrap().push(body);
        write!(answers, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn value_of(attributes: &[KeyValue], name: &str) -> Option<Value> {
    let found = attributes.iter().find(|one| one.key == name)?;
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
