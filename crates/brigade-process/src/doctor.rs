//! Checks whether this machine supports shims and sandboxes, and how to enable missing features.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::companion::Companion;
use crate::control_group::ControlGroups;
use crate::landlock_rules::LandlockSupport;
use crate::sandbox::{NamespaceStatus, NamespaceSupport};
use crate::seccomp::{self, FilterError};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthFinding {
    pub check: &'static str,
    pub state: HealthState,
    /// The observation and, if it is not healthy, the remedy.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthState {
    Healthy,
    /// It works with fewer guarantees.
    Degraded,
    Broken,
}

/// Checks everything that shims depend on, and changes nothing. `state_dir` may not exist yet.
pub fn check_host(state_dir: &Path) -> Vec<HealthFinding> {
    vec![
        check_companion(state_dir),
        check_kernel(),
        check_children_files(),
        check_landlock(LandlockSupport::detect()),
        check_seccomp(seccomp::check()),
        check_namespaces(
            Companion::find_usable(state_dir).map(|companion| companion.probe_namespaces()),
        ),
        check_user(rustix::process::geteuid().is_root()),
        check_control_groups(ControlGroups::find_delegated().as_deref()),
        check_service_manager(),
    ]
}

fn check_companion(state_dir: &Path) -> HealthFinding {
    let check = "shim";
    match Companion::predict(state_dir) {
        Ok(Some(companion)) => {
            new_finding(check, HealthState::Healthy, companion.path().display().to_string())
        }
        Ok(None) => new_finding(
            check,
            HealthState::Healthy,
            "the next daemon installs it in the state directory".into(),
        ),
        Err(error) => new_finding(check, HealthState::Broken, error.to_string()),
    }
}

fn check_kernel() -> HealthFinding {
    let check = "kernel";
    #[cfg(full_linux)]
    {
        use rustix::process::{PidfdFlags, getpid, pidfd_open};
        match pidfd_open(getpid(), PidfdFlags::empty()) {
            Ok(_) => new_finding(check, HealthState::Healthy, "processes are held by pidfd".into()),
            Err(error) => new_finding(
                check,
                HealthState::Broken,
                format!(
                    "pidfd_open: {error}; use Linux 5.3 or newer, and allow the call in the \
                         container's system call filter"
                ),
            ),
        }
    }
    #[cfg(not(full_linux))]
    new_finding(
        check,
        HealthState::Degraded,
        "this system cannot inherit orphans: a stop does not reach processes that left the process \
         group"
            .into(),
    )
}

fn check_children_files() -> HealthFinding {
    let check = "process tree";
    if !cfg!(full_linux) || Path::new("/proc/self/task").join(own_pid()).join("children").exists() {
        return new_finding(check, HealthState::Healthy, "the kernel lists child processes".into());
    }
    let text =
        "the kernel does not list child processes (CONFIG_PROC_CHILDREN), so each stop scans /proc";
    new_finding(check, HealthState::Degraded, text.into())
}

/// Checks the Landlock support.
fn check_landlock(found: LandlockSupport) -> HealthFinding {
    let check = "sandbox";
    if let Err(error) = found.check() {
        return new_finding(check, HealthState::Degraded, error.to_string());
    }
    let LandlockSupport::Version(version) = found else {
        return new_finding(
            check,
            HealthState::Degraded,
            "the version of Landlock is unknown".into(),
        );
    };
    match found.has_scopes() {
        true => new_finding(check, HealthState::Healthy, format!("Landlock, version {version}")),
        false => {
            let text = format!(
                "Landlock, version {version}: a sandboxed process can send signals to processes \
                 outside, including its own shim; use Linux 6.12 or newer"
            );
            new_finding(check, HealthState::Degraded, text)
        }
    }
}

/// Checks the seccomp support, without which no process can be sandboxed.
fn check_seccomp(found: Result<(), FilterError>) -> HealthFinding {
    let check = "system calls";
    match found {
        Ok(()) => new_finding(
            check,
            HealthState::Healthy,
            "those of sandboxed processes are filtered".into(),
        ),
        Err(error) => {
            new_finding(check, HealthState::Degraded, format!("no sandbox is possible: {error}"))
        }
    }
}

/// Checks for mount and network namespaces.
fn check_namespaces(found: Option<NamespaceSupport>) -> HealthFinding {
    let check = "namespaces";
    let reason = |support: NamespaceStatus| match support {
        NamespaceStatus::Refused(errno) => io::Error::from_raw_os_error(errno).to_string(),
        NamespaceStatus::Available | NamespaceStatus::Unknown => "unknown reason".into(),
    };
    let Some(found) = found else {
        let text = "not tried: the next daemon finds out which ones sandboxed processes can have";
        return new_finding(check, HealthState::Healthy, text.into());
    };
    if !found.mount.is_available() {
        let text = format!(
            "a sandboxed process gets no mounts of its own ({}): it can change modes, owners and \
             times of files outside, and connect to local sockets; allow user namespaces: \
             user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns, or the container's system call filter",
            reason(found.mount)
        );
        return new_finding(check, HealthState::Degraded, text);
    }
    if !found.network.is_available() {
        let text = format!(
            "sandboxed processes get mounts of their own; with --no-network the filter alone \
             denies networks ({})",
            reason(found.network)
        );
        return new_finding(check, HealthState::Healthy, text);
    }
    new_finding(
        check,
        HealthState::Healthy,
        "mounts, and the absence of a network, belong to the process alone".into(),
    )
}

fn check_control_groups(delegated: Option<&Path>) -> HealthFinding {
    let check = "control groups";
    let text = match delegated {
        Some(group) => format!("each process gets one in {}", group.display()),
        None => {
            "none is delegated to a daemon started from here: a stop searches the process tree, \
                 and --max-memory limits each process separately"
                .to_owned()
        }
    };
    new_finding(check, HealthState::Healthy, text)
}

fn check_user(is_root: bool) -> HealthFinding {
    let check = "user";
    if !is_root {
        return new_finding(check, HealthState::Healthy, "not root".into());
    }
    let text = "this is root: a sandboxed process keeps root's rights over the files in its sandbox, \
                and other processes have all of root's rights; run Brigade as a user of its own";
    new_finding(check, HealthState::Degraded, text.into())
}

fn own_pid() -> String {
    std::process::id().to_string()
}

/// Checks the unit: a service manager that ends a whole control group ends the shims too.
fn check_service_manager() -> HealthFinding {
    let check = "service manager";
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match service_unit_of(&groups) {
        None => new_finding(check, HealthState::Healthy, "not run as a service".into()),
        Some(unit) => match kill_mode(&groups, &unit) {
            Ok(mode) => check_kill_mode(&unit, &mode),
            Err(error) => new_finding(
                check,
                HealthState::Degraded,
                format!("{unit}: its KillMode cannot be read ({error}); set it to `process`"),
            ),
        },
    }
}

fn check_kill_mode(unit: &str, mode: &str) -> HealthFinding {
    let check = "service manager";
    match mode {
        "process" | "none" => {
            new_finding(check, HealthState::Healthy, format!("{unit} has KillMode={mode}"))
        }
        _ => new_finding(
            check,
            HealthState::Broken,
            format!(
                "{unit} has KillMode={mode}: a restart of the service kills every running process; \
                 set KillMode=process in the unit's [Service] section"
            ),
        ),
    }
}

/// Returns the service unit of a process, given its `/proc/PID/cgroup`.
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

fn new_finding(check: &'static str, state: HealthState, text: String) -> HealthFinding {
    HealthFinding { check, state, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_service_unit_is_found() {
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
    fn landlock_support_is_reported() {
        let table = [
            (LandlockSupport::Version(7), HealthState::Healthy, "version 7"),
            (LandlockSupport::Version(5), HealthState::Degraded, "Linux 6.12"),
            (LandlockSupport::Version(3), HealthState::Degraded, "can send signals"),
            (LandlockSupport::Version(2), HealthState::Degraded, "no sandbox is possible"),
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
    fn namespace_support_is_reported() {
        let yes = NamespaceStatus::Available;
        let no = NamespaceStatus::Refused(1);
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
