//! The container image: a tar archive in the layout of the Open Container Initiative.
//!
//! The image has no distribution: no shell, and no programs but ours. A dynamic program needs glibc,
//! so the first layer has the libraries of Debian's package libc6 of this machine, and certificates.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::files;
use super::glibc;
use super::release::Release;

/// Directories in which the dynamic linker finds libraries, here and in the image.
const LIBRARY_DIRS: [&str; 2] = ["lib64", "lib/x86_64-linux-gnu"];
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The user of the image. It owns no file.
const USER: &str = "65532";
const HOME: &str = "/brigade";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A directory that becomes one layer.
struct LayerSource {
    dir: PathBuf,
    /// True for directories that each user can write to.
    is_shared: bool,
}

/// A layer as the manifest and the configuration name it.
struct ImageLayer {
    descriptor: Value,
    /// The digest of the layer before its compression.
    diff_id: String,
}

/// Writes `brigade-VERSION-oci.tar`.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let work = files::work_dir("oci")?;
    let sources = [
        LayerSource { dir: system_files(release, &work)?, is_shared: false },
        LayerSource { dir: shared_directories(&work)?, is_shared: true },
        LayerSource { dir: program_files(release, &work)?, is_shared: false },
    ];
    let image = work.join("image");
    let mut layers = Vec::new();
    for source in &sources {
        layers.push(write_layer(source, &image, release.date)?);
    }
    let config = write_json(&image, CONFIG_TYPE, &image_config(release, &layers)?)?;
    let descriptors: Vec<&Value> = layers.iter().map(|layer| &layer.descriptor).collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config,
        "layers": descriptors,
    });
    let mut manifest = write_json(&image, MANIFEST_TYPE, &manifest)?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    files::write(&image.join("index.json"), index.to_string().as_bytes())?;
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    files::write(&image.join("oci-layout"), layout.to_string().as_bytes())?;
    let name = format!("brigade-{}-oci.tar", release.version);
    let mut tar = files::tar_command(&image, release.date);
    tar.arg("--file").arg(out.join(&name)).args(["oci-layout", "index.json", "blobs"]);
    files::run_quiet(&mut tar)?;
    Ok(vec![name])
}

/// Collects libraries, certificates and the files that name users and hosts.
fn system_files(release: &Release, work: &Path) -> Result<PathBuf, String> {
    let dir = work.join("system");
    for library in library_closure(&release.program)? {
        let path = find_library(&library)?;
        files::write_program(&dir.join(&path), &files::read(&Path::new("/").join(&path))?)?;
    }
    for path in [CERTIFICATES, "usr/share/doc/libc6/copyright"] {
        files::write(&dir.join(path), &files::read(&Path::new("/").join(path))?)?;
    }
    let users = format!("root:x:0:0:root:/root:\nbrigade:x:{USER}:{USER}:Brigade:{HOME}:\n");
    files::write(&dir.join("etc/passwd"), users.as_bytes())?;
    files::write(&dir.join("etc/group"), format!("root:x:0:\nbrigade:x:{USER}:\n").as_bytes())?;
    files::write(&dir.join("etc/nsswitch.conf"), b"hosts: files dns\n")?;
    Ok(dir)
}

fn shared_directories(work: &Path) -> Result<PathBuf, String> {
    let dir = work.join("shared");
    for shared in ["tmp", HOME.trim_start_matches('/')] {
        let path = dir.join(shared);
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(dir)
}

fn program_files(release: &Release, work: &Path) -> Result<PathBuf, String> {
    let dir = work.join("program");
    files::write_program(&dir.join("usr/bin/brigade"), &files::read(&release.program)?)?;
    release.copy_licences(&dir.join("usr/share/doc/brigade"))?;
    Ok(dir)
}

/// Returns the libraries that a program needs, and those that they need.
fn library_closure(program: &Path) -> Result<BTreeSet<String>, String> {
    let mut found = BTreeSet::new();
    let mut open = glibc::needed_libraries(program)?;
    while let Some(name) = open.pop() {
        if found.insert(name.clone()) {
            open.extend(glibc::needed_libraries(&Path::new("/").join(find_library(&name)?))?);
        }
    }
    Ok(found)
}

/// Returns the path of a library on this machine, which is its path in the image. It does not begin with
/// a slash.
fn find_library(name: &str) -> Result<PathBuf, String> {
    let mut paths = LIBRARY_DIRS.iter().map(|dir| Path::new(dir).join(name));
    let found = paths.find(|path| Path::new("/").join(path).is_file());
    found.ok_or_else(|| format!("{name} is not in {LIBRARY_DIRS:?}; make the image on Debian"))
}

fn write_layer(source: &LayerSource, image: &Path, date: u64) -> Result<ImageLayer, String> {
    let mut tar = files::tar_command(&source.dir, date);
    if source.is_shared {
        // Later options win. Of these two directories, only their own modes matter.
        tar.arg("--mode=1777");
    }
    let entries =
        fs::read_dir(&source.dir).map_err(|e| format!("{}: {e}", source.dir.display()))?;
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    let layer = files::run_quiet(tar.args(["--file", "-"]).args(names))?;
    let diff_id = format!("sha256:{}", files::sha256_hex(&layer));
    Ok(ImageLayer { descriptor: write_blob(image, LAYER_TYPE, &files::gzip(&layer)?)?, diff_id })
}

fn image_config(release: &Release, layers: &[ImageLayer]) -> Result<Value, String> {
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    Ok(json!({
        "created": files::format_date(release.date)?,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                format!("HOME={HOME}"),
                format!("BRIGADE_STATE={HOME}/state"),
            ],
            "Entrypoint": ["/usr/bin/brigade"],
            "Cmd": ["--help"],
            "WorkingDir": HOME,
            "Labels": {
                "org.opencontainers.image.title": "brigade",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "run.brigade.libraries": libraries_label()?,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    }))
}

/// Returns the package that the libraries come from, with its version.
fn libraries_label() -> Result<String, String> {
    let mut query = Command::new("dpkg-query");
    let version = files::run_quiet(query.args(["--show", "--showformat=${Version}", "libc6"]))?;
    Ok(format!("Debian libc6 {}", String::from_utf8_lossy(&version)))
}

fn write_json(image: &Path, media_type: &str, document: &Value) -> Result<Value, String> {
    write_blob(image, media_type, document.to_string().as_bytes())
}

/// Writes a blob under its digest. Returns its descriptor.
fn write_blob(image: &Path, media_type: &str, bytes: &[u8]) -> Result<Value, String> {
    let digest = files::sha256_hex(bytes);
    files::write(&image.join("blobs/sha256").join(&digest), bytes)?;
    Ok(json!({
        "mediaType": media_type,
        "digest": format!("sha256:{digest}"),
        "size": bytes.len(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_name_and_the_size_of_its_descriptor() {
        let image = std::env::temp_dir().join(format!("xtask-oci-{}", std::process::id()));
        let descriptor = write_blob(&image, LAYER_TYPE, b"abc").expect("a temporary file");
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let name = digest.strip_prefix("sha256:").unwrap_or_default();
        let stored = files::read(&image.join("blobs/sha256").join(name));
        fs::remove_dir_all(&image).expect("the directory exists");
        assert_eq!(stored.expect("the blob exists"), b"abc");
        assert_eq!(descriptor["size"], 3);
    }
}
