//! Resolves a requested sandbox to absolute paths, and checks paths against a sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::refusal::Refusal;
#[cfg(feature = "agents")]
use brigade_model::sandbox::Sandbox;
use brigade_model::sandbox::{NetworkPolicy, SandboxLayer, SandboxRequest, TcpPolicy};

/// Resolves the paths of a requested sandbox. Links are followed here, once: a later change of a
/// link makes no difference, and a path that has become a link is refused when the process starts.
pub(crate) fn canonicalize(
    request: &SandboxRequest,
    directory: Option<&str>,
) -> Result<SandboxLayer, Refusal> {
    let Some(directory) = directory else {
        return Err(Refusal::invalid("a sandbox needs a working directory: set one with `cwd`"));
    };
    let directory = Path::new(directory);
    let resolve = |path: &String| canonical_path(&directory.join(expand_home(path)?));
    let own = canonical_path(directory)?;
    let mut write = request.write.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    if !write.contains(&own) {
        write.insert(0, own);
    }
    let read = request.read.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    let tcp = match request.network {
        NetworkPolicy::Denied => TcpPolicy::Denied,
        NetworkPolicy::Allowed => request.tcp,
    };
    Ok(SandboxLayer {
        read,
        write,
        write_plain: Vec::new(),
        tcp,
        network: request.network,
        agents: request.agents,
    })
}

fn expand_home(path: &str) -> Result<PathBuf, Refusal> {
    match path.strip_prefix("~/") {
        None => Ok(PathBuf::from(path)),
        Some(rest) => match std::env::home_dir() {
            Some(home) => Ok(home.join(rest)),
            None => Err(Refusal::invalid(format!("{path:?}: there is no home directory here"))),
        },
    }
}

fn canonical_path(path: &Path) -> Result<Arc<str>, Refusal> {
    let unusable = |problem: &dyn std::fmt::Display| {
        let shown = path.display();
        Refusal::invalid(format!("the sandbox cannot use {shown}: {problem}"))
    };
    let found = path.canonicalize().map_err(|error| unusable(&error))?;
    found.to_str().map(Arc::from).ok_or_else(|| unusable(&"the path is not UTF-8"))
}

/// Returns true if the sandbox allows writing to the whole directory, with links resolved.
#[cfg(feature = "agents")]
pub(crate) fn may_write(sandbox: &Sandbox, directory: &str) -> bool {
    is_in_every_layer(sandbox, Path::new(directory), |layer| layer.write.iter())
}

/// Returns true if the sandbox allows reading the whole directory, with links resolved.
#[cfg(feature = "agents")]
pub(crate) fn may_read(sandbox: &Sandbox, directory: &Path) -> bool {
    is_in_every_layer(sandbox, directory, |layer| layer.write.iter().chain(&layer.read))
}

/// Returns true if every layer has the directory among its paths.
#[cfg(feature = "agents")]
fn is_in_every_layer<'a, I: Iterator<Item = &'a Arc<str>>>(
    sandbox: &'a Sandbox,
    directory: &Path,
    paths: impl Fn(&'a SandboxLayer) -> I,
) -> bool {
    if sandbox.layers.is_empty() {
        return true;
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let directory = real(directory);
    let has = |path: &Arc<str>| directory.starts_with(real(Path::new(&**path)));
    sandbox.layers.iter().all(|layer| paths(layer).any(has))
}

/// Refuses agents to a sandboxed process, unless every layer allows it to start them. Agents call
/// their models from outside the sandbox: without TCP that would bypass the rule, and without a
/// budget it would be unbounded.
#[cfg(feature = "agents")]
pub(crate) fn check_may_start_agents(sandbox: &Sandbox) -> Result<(), Refusal> {
    let layers = &sandbox.layers;
    if layers.iter().any(|layer| layer.tcp == TcpPolicy::Denied) {
        return Err(Refusal::forbidden(
            "a sandboxed process without TCP starts no agents, which would call their models for it",
        ));
    }
    if layers.iter().any(|layer| !layer.agents) {
        return Err(Refusal::forbidden(
            "a sandboxed process starts no agents unless it was started with a budget for them: \
             `brigade exec --agent-budget AMOUNT`",
        ));
    }
    Ok(())
}

/// Refuses a directory that the caller's sandbox does not allow to read.
#[cfg(feature = "agents")]
pub(crate) fn check_directory(sandbox: &Sandbox, directory: &Path) -> Result<(), Refusal> {
    if may_read(sandbox, directory) {
        return Ok(());
    }
    let shown = directory.display();
    Err(Refusal::forbidden(format!("the directory {shown} is outside of the caller's sandbox")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_become_absolute_without_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("work")).unwrap();
        fs::write(root.join("data"), "").unwrap();
        symlink(root.join("work"), root.join("link")).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let request = SandboxRequest {
            read: vec!["../data".into(), text("link")],
            write: vec![".".into()],
            ..SandboxRequest::default()
        };
        let layer = canonicalize(&request, Some(&text("link"))).unwrap();
        assert_eq!(*layer.write, [text("work").into()]);
        assert_eq!(*layer.read, [text("data").into(), text("work").into()]);
    }

    #[test]
    fn without_a_network_there_is_no_tcp() {
        let request =
            SandboxRequest { network: NetworkPolicy::Denied, ..SandboxRequest::default() };
        let layer = canonicalize(&request, Some("/usr")).unwrap();
        assert_eq!((layer.network, layer.tcp), (NetworkPolicy::Denied, TcpPolicy::Denied));
    }

    #[test]
    fn a_directory_may_be_written_only_where_every_layer_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        symlink(root.join("c"), root.join("a/out")).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let layer =
            |name: &str| SandboxLayer { write: vec![text(name).into()], ..SandboxLayer::default() };
        let writes = |layers: &[&str], directory: &str| {
            let layers = layers.iter().map(|name| layer(name)).collect();
            may_write(&Sandbox { layers, ..Sandbox::default() }, &text(directory))
        };
        let reads = |layers: &[&str], directory: &str| {
            let layer = |name: &&str| SandboxLayer {
                read: vec![text(name).into()],
                write: vec![text("c").into()],
                ..SandboxLayer::default()
            };
            let layers = layers.iter().map(layer).collect();
            let sandbox = Sandbox { layers, ..Sandbox::default() };
            may_read(&sandbox, &root.join(directory))
        };
        assert!(reads(&[], "a") && reads(&["a"], "a/b") && reads(&["a", "a/b"], "c"));
        assert!(reads(&["a"], "a/out") && !reads(&["a/b"], "a") && !reads(&["a", "a/b"], "a"));
        assert!(!reads(&["a"], ".") && !reads(&["a"], "a/b/../.."));
        assert!(writes(&[], "c") && writes(&["a"], "a/b") && writes(&["a", "a/b"], "a/b"));
        assert!(!writes(&["a"], "c") && !writes(&["a", "a/b"], "a") && !writes(&["a"], "a/out"));
    }

    #[test]
    fn missing_paths_and_directories_are_refused() {
        let missing = SandboxRequest { write: vec!["nowhere".into()], ..SandboxRequest::default() };
        let refused = canonicalize(&missing, Some("/usr")).unwrap_err();
        assert!(refused.message.contains("/usr/nowhere: No such file"), "{}", refused.message);
        let refused = canonicalize(&SandboxRequest::default(), None).unwrap_err();
        assert!(refused.message.contains("working directory"), "{}", refused.message);
    }
}
