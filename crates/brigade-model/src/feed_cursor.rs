//! A place in the feed of a store.

use std::cmp::Ordering;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;

use crate::ids::{Lane, Position};

/// A place in the feed of a store: for each lane, the last event before it. A lane that is not named
/// is read from its beginning.
///
/// Programs store cursors, compare them and pass them back. As text, a cursor is the position of its
/// last event, or a list of them.
///
/// ```
/// use brigade_model::feed_cursor::FeedCursor;
///
/// let cursor: FeedCursor = "17".parse()?;
/// assert_eq!(cursor.to_string(), "17");
/// assert_eq!("0".parse(), Ok(FeedCursor::START));
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedCursor(LastEvents);

/// The last event of each lane that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum LastEvents {
    #[default]
    None,
    /// The usual case, which needs no memory of its own.
    One(Position),
    /// Two or more lanes, by their numbers.
    Many(Arc<Vec<Position>>),
}

impl FeedCursor {
    /// The place before the first event of each lane.
    pub const START: Self = Self(LastEvents::None);

    /// Returns the last event of each lane, in the order of the lanes.
    pub fn positions(&self) -> &[Position] {
        match &self.0 {
            LastEvents::None => &[],
            LastEvents::One(position) => std::slice::from_ref(position),
            LastEvents::Many(positions) => positions,
        }
    }

    /// Returns the number of a lane's last event, or zero.
    pub fn number_in(&self, lane: Lane) -> u64 {
        let found = self.positions().iter().find(|position| position.lane == lane);
        found.map_or(0, |position| position.no)
    }

    /// Returns true if an event is before this place.
    pub fn includes(&self, position: Position) -> bool {
        position.no <= self.number_in(position.lane)
    }

    /// Returns true if every event before the other place is also before this one.
    pub fn includes_all(&self, other: &Self) -> bool {
        other.positions().iter().all(|position| self.includes(*position))
    }

    /// Moves this place behind an event. An event before it changes nothing.
    pub fn advance(&mut self, position: Position) {
        if position.no == 0 {
            return;
        }
        match &mut self.0 {
            LastEvents::None => self.0 = LastEvents::One(position),
            LastEvents::One(last) if last.lane == position.lane => {
                last.no = last.no.max(position.no);
            }
            LastEvents::One(last) => {
                let mut both = vec![*last, position];
                both.sort_by_key(|position| position.lane);
                self.0 = LastEvents::Many(Arc::new(both));
            }
            LastEvents::Many(positions) => {
                let positions = Arc::make_mut(positions);
                match positions.binary_search_by_key(&position.lane, |position| position.lane) {
                    Ok(at) => positions[at].no = positions[at].no.max(position.no),
                    Err(at) => positions.insert(at, position),
                }
            }
        }
    }

    /// Moves this place behind every event before the other one.
    pub fn advance_to(&mut self, other: &Self) {
        for position in other.positions() {
            self.advance(*position);
        }
    }
}

/// A place is before another one if the other one includes all its events and more. Of two places of
/// different lanes, neither may be before the other.
impl PartialOrd for FeedCursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.includes_all(other), other.includes_all(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl From<Position> for FeedCursor {
    fn from(position: Position) -> Self {
        let mut cursor = Self::START;
        cursor.advance(position);
        cursor
    }
}

impl FromIterator<Position> for FeedCursor {
    fn from_iter<T: IntoIterator<Item = Position>>(positions: T) -> Self {
        let mut cursor = Self::START;
        for position in positions {
            cursor.advance(position);
        }
        cursor
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for position in self.positions() {
            write!(f, "{separator}{position}")?;
            separator = ",";
        }
        if separator.is_empty() {
            f.write_str("0")?;
        }
        Ok(())
    }
}

impl FromStr for FeedCursor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let positions = text.split(',').map(|position| {
            let (lane, no) = position.split_once(':').unwrap_or(("0", position));
            Ok(Position { lane: Lane(lane.parse()?), no: no.parse()? })
        });
        positions.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lane: u32, no: u64) -> Position {
        Position { lane: Lane(lane), no }
    }

    #[test]
    fn a_place_includes_the_events_before_it_in_each_lane() {
        let mut cursor = FeedCursor::START;
        assert!(!cursor.includes(at(0, 1)));
        for position in [at(3, 7), at(0, 2), at(1, 5), at(3, 6)] {
            cursor.advance(position);
        }
        assert_eq!(cursor.to_string(), "2,1:5,3:7");
        assert!(cursor.includes(at(3, 7)) && !cursor.includes(at(3, 8)));
        assert!(!cursor.includes(at(2, 1)));
        assert!(cursor.includes_all(&at(1, 5).into()));
        let other: FeedCursor = [at(1, 5), at(4, 1)].into_iter().collect();
        assert!(!cursor.includes_all(&other));
        assert_eq!(cursor.partial_cmp(&other), None);
        assert!(FeedCursor::from(at(1, 5)) < cursor && cursor > FeedCursor::START);
    }

    #[test]
    fn equal_places_are_equal_in_every_order() {
        let positions = [at(2, 1), at(0, 9), at(1, 4)];
        let forward: FeedCursor = positions.into_iter().collect();
        let backward: FeedCursor = positions.into_iter().rev().collect();
        assert_eq!(forward, backward);
        let mut merged = FeedCursor::from(at(0, 9));
        merged.advance_to(&forward);
        assert_eq!(merged, forward);
        assert_eq!(FeedCursor::from(at(4, 0)), FeedCursor::START);
    }

    #[test]
    fn the_text_round_trips() {
        for text in ["0", "17", "1:17", "3,1:5,3:7"] {
            assert_eq!(text.parse::<FeedCursor>().unwrap().to_string(), text);
        }
        for wrong in ["", "x", "1:", ":1", "1,,2", "1:2:3", "-1"] {
            assert!(wrong.parse::<FeedCursor>().is_err(), "{wrong}");
        }
    }
}
