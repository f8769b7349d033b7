//! The archive: the program, its documentation and the systemd unit in one directory.

use std::path::Path;

use super::TARGET;
use super::files;
use super::release::Release;
use crate::tidy::workspace_root;

/// Writes `brigade-VERSION-TARGET.tar.gz`.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let root = format!("brigade-{}-{TARGET}", release.version);
    let work = files::work_dir("archive")?;
    let dir = work.join(&root);
    files::write_program(&dir.join("brigade"), &files::read(&release.program)?)?;
    release.copy_licences(&dir)?;
    for name in ["README.md", "CHANGELOG.md"] {
        files::write(&dir.join(name), &files::read(&workspace_root().join(name))?)?;
    }
    files::copy_files(&release.manual, &dir.join("man/man1"))?;
    files::copy_files(&release.completions, &dir.join("completions"))?;
    files::copy_files(&workspace_root().join("dist/systemd"), &dir.join("systemd"))?;
    let name = format!("{root}.tar.gz");
    files::write_tar_gz(&work, &[&root], release.date, &out.join(&name))?;
    Ok(vec![name])
}
