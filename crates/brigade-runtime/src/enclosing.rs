//! What was asked for as a confinement becomes one: whole paths, as they are now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::enclosure::{Confine, Confinement, Enclosure, Network, Tcp};
use brigade_model::refusal::Refusal;

/// Finds the paths. Links are followed here, once: where one leads later makes no difference, and a
/// path that has become one is refused when the command starts.
pub(crate) fn settle(asked: &Confine, directory: Option<&str>) -> Result<Confinement, Refusal> {
    let Some(directory) = directory else {
        return Err(Refusal::invalid(
            "what is to be confined needs a working directory to be confined to",
        ));
    };
    let directory = Path::new(directory);
    let found = |path: &String| whole(&directory.join(at_home(path)?));
    let own = whole(directory)?;
    let mut write = asked.write.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    if !write.contains(&own) {
        write.insert(0, own);
    }
    let read = asked.read.iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let tcp = match asked.network {
        Network::Denied => Tcp::Denied,
        Network::Allowed => asked.tcp,
    };
    Ok(Confinement { read, write, tcp, network: asked.network })
}

fn at_home(path: &str) -> Result<PathBuf, Refusal> {
    match path.strip_prefix("~/") {
        None => Ok(PathBuf::from(path)),
        Some(rest) => match std::env::home_dir() {
            Some(home) => Ok(home.join(rest)),
            None => Err(Refusal::invalid(format!("{path:?}: there is no home directory here"))),
        },
    }
}

fn whole(path: &Path) -> Result<Arc<str>, Refusal> {
    let unusable = |problem: &dyn std::fmt::Display| {
        let shown = path.display();
        Refusal::invalid(format!("it cannot be confined to {shown}: {problem}"))
    };
    let found = path.canonicalize().map_err(|error| unusable(&error))?;
    found.to_str().map(Arc::from).ok_or_else(|| unusable(&"the path is not UTF-8"))
}

/// Whether what is enclosed so may write all of a directory, wherever that really is.
pub(crate) fn may_write(enclosure: &Enclosure, directory: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let directory = (!enclosure.confinement.is_empty()).then(|| real(directory));
    enclosure.confinement.iter().all(|layer| {
        let mut write = layer.write.iter();
        write.any(|path| directory.as_ref().is_some_and(|inner| inner.starts_with(real(path))))
    })
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
        let asked = Confine {
            read: vec!["../data".into(), text("link")],
            write: vec![".".into()],
            ..Confine::default()
        };
        let settled = settle(&asked, Some(&text("link"))).unwrap();
        assert_eq!(*settled.write, [text("work").into()]);
        assert_eq!(*settled.read, [text("data").into(), text("work").into()]);
    }

    #[test]
    fn without_a_network_there_is_no_tcp() {
        let asked = Confine { network: Network::Denied, ..Confine::default() };
        let settled = settle(&asked, Some("/usr")).unwrap();
        assert_eq!((settled.network, settled.tcp), (Network::Denied, Tcp::Denied));
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
            |name: &str| Confinement { write: vec![text(name).into()], ..Confinement::default() };
        let within = |layers: &[&str], directory: &str| {
            let confinement = layers.iter().map(|name| layer(name)).collect();
            may_write(&Enclosure { confinement, ..Enclosure::default() }, &text(directory))
        };
        assert!(within(&[], "c") && within(&["a"], "a/b") && within(&["a", "a/b"], "a/b"));
        assert!(!within(&["a"], "c") && !within(&["a", "a/b"], "a") && !within(&["a"], "a/out"));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let missing = Confine { write: vec!["nowhere".into()], ..Confine::default() };
        let refused = settle(&missing, Some("/usr")).unwrap_err();
        assert!(refused.message.contains("/usr/nowhere: No such file"), "{}", refused.message);
        let refused = settle(&Confine::default(), None).unwrap_err();
        assert!(refused.message.contains("working directory"), "{}", refused.message);
    }
}
