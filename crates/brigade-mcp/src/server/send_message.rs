//! `send_message` for clients: writes a line to a process, or sends a message or an answer to an
//! agent.

use brigade_delegation::{SendMessage, SendMessageReply};
use brigade_model::json::Json;
use brigade_model::name::check_message_name;
use brigade_model::refusal::{Refusal, RefusalKind};

use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::SendRequest;
use brigade_protocol::task_info::TaskInfo;

impl ClientDelegationTool for SendMessage {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        if self.message.is_none() && !self.close {
            return Err(Refusal::invalid("missing argument `message`, or close: true"));
        }
        self.name.as_deref().map_or(Ok(()), check_message_name)?;
        let info = call.show_task(&self.to).await?;
        let address = call.address(&info);
        if info.is_agent() {
            let sent = send_to_agent(&self, call, &info).await?;
            return Ok(McpToolReply::Reply(sent.render(&address)));
        }
        if self.question.is_some() {
            return Err(Refusal::invalid(format!("{address} is a command and asks nothing")));
        }
        self.check_unnamed_line(&address)?;
        write_line(&self, call).await?;
        let sent = match self.message {
            Some(_) => SendMessageReply::InputLine { closes_input: self.close },
            None => SendMessageReply::InputClosed,
        };
        Ok(McpToolReply::Reply(sent.render(&address)))
    }
}

/// Writes a line to a process. It is never repeated: a daemon that dies may have written it.
async fn write_line<C: RequestClient>(
    args: &SendMessage,
    call: &McpCallContext<C>,
) -> Result<(), Refusal> {
    send_once(call, new_request(args, call)?).await
}

/// Sends a message to an agent. Its key lets it be repeated to the next daemon, unless the daemon
/// is too old for keys.
async fn send_to_inbox<C: RequestClient>(
    args: &SendMessage,
    call: &McpCallContext<C>,
) -> Result<(), Refusal> {
    let request = new_request(args, call)?;
    if call.request_client.protocol().await? < SendRequest::KEY_AND_NAME_PROTOCOL {
        return send_once(call, request).await;
    }
    let key = Some(call.idempotency_key.clone());
    let request = SendRequest { key, ..request };
    call.request_client.call(|| request.clone()).await.map(drop)
}

fn new_request<C: RequestClient>(
    args: &SendMessage,
    call: &McpCallContext<C>,
) -> Result<SendRequest, Refusal> {
    Ok(SendRequest {
        target: call.target(&args.to),
        message: args.message.as_deref().map(Json::of).transpose()?,
        closes_input: args.close,
        interrupt: args.interrupt,
        key: None,
        name: args.name.clone(),
        alive_only: false,
    })
}

async fn send_once<C: RequestClient>(
    call: &McpCallContext<C>,
    request: SendRequest,
) -> Result<(), Refusal> {
    match call.request_client.call_once(|| request.clone()).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.kind == RefusalKind::Unknown => Err(Refusal::unknown(format!(
            "{}: the message to {} may have arrived or not; check with read_output",
            refusal.message, request.target.task
        ))),
        Err(refusal) => Err(refusal),
    }
}

async fn send_to_agent<C: RequestClient>(
    args: &SendMessage,
    call: &McpCallContext<C>,
    info: &TaskInfo,
) -> Result<SendMessageReply, Refusal> {
    let address = call.address(info);
    if args.close {
        return Err(Refusal::invalid(format!(
            "{address} is an agent and has no input to close; stop_task ends it"
        )));
    }
    let message = args.text()?;
    if let Some(question) = find_question(args, &address, info)? {
        args.check_unnamed_answer(&address)?;
        call.answer_question(&address, question, &Json::of(message)?).await?;
        return Ok(SendMessageReply::Answered { question: Some(question) });
    }
    send_to_inbox(args, call).await?;
    Ok(match info.alive {
        true => SendMessageReply::Delivered { interrupts: args.interrupt },
        false => SendMessageReply::Resumed,
    })
}

/// Returns the named question, or the only open one.
fn find_question(
    args: &SendMessage,
    address: &str,
    info: &TaskInfo,
) -> Result<Option<u32>, Refusal> {
    let open: Vec<u32> = info.questions.iter().map(|question| question.call).collect();
    match (args.question, open.as_slice()) {
        (Some(named), open) if open.contains(&named) => Ok(Some(named)),
        (Some(named), _) => {
            Err(Refusal::not_found(format!("{address} has no open question {named}")))
        }
        (None, [only]) => Ok(Some(*only)),
        (None, []) => Ok(None),
        (None, several) => {
            let numbers: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Refusal::invalid(format!(
                "{address} asks several questions; give the number of the one you answer as the \
                 argument `question`: {}",
                numbers.join(" or ")
            )))
        }
    }
}
