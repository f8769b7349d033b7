//! A model endpoint on loopback. It plays one script in the wire formats of four providers, and
//! keeps the tool results of its callers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::wire::{ModelTurn, WireFormat};

/// A tool call that the script makes.
#[derive(Clone)]
pub(crate) struct ScriptedCall {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
}

/// The results that the model read, by the index of their call.
type Results = Arc<Mutex<BTreeMap<usize, String>>>;

pub(crate) struct ModelEndpoint {
    pub(crate) port: u16,
    results: Results,
}

impl ModelEndpoint {
    /// Serves until the test program ends.
    pub(crate) fn start(script: Vec<ScriptedCall>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let results = Results::default();
        let shared = results.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let script = script.clone();
                let results = shared.clone();
                std::thread::spawn(move || serve(stream, &script, &results));
            }
        });
        Self { port, results }
    }

    /// Returns the text that the model read as the result of a call.
    #[track_caller]
    pub(crate) fn result(&self, call: usize) -> String {
        let results = self.results.lock().unwrap();
        results
            .get(&call)
            .unwrap_or_else(|| panic!("no result of call {call}: {results:?}"))
            .clone()
    }
}

/// Answers one request and closes the connection. A caller that hangs up does not fail the test.
fn serve(stream: TcpStream, script: &[ScriptedCall], results: &Results) {
    let mut reader = BufReader::new(stream);
    let Some((path, body)) = read_request(&mut reader) else { return };
    let (kind, reply) = match WireFormat::of_path(&path) {
        Some(wire) => {
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let turn = next_turn(wire, &body, script, results);
            match wire.is_streamed(&path, &body) {
                true => ("text/event-stream", wire.events(&turn)),
                false => ("application/json", wire.whole(&turn).to_string()),
            }
        }
        None if path.contains("count") => {
            ("application/json", json!({"input_tokens": 10, "totalTokens": 10}).to_string())
        }
        None => ("application/json", json!({"data": [], "models": []}).to_string()),
    };
    let length = reply.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = reader.get_mut().write_all((head + &reply).as_bytes());
}

/// Returns the next call of the script, or its final message. Requests without tools are for
/// titles.
fn next_turn(
    wire: WireFormat,
    body: &Value,
    script: &[ScriptedCall],
    results: &Results,
) -> ModelTurn {
    let offered = wire.offered_tools(body);
    if offered.is_empty() {
        return ModelTurn::Text("Soup");
    }
    let read = wire.tool_results(body);
    let next = read.len();
    results.lock().unwrap().extend(read.into_iter().enumerate());
    let Some(call) = script.get(next) else { return ModelTurn::Text("All done.") };
    let arguments = call.arguments.clone();
    let matching =
        offered.iter().find(|tool| tool.is_of_brigade() && tool.name.ends_with(call.tool));
    let searches = offered.iter().find(|tool| tool.name == "ToolSearch");
    match (matching, searches) {
        (Some(tool), _) => ModelTurn::Call { index: Some(next), tool: tool.clone(), arguments },
        // This client lists tools only by name until the model asks for them.
        (None, Some(search)) => {
            let query = format!("select:mcp__brigade__{}", call.tool);
            let arguments = json!({"query": query, "max_results": 5});
            ModelTurn::Call { index: None, tool: search.clone(), arguments }
        }
        (None, None) => ModelTurn::Text("The tool is not offered."),
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    let mut is_chunked = false;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "transfer-encoding" => is_chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if is_chunked {
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let size = u64::from_str_radix(line.trim_end(), 16).ok()?;
            reader.by_ref().take(size).read_to_end(&mut body).ok()?;
            line.clear();
            reader.read_line(&mut line).ok()?;
            if size == 0 {
                break;
            }
        }
    } else {
        reader.by_ref().take(length).read_to_end(&mut body).ok()?;
    }
    Some((path, body))
}
