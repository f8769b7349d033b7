//! A place in the feed as opaque text.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position};
use brigade_model::refusal::Refusal;
use uuid::Uuid;

/// The version of a place in a store with one lane: a number.
const ONE_LANE: u8 = 1;
/// The version of a place in a store with several lanes: pairs of a lane and a number.
const MANY_LANES: u8 = 2;

const STORE_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;
const LANE_BYTES: usize = 4;
/// The most lanes of a cursor. Beyond it, a text is not decoded.
const LANES_MAX: usize = 256;
const TEXT_MAX: usize =
    ((1 + STORE_BYTES + LANES_MAX * (LANE_BYTES + NUMBER_BYTES)) * 8).div_ceil(6);

/// A place in the feed of one store. Callers compare it for equality and pass it back, and nothing
/// else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreCursor {
    pub(crate) store: Uuid,
    pub(crate) cursor: FeedCursor,
}

impl StoreCursor {
    /// Returns the place in the feed, if the cursor is one of this store and not of the future.
    pub(crate) fn place_in(self, store: Uuid, end: &FeedCursor) -> Result<FeedCursor, Refusal> {
        if self.store != store {
            return Err(Refusal::invalid("the cursor is of another store; list again"));
        }
        // A lane without events that is not the newest one was removed, or is not known here yet.
        let newest = end.positions().last().map(|last| last.lane);
        let is_readable = |position: &Position| match end.number_in(position.lane) {
            0 => newest.is_some_and(|newest| position.lane < newest),
            _ => end.includes(*position),
        };
        if !self.cursor.positions().iter().all(is_readable) {
            return Err(Refusal::invalid("the cursor is of the future; list again"));
        }
        Ok(self.cursor)
    }
}

impl fmt::Display for StoreCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_lane = match self.cursor.positions() {
            [] => Some(0),
            [Position { lane: Lane(0), no }] => Some(*no),
            _ => None,
        };
        let mut bytes = vec![if one_lane.is_some() { ONE_LANE } else { MANY_LANES }];
        bytes.extend(self.store.as_bytes());
        match one_lane {
            Some(no) => bytes.extend(no.to_be_bytes()),
            None => {
                for Position { lane, no } in self.cursor.positions() {
                    bytes.extend(lane.0.to_be_bytes());
                    bytes.extend(no.to_be_bytes());
                }
            }
        }
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for StoreCursor {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::invalid("this is not a cursor; pass one as it was received");
        if text.len() > TEXT_MAX {
            return Err(wrong());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let (version, rest) = bytes.split_first().ok_or_else(wrong)?;
        let (store, place) = rest.split_at_checked(STORE_BYTES).ok_or_else(wrong)?;
        let store = Uuid::from_slice(store).map_err(|_| wrong())?;
        let cursor = match *version {
            ONE_LANE => parse_number(place).map(|no| Position { lane: Lane(0), no }.into()),
            MANY_LANES => parse_positions(place),
            _ => None,
        };
        Ok(Self { store, cursor: cursor.ok_or_else(wrong)? })
    }
}

fn parse_number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn parse_positions(bytes: &[u8]) -> Option<FeedCursor> {
    let (pairs, rest) = bytes.as_chunks::<{ LANE_BYTES + NUMBER_BYTES }>();
    let positions = pairs.iter().map(|pair| {
        let (lane, no) = pair.split_at(LANE_BYTES);
        let lane = Lane(u32::from_be_bytes(lane.try_into().ok()?));
        Some(Position { lane, no: parse_number(no)? })
    });
    positions.collect::<Option<_>>().filter(|_| rest.is_empty() && !pairs.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> FeedCursor {
        text.parse().expect("a place")
    }

    #[test]
    fn a_cursor_is_of_one_store_and_not_of_the_future() {
        let store = Uuid::from_u128(7);
        for (place, before) in [("300", "299"), ("5,1:300,7:2", "5,1:299,7:2"), ("3:9", "9")] {
            let cursor = StoreCursor { store, cursor: at(place) };
            let parsed: StoreCursor = cursor.to_string().parse().expect("a cursor");
            assert_eq!(parsed, cursor);
            assert_eq!(parsed.clone().place_in(store, &at(place)), Ok(at(place)));
            assert!(parsed.clone().place_in(store, &at(before)).is_err());
            assert!(parsed.place_in(Uuid::from_u128(8), &at(place)).is_err());
        }
    }

    #[test]
    fn a_removed_lane_counts_as_read() {
        let store = Uuid::from_u128(7);
        let end = at("1:300,7:2");
        for (place, is_readable) in [("0:9,1:300", true), ("2:1", true), ("8:1", false)] {
            let cursor = StoreCursor { store, cursor: at(place) };
            assert_eq!(cursor.place_in(store, &end).is_ok(), is_readable, "{place}");
        }
    }

    #[test]
    fn the_start_of_a_store_is_a_cursor() {
        let cursor = StoreCursor { store: Uuid::nil(), cursor: FeedCursor::START };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn other_texts_are_no_cursors() {
        let text = StoreCursor { store: Uuid::nil(), cursor: at("1") }.to_string();
        let of_version_2 = format!("Ag{}", &text[2..]);
        let of_version_3 = format!("Aw{}", &text[2..]);
        let long = "A".repeat(TEXT_MAX + 1);
        let wrong = ["", "1", &text[1..], &format!("{text}A"), &of_version_2, &of_version_3, &long];
        for wrong in wrong.into_iter().chain(["=".repeat(34).as_str()]) {
            assert!(wrong.parse::<StoreCursor>().is_err(), "{wrong}");
        }
    }
}
