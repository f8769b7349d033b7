//! Measures the glibc that a program needs.

use std::fmt;
use std::path::Path;
use std::process::Command;

use super::files::run_quiet;

/// The oldest glibc that Rust's standard library supports, whatever symbols a program has.
const GLIBC_OF_RUST: GlibcVersion = GlibcVersion::new(2, 17);
/// The libraries of glibc and of GCC's runtime, which wheels for `manylinux` may need.
const SYSTEM_LIBRARIES: [&str; 8] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
];
/// The mark of packed relative relocations. The dynamic linker of glibc 2.36 is the first to know it.
const PACKED_RELOCATIONS: &str = "ABI_DT_RELR";

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GlibcVersion {
    major: u32,
    minor: u32,
}

impl GlibcVersion {
    pub(super) const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Returns the platform tags of a wheel for systems with this glibc or a newer one. The second tag is
    /// the older name that old versions of pip know.
    pub(super) fn wheel_tags(self) -> Vec<String> {
        let tag = format!("manylinux_{}_{}_x86_64", self.major, self.minor);
        let has_older_name = self == Self::new(2, 17);
        has_older_name.then(|| "manylinux2014_x86_64".to_owned()).into_iter().chain([tag]).collect()
    }

    /// Parses the version of a symbol without `GLIBC_`: two or three numbers.
    fn parse(version: &str) -> Option<Self> {
        if version == PACKED_RELOCATIONS {
            return Some(Self::new(2, 36));
        }
        let mut numbers = version.split('.').map(str::parse);
        let parsed = Self::new(numbers.next()?.ok()?, numbers.next()?.ok()?);
        let is_number = numbers.all(|number: Result<u32, _>| number.is_ok());
        is_number.then_some(parsed)
    }
}

impl fmt::Display for GlibcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the oldest glibc with which the program starts. Fails if it needs other libraries.
pub(super) fn measure(program: &Path) -> Result<GlibcVersion, String> {
    check_libraries(&needed_libraries(program)?)?;
    newest_version(&read_section(program, "--version-info")?)
}

/// Returns the names of the libraries that a program or a library needs.
pub(super) fn needed_libraries(program: &Path) -> Result<Vec<String>, String> {
    Ok(parse_needed(&read_section(program, "--dynamic")?))
}

fn read_section(program: &Path, section: &str) -> Result<String, String> {
    let mut readelf = Command::new("readelf");
    readelf.env("LC_ALL", "C").args(["--wide", section]).arg(program);
    run_quiet(&mut readelf).map(|output| String::from_utf8_lossy(&output).into_owned())
}

/// Fails if the measured version is newer than the promised one.
pub(super) fn check_promise(needed: GlibcVersion, promised: GlibcVersion) -> Result<(), String> {
    if needed <= promised {
        return Ok(());
    }
    Err(format!(
        "the program needs glibc {needed}, but was linked for {promised}; \
         look for the symbol with `objdump -T`"
    ))
}

/// Returns the libraries in the output of `readelf --dynamic`.
fn parse_needed(dynamic: &str) -> Vec<String> {
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    needed.filter_map(|line| line.split(['[', ']']).nth(1).map(str::to_owned)).collect()
}

fn check_libraries(needed: &[String]) -> Result<(), String> {
    let is_foreign = |name: &&String| !SYSTEM_LIBRARIES.contains(&name.as_str());
    match needed.iter().find(is_foreign) {
        Some(foreign) => Err(format!("the program needs {foreign}, which packages do not have")),
        None => Ok(()),
    }
}

/// Returns the newest version in the output of `readelf --version-info`, but none that Rust does not
/// support.
fn newest_version(version_info: &str) -> Result<GlibcVersion, String> {
    let mut newest = GLIBC_OF_RUST;
    let mut count = 0;
    for line in version_info.lines() {
        let Some((_, entry)) = line.split_once("Name: GLIBC_") else { continue };
        let name = entry.split_whitespace().next().unwrap_or_default();
        let version = GlibcVersion::parse(name)
            .ok_or_else(|| format!("GLIBC_{name} is no version that a program may need"))?;
        newest = newest.max(version);
        count += 1;
    }
    if count == 0 {
        return Err(
            "the program has no versions of glibc's symbols; is it dynamically linked?".into()
        );
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_info(names: &[&str]) -> String {
        let line = |name| format!("  0x0010:   Name: {name}  Flags: none  Version: 3\n");
        names.iter().map(line).collect()
    }

    #[test]
    fn the_newest_symbol_decides() {
        for (names, expected) in [
            (&["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9"][..], "2.34"),
            (&["GLIBC_2.2.5", "GCC_3.0"], "2.17"),
            (&["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_ABI_DT_RELR"], "2.36"),
        ] {
            let newest = newest_version(&version_info(names)).expect("versions");
            assert_eq!(newest.to_string(), expected, "{names:?}");
        }
        for wrong in [&["GLIBC_PRIVATE"][..], &["GCC_3.0"], &[], &["GLIBC_2.x"], &["GLIBC_2"]] {
            assert!(newest_version(&version_info(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_tag_is_the_measured_version() {
        let tags = |minor| GlibcVersion::new(2, minor).wheel_tags();
        assert_eq!(tags(17), ["manylinux2014_x86_64", "manylinux_2_17_x86_64"]);
        assert_eq!(tags(28), ["manylinux_2_28_x86_64"]);
    }

    #[test]
    fn a_program_that_needs_more_than_promised_is_refused() {
        let [old, new] = [17, 18].map(|minor| GlibcVersion::new(2, minor));
        assert!(check_promise(old, old).is_ok() && check_promise(old, new).is_ok());
        let error = check_promise(new, old).expect_err("a newer glibc");
        assert!(error.contains("needs glibc 2.18, but was linked for 2.17"), "{error}");
    }

    #[test]
    fn foreign_libraries_are_refused() {
        let needs = |name: &str| format!(" 0x1 (NEEDED)  Shared library: [{name}]\n");
        let check = |names: [&str; 2]| check_libraries(&parse_needed(&names.map(needs).concat()));
        assert_eq!(check(["libc.so.6", "libm.so.6"]), Ok(()));
        let error = check(["libc.so.6", "libssl.so.3"]).expect_err("a foreign library");
        assert!(error.contains("libssl.so.3"), "{error}");
    }
}
