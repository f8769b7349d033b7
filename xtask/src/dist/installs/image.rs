//! Unpacks the image and runs its program in it, in namespaces of its own.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{InstallTest, files};
use crate::test_stages::{has_program, install};

/// Mounts what a container has, and runs the program of the image. The end of the first process ends all
/// others.
const RUN: &str = "\
root=$1 user=$2; shift 2
mkdir -p \"$root/dev\" \"$root/proc\" || exit
mount --rbind /dev \"$root/dev\" && mount -t proc proc \"$root/proc\" || exit
exec chroot --userspec=\"$user\" \"$root\" \"$@\"";
/// The user to which a namespace of another user maps its creator. It has no other.
const MAPPED_USER: &str = "0:0";

pub(super) fn test_image(test: &InstallTest) -> Result<(), String> {
    let dir = test.dir("image")?;
    unpack(&test.package("brigade-", "-oci.tar")?, &dir)?;
    let index = read_json(&dir.join("index.json"))?;
    let manifest = read_blob(&dir, &index["manifests"][0])?;
    let config = read_blob(&dir, &manifest["config"])?;
    let root = test.dir("image-root")?;
    let layers = manifest["layers"].as_array().ok_or("the manifest has no layers")?;
    let diff_ids =
        config["rootfs"]["diff_ids"].as_array().ok_or("there are no digests of layers")?;
    if layers.len() != diff_ids.len() {
        return Err(format!("{} layers have {} digests", layers.len(), diff_ids.len()));
    }
    for (layer, diff_id) in layers.iter().zip(diff_ids) {
        let path = blob_path(&dir, layer)?;
        let mut gzip = Command::new("gzip");
        let tar = files::run_quiet(gzip.args(["--decompress", "--stdout"]).stdin(open(&path)?))?;
        if *diff_id != format!("sha256:{}", files::sha256_hex(&tar)) {
            return Err(format!("{} has another digest than {diff_id}", path.display()));
        }
        unpack(&path, &root)?;
    }
    check_with_skopeo(&test.package("brigade-", "-oci.tar")?, &test.dir("image-copy")?)?;
    let version = run_in(&root, &config["config"], &["--version"])?;
    if !version.starts_with("brigade ") {
        return Err(format!("--version printed {version:?}"));
    }
    // The only program in the image.
    let again = ["exec", "--", "/usr/bin/brigade", "--version"];
    let inner = run_in(&root, &config["config"], &again)?;
    if inner == version { Ok(()) } else { Err(format!("exec printed {inner:?}")) }
}

fn unpack(archive: &Path, dir: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--auto-compress", "--file"]).arg(archive).arg("--directory").arg(dir);
    files::run_quiet(&mut tar).map(drop)
}

fn open(path: &Path) -> Result<std::fs::File, String> {
    std::fs::File::open(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn read_json(path: &Path) -> Result<Value, String> {
    serde_json::from_str(&files::read_text(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

fn blob_path(image: &Path, descriptor: &Value) -> Result<std::path::PathBuf, String> {
    let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
    let digest = digest.ok_or_else(|| format!("{descriptor} has no digest"))?;
    let path = image.join("blobs/sha256").join(digest);
    let bytes = files::read(&path)?;
    if files::sha256_hex(&bytes) == digest && descriptor["size"] == bytes.len() {
        return Ok(path);
    }
    Err(format!("{} is not the blob that {descriptor} names", path.display()))
}

fn read_blob(image: &Path, descriptor: &Value) -> Result<Value, String> {
    read_json(&blob_path(image, descriptor)?)
}

/// Copies the image with a tool that checks its form.
fn check_with_skopeo(image: &Path, to: &Path) -> Result<(), String> {
    if !has_program("skopeo") && !install(&["skopeo"]) {
        println!("skipped: the form of the image (skopeo cannot be installed)");
        return Ok(());
    }
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["--insecure-policy", "copy", "--quiet"]);
    skopeo.arg(format!("oci-archive:{}", image.display())).arg(format!("dir:{}", to.display()));
    files::run_quiet(&mut skopeo).map(drop)
}

/// Runs the entry point of the image with its settings and none of the caller. Only root can become the
/// user of the image; another caller keeps its own identity.
fn run_in(root: &Path, config: &Value, args: &[&str]) -> Result<String, String> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    let user = config["User"].as_str().filter(|_| is_root).unwrap_or(MAPPED_USER);
    let texts = |field: &str| {
        let values = config[field].as_array().into_iter().flatten();
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child"]);
    if !is_root {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["sh", "-c", RUN, "sh"]).arg(root).arg(user).args(texts("Entrypoint")).args(args);
    // The path of the image has `sh` and `chroot` of this machine too.
    unshare.env_clear().envs(texts("Env").iter().filter_map(|setting| setting.split_once('=')));
    let output = files::run_quiet(&mut unshare)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}
