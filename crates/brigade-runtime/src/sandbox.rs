//! What was asked for as a confinement becomes one: whole paths, as they are now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{NetworkPolicy, Sandbox, SandboxLayer, SandboxRequest, TcpPolicy};

/// Finds the paths. Links are followed here, once: where one leads later makes no difference, and a
/// path that has become one is refused when the command starts.
pub(crate) fn canonicalize(
    asked: &SandboxRequest,
    directory: Option<&str>,
) -> Result<SandboxLayer, Refusal> {
    let Some(directory) = directory else {
        return Err(Refusal::invalid(
            "what is to be confined needs a working directory to be confined to",
        ));
    };
    let directory = Path::new(directory);
    let found = |path: &String| canonical_path(&directory.join(expand_home(path)?));
    let own = canonical_path(directory)?;
    let mut write = asked.write.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    if !write.contains(&own) {
        write.insert(0, own);
    }
    let read = asked.read.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let tcp = match asked.network {
        NetworkPolicy::Denied => TcpPolicy::Denied,
        NetworkPolicy::Allowed => asked.tcp,
    };
    Ok(SandboxLayer { read, write, tcp, network: asked.network, agents: asked.agents })
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
        Refusal::invalid(format!("it cannot be confined to {shown}: {problem}"))
    };
    let found = path.canonicalize().map_err(|error| unusable(&error))?;
    found.to_str().map(Arc::from).ok_or_else(|| unusable(&"the path is not UTF-8"))
}

/// Whether what is enclosed so may write all of a directory, wherever that really is.
pub(crate) fn may_write(enclosure: &Sandbox, directory: &str) -> bool {
    is_in_every_layer(enclosure, Path::new(directory), |layer| layer.write.iter())
}

/// Whether what is enclosed so was given a directory to read or write, wherever that really is.
pub(crate) fn may_read(enclosure: &Sandbox, directory: &Path) -> bool {
    is_in_every_layer(enclosure, directory, |layer| layer.write.iter().chain(&layer.read))
}

/// Whether every layer has a directory among its paths.
fn is_in_every_layer<'a, I: Iterator<Item = &'a Arc<str>>>(
    enclosure: &'a Sandbox,
    directory: &Path,
    paths: impl Fn(&'a SandboxLayer) -> I,
) -> bool {
    if enclosure.layers.is_empty() {
        return true;
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let directory = real(directory);
    let has = |path: &Arc<str>| directory.starts_with(real(Path::new(&**path)));
    enclosure.layers.iter().all(|layer| paths(layer).any(has))
}

/// Refuses agents to what is confined, unless every layer lets it start them. They call models from
/// outside: where TCP is denied that would be a way around it, and without a budget nobody bounds it.
pub(crate) fn check_may_start_agents(enclosure: &Sandbox) -> Result<(), Refusal> {
    let layers = &enclosure.layers;
    if layers.iter().any(|layer| layer.tcp == TcpPolicy::Denied) {
        return Err(Refusal::forbidden(
            "a confined command without TCP starts no agents, which would call their models for it",
        ));
    }
    if layers.iter().any(|layer| !layer.agents) {
        return Err(Refusal::forbidden(
            "a confined command starts no agents unless it was started with a budget for them: \
             `brigade exec --agent-budget AMOUNT`",
        ));
    }
    Ok(())
}

/// Refuses a directory to whoever is confined and was not given it to read.
pub(crate) fn check_directory(enclosure: &Sandbox, directory: &Path) -> Result<(), Refusal> {
    if may_read(enclosure, directory) {
        return Ok(());
    }
    let shown = directory.display();
    Err(Refusal::forbidden(format!(
        "the directory {shown} is outside of what whoever asks is confined to"
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_are_made_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("work")).unwrap();
        fs::write(root.join("data"), "").unwrap();
        symlink(root.join("work"), root.join("link")).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let asked = SandboxRequest {
            read: vec!["../data".into(), text("link")],
            write: vec![".".into()],
            ..SandboxRequest::default()
        };
        let settled = canonicalize(&asked, Some(&text("link"))).unwrap();
        assert_eq!(*settled.write, [text("work").into()]);
        assert_eq!(*settled.read, [text("data").into(), text("work").into()]);
    }

    #[test]
    fn without_a_network_there_is_no_tcp() {
        let asked = SandboxRequest { network: NetworkPolicy::Denied, ..SandboxRequest::default() };
        let settled = canonicalize(&asked, Some("/usr")).unwrap();
        assert_eq!((settled.network, settled.tcp), (NetworkPolicy::Denied, TcpPolicy::Denied));
    }

    #[test]
    fn a_directory_may_be_written_only_where_every_layer_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        symlink(root.join("c"), root.join("a/out")).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let layer =
            |name: &str| SandboxLayer { write: vec![text(name).into()], ..SandboxLayer::default() };
        let within = |layers: &[&str], directory: &str| {
            let confinement = layers.iter().map(|name| layer(name)).collect();
            may_write(&Sandbox { layers: confinement, ..Sandbox::default() }, &text(directory))
        };
        let reads = |layers: &[&str], directory: &str| {
            let layer = |name: &&str| SandboxLayer {
                read: vec![text(name).into()],
                write: vec![text("c").into()],
                ..SandboxLayer::default()
            };
            let confinement = layers.iter().map(layer).collect();
            let enclosure = Sandbox { layers: confinement, ..Sandbox::default() };
            may_read(&enclosure, &root.join(directory))
        };
        assert!(reads(&[], "a") && reads(&["a"], "a/b") && reads(&["a", "a/b"], "c"));
        assert!(reads(&["a"], "a/out") && !reads(&["a/b"], "a") && !reads(&["a", "a/b"], "a"));
        assert!(!reads(&["a"], ".") && !reads(&["a"], "a/b/../.."));
        assert!(within(&[], "c") && within(&["a"], "a/b") && within(&["a", "a/b"], "a/b"));
        assert!(!within(&["a"], "c") && !within(&["a", "a/b"], "a") && !within(&["a"], "a/out"));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let missing = SandboxRequest { write: vec!["nowhere".into()], ..SandboxRequest::default() };
        let refused = canonicalize(&missing, Some("/usr")).unwrap_err();
        assert!(refused.message.contains("/usr/nowhere: No such file"), "{}", refused.message);
        let refused = canonicalize(&SandboxRequest::default(), None).unwrap_err();
        assert!(refused.message.contains("working directory"), "{}", refused.message);
    }
}
