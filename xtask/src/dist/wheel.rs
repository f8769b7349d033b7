//! The wheel for Python's installers: the program as a script of the package `brigade-run`.

use std::path::Path;

use super::files;
use super::release::{LICENCES, Release};
use super::zip::ZipWriter;
use crate::tidy::workspace_root;

/// The files of the package, in the repository.
const SOURCES: &str = "dist/python";
/// The name of the package in file names.
const NAME: &str = "brigade_run";
const PROGRAM: u32 = 0o755;
const TEXT: u32 = 0o644;

/// A file of the wheel.
struct WheelFile {
    name: String,
    mode: u32,
    content: Vec<u8>,
}

/// Writes `brigade_run-VERSION-py3-none-PLATFORM.whl`.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let root = workspace_root();
    let sources = root.join(SOURCES);
    let info = format!("{NAME}-{}.dist-info", release.version);
    let scripts = format!("{NAME}-{}.data/scripts", release.version);
    let platforms = release.glibc.wheel_tags();
    let readme = files::read_text(&sources.join("README.md"))?;
    let file = |name: String, mode, content| WheelFile { name, mode, content };
    let mut content = vec![
        file(format!("{scripts}/brigade"), PROGRAM, files::read(&release.program)?),
        file(format!("{scripts}/brigade-run"), PROGRAM, files::read(&sources.join("brigade-run"))?),
        file(format!("{info}/METADATA"), TEXT, metadata(&release.version, &readme).into_bytes()),
        file(format!("{info}/WHEEL"), TEXT, wheel_text(&platforms).into_bytes()),
    ];
    for licence in LICENCES {
        let bytes = files::read(&root.join(licence))?;
        content.push(file(format!("{info}/licenses/{licence}"), TEXT, bytes));
    }
    let record = record_text(&content, &info);
    content.push(file(format!("{info}/RECORD"), TEXT, record.into_bytes()));
    let mut zip = ZipWriter::default();
    for file in &content {
        zip.add(&file.name, file.mode, &file.content)?;
    }
    let name = format!("{NAME}-{}-py3-none-{}.whl", release.version, platforms.join("."));
    files::write(&out.join(&name), &zip.finish()?)?;
    Ok(vec![name])
}

fn metadata(version: &str, readme: &str) -> String {
    let licences = LICENCES.map(|name| format!("License-File: {name}\n")).concat();
    format!(
        "Metadata-Version: 2.4\n\
         Name: brigade-run\n\
         Version: {version}\n\
         Summary: Background tasks for coding agents, programs and people, which survive kill -9\n\
         Keywords: agents,background,jobs,processes,mcp\n\
         License-Expression: MIT OR Apache-2.0\n\
         {licences}\
         Requires-Python: >=3.8\n\
         Description-Content-Type: text/markdown\n\
         \n\
         {readme}"
    )
}

fn wheel_text(platforms: &[String]) -> String {
    let tags: String = platforms.iter().map(|tag| format!("Tag: py3-none-{tag}\n")).collect();
    format!("Wheel-Version: 1.0\nGenerator: brigade xtask\nRoot-Is-Purelib: false\n{tags}")
}

/// Returns the list of all files with digests and sizes. The list itself has neither.
fn record_text(content: &[WheelFile], info: &str) -> String {
    let line = |file: &WheelFile| {
        let digest = files::sha256_base64(&file.content);
        format!("{},sha256={digest},{}\n", file.name, file.content.len())
    };
    let lines: String = content.iter().map(line).collect();
    format!("{lines}{info}/RECORD,,\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_digest_and_size_of_each_file() {
        let name = "a.data/scripts/a".to_owned();
        let files = [WheelFile { name, mode: PROGRAM, content: b"abc".to_vec() }];
        assert_eq!(
            record_text(&files, "a.dist-info"),
            "a.data/scripts/a,sha256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0,3\n\
             a.dist-info/RECORD,,\n"
        );
    }

    #[test]
    fn each_platform_of_the_name_is_a_tag() {
        let text = wheel_text(&["manylinux2014_x86_64".into(), "manylinux_2_17_x86_64".into()]);
        assert_eq!(text.matches("Tag: py3-none-manylinux").count(), 2, "{text}");
        assert!(text.contains("Root-Is-Purelib: false\n"), "{text}");
    }
}
