//! Sending lines to a task, each once, also when the daemon goes away meanwhile.

use brigade_model::event::Event;
use brigade_model::ids::Owner;
use brigade_model::json::Json;
use brigade_model::message::Message;
use brigade_server::client::Step;
use brigade_server::requests::{Events, Happened, Send, Show};
use brigade_server::{Client, ClientError, Target};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::context::Context;
use crate::exit::Failure;
use crate::show;

/// A task that is sent to.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    context: &'a Context,
    client: Client,
    target: Target,
    /// Whether messages are to be heard at once.
    interrupt: bool,
    /// The numbers of the messages in the order in which they were sent.
    sent: Vec<u64>,
    /// Events up to this position have been looked at.
    position: u64,
    /// When this began: what is older was sent by somebody else.
    since: u64,
}

/// One message, or the end of them.
#[derive(Clone, Debug)]
struct Item {
    body: Option<Json>,
    last: bool,
}

impl Item {
    fn is(&self, message: &Message) -> bool {
        let body = self.body.clone().unwrap_or_else(Json::null);
        message.body == body && message.last == self.last
    }
}

impl<'a> Feed<'a> {
    pub(crate) fn new(context: &'a Context, client: Client, target: Target) -> Self {
        let (sent, since) = (Vec::new(), show::now());
        Self { context, client, target, interrupt: false, sent, position: 0, since }
    }

    /// The same with messages that are to be heard at once.
    pub(crate) fn interrupting(self, interrupt: bool) -> Self {
        Self { interrupt, ..self }
    }

    pub(crate) fn into_sent(self) -> Vec<u64> {
        self.sent
    }

    /// Every line of our input becomes a message.
    pub(crate) async fn lines(&mut self) -> Result<(), Failure> {
        let mut input = BufReader::new(tokio::io::stdin());
        for number in 1u64.. {
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            line.pop_if(|byte| *byte == b'\n');
            let text = String::from_utf8(line).map_err(|_| not_text(number))?;
            let sent = self.text(&text).await;
            sent.map_err(|failure| failure.about(&format!("line {number} of the input")))?;
        }
        Ok(())
    }

    pub(crate) async fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.send(Item { body: Some(Json::of(&text)?), last: false }).await
    }

    /// Nothing follows.
    pub(crate) async fn end(&mut self) -> Result<(), Failure> {
        self.send(Item { body: None, last: true }).await
    }

    async fn send(&mut self, item: Item) -> Result<(), Failure> {
        loop {
            let Item { body: message, last } = item.clone();
            let (target, interrupt) = (self.target.clone(), self.interrupt && !last);
            let send = Send { target, message, last, interrupt };
            match self.client.ask(send).await {
                Ok(numbers) => {
                    self.sent.extend(numbers);
                    return Ok(());
                }
                Err(ClientError::Unheard) => self.client = self.context.daemon().await?,
                // It may have been heard: the next daemon knows.
                Err(ClientError::Lost) => {
                    if self.was_heard(&item).await? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Looks among what has happened for a message that nobody acknowledged.
    async fn was_heard(&mut self, item: &Item) -> Result<bool, Failure> {
        loop {
            self.client = self.context.daemon().await?;
            match self.look_for(item).await.map_err(Failure::from) {
                Err(failure) if failure.is_lost_daemon() => {}
                looked => return looked,
            }
        }
    }

    async fn look_for(&mut self, item: &Item) -> Result<bool, ClientError> {
        let task = self.client.ask(Show { target: self.target.clone() }).await?;
        let number = task.address.rsplit(':').next().unwrap_or_default();
        let known = self.sent.last().copied().unwrap_or(0);
        let asked = Events { session: Some(task.session), after: self.position, follow: false };
        let mut events = self.client.stream(asked)?;
        let (mut found, mut unknown) = (None, Vec::new());
        loop {
            match events.next().await? {
                Step::Done(position) => {
                    self.position = position;
                    self.sent.extend(found);
                    self.tell(&unknown);
                    return Ok(found.is_some());
                }
                Step::Item(Happened::Gap { .. }) => {}
                Step::Item(Happened::Event { event, .. }) => match event {
                    Event::MessageSent(message) if is_to(message.to, number) => {
                        let newer = message.no.0 > known && message.sent.0 >= self.since;
                        if newer && found.is_none() && item.is(&message) {
                            found = Some(message.no.0);
                        }
                    }
                    Event::MessageUnknown { to, message } if is_to(to, number) => {
                        unknown.push(message.0);
                    }
                    _ => {}
                },
            }
        }
    }

    /// The daemon died while it wrote them: that they arrived cannot be known, and they are not sent
    /// again.
    fn tell(&self, unknown: &[u64]) {
        for message in unknown {
            if let Some(at) = self.sent.iter().position(|sent| sent == message) {
                let (line, task) = (at + 1, &self.target.task);
                show::note(&format!(
                    "whether line {line} reached {task} is not known; it is not sent again"
                ));
            }
        }
    }
}

fn is_to(to: Owner, number: &str) -> bool {
    to.task().is_some_and(|no| no.to_string() == number)
}

fn not_text(line: u64) -> Failure {
    Failure::usage(format!("line {line} of the input is not UTF-8"))
        .hint("lines are stored as text; encode the bytes (base64) or put them into a file")
}
