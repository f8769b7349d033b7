//! Whether this machine lets shims do their work, and what to do where it does not.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::companion::Companion;
use crate::confine::Landlock;
use crate::control_group::ControlGroups;
use crate::filter::{self, FilterError};
use crate::sandbox::{NamespaceSupport, Support};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: &'static str,
    pub state: State,
    /// What was seen and, where it is not fine, what to do.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Fine,
    /// It works, with a promise less.
    Lacking,
    Broken,
}

/// Looks at everything that shims depend on, and changes nothing. `folder` is where they keep their
/// directories; it need not be there yet.
pub fn examine(folder: &Path) -> Vec<Finding> {
    vec![
        companion(folder),
        kernel(),
        children_files(),
        landlock(Landlock::here()),
        filter(filter::check()),
        namespaces(Companion::at_hand(folder).map(|companion| companion.namespaces())),
        user(rustix::process::geteuid().is_root()),
        control_groups(ControlGroups::delegated().as_deref()),
        service_manager(),
    ]
}

fn companion(folder: &Path) -> Finding {
    let what = "shim";
    match Companion::foresee(folder) {
        Ok(Some(companion)) => finding(what, State::Fine, companion.path().display().to_string()),
        Ok(None) => finding(what, State::Fine, "the next daemon puts it into the folder".into()),
        Err(error) => finding(what, State::Broken, error.to_string()),
    }
}

fn kernel() -> Finding {
    let what = "kernel";
    #[cfg(full_linux)]
    {
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        match pidfd_open(getpid(), PidfdFlags::empty()) {
            Ok(_) => finding(what, State::Fine, "processes are held by pidfd".into()),
            Err(error) => finding(
                what,
                State::Broken,
                format!(
                    "pidfd_open: {error}; Linux 5.3 or newer is needed, and a container's \
                         system call filter must allow it"
                ),
            ),
        }
    }
    #[cfg(not(full_linux))]
    finding(
        what,
        State::Lacking,
        "this system cannot inherit orphans: a command's processes that leave its process group \
         are not reached by a stop"
            .into(),
    )
}

fn children_files() -> Finding {
    let what = "process tree";
    if !cfg!(full_linux) || Path::new("/proc/self/task").join(own_pid()).join("children").exists() {
        return finding(what, State::Fine, "children are listed by the kernel".into());
    }
    let text = "the kernel does not list children (CONFIG_PROC_CHILDREN); each stop scans /proc";
    finding(what, State::Lacking, text.into())
}

/// Whether commands can be confined, for whom that is wanted.
fn landlock(found: Landlock) -> Finding {
    let what = "confinement";
    if let Err(error) = found.check() {
        return finding(what, State::Lacking, format!("a command cannot be confined: {error}"));
    }
    let Landlock::Version(version) = found else {
        return finding(what, State::Lacking, "the version of Landlock is not known".into());
    };
    match found.has_scopes() {
        true => finding(what, State::Fine, format!("Landlock, version {version}")),
        false => {
            let text = format!(
                "Landlock, version {version}: a confined command can send signals to processes \
                 outside, its own shim among them; Linux 6.12 or newer is needed"
            );
            finding(what, State::Lacking, text)
        }
    }
}

/// Whether system calls can be filtered, without which no command is confined.
fn filter(found: Result<(), FilterError>) -> Finding {
    let what = "system calls";
    match found {
        Ok(()) => finding(what, State::Fine, "those of confined commands are filtered".into()),
        Err(error) => {
            finding(what, State::Lacking, format!("a command cannot be confined: {error}"))
        }
    }
}

/// Whether confined commands can have mounts of their own, and nothing of the network.
fn namespaces(found: Option<NamespaceSupport>) -> Finding {
    let what = "namespaces";
    let refused = |support: Support| match support {
        Support::Refused(errno) => io::Error::from_raw_os_error(errno).to_string(),
        Support::Available | Support::Unknown => "it is not known why".into(),
    };
    let Some(found) = found else {
        let text = "not tried: the next daemon finds out which ones confined commands can have";
        return finding(what, State::Fine, text.into());
    };
    if !found.mount.is_available() {
        let text = format!(
            "a confined command gets no mounts of its own ({}): it can change modes, owners and times of \
             files outside, and connect to local sockets. User namespaces have to be allowed: \
             user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns, or the container's system call filter",
            refused(found.mount)
        );
        return finding(what, State::Lacking, text);
    }
    if !found.network.is_available() {
        let text = format!(
            "confined commands get mounts of their own; without a network they are kept from it by the \
             filter alone ({})",
            refused(found.network)
        );
        return finding(what, State::Fine, text);
    }
    finding(what, State::Fine, "mounts, and the absence of a network, are a command's own".into())
}

fn control_groups(delegated: Option<&Path>) -> Finding {
    let what = "control groups";
    let text = match delegated {
        Some(group) => format!("each command gets one below {}", group.display()),
        None => "none are delegated to a daemon that is started from here: a stop searches the tree of processes, and --max-memory bounds each \
                 process by itself"
            .to_owned(),
    };
    finding(what, State::Fine, text)
}

fn user(is_root: bool) -> Finding {
    let what = "user";
    if !is_root {
        return finding(what, State::Fine, "not root".into());
    }
    let text = "this is root: a confined command keeps root's rights over the files that it reaches, and \
                one that is not confined has all of them; run Brigade as a user of its own";
    finding(what, State::Lacking, text.into())
}

fn own_pid() -> String {
    std::process::id().to_string()
}

/// A service manager that ends the whole control group of a service ends the shims with it.
fn service_manager() -> Finding {
    let what = "service manager";
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match service_of(&groups) {
        None => finding(what, State::Fine, "not run as a service".into()),
        Some(unit) => match kill_mode(&groups, &unit) {
            Ok(mode) => judge(&unit, &mode),
            Err(error) => finding(
                what,
                State::Lacking,
                format!("{unit}: its KillMode cannot be read ({error}); it must be `process`"),
            ),
        },
    }
}

fn judge(unit: &str, mode: &str) -> Finding {
    let what = "service manager";
    match mode {
        "process" | "none" => finding(what, State::Fine, format!("{unit} has KillMode={mode}")),
        _ => finding(
            what,
            State::Broken,
            format!(
                "{unit} has KillMode={mode}: a restart of the service kills every running command. \
                 Set KillMode=process in the unit's [Service] section"
            ),
        ),
    }
}

/// The service unit that a process is in, by its `/proc/PID/cgroup`.
fn service_of(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let innermost = paths.flat_map(|path| path.rsplit('/').find(|part| is_unit(part)));
    innermost.filter(|unit| unit.ends_with(".service")).map(str::to_owned).next()
}

fn is_unit(part: &str) -> bool {
    part.ends_with(".service") || part.ends_with(".scope")
}

fn kill_mode(groups: &str, unit: &str) -> io::Result<String> {
    let mut command = Command::new("systemctl");
    if groups.contains("/user@") && !unit.starts_with("user@") {
        command.arg("--user");
    }
    let shown = command.args(["show", "--property=KillMode", "--value", unit]).output()?;
    let mode = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    if shown.status.success() && !mode.is_empty() {
        return Ok(mode);
    }
    Err(io::Error::other(String::from_utf8_lossy(&shown.stderr).trim().to_owned()))
}

fn finding(what: &'static str, state: State, text: String) -> Finding {
    Finding { what, state, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_that_we_are_in_is_found() {
        let table = [
            ("0::/system.slice/brigade.service\n", Some("brigade.service")),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/b.service", Some("b.service")),
            ("0::/user.slice/user-1.slice/session-3.scope\n", None),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/term.scope\n", None),
            ("12:pids:/system.slice/old.service\n0::/\n", Some("old.service")),
            ("0::/system.slice/b.service/inner\n", Some("b.service")),
            ("0::/\n", None),
            ("", None),
        ];
        for (groups, expect) in table {
            assert_eq!(service_of(groups).as_deref(), expect, "{groups}");
        }
    }

    #[test]
    fn what_the_kernel_has_for_confining_is_told() {
        let table = [
            (Landlock::Version(7), State::Fine, "version 7"),
            (Landlock::Version(5), State::Lacking, "Linux 6.12"),
            (Landlock::Version(3), State::Lacking, "can send signals"),
            (Landlock::Version(2), State::Lacking, "a command cannot be confined"),
            (Landlock::Disabled, State::Lacking, "lsm="),
            (Landlock::Missing, State::Lacking, "no Landlock"),
        ];
        for (found, state, expect) in table {
            let finding = landlock(found);
            assert_eq!(finding.state, state, "{found:?}");
            assert!(finding.text.contains(expect), "{}", finding.text);
        }
    }

    #[test]
    fn what_namespaces_there_are_is_told() {
        let (yes, no) = (Support::Available, Support::Refused(1));
        let table = [
            (Some(NamespaceSupport { mount: yes, network: yes }), State::Fine, "mounts"),
            (Some(NamespaceSupport { mount: yes, network: no }), State::Fine, "filter alone"),
            (Some(NamespaceSupport { mount: no, network: no }), State::Lacking, "not permitted"),
            (Some(NamespaceSupport::UNKNOWN), State::Lacking, "max_user_namespaces"),
            (None, State::Fine, "not tried"),
        ];
        for (found, state, expect) in table {
            let finding = namespaces(found);
            assert_eq!(finding.state, state, "{found:?}");
            assert!(finding.text.contains(expect), "{}", finding.text);
        }
        assert_eq!((user(true).state, user(false).state), (State::Lacking, State::Fine));
    }

    #[test]
    fn a_service_that_kills_its_group_is_broken() {
        assert_eq!(judge("b.service", "process").state, State::Fine);
        for mode in ["control-group", "mixed"] {
            let finding = judge("b.service", mode);
            assert_eq!(finding.state, State::Broken);
            assert!(finding.text.contains("KillMode=process"), "{}", finding.text);
        }
    }
}
