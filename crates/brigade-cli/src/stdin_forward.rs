//! Sends lines to a task. Each line arrives once, even if the daemon is replaced.

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Owner;
use brigade_model::json::Json;
use brigade_model::message::Message;
use brigade_protocol::daemon_client::{DaemonClient, ReconnectPolicy};
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{EventItem, ReadEventsRequest, SendRequest, ShowTaskRequest};
use brigade_protocol::{ClientError, DaemonConnection, TaskTarget};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::context::follow_over;
use crate::exit_code::CliError;
use crate::render;

/// A sender of messages to one task.
#[derive(Debug)]
pub(crate) struct StdinForwarder {
    client: DaemonClient,
    target: TaskTarget,
    options: MessageOptions,
    /// The numbers of the sent messages, in order.
    message_numbers: Vec<u64>,
    /// Events up to this place were searched.
    place: FeedCursor,
    /// The start time: older messages have other senders.
    started_at: u64,
}

/// The settings of all messages of a sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageOptions {
    /// Messages interrupt the current model call.
    pub(crate) interrupt: bool,
    pub(crate) name: Option<String>,
    /// The key of the only message.
    pub(crate) key: Option<String>,
}

/// One message, or the end of the input.
#[derive(Clone, Debug)]
struct OutgoingMessage {
    body: Option<Json>,
    closes_input: bool,
    options: MessageOptions,
}

impl OutgoingMessage {
    fn matches(&self, message: &Message) -> bool {
        let body = self.body.clone().unwrap_or_else(Json::null);
        message.body == body
            && message.closes_input == self.closes_input
            && message.name.as_deref() == self.options.name.as_deref()
    }
}

impl StdinForwarder {
    pub(crate) fn new(client: DaemonClient, target: TaskTarget) -> Self {
        Self {
            client,
            target,
            options: MessageOptions::default(),
            message_numbers: Vec::new(),
            place: FeedCursor::START,
            started_at: render::now_millis(),
        }
    }

    pub(crate) fn with_options(self, options: MessageOptions) -> Self {
        Self { options, ..self }
    }

    pub(crate) fn into_message_numbers(self) -> Vec<u64> {
        self.message_numbers
    }

    /// Sends each line of stdin as a message.
    pub(crate) async fn forward_stdin(&mut self) -> Result<(), CliError> {
        let mut input = BufReader::new(tokio::io::stdin());
        for number in 1u64.. {
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            line.pop_if(|byte| *byte == b'\n');
            let text = String::from_utf8(line).map_err(|_| not_utf8_error(number))?;
            let sent = self.send_text(&text).await;
            sent.map_err(|error| error.prefix_message(&format!("line {number} of the input")))?;
        }
        Ok(())
    }

    pub(crate) async fn send_text(&mut self, text: &str) -> Result<(), CliError> {
        let options = self.options.clone();
        let body = Some(Json::of(&text)?);
        self.send_once(OutgoingMessage { body, closes_input: false, options }).await
    }

    /// Closes the input of the task.
    pub(crate) async fn close_input(&mut self) -> Result<(), CliError> {
        let options = MessageOptions::default();
        self.send_once(OutgoingMessage { body: None, closes_input: true, options }).await
    }

    async fn send_once(&mut self, item: OutgoingMessage) -> Result<(), CliError> {
        loop {
            let OutgoingMessage { body: message, closes_input, options } = item.clone();
            let target = self.target.clone();
            let MessageOptions { interrupt, name, key } = options;
            let alive_only = false;
            let send =
                SendRequest { target, message, closes_input, interrupt, key, name, alive_only };
            match self.client.send_request(ReconnectPolicy::UNBOUNDED, send).await {
                Ok(numbers) => {
                    self.message_numbers.extend(numbers);
                    return Ok(());
                }
                // It may have been received: the next daemon knows.
                Err(ClientError::Lost) => {
                    if self.was_received(&item).await? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Searches the events for a message without a reply.
    async fn was_received(&mut self, item: &OutgoingMessage) -> Result<bool, CliError> {
        let client = self.client.clone();
        let find = async |connection| Ok(self.find_in_events(&connection, item).await?);
        follow_over(&client, find).await
    }

    async fn find_in_events(
        &mut self,
        connection: &DaemonConnection,
        item: &OutgoingMessage,
    ) -> Result<bool, ClientError> {
        let task = connection.call(ShowTaskRequest { target: self.target.clone() }).await?;
        let number = task.address.rsplit(':').next().unwrap_or_default();
        let known = self.message_numbers.last().copied().unwrap_or(0);
        let mut request =
            ReadEventsRequest { session: Some(task.session), ..ReadEventsRequest::default() };
        request.set_place(&self.place);
        let mut place = self.place.clone();
        let mut events = connection.call_streaming(request)?;
        let mut found = None;
        let mut unknown = Vec::new();
        loop {
            let part = events.next_part().await?;
            if let ReplyStreamPart::Item(item) = &part {
                item.advance(&mut place);
            }
            match part {
                ReplyStreamPart::Reply(_) => {
                    self.place = place;
                    self.message_numbers.extend(found);
                    self.report_unknown(&unknown);
                    return Ok(found.is_some());
                }
                ReplyStreamPart::Item(EventItem::Gap { .. }) => {}
                ReplyStreamPart::Item(EventItem::Event { event, .. }) => match event {
                    Event::MessageSent(message) if is_recipient(message.to, number) => {
                        let newer = message.no.0 > known && message.sent_at.0 >= self.started_at;
                        if newer && found.is_none() && item.matches(&message) {
                            found = Some(message.no.0);
                        }
                    }
                    Event::MessageDeliveryUnknown { to, message } if is_recipient(to, number) => {
                        unknown.push(message.0);
                    }
                    _ => {}
                },
            }
        }
    }

    /// Reports messages that the daemon was writing when it died. They may have arrived, and are
    /// not sent again.
    fn report_unknown(&self, unknown: &[u64]) {
        for message in unknown {
            if let Some(at) = self.message_numbers.iter().position(|sent| sent == message) {
                let line = at + 1;
                let task = &self.target.task;
                render::print_note(&format!(
                    "whether line {line} reached {task} is not known; it is not sent again"
                ));
            }
        }
    }
}

fn is_recipient(to: Owner, number: &str) -> bool {
    to.task().is_some_and(|no| no.to_string() == number)
}

fn not_utf8_error(line: u64) -> CliError {
    CliError::usage(format!("line {line} of the input is not UTF-8"))
        .with_hint("lines are stored as text; encode the bytes (base64) or put them into a file")
}
