//! The environment of a process, passed to the shim in a file.
//!
//! A dynamically linked shim would obey variables such as `LD_PRELOAD`, outside the sandbox of the
//! process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The first bytes of the file, which distinguish it from the null device.
const MAGIC: &[u8] = b"brigade environment\0";

/// A variable and its value.
pub type EnvVariable = (OsString, OsString);

/// Encodes the variables as the content of the file.
pub fn encode(variables: &[EnvVariable]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (name, value) in variables {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// Decodes the variables. Returns `None` without a file. Skips variables without a name.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<EnvVariable>> {
    let variables = bytes.strip_prefix(MAGIC)?.split(|byte| *byte == 0);
    let pairs = variables.filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let text = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((text(&variable[..at]), text(&variable[at + 1..])))
    });
    Some(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_round_trip() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let all = vec![pair("A", "1=2\n"), pair("EMPTY", ""), pair("Ü", "ö")];
        assert_eq!(decode(&encode(&all)), Some(all.clone()));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        assert_eq!(decode(&encode(&[pair("", "x"), pair("A", "")])), Some(vec![pair("A", "")]));
        assert_eq!(decode(b""), None);
    }
}
