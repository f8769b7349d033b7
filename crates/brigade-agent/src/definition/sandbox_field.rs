//! The field `sandbox` of a definition's file: `true`, `false`, or nested fields.

use std::fmt;

use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, SandboxRequest, TcpPolicy, parse_bytes,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::front_matter::{DurationText, present};

pub(super) enum SandboxField {
    Off,
    On(SandboxFields),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SandboxFields {
    read: Vec<String>,
    write: Vec<String>,
    #[serde(deserialize_with = "present")]
    tcp: Option<bool>,
    #[serde(deserialize_with = "present")]
    network: Option<bool>,
    #[serde(deserialize_with = "present")]
    memory: Option<ByteSize>,
    #[serde(deserialize_with = "present")]
    cpu: Option<DurationText>,
    #[serde(deserialize_with = "present")]
    files: Option<u64>,
}

impl SandboxField {
    pub(super) fn into_parts(self) -> (Option<SandboxRequest>, ResourceLimits) {
        let Self::On(fields) = self else { return (None, ResourceLimits::default()) };
        let tcp = if fields.tcp == Some(false) { TcpPolicy::Denied } else { TcpPolicy::Allowed };
        let network = if fields.network == Some(false) {
            NetworkPolicy::Denied
        } else {
            NetworkPolicy::Allowed
        };
        let resources = ResourceLimits {
            memory: fields.memory.map(|memory| memory.0),
            cpu_secs: fields.cpu.map(|cpu| cpu.0.as_secs()),
            open_files: fields.files,
        };
        let request = SandboxRequest {
            read: fields.read,
            write: fields.write,
            tcp,
            network,
            ..SandboxRequest::default()
        };
        (Some(request), resources)
    }
}

impl<'de> Deserialize<'de> for SandboxField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SandboxVisitor)
    }
}

struct SandboxVisitor;

impl<'de> Visitor<'de> for SandboxVisitor {
    type Value = SandboxField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`true`, or fields")
    }

    fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<SandboxField, E> {
        Ok(if is_on { SandboxField::On(SandboxFields::default()) } else { SandboxField::Off })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SandboxField, A::Error> {
        SandboxFields::deserialize(MapAccessDeserializer::new(map)).map(SandboxField::On)
    }
}

struct ByteSize(u64);

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_bytes(&text).map(Self).map_err(|refusal| de::Error::custom(refusal.message))
    }
}
