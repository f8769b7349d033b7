//! Unpacks the image and runs its program in it, in namespaces of its own.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{InstallTest, files};

/// Mounts what a container has, and runs the program of the image. The end of the first process ends all
/// others.
const RUN: &str = "\
mkdir -p \"$1/dev\" \"$1/proc\" && mount --rbind /dev \"$1/dev\" && mount -t proc proc \"$1/proc\" || exit
root=$1; shift
exec chroot \"$root\" /usr/bin/brigade \"$@\"";

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
    let version = run_in(&root, &["--version"])?;
    if !version.starts_with("brigade ") {
        return Err(format!("--version printed {version:?}"));
    }
    // The only program in the image.
    let inner = run_in(&root, &["exec", "--", "/usr/bin/brigade", "--version"])?;
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

/// Runs the program of the image with nothing of the caller's settings.
fn run_in(root: &Path, args: &[&str]) -> Result<String, String> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
    unshare.args(["sh", "-c", RUN, "sh"]).arg(root).args(args);
    unshare.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    unshare.env("HOME", "/var/lib/brigade").env("BRIGADE_STATE", "/var/lib/brigade/state");
    let output = files::run_quiet(&mut unshare)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}
