//! Whether this machine lets shims do their work, and what to do where it does not.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::companion::Companion;
use crate::control_group::ControlGroups;
use crate::landlock_rules::LandlockSupport;
use crate::sandbox::{NamespaceStatus, NamespaceSupport};
use crate::seccomp::{self, FilterError};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthFinding {
    pub check: &'static str,
    pub state: HealthState,
    /// What was seen and, where it is not fine, what to do.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthState {
    Healthy,
    /// It works, with a promise less.
    Degraded,
    Broken,
}

/// Looks at everything that shims depend on, and changes nothing. `folder` is where they keep their
/// directories; it need not be there yet.
pub fn check_host(folder: &Path) -> Vec<HealthFinding> {
    vec![
        check_companion(folder),
        check_kernel(),
        check_children_files(),
        check_landlock(LandlockSupport::detect()),
        check_seccomp(seccomp::check()),
        check_namespaces(
            Companion::find_usable(folder).map(|companion| companion.probe_namespaces()),
        ),
        check_user(rustix::process::geteuid().is_root()),
        check_control_groups(ControlGroups::find_delegated().as_deref()),
        check_service_manager(),
    ]
}

fn check_companion(folder: &Path) -> HealthFinding {
    let what = "shim";
    match Companion::predict(folder) {
        Ok(Some(companion)) => {
            new_finding(what, HealthState::Healthy, companion.path().display().to_string())
        }
        Ok(None) => new_finding(
            what,
            HealthState::Healthy,
            "the next daemon puts it into the folder".into(),
        ),
        Err(error) => new_finding(what, HealthState::Broken, error.to_string()),
    }
}

fn check_kernel() -> HealthFinding {
    let what = "kernel";
    #[cfg(full_linux)]
    {
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        match pidfd_open(getpid(), PidfdFlags::empty()) {
            Ok(_) => new_finding(what, HealthState::Healthy, "processes are held by pidfd".into()),
            Err(error) => new_finding(
                what,
                HealthState::Broken,
                format!(
                    "pidfd_open: {error}; Linux 5.3 or newer is needed, and a container's \
                         system call filter must allow it"
                ),
            ),
        }
    }
    #[cfg(not(full_linux))]
    new_finding(
        what,
        HealthState::Degraded,
        "this system cannot inherit orphans: a command's processes that leave its process group \
         are not reached by a stop"
            .into(),
    )
}

fn check_children_files() -> HealthFinding {
    let what = "process tree";
    if !cfg!(full_linux) || Path::new("/proc/self/task").join(own_pid()).join("children").exists() {
        return new_finding(what, HealthState::Healthy, "children are listed by the kernel".into());
    }
    let text = "the kernel does not list children (CONFIG_PROC_CHILDREN); each stop scans /proc";
    new_finding(what, HealthState::Degraded, text.into())
}

/// Whether commands can be confined, for whom that is wanted.
fn check_landlock(found: LandlockSupport) -> HealthFinding {
    let what = "confinement";
    if let Err(error) = found.check() {
        return new_finding(
            what,
            HealthState::Degraded,
            format!("a command cannot be confined: {error}"),
        );
    }
    let LandlockSupport::Version(version) = found else {
        return new_finding(
            what,
            HealthState::Degraded,
            "the version of Landlock is not known".into(),
        );
    };
    match found.has_scopes() {
        true => new_finding(what, HealthState::Healthy, format!("Landlock, version {version}")),
        false => {
            let text = format!(
                "Landlock, version {version}: a confined command can send signals to processes \
                 outside, its own shim among them; Linux 6.12 or newer is needed"
            );
            new_finding(what, HealthState::Degraded, text)
        }
    }
}

/// Whether system calls can be filtered, without which no command is confined.
fn check_seccomp(found: Result<(), FilterError>) -> HealthFinding {
    let what = "system calls";
    match found {
        Ok(()) => new_finding(
            what,
            HealthState::Healthy,
            "those of confined commands are filtered".into(),
        ),
        Err(error) => new_finding(
            what,
            HealthState::Degraded,
            format!("a command cannot be confined: {error}"),
        ),
    }
}

/// Whether confined commands can have mounts of their own, and nothing of the network.
fn check_namespaces(found: Option<NamespaceSupport>) -> HealthFinding {
    let what = "namespaces";
    let refused = |support: NamespaceStatus| match support {
        NamespaceStatus::Refused(errno) => io::Error::from_raw_os_error(errno).to_string(),
        NamespaceStatus::Available | NamespaceStatus::Unknown => "it is not known why".into(),
    };
    let Some(found) = found else {
        let text = "not tried: the next daemon finds out which ones confined commands can have";
        return new_finding(what, HealthState::Healthy, text.into());
    };
    if !found.mount.is_available() {
        let text = format!(
            "a confined command gets no mounts of its own ({}): it can change modes, owners and times of \
             files outside, and connect to local sockets. User namespaces have to be allowed: \
             user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns, or the container's system call filter",
            refused(found.mount)
        );
        return new_finding(what, HealthState::Degraded, text);
    }
    if !found.network.is_available() {
        let text = format!(
            "confined commands get mounts of their own; without a network they are kept from it by the \
             filter alone ({})",
            refused(found.network)
        );
        return new_finding(what, HealthState::Healthy, text);
    }
    new_finding(
        what,
        HealthState::Healthy,
        "mounts, and the absence of a network, are a command's own".into(),
    )
}

fn check_control_groups(delegated: Option<&Path>) -> HealthFinding {
    let what = "control groups";
    let text = match delegated {
        Some(group) => format!("each command gets one below {}", group.display()),
        None => "none are delegated to a daemon that is started from here: a stop searches the tree of processes, and --max-memory bounds each \
                 process by itself"
            .to_owned(),
    };
    new_finding(what, HealthState::Healthy, text)
}

fn check_user(is_root: bool) -> HealthFinding {
    let what = "user";
    if !is_root {
        return new_finding(what, HealthState::Healthy, "not root".into());
    }
    let text = "this is root: a confined command keeps root's rights over the files that it reaches, and \
                one that is not confined has all of them; run Brigade as a user of its own";
    new_finding(what, HealthState::Degraded, text.into())
}

fn own_pid() -> String {
    std::process::id().to_string()
}

/// A service manager that ends the whole control group of a service ends the shims with it.
fn check_service_manager() -> HealthFinding {
    let what = "service manager";
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match service_unit_of(&groups) {
        None => new_finding(what, HealthState::Healthy, "not run as a service".into()),
        Some(unit) => match kill_mode(&groups, &unit) {
            Ok(mode) => check_kill_mode(&unit, &mode),
            Err(error) => new_finding(
                what,
                HealthState::Degraded,
                format!("{unit}: its KillMode cannot be read ({error}); it must be `process`"),
            ),
        },
    }
}

fn check_kill_mode(unit: &str, mode: &str) -> HealthFinding {
    let what = "service manager";
    match mode {
        "process" | "none" => {
            new_finding(what, HealthState::Healthy, format!("{unit} has KillMode={mode}"))
        }
        _ => new_finding(
            what,
            HealthState::Broken,
            format!(
                "{unit} has KillMode={mode}: a restart of the service kills every running command. \
                 Set KillMode=process in the unit's [Service] section"
            ),
        ),
    }
}

/// The service unit that a process is in, by its `/proc/PID/cgroup`.
fn service_unit_of(groups: &str) -> Option<String> {
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

fn new_finding(what: &'static str, state: HealthState, text: String) -> HealthFinding {
    HealthFinding { check: what, state, text }
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
            assert_eq!(service_unit_of(groups).as_deref(), expect, "{groups}");
        }
    }

    #[test]
    fn what_the_kernel_has_for_confining_is_told() {
        let table = [
            (LandlockSupport::Version(7), HealthState::Healthy, "version 7"),
            (LandlockSupport::Version(5), HealthState::Degraded, "Linux 6.12"),
            (LandlockSupport::Version(3), HealthState::Degraded, "can send signals"),
            (LandlockSupport::Version(2), HealthState::Degraded, "a command cannot be confined"),
            (LandlockSupport::Disabled, HealthState::Degraded, "lsm="),
            (LandlockSupport::Missing, HealthState::Degraded, "no Landlock"),
        ];
        for (found, state, expect) in table {
            let finding = check_landlock(found);
            assert_eq!(finding.state, state, "{found:?}");
            assert!(finding.text.contains(expect), "{}", finding.text);
        }
    }

    #[test]
    fn what_namespaces_there_are_is_told() {
        let (yes, no) = (NamespaceStatus::Available, NamespaceStatus::Refused(1));
        let table = [
            (Some(NamespaceSupport { mount: yes, network: yes }), HealthState::Healthy, "mounts"),
            (
                Some(NamespaceSupport { mount: yes, network: no }),
                HealthState::Healthy,
                "filter alone",
            ),
            (
                Some(NamespaceSupport { mount: no, network: no }),
                HealthState::Degraded,
                "not permitted",
            ),
            (Some(NamespaceSupport::UNKNOWN), HealthState::Degraded, "max_user_namespaces"),
            (None, HealthState::Healthy, "not tried"),
        ];
        for (found, state, expect) in table {
            let finding = check_namespaces(found);
            assert_eq!(finding.state, state, "{found:?}");
            assert!(finding.text.contains(expect), "{}", finding.text);
        }
        assert_eq!(
            (check_user(true).state, check_user(false).state),
            (HealthState::Degraded, HealthState::Healthy)
        );
    }

    #[test]
    fn a_service_that_kills_its_group_is_broken() {
        assert_eq!(check_kill_mode("b.service", "process").state, HealthState::Healthy);
        for mode in ["control-group", "mixed"] {
            let finding = check_kill_mode("b.service", mode);
            assert_eq!(finding.state, HealthState::Broken);
            assert!(finding.text.contains("KillMode=process"), "{}", finding.text);
        }
    }
}
