//! The requests that are open, by token. A daemon has one table of them for all listeners, through
//! which a revocation reaches each of them at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_runtime::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::access_token::AccessToken;
use super::body_budget::BodyShare;

/// The time that a request has after the end of its token, to finish a change that it has begun.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The requests of one token that are served at once, open streams among them.
const REQUESTS_PER_TOKEN: usize = 128;

/// The requests of each token that are served now.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    table: Mutex<RequestTable>,
}

#[derive(Debug, Default)]
struct RequestTable {
    by_token: HashMap<String, Arc<TokenRequests>>,
    revocation_count: u64,
}

/// The requests of one token. The validity of each holds it, also after the request's end: a call
/// of MCP continues when its client disconnects.
#[derive(Debug)]
struct TokenRequests {
    slots: Arc<Semaphore>,
    body_share: BodyShare,
    /// Cancelled when the token is revoked or expires.
    ended: CancellationToken,
}

impl TokenRequests {
    /// Returns true if a request of the token, or what it has left, is served.
    fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.slots.available_permits() < REQUESTS_PER_TOKEN
    }
}

/// The number of revocations before a look-up of a token. A token that was found may have been
/// revoked since, if the number has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RevocationCount(u64);

/// The admission of a request.
#[derive(Debug)]
pub(crate) enum RequestAdmission {
    Admitted(AdmittedRequest),
    /// A token was revoked meanwhile, perhaps this one: look it up again.
    LookUpAgain,
}

#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    /// Held while the request is open.
    pub(crate) permit: OwnedSemaphorePermit,
    pub(crate) validity: TokenValidity,
}

impl OpenRequests {
    pub(crate) fn revocation_count(&self) -> RevocationCount {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        RevocationCount(table.revocation_count)
    }

    /// Adds a request of a token that was looked up after the revocations were counted. Refuses one
    /// too many.
    pub(crate) fn admit(
        &self,
        token: &AccessToken,
        counted: RevocationCount,
        clock: Arc<dyn Clock>,
    ) -> Result<RequestAdmission, Refusal> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.revocation_count != counted.0 {
            return Ok(RequestAdmission::LookUpAgain);
        }
        let by_token = &mut table.by_token;
        if by_token.len() == by_token.capacity() {
            by_token.retain(|_, open| open.is_used());
        }
        let new_requests = || {
            let slots = Arc::new(Semaphore::new(REQUESTS_PER_TOKEN));
            let body_share = BodyShare::default();
            Arc::new(TokenRequests { slots, body_share, ended: CancellationToken::new() })
        };
        let requests = by_token.entry(token.id.clone()).or_insert_with(new_requests).clone();
        let permit = requests.slots.clone().try_acquire_owned().map_err(|_| {
            Refusal::limit(format!("{REQUESTS_PER_TOKEN} requests of this token are open"))
        })?;
        let validity = TokenValidity { requests, expires_at: token.expires_at, clock };
        Ok(RequestAdmission::Admitted(AdmittedRequest { permit, validity }))
    }

    /// Ends all open requests of a token whose record is removed.
    pub(crate) fn revoke(&self, token: &str) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.revocation_count += 1;
        if let Some(open) = table.by_token.remove(token) {
            open.ended.cancel();
        }
    }
}

/// The validity of a request's token.
#[derive(Clone)]
pub(crate) struct TokenValidity {
    requests: Arc<TokenRequests>,
    expires_at: Option<Time>,
    clock: Arc<dyn Clock>,
}

/// The end of a handler that was finished within the validity of its token.
#[derive(Debug)]
pub(crate) enum FinishedHandler<T> {
    InTime(T),
    /// The token ended before the handler, which has finished a change or was cancelled.
    Late(T),
    /// The handler did not finish in time. Its change may have happened.
    Unfinished,
}

impl TokenValidity {
    /// Waits until the token is revoked or expires. Then the waits of all its requests are
    /// cancelled.
    pub(crate) async fn ended(&self) {
        let expired = async {
            match self.expires_at {
                Some(expires_at) => self.clock.sleep_until(expires_at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.cancellation().cancelled() => {}
            () = expired => self.cancellation().cancel(),
        }
    }

    /// Returns the share of the token in the memory for bodies.
    pub(crate) fn body_share(&self) -> &BodyShare {
        &self.requests.body_share
    }

    /// Returns the cancellation of the waits of the token.
    pub(crate) fn cancellation(&self) -> &CancellationToken {
        &self.requests.ended
    }

    /// Runs a handler that changes something. When the token ends, the handler's waits are
    /// cancelled, but a change that it has begun gets its answer: nobody else would tell the caller
    /// of it.
    pub(crate) async fn finish<T>(&self, handler: impl Future<Output = T>) -> FinishedHandler<T> {
        tokio::pin!(handler);
        tokio::select! {
            biased;
            result = &mut handler => return FinishedHandler::InTime(result),
            () = self.ended() => {}
        }
        match tokio::time::timeout(FINISH_TIMEOUT, handler).await {
            Ok(result) => FinishedHandler::Late(result),
            Err(_) => FinishedHandler::Unfinished,
        }
    }
}

impl fmt::Debug for TokenValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenValidity")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;
    use brigade_testkit::ManualClock;

    use super::*;
    use crate::http::access_token::TokenAccess;

    fn token() -> AccessToken {
        AccessToken {
            name: "eve".to_owned(),
            access: TokenAccess::ReadOnly,
            created_at: Time(1),
            expires_at: None,
            from_login: false,
            id: "e".to_owned(),
        }
    }

    fn admit(requests: &OpenRequests, id: &str) -> AdmittedRequest {
        let token = AccessToken { id: id.to_owned(), ..token() };
        let clock = Arc::new(ManualClock::at(Time(1)));
        let admitted = requests.admit(&token, requests.revocation_count(), clock).expect("a slot");
        let RequestAdmission::Admitted(admitted) = admitted else { panic!("it was not revoked") };
        admitted
    }

    #[test]
    fn a_revocation_reaches_what_an_ended_request_has_left() {
        let requests = OpenRequests::default();
        let AdmittedRequest { permit, validity } = admit(&requests, "e");
        drop(permit);
        for other in 0..1_000 {
            admit(&requests, &other.to_string());
        }
        let count = requests.table.lock().expect("a table").by_token.len();
        assert!(count < 100, "{count} unused entries are left");
        requests.revoke("e");
        assert!(validity.cancellation().is_cancelled());
    }

    #[test]
    fn a_revocation_between_look_up_and_admission_is_noticed() {
        let clock = || Arc::new(ManualClock::at(Time(1)));
        let requests = OpenRequests::default();
        let counted = requests.revocation_count();
        let admitted = requests.admit(&token(), counted, clock()).expect("a slot");
        let RequestAdmission::Admitted(open) = admitted else { panic!("it was not revoked") };
        requests.revoke("e");
        assert!(open.validity.cancellation().is_cancelled());
        let again = requests.admit(&token(), counted, clock()).expect("no refusal");
        assert!(matches!(again, RequestAdmission::LookUpAgain));
    }
}
