//! The part of HTTP/1.1 that a provider's client needs.

use std::io;
use std::pin::pin;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::{
    WireFault, WireFormat, WireHandler, WireReply, WireRequest, WireStatus, anthropic, chat,
    gemini, ollama, responses,
};
use crate::model::ModelReply;

const HEAD_MAX: usize = 64 * 1024;
const BODY_MAX: usize = 256 << 20;

/// Serves one connection until the client closes it.
pub(super) async fn serve_connection(socket: TcpStream, handler: &WireHandler) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut reader, mut writer) = socket.into_split();
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut reader, &mut buffer).await? {
        let after = {
            let mut writing = pin!(write_reply(&mut writer, handler, request));
            tokio::select! {
                after = &mut writing => after?,
                () = wait_for_close(&mut reader, &mut buffer) => return Ok(()),
            }
        };
        if after == AfterReply::Close {
            break;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterReply {
    KeepAlive,
    Close,
}

/// Returns when the client has closed its side.
async fn wait_for_close(reader: &mut OwnedReadHalf, buffer: &mut Vec<u8>) {
    while let Ok(read) = reader.read_buf(buffer).await {
        if read == 0 {
            return;
        }
    }
}

async fn read_request(
    reader: &mut OwnedReadHalf,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<RawRequest>> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if buffer.len() > HEAD_MAX || reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0usize).min(BODY_MAX);
    while buffer.len() < length {
        if reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer.drain(..length).collect();
    Ok(Some(RawRequest { method: method.to_owned(), target: target.to_owned(), headers, body }))
}

struct RawRequest {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

async fn write_reply(
    writer: &mut OwnedWriteHalf,
    handler: &WireHandler,
    raw: RawRequest,
) -> io::Result<AfterReply> {
    let request = match parse_request(raw) {
        Ok(request) => request,
        Err(refusal) => return write_status(writer, &refusal).await,
    };
    let format = request.format;
    let model = request.model.clone();
    let frames = |reply: &ModelReply| reply_frames(format, &model, reply);
    match handler.reply(request).await {
        WireReply::Status(status) => write_status(writer, &status).await,
        WireReply::Hang => std::future::pending().await,
        WireReply::Bytes(bytes) => {
            write_head(writer, format).await?;
            write_chunk(writer, &bytes).await?;
            write_end(writer).await
        }
        WireReply::Reply(reply) => {
            write_head(writer, format).await?;
            for frame in frames(&reply) {
                write_chunk(writer, frame.as_bytes()).await?;
            }
            write_end(writer).await
        }
        WireReply::Slow(reply, pause) => {
            write_head(writer, format).await?;
            for frame in frames(&reply) {
                tokio::time::sleep(pause).await;
                write_chunk(writer, frame.as_bytes()).await?;
            }
            write_end(writer).await
        }
        WireReply::ByteByByte(reply) => {
            write_head(writer, format).await?;
            for byte in frames(&reply).concat().bytes() {
                write_chunk(writer, &[byte]).await?;
                writer.flush().await?;
                tokio::task::yield_now().await;
            }
            write_end(writer).await
        }
        WireReply::HangMidway(reply) => {
            write_half(writer, format, frames(&reply)).await?;
            std::future::pending().await
        }
        WireReply::DisconnectMidway(reply) => {
            write_half(writer, format, frames(&reply)).await?;
            Ok(AfterReply::Close)
        }
        WireReply::EndMidway(reply) => {
            write_half(writer, format, frames(&reply)).await?;
            write_end(writer).await
        }
        WireReply::FailMidway(reply, fault) => {
            write_half(writer, format, frames(&reply)).await?;
            write_chunk(writer, failure_frame(format, fault).as_bytes()).await?;
            write_end(writer).await
        }
    }
}

fn parse_request(raw: RawRequest) -> Result<WireRequest, WireStatus> {
    let path = raw.target.split('?').next().unwrap_or_default();
    let body: Value = match serde_json::from_slice(&raw.body) {
        Ok(body) if raw.method == "POST" => body,
        _ => return Err(WireStatus::new(400, r#"{"error":{"message":"post a JSON object"}}"#)),
    };
    let model = super::text_field(&body, "model");
    let (format, model) = match path {
        "/v1/chat/completions" => (WireFormat::Chat, model),
        "/v1/responses" => (WireFormat::Responses, model),
        "/v1/messages" => (WireFormat::Anthropic, model),
        "/api/chat" => (WireFormat::Ollama, model),
        path => {
            let name = path.strip_prefix("/v1beta/models/");
            match name.and_then(|name| name.strip_suffix(":streamGenerateContent")) {
                Some(name) => (WireFormat::Gemini, name.to_owned()),
                None => {
                    return Err(WireStatus::new(404, r#"{"error":{"message":"no such path"}}"#));
                }
            }
        }
    };
    let parsed = match format {
        WireFormat::Chat => chat::parse_body(&body),
        WireFormat::Responses => responses::parse_body(&body),
        WireFormat::Anthropic => anthropic::parse_body(&body),
        WireFormat::Gemini => gemini::parse_body(&body),
        WireFormat::Ollama => ollama::parse_body(&body),
    };
    Ok(WireRequest {
        format,
        target: raw.target,
        headers: raw.headers,
        model,
        system: parsed.system,
        messages: parsed.messages,
        tools: parsed.tools,
        max_output: parsed.max_output,
        body,
    })
}

fn reply_frames(format: WireFormat, model: &str, reply: &ModelReply) -> Vec<String> {
    match format {
        WireFormat::Chat => chat::reply_frames(model, reply),
        WireFormat::Responses => responses::reply_frames(model, reply),
        WireFormat::Anthropic => anthropic::reply_frames(model, reply),
        WireFormat::Gemini => gemini::reply_frames(model, reply),
        WireFormat::Ollama => ollama::reply_frames(model, reply),
    }
}

fn failure_frame(format: WireFormat, fault: WireFault) -> String {
    match format {
        WireFormat::Chat => chat::failure_frame(fault),
        WireFormat::Responses => responses::failure_frame(fault),
        WireFormat::Anthropic => anthropic::failure_frame(fault),
        WireFormat::Gemini => gemini::failure_frame(fault),
        WireFormat::Ollama => ollama::failure_frame(fault),
    }
}

async fn write_half(
    writer: &mut OwnedWriteHalf,
    format: WireFormat,
    frames: Vec<String>,
) -> io::Result<()> {
    write_head(writer, format).await?;
    for frame in &frames[..frames.len().div_ceil(2)] {
        write_chunk(writer, frame.as_bytes()).await?;
    }
    Ok(())
}

async fn write_head(writer: &mut OwnedWriteHalf, format: WireFormat) -> io::Result<()> {
    let kind = match format {
        WireFormat::Ollama => "application/x-ndjson",
        _ => "text/event-stream; charset=utf-8",
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\
         x-request-id: req_1\r\n\r\n"
    );
    writer.write_all(head.as_bytes()).await
}

async fn write_chunk(writer: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    writer.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
    writer.write_all(bytes).await?;
    writer.write_all(b"\r\n").await
}

async fn write_end(writer: &mut OwnedWriteHalf) -> io::Result<AfterReply> {
    writer.write_all(b"0\r\n\r\n").await?;
    Ok(AfterReply::KeepAlive)
}

async fn write_status(writer: &mut OwnedWriteHalf, reply: &WireStatus) -> io::Result<AfterReply> {
    let mut head = format!(
        "HTTP/1.1 {} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    writer.write_all(format!("{head}\r\n{}", reply.body).as_bytes()).await?;
    Ok(AfterReply::KeepAlive)
}
