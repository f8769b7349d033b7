//! The Debian package: the program, manual pages, completions and the systemd unit of a user.

use std::path::Path;

use super::files;
use super::release::Release;
use crate::tidy::workspace_root;

const CONTROL: &str = "dist/debian/control";
const COPYRIGHT: &str = "dist/debian/copyright";
const UNIT: &str = "dist/systemd/brigade.service";
/// The start of the unit for a program that Cargo installed, and for one of a package.
const CARGO_PROGRAM: &str = "%h/.cargo/bin/brigade";
const PROGRAM: &str = "/usr/bin/brigade";
/// Directories of completions in Debian, and the names of the files there.
const COMPLETIONS: [(&str, &str); 3] = [
    ("brigade.bash", "usr/share/bash-completion/completions/brigade"),
    ("_brigade", "usr/share/zsh/vendor-completions/_brigade"),
    ("brigade.fish", "usr/share/fish/vendor_completions.d/brigade.fish"),
];

/// Writes `brigade_VERSION_amd64.deb`.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let root = workspace_root();
    let work = files::work_dir("deb")?;
    let data = work.join("data");
    files::write_program(&data.join("usr/bin/brigade"), &files::read(&release.program)?)?;
    write_manual(release, &data.join("usr/share/man/man1"))?;
    for (name, path) in COMPLETIONS {
        files::write(&data.join(path), &files::read(&release.completions.join(name))?)?;
    }
    let unit = files::read_text(&root.join(UNIT))?;
    let unit_path = data.join("usr/lib/systemd/user/brigade.service");
    files::write(&unit_path, packaged_unit(&unit)?.as_bytes())?;
    let copyright = files::read(&root.join(COPYRIGHT))?;
    files::write(&data.join("usr/share/doc/brigade/copyright"), &copyright)?;

    let template = files::read_text(&root.join(CONTROL))?;
    let control = control_text(&template, release, installed_kilobytes(&data)?);
    files::write(&work.join("control/control"), control.as_bytes())?;
    files::write(&work.join("control/md5sums"), md5sums(&data)?.as_bytes())?;
    files::write_tar_gz(&work.join("control"), &["."], release.date, &work.join("control.tar.gz"))?;
    files::write_tar_gz(&data, &["."], release.date, &work.join("data.tar.gz"))?;

    let members = ["control.tar.gz", "data.tar.gz"];
    let mut content = vec![("debian-binary", b"2.0\n".to_vec())];
    for member in members {
        content.push((member, files::read(&work.join(member))?));
    }
    let name = format!("brigade_{}_amd64.deb", release.version);
    files::write(&out.join(&name), &ar_archive(&content, release.date))?;
    Ok(vec![name])
}

/// Writes the compressed manual pages.
fn write_manual(release: &Release, dir: &Path) -> Result<(), String> {
    for page in files::list_files(&release.manual)? {
        let bytes = files::gzip(&files::read(&release.manual.join(&page))?)?;
        files::write(&dir.join(format!("{}.gz", page.display())), &bytes)?;
    }
    Ok(())
}

/// Returns the unit that starts the packaged program. Its comment on installation is removed.
fn packaged_unit(unit: &str) -> Result<String, String> {
    let start = unit.find("[Unit]").ok_or("the unit has no section [Unit]")?;
    let body = &unit[start..];
    if !body.contains(CARGO_PROGRAM) {
        return Err(format!("{UNIT} does not start {CARGO_PROGRAM}"));
    }
    let head = "# Brigade's daemon as a user service: systemctl --user enable --now brigade\n\n";
    Ok(format!("{head}{}", body.replace(CARGO_PROGRAM, PROGRAM)))
}

fn control_text(template: &str, release: &Release, kilobytes: u64) -> String {
    template
        .replace("{version}", &release.version)
        .replace("{glibc}", &release.glibc.to_string())
        .replace("{kilobytes}", &kilobytes.to_string())
}

/// Returns the space that the files take, each in whole kilobytes.
fn installed_kilobytes(data: &Path) -> Result<u64, String> {
    let mut kilobytes = 0;
    for file in files::list_files(data)? {
        let path = data.join(file);
        let metadata = path.metadata().map_err(|e| format!("{}: {e}", path.display()))?;
        kilobytes += metadata.len().div_ceil(1024);
    }
    Ok(kilobytes)
}

/// Returns the sums with which `dpkg --verify` finds changed files.
fn md5sums(data: &Path) -> Result<String, String> {
    let mut md5sum = std::process::Command::new("md5sum");
    let output = files::run_quiet(md5sum.current_dir(data).args(files::list_files(data)?))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Returns an archive in the format of `ar`, which dpkg reads.
fn ar_archive(members: &[(&str, Vec<u8>)], date: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let header =
            format!("{name:<16}{date:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len());
        archive.extend(header.bytes());
        archive.extend(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_the_packaged_program() {
        let unit = packaged_unit(include_str!("../../../dist/systemd/brigade.service"));
        let unit = unit.expect("the unit of the repository");
        assert!(
            unit.contains("\nExecStart=/usr/bin/brigade daemon start --foreground\n"),
            "{unit}"
        );
        assert!(!unit.contains(".cargo") && !unit.contains("cp brigade.service"), "{unit}");
        assert!(packaged_unit("[Unit]\n").is_err());
    }

    #[test]
    fn members_of_an_archive_begin_at_even_positions() {
        let archive = ar_archive(&[("a", b"x".to_vec()), ("b", b"yz".to_vec())], 7);
        let text = String::from_utf8(archive).expect("the archive is text");
        assert_eq!(
            text,
            "!<arch>\n\
             a               7           0     0     100644  1         `\nx\n\
             b               7           0     0     100644  2         `\nyz"
        );
    }
}
