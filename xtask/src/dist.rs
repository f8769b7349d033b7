//! `cargo xtask dist`: builds the program for old systems and packages it for several installers.
//!
//! ```text
//! toolchain -> program -> release (program, manual pages, completions, date)
//!                            |-> archive, deb, npm, oci, sbom, wheel
//!                            `-> SHA256SUMS
//! ```
//!
//! - [`toolchain`]: compiles the program with a linker for an old glibc.
//! - [`glibc`]: measures the glibc that a program needs.
//! - [`release`]: the input of all packages: the stripped program and the files that belong to it.
//! - [`files`]: files, digests and archives that depend on nothing but their content.
//! - [`archive`], [`deb`], [`npm`], [`oci`], [`sbom`], [`wheel`]: one package format each.
//! - [`installs`]: the stage `dist` of `cargo xtask test`, which installs each package and runs it.

mod archive;
mod deb;
mod files;
mod glibc;
pub(crate) mod installs;
mod npm;
mod oci;
mod release;
mod sbom;
mod toolchain;
mod wheel;
mod zip;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::target_dir;
use release::Release;

/// The platform of all packages.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The file with the digests of all packages in a directory.
const DIGESTS: &str = "SHA256SUMS";

/// A function that writes the packages of one format and returns their file names.
type WriteFormat = fn(&Release, &Path) -> Result<Vec<String>, String>;

/// The formats by name.
const FORMATS: [(&str, WriteFormat); 6] = [
    ("archive", archive::write),
    ("npm", npm::write),
    ("wheel", wheel::write),
    ("deb", deb::write),
    ("oci", oci::write),
    ("sbom", sbom::write),
];

/// The arguments of `cargo xtask dist`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DistOptions {
    /// The formats, or none for all.
    formats: Vec<String>,
    out: Option<PathBuf>,
    /// An existing program to package instead of a new one.
    binary: Option<PathBuf>,
}

/// Parses the arguments, makes the program and writes the packages.
pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    write_packages(&parse_options(args)?)
}

/// Writes packages and their digests.
fn write_packages(options: &DistOptions) -> Result<(), String> {
    toolchain::check_platform(std::env::consts::OS, std::env::consts::ARCH)?;
    let out = options.out.clone().unwrap_or_else(|| target_dir().join("dist"));
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let release = match &options.binary {
        Some(binary) => Release::prepare(binary, None)?,
        None => Release::prepare(&toolchain::build_program()?, Some(toolchain::GLIBC_MAX))?,
    };
    let is_wanted = |name: &str| {
        options.formats.is_empty() || options.formats.iter().any(|wanted| wanted == name)
    };
    let mut written = Vec::new();
    for (name, write) in FORMATS.into_iter().filter(|(name, _)| is_wanted(name)) {
        written.extend(write(&release, &out).map_err(|error| format!("{name}: {error}"))?);
    }
    println!("dist: the program needs glibc {}", release.glibc);
    for name in &written {
        let bytes = fs::metadata(out.join(name)).map_or(0, |metadata| metadata.len());
        println!("{:>12} bytes  {}", bytes, out.join(name).display());
    }
    write_digests(&out, &written)
}

fn parse_options(args: &[&str]) -> Result<DistOptions, String> {
    let mut options = DistOptions::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut path = || {
            let path = words.next().ok_or_else(|| format!("{word} needs a path"));
            path.map(|path| Some(PathBuf::from(path)))
        };
        match *word {
            "--out" => options.out = path()?,
            "--binary" => options.binary = path()?,
            name if FORMATS.iter().any(|(format, _)| *format == name) => {
                options.formats.push(name.to_owned());
            }
            other => {
                let names = FORMATS.map(|(name, _)| name).join(", ");
                return Err(format!("unknown format or option {other:?}; the formats are {names}"));
            }
        }
    }
    Ok(options)
}

/// Writes the digests of these packages and of those that the file already lists.
fn write_digests(out: &Path, written: &[String]) -> Result<(), String> {
    let path = out.join(DIGESTS);
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let mut names: BTreeSet<&str> = listed.lines().filter_map(|l| l.split("  ").nth(1)).collect();
    names.extend(written.iter().map(String::as_str));
    let mut text = String::new();
    for name in names.into_iter().filter(|name| out.join(name).is_file()) {
        let digest = files::sha256_hex(&files::read(&out.join(name))?);
        text.push_str(&format!("{digest}  {name}\n"));
    }
    files::write(&path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_formats_and_paths() {
        let options = parse_options(&["npm", "--out", "a", "wheel", "--binary", "b"]);
        let expected = DistOptions {
            formats: vec!["npm".into(), "wheel".into()],
            out: Some("a".into()),
            binary: Some("b".into()),
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(parse_options(&[]), Ok(DistOptions::default()));
        for wrong in [&["rpm"][..], &["--out"], &["--binary"], &["--strip"]] {
            assert!(parse_options(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn digests_of_other_packages_stay_while_they_exist() {
        let out = std::env::temp_dir().join(format!("xtask-digests-{}", std::process::id()));
        fs::create_dir_all(&out).expect("a temporary directory");
        for name in ["a", "b"] {
            fs::write(out.join(name), name).expect("a file");
        }
        write_digests(&out, &["b".into()]).expect("the digests are written");
        write_digests(&out, &["a".into()]).expect("the digests are written");
        let both = fs::read_to_string(out.join(DIGESTS)).expect("the file exists");
        fs::remove_file(out.join("b")).expect("the file exists");
        write_digests(&out, &[]).expect("the digests are written");
        let one = fs::read_to_string(out.join(DIGESTS)).expect("the file exists");
        fs::remove_dir_all(&out).expect("the directory exists");
        let line = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n";
        assert_eq!(one, line);
        assert!(both.starts_with(line) && both.ends_with("  b\n"), "{both}");
    }
}
