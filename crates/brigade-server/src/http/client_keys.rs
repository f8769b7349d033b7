//! The idempotency keys of clients that have a token.

use brigade_model::name::{IdempotencyKey, KEY_MAX};
use brigade_model::refusal::Refusal;
use sha2::{Digest, Sha256};

use crate::request_context::{CallerIdentity, RequestContext};

impl RequestContext {
    /// Returns the key of a task as it is stored. A client of a token has its own keys: the stored one
    /// carries its name, so that no other client gets its tasks by a key.
    pub(crate) fn stored_key(&self, key: Option<&str>) -> Result<Option<String>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        match (&self.caller, self.session_scope) {
            (CallerIdentity::Client(client), Some(_)) => {
                scoped_key(&client.name.to_string(), key).map(Some)
            }
            _ => Ok(Some(key.to_owned())),
        }
    }
}

/// Returns the key of a client. Names are escaped, so that two clients never have the same key.
fn scoped_key(client: &str, key: &str) -> Result<String, Refusal> {
    key.parse::<IdempotencyKey>()?;
    let client = client.replace('%', "%25").replace('/', "%2f");
    let scoped = format!("{client}/{key}");
    match scoped.len() > KEY_MAX {
        true => {
            // No escaped name starts like this.
            let digest = Sha256::digest(&scoped);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(format!("//{digest}"))
        }
        false => Ok(scoped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_clients_are_different_and_fit() {
        let keys = [("a", "b/c"), ("a/b", "c"), ("a%2fb", "c"), ("a", "b%2fc"), ("a", "c")];
        let stored = keys.map(|(client, key)| scoped_key(client, key).expect("a key"));
        let distinct: std::collections::HashSet<&String> = stored.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{stored:?}");
        let name = "/".repeat(70);
        let long = [("x", 'x'), (&name, 'x'), (&name, 'y')];
        let long = long.map(|(client, letter)| {
            let key = letter.to_string().repeat(KEY_MAX);
            scoped_key(client, &key).expect("a key")
        });
        assert!(long.iter().all(|key| key.parse::<IdempotencyKey>().is_ok()), "{long:?}");
        assert_ne!(long[1], long[2]);
        assert!(scoped_key("a", &"x".repeat(KEY_MAX + 1)).is_err());
        assert!(scoped_key("a", "").is_err());
    }
}
