//! A point in time as RFC 3339 text.

use brigade_model::ids::Time;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// A point in time in UTC with milliseconds: `2026-11-17T16:18:32.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct ApiTime(pub Time);

impl From<Time> for ApiTime {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

impl Serialize for ApiTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        serializer.collect_str(&format_args!("{time:.3}"))
    }
}

impl<'de> Deserialize<'de> for ApiTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        let millis = u64::try_from(time.as_millisecond());
        let millis = millis.map_err(|_| serde::de::Error::custom("a time before 1970"))?;
        Ok(Self(Time(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_text_with_milliseconds() {
        let time = ApiTime(Time(1_794_932_312_007));
        let text = serde_json::to_string(&time).expect("JSON");
        assert_eq!(text, "\"2026-11-17T16:18:32.007Z\"");
        assert_eq!(serde_json::from_str::<ApiTime>(&text).expect("a time"), time);
        let last = serde_json::to_string(&ApiTime(Time(u64::MAX))).expect("JSON");
        assert!(last.starts_with("\"9999-"), "{last}");
        assert!(serde_json::from_str::<ApiTime>("\"1969-12-31T23:59:59Z\"").is_err());
    }
}
