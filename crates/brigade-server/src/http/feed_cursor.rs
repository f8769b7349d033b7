//! A place in the feed as opaque text.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::ids::Position;
use brigade_model::refusal::Refusal;
use uuid::Uuid;

const VERSION: u8 = 1;
const BYTES: usize = 1 + 16 + 8;

/// A place in the feed of one store. Callers compare it for equality and pass it back, and nothing
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedCursor {
    pub(crate) store: Uuid,
    pub(crate) position: Position,
}

impl FeedCursor {
    /// Returns the position, if the cursor is one of this store and not of the future.
    pub(crate) fn position_in(self, store: Uuid, last: Position) -> Result<Position, Refusal> {
        if self.store != store {
            return Err(Refusal::invalid("the cursor is of another store; list again"));
        }
        if self.position > last {
            return Err(Refusal::invalid("the cursor is of the future; list again"));
        }
        Ok(self.position)
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..17].copy_from_slice(self.store.as_bytes());
        bytes[17..].copy_from_slice(&self.position.0.to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for FeedCursor {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("this is not a cursor; pass one as it was received");
        // A text of another length is not decoded.
        if text.len() != (BYTES * 8).div_ceil(6) {
            return Err(wrong());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let [VERSION, rest @ ..] = &bytes[..] else { return Err(wrong()) };
        let (store, position) = rest.split_at_checked(16).ok_or_else(wrong)?;
        Ok(Self {
            store: Uuid::from_slice(store).map_err(|_| wrong())?,
            position: Position(u64::from_be_bytes(position.try_into().map_err(|_| wrong())?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_of_one_store_and_not_of_the_future() {
        let store = Uuid::from_u128(7);
        let cursor = FeedCursor { store, position: Position(300) };
        let parsed: FeedCursor = cursor.to_string().parse().expect("a cursor");
        assert_eq!(parsed, cursor);
        assert_eq!(parsed.position_in(store, Position(300)), Ok(Position(300)));
        assert!(parsed.position_in(store, Position(299)).is_err());
        assert!(parsed.position_in(Uuid::from_u128(8), Position(300)).is_err());
    }

    #[test]
    fn other_texts_are_no_cursors() {
        let text = FeedCursor { store: Uuid::nil(), position: Position(1) }.to_string();
        let of_version_2 = format!("Ag{}", &text[2..]);
        for wrong in ["", "1", &text[1..], &format!("{text}A"), &of_version_2, &"=".repeat(34)] {
            assert!(wrong.parse::<FeedCursor>().is_err(), "{wrong}");
        }
    }
}
