//! Control groups end all processes of a task at once.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brigade_process::{BootId, ControlGroups, ProcessLimits, ShimLaunch, ShimOrder, control_group};
use tempfile::TempDir;

use crate::support::{companion, is_root};

/// A cgroup of this test. It is removed with it.
struct Delegated(PathBuf);

impl Delegated {
    /// Creates the group. Without a service manager only root can do so.
    fn new(name: &str) -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let mount = mounts.into_iter().find(|mount| mount.join("cgroup.procs").exists())?;
        let group = mount.join(format!("brigade-test-{name}-{}", std::process::id()));
        let is_created = is_root() && fs::create_dir(&group).is_ok();
        is_created.then_some(Self(group))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Starts a process whose descendant nobody could find: forked twice, in its own session, without
/// an environment, and ignoring TERM.
fn start_hidden(dir: &TempDir) -> brigade_process::Shim {
    let inner = "trap \"\" TERM; echo $$ > pid; sleep 1000 & wait";
    let script = format!("env -i setsid sh -c '{inner}' & wait");
    let launch = ShimLaunch {
        dir: dir.path(),
        boot_id: BootId([0; 16]),
        argv: &["/bin/sh".into(), "-c".into(), OsString::from(script)],
        env: &[("PATH".into(), std::env::var_os("PATH").unwrap())],
        cwd: Some(dir.path()),
        reads_input: false,
        output_cap: 1 << 16,
        grace: Duration::from_millis(50),
        limits: ProcessLimits::default(),
        terminal: None,
        sandbox: None,
        timing: brigade_process::ShimTiming::default(),
    };
    launch.start(companion()).unwrap()
}

async fn until(condition: &str, mut is_met: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < Duration::from_secs(30), "{condition}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn pid_count(group: &Path) -> usize {
    fs::read_to_string(group.join("cgroup.procs")).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn a_group_is_ended_as_a_whole() {
    let Some(delegated) = Delegated::new("whole") else {
        eprintln!("not tested: no control group can be created here");
        return;
    };
    let groups = ControlGroups::in_root(&delegated.0);
    for is_killed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        groups.create_group(dir.path(), None).unwrap();
        let group = PathBuf::from(fs::read_to_string(dir.path().join("group")).unwrap());
        let shim = start_hidden(&dir);
        until("the process is up", || dir.path().join("pid").exists() && pid_count(&group) >= 3)
            .await;
        if is_killed {
            // The shim is dead, but the group still knows the processes.
            let pid = rustix::process::Pid::from_raw(shim.pid().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            shim.wait_exit().await.unwrap();
            assert!(pid_count(&group) >= 2);
            control_group::kill_group_of(dir.path()).unwrap();
        } else {
            shim.send_order(ShimOrder::Kill).unwrap();
            shim.wait_exit().await.unwrap();
        }
        until("the group is empty", || pid_count(&group) == 0).await;
        groups.remove_empty();
        until("the group is removed", || fs::remove_dir(&group).is_ok() || !group.exists()).await;
    }
}
