//! Asking a daemon that may be killed, upgraded or not there yet.

use std::time::Duration;

use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Mutex;

use crate::ask::Ask;
use crate::client::{Client, ClientError};
use crate::start::Starter;
use crate::wire::Introduction;

/// How often one question is asked again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// A connection for one call. It is made when it is first needed, so that a bridge that has nothing
/// to do does not keep a daemon from leaving.
#[derive(Debug)]
pub(super) struct Line {
    starter: Starter,
    pub(super) who: Introduction,
    client: Mutex<Option<Client>>,
}

impl Line {
    pub(super) fn new(starter: Starter, who: Introduction) -> Self {
        Self { starter, who, client: Mutex::new(None) }
    }

    /// Asks what may be asked twice, as often as the daemon goes away before it answers. The
    /// question is made anew each time, since time passes.
    pub(super) async fn ask<A: Ask>(&self, question: impl Fn() -> A) -> Result<A::Done, Refusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            let client = self.client().await?;
            match client.ask(question()).await {
                Ok(done) => return Ok(done),
                Err(error) if tries < TRIES && may_come_back(&error) => {}
                Err(error) => return Err(refusal(error)),
            }
            self.hang_up().await;
            tokio::time::sleep(PAUSE * tries).await;
        }
    }

    /// Asks what must not be done twice: again only if it was not heard.
    pub(super) async fn ask_once<A: Ask>(
        &self,
        question: impl Fn() -> A,
    ) -> Result<A::Done, Refusal> {
        for tries in 1..TRIES {
            let client = self.client().await?;
            match client.ask(question()).await {
                Err(ClientError::Unheard) => {}
                answered => return answered.map_err(refusal),
            }
            self.hang_up().await;
            tokio::time::sleep(PAUSE * tries).await;
        }
        Err(Refusal::unavailable("the daemon keeps leaving"))
    }

    async fn client(&self) -> Result<Client, Refusal> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connected = self.starter.connect(self.who.clone()).await.map_err(refusal)?;
        Ok(client.insert(connected).clone())
    }

    async fn hang_up(&self) {
        self.client.lock().await.take();
    }
}

/// It was killed, or is leaving to make room for the next one.
fn may_come_back(error: &ClientError) -> bool {
    match error {
        ClientError::Lost | ClientError::Unheard => true,
        ClientError::Refused(refusal) => refusal.kind == RefusalKind::Unavailable,
        ClientError::NoDaemon(_)
        | ClientError::NotStarted(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotPermitted(_)
        | ClientError::OtherVersion { .. }
        | ClientError::Garbled(_) => false,
    }
}

fn refusal(error: ClientError) -> Refusal {
    match error {
        ClientError::Refused(refusal) => refusal,
        ClientError::Lost => Refusal::unknown(error.to_string()),
        ClientError::NoDaemon(_)
        | ClientError::NotStarted(_)
        | ClientError::Unreachable { .. }
        | ClientError::NotPermitted(_)
        | ClientError::Unheard
        | ClientError::OtherVersion { .. } => Refusal::unavailable(error.to_string()),
        ClientError::Garbled(_) => Refusal::internal(error.to_string()),
    }
}
