//! The sandbox as the library passes it to a shim: in a file beside the Landlock rulesets.
//!
//! The library computes the paths and the filter. The shim's child executes the steps, and refuses
//! what it cannot decode.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// All restrictions except Landlock that the child applies before it executes anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShimSandbox {
    /// The instructions of the seccomp filter, in the kernel's format.
    pub filter: Vec<u8>,
    pub namespaces: SandboxNamespaces,
    /// The mounts of each layer, the outermost first. Empty without a mount namespace.
    pub layers: Vec<MountLayer>,
}

/// The namespaces of a sandboxed process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxNamespaces {
    pub mount: bool,
    pub network: bool,
}

/// The parts of a sandbox that apply to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxParts {
    pub landlock: bool,
    pub seccomp: bool,
    pub mount: bool,
    pub network: bool,
    /// True if all processes can be ended at once. Not a restriction by itself.
    pub control_group: bool,
    /// True if one limit applies to the memory of all processes together.
    pub memory_limit: bool,
}

impl SandboxParts {
    pub(super) fn bits(self) -> u8 {
        let Self { landlock, seccomp, mount, network, control_group: group, memory_limit: memory } =
            self;
        let parts = [landlock, seccomp, mount, network, group, memory];
        parts.iter().rev().fold(0, |bits, part| bits << 1 | u8::from(*part))
    }

    pub(super) fn from_bits(bits: u8) -> Self {
        let [landlock, seccomp, mount, network, group, memory] =
            [1, 2, 4, 8, 16, 32].map(|bit| bits & bit != 0);
        Self { landlock, seccomp, mount, network, control_group: group, memory_limit: memory }
    }
}

/// The mounts of one layer. The child opens the sources of all `Bind` steps, makes everything
/// read-only, and then executes the steps in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountLayer {
    pub steps: Vec<MountStep>,
}

/// One change to the file system that a process sees. No path contains a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountStep {
    /// An empty, read-only directory over an existing one. Skipped if there is no such directory.
    Hide(PathBuf),
    /// An empty, writable directory in memory over an existing one. Skipped if there is no such
    /// directory.
    Memory(PathBuf),
    /// A new symbolic link in a hidden directory.
    Link { at: PathBuf, target: PathBuf },
    /// A mount of a file or directory with its submounts, as it was before the layer.
    Bind { source: PathBuf, at: PathBuf, access: BindAccess },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAccess {
    Read,
    /// Writable if the outer layers allow it.
    Write,
}

const LAYER: &[u8] = b"layer";
const HIDE: &[u8] = b"hide";
const MEMORY: &[u8] = b"memory";
const LINK: &[u8] = b"link";
const READ: &[u8] = b"read";
const WRITE: &[u8] = b"write";

impl ShimSandbox {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_field(&mut out, &self.filter);
        let SandboxNamespaces { mount, network } = self.namespaces;
        put_field(&mut out, &[u8::from(mount), u8::from(network)]);
        for layer in &self.layers {
            put_field(&mut out, LAYER);
            for step in &layer.steps {
                step.encode(&mut out);
            }
        }
        out
    }

    /// Decodes a sandbox. Returns `None` if any part is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let filter = fields.next()?.to_vec();
        let (mount, network) = match fields.next()? {
            [mount @ 0..=1, network @ 0..=1] => (*mount == 1, *network == 1),
            _ => return None,
        };
        let mut layers: Vec<MountLayer> = Vec::new();
        while let Some(field) = fields.next() {
            if field == LAYER {
                layers.push(MountLayer::default());
            } else {
                layers.last_mut()?.steps.push(MountStep::decode(field, &mut fields)?);
            }
        }
        let is_complete = fields.0.is_empty() && (mount || layers.is_empty());
        is_complete.then_some(Self {
            filter,
            namespaces: SandboxNamespaces { mount, network },
            layers,
        })
    }
}

impl MountStep {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut put_step = |tag: &[u8], paths: &[&Path]| {
            put_field(out, tag);
            paths.iter().for_each(|path| put_field(out, path.as_os_str().as_bytes()));
        };
        match self {
            Self::Hide(at) => put_step(HIDE, &[at]),
            Self::Memory(at) => put_step(MEMORY, &[at]),
            Self::Link { at, target } => put_step(LINK, &[at, target]),
            Self::Bind { source, at, access: BindAccess::Read } => put_step(READ, &[source, at]),
            Self::Bind { source, at, access: BindAccess::Write } => put_step(WRITE, &[source, at]),
        }
    }

    fn decode(tag: &[u8], fields: &mut FieldReader<'_>) -> Option<Self> {
        let first = fields.path()?;
        Some(match tag {
            HIDE => Self::Hide(first),
            MEMORY => Self::Memory(first),
            LINK => Self::Link { at: first, target: fields.path()? },
            READ => Self::Bind { source: first, at: fields.path()?, access: BindAccess::Read },
            WRITE => Self::Bind { source: first, at: fields.path()?, access: BindAccess::Write },
            _ => return None,
        })
    }
}

/// Writes a field: its length and its bytes.
fn put_field(out: &mut Vec<u8>, field: &[u8]) {
    out.extend((field.len() as u32).to_le_bytes());
    out.extend(field);
}

struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn path(&mut self) -> Option<PathBuf> {
        self.next().map(|field| PathBuf::from(OsStr::from_bytes(field)))
    }
}

impl<'a> Iterator for FieldReader<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, after) = self.0.split_first_chunk::<4>()?;
        let (field, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.0 = after;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> ShimSandbox {
        let bind = |access| MountStep::Bind { source: "/a b".into(), at: "/t".into(), access };
        let link = MountStep::Link { at: "/run/x".into(), target: "/nix".into() };
        let hidden = vec![MountStep::Hide("/run".into()), MountStep::Memory("/shm".into()), link];
        ShimSandbox {
            filter: vec![1, 2, 0, 4],
            namespaces: SandboxNamespaces { mount: true, network: false },
            layers: vec![
                MountLayer { steps: hidden },
                MountLayer { steps: vec![bind(BindAccess::Read), bind(BindAccess::Write)] },
            ],
        }
    }

    #[test]
    fn a_sandbox_round_trips() {
        for given in [sandbox(), ShimSandbox::default()] {
            assert_eq!(ShimSandbox::decode(&given.encode()), Some(given));
        }
    }

    #[test]
    fn parts_round_trip() {
        for bits in 0..64 {
            assert_eq!(SandboxParts::from_bits(bits).bits(), bits);
        }
    }

    #[test]
    fn an_incomplete_sandbox_is_refused() {
        let bytes = sandbox().encode();
        let layers: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(LAYER)).collect();
        for cut in 0..bytes.len() {
            let read = ShimSandbox::decode(&bytes[..cut]);
            // Bytes that end after a layer or a step are valid, but contain less.
            assert!(read.is_none_or(|read| read.encode() == bytes[..cut]), "{cut}");
        }
        let mut wrong = bytes.clone();
        wrong[layers[0]] = b'x';
        assert_eq!(ShimSandbox::decode(&wrong), None);
    }
}
