//! The digest of a whole call that waits for an approval.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ApprovalRequest;
use crate::ids::{CallIndex, TaskNo};
use crate::refusal::Refusal;

const BYTES: usize = 16;

/// The digest of a call and of its task. A verdict that names it applies to that call only, even if
/// another agent has taken the name meanwhile.
///
/// It is cryptographic, because agents choose the digested text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallDigest([u8; BYTES]);

impl CallDigest {
    pub fn of(task: TaskNo, call: CallIndex, request: &ApprovalRequest) -> Self {
        let optional = |text: Option<&str>| text.map(str::to_owned);
        let subject = request.subject.as_ref();
        // The JSON of a tuple is unambiguous: different calls have different JSON.
        let whole = (
            (task.to_string(), call.0),
            (&*request.tool, request.is_shell, optional(request.directory.as_deref())),
            (&*request.arguments.text, request.arguments.is_truncated),
            subject.map(|subject| (subject.text.to_string(), subject.is_truncated)),
            (request.rule.to_string(), &*request.rule_source),
        );
        Self::of_json(&whole)
    }

    /// Returns the digest of a call's effect, regardless of its task: tool, arguments and rule
    /// subject. Two calls have the same digest only if all their arguments are equal.
    pub fn of_content(request: &ApprovalRequest) -> Self {
        let subject = request.subject.as_ref();
        let content = (
            ("content", &*request.tool, request.is_shell),
            (sort_keys(&request.arguments.text), request.arguments.is_truncated),
            subject.map(|subject| (subject.text.to_string(), subject.is_truncated)),
        );
        Self::of_json(&content)
    }

    fn of_json(whole: &impl Serialize) -> Self {
        let text = serde_json::to_vec(whole).unwrap_or_default();
        let mut digest = [0; BYTES];
        digest.copy_from_slice(&Sha256::digest(&text)[..BYTES]);
        Self(digest)
    }
}

/// Sorts the names of the arguments, because a model may write the same ones in another order.
fn sort_keys(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(arguments) {
        Ok(mut value) => {
            value.sort_all_objects();
            value.to_string()
        }
        Err(_) => arguments.to_owned(),
    }
}

impl fmt::Display for CallDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CallDigest {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("a digest has 32 hexadecimal digits");
        if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Self(number.to_be_bytes()))
    }
}

impl TryFrom<String> for CallDigest {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<CallDigest> for String {
    fn from(digest: CallDigest) -> Self {
        digest.to_string()
    }
}
