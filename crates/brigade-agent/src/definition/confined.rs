//! The field `confine` of a definition's file: `true`, or what is left to its commands.

use std::fmt;

use brigade_model::enclosure::{Confine, Network, Resources, Tcp, bytes};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::front_matter::{Span, present};

pub(super) enum Confined {
    No,
    To(Fields),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    read: Vec<String>,
    write: Vec<String>,
    #[serde(deserialize_with = "present")]
    tcp: Option<bool>,
    #[serde(deserialize_with = "present")]
    network: Option<bool>,
    #[serde(deserialize_with = "present")]
    memory: Option<Bytes>,
    #[serde(deserialize_with = "present")]
    cpu: Option<Span>,
    #[serde(deserialize_with = "present")]
    files: Option<u64>,
}

impl Confined {
    pub(super) fn parts(self) -> (Option<Confine>, Resources) {
        let Self::To(fields) = self else { return (None, Resources::default()) };
        let tcp = if fields.tcp == Some(false) { Tcp::Denied } else { Tcp::Allowed };
        let network =
            if fields.network == Some(false) { Network::Denied } else { Network::Allowed };
        let resources = Resources {
            memory: fields.memory.map(|memory| memory.0),
            cpu_secs: fields.cpu.map(|cpu| cpu.0.as_secs()),
            open_files: fields.files,
        };
        let (read, write) = (fields.read, fields.write);
        (Some(Confine { read, write, tcp, network, ..Confine::default() }), resources)
    }
}

impl<'de> Deserialize<'de> for Confined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Whichever)
    }
}

struct Whichever;

impl<'de> Visitor<'de> for Whichever {
    type Value = Confined;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`true`, or fields")
    }

    fn visit_bool<E: de::Error>(self, whether: bool) -> Result<Confined, E> {
        Ok(if whether { Confined::To(Fields::default()) } else { Confined::No })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Confined, A::Error> {
        Fields::deserialize(MapAccessDeserializer::new(map)).map(Confined::To)
    }
}

struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        bytes(&text).map(Self).map_err(|refusal| de::Error::custom(refusal.message))
    }
}
