//! The run of a process under a shim: start, stored output, exit.

mod shim_support;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use brigade_process::BootId;
use brigade_process::shim::layout::{ORDER, STDIN, SWITCH_BYTES, StreamSwitch};
use brigade_process::shim::record::{
    Claimer, ProcessExit, ProcessId, ShimPhase, ShimRecord, ShimStopPhase, StartStep,
};
use shim_support::*;

#[test]
fn exits_are_recorded() {
    let table = [
        ("exit 0", ProcessExit::Code(0)),
        ("exit 7", ProcessExit::Code(7)),
        ("exit 255", ProcessExit::Code(255)),
        ("kill -9 $$", ProcessExit::Signal(9)),
        ("kill -TERM $$", ProcessExit::Signal(15)),
    ];
    for (text, exit) in table {
        let mut shim = script(text);
        let record = shim.done();
        assert_eq!(record.exit, Some(exit), "{text}");
        assert_eq!(record.claimer, Claimer::Shim);
        assert_eq!(record.boot_id, BootId(std::array::from_fn(|at| at as u8)));
        assert_eq!(record.shim.pid, shim.child.id());
        assert_eq!(record.stop_phase, ShimStopPhase::None);
        assert!(record.command.is_some() && record.started_at > 0);
        assert!(record.ended_at >= record.started_at);
        assert_eq!(fs::read_dir(shim.directory.path()).unwrap().count(), 1, "only the claim");
    }
}

#[test]
fn a_failed_start_is_recorded_with_its_reason() {
    const NOT_FOUND: i32 = 2;
    const DENIED: i32 = 13;
    let check = |args: TestArgs, words: &[&str], step, errno| {
        let mut shim = args.run(words);
        let record = shim.done();
        assert_eq!(record.exit, Some(ProcessExit::NotStarted { step, errno }), "{words:?}");
        assert_eq!(record.command, None);
        assert!(!shim.path(STDIN).exists());
    };
    let with_input = TestArgs { input: "open", ..TestArgs::default() };
    check(with_input, &["no-such-program"], StartStep::Execute, NOT_FOUND);
    check(TestArgs::default(), &["/etc/passwd"], StartStep::Execute, DENIED);
    let missing_dir = TestArgs { working_directory: "/no/such/dir".into(), ..TestArgs::default() };
    check(missing_dir, &["true"], StartStep::WorkingDirectory, NOT_FOUND);
}

#[test]
fn the_process_gets_its_directory_group_and_empty_stdin() {
    let args = TestArgs { working_directory: "/usr".into(), ..TestArgs::default() };
    let mut shim = args.script("pwd; echo $D; cat; kill -0 -$$ || echo group");
    shim.done();
    assert_eq!(shim.text(0), format!("/usr\n{}\n", shim.directory.path().display()));
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_starts_with_default_signals_and_no_extra_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    let inspect = "grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l";
    let command = TestArgs::default().command(directory.path(), &["sh", "-c", inspect]);
    // A starter that ignores signals and leaks descriptor 9, as `nohup` may.
    let mut words = vec![command.get_program().to_owned()];
    words.extend(command.get_args().map(ToOwned::to_owned));
    let mut starter = std::process::Command::new("sh");
    starter.args(["-c", "trap '' HUP INT QUIT PIPE USR1; exec 9</etc/passwd; exec \"$@\"", "sh"]);
    let child = starter.args(words).env("D", directory.path()).spawn().unwrap();
    let mut shim = Shim { directory, child };
    shim.done();
    let text = shim.text(0);
    let masks = text.lines().filter_map(|line| line.strip_prefix("Sig")?.split('\t').nth(1));
    // glibc reserves the two lowest real-time signals, which `posix_spawn` may leave ignored.
    for mask in masks {
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff, 0, "{text}");
    }
    // Its three streams, and the directory that `ls` reads.
    assert!(text.ends_with("\n4\n") || !is_full_linux(), "{text}");
}

#[test]
fn both_streams_are_stored_byte_for_byte() {
    let mut shim = script("printf 'a\\000\\377b'; printf '\\001\\002' >&2; sleep 0.1; printf c");
    let record = shim.done();
    assert_eq!(shim.stored(0).0, b"a\0\xffbc");
    assert_eq!(shim.stored(1).0, b"\x01\x02");
    assert_eq!((record.produced_bytes, record.unwritten_bytes), ([5, 2], [0, 0]));
}

#[test]
fn the_order_of_the_streams_is_stored() {
    let mut shim = script("for i in 1 2; do printf out; sleep .1; printf e >&2; sleep .1; done");
    let record = shim.done();
    let order = fs::read(shim.path(ORDER)).unwrap();
    let entries: Vec<StreamSwitch> =
        order.as_chunks::<{ SWITCH_BYTES as usize }>().0.iter().map(StreamSwitch::decode).collect();
    let switch = |stream, at| StreamSwitch { stream, at };
    assert_eq!(entries, [switch(1, [3, 0]), switch(0, [3, 1]), switch(1, [6, 1])]);
    assert_eq!(record.switch_count, 3);
}

#[test]
fn beyond_the_cap_the_beginning_and_the_end_are_stored() {
    for cap in [1, 10, 1000, 100_000] {
        let args = TestArgs { cap, ..TestArgs::default() };
        let mut shim = args.script("i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done");
        let record = shim.done();
        let all: String = (0..40_000).map(|number| format!("{number}\n")).collect();
        assert_eq!(record.produced_bytes, [all.len() as u64, 0]);
        let (head, tail) = shim.stored(0);
        assert_eq!(head, &all.as_bytes()[..cap as usize / 2], "cap {cap}");
        assert_eq!(tail, &all.as_bytes()[all.len() - (cap as usize).div_ceil(2)..], "cap {cap}");
    }
}

#[test]
fn without_a_cap_nothing_is_stored_but_all_is_counted() {
    let mut shim = TestArgs { cap: 0, ..TestArgs::default() }.run(&["echo", "hello"]);
    assert_eq!(shim.done().produced_bytes, [6, 0]);
    assert!(!shim.path("stdout").exists());
}

#[test]
fn a_gibibyte_fits_into_its_cap() {
    const GIBIBYTE: u64 = 1 << 30;
    let args = TestArgs { cap: 1 << 20, ..TestArgs::default() };
    let mut shim = args.script("head -c 1073741820 /dev/zero; printf last");
    let record = shim.done();
    assert_eq!((record.produced_bytes, record.unwritten_bytes), ([GIBIBYTE, 0], [0, 0]));
    let size = fs::metadata(shim.path("stdout")).unwrap().len();
    assert!(size <= (1 << 20) + (64 << 10), "{size} bytes");
    let (head, tail) = shim.stored(0);
    assert!(head.iter().all(|byte| *byte == 0));
    assert!(tail.ends_with(b"\0last"));
}

#[test]
fn a_process_may_close_its_streams() {
    let mut shim = script("echo a; exec >&- 2>&-; sleep 0.2; exit 3");
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(3)));
    assert_eq!(shim.text(0), "a\n");
}

#[test]
fn input_reaches_the_process_until_it_is_closed() {
    let mut shim = TestArgs { input: "open", ..TestArgs::default() }.run(&["cat"]);
    shim.wait_until(|record| record.phase == ShimPhase::Running);
    for line in ["one\n", "two\n"] {
        let mut writer = OpenOptions::new().write(true).open(shim.path(STDIN)).unwrap();
        writer.write_all(line.as_bytes()).unwrap();
        drop(writer);
        let wanted = if line == "one\n" { 4 } else { 8 };
        shim.wait_until(|record| record.produced_bytes[0] == wanted);
    }
    shim.signal(Signal::USR2);
    assert_eq!(shim.done().exit, Some(ProcessExit::Code(0)));
    assert_eq!(shim.text(0), "one\ntwo\n");
    assert!(!shim.path(STDIN).exists());
}

#[test]
fn writers_get_an_error_when_nobody_reads() {
    const NO_READER: i32 = 6;
    let shim = TestArgs { input: "open", ..TestArgs::default() }
        .script("echo > $D/reading; read line; exec <&-; echo > $D/closed; sleep 1000");
    shim.wait_for_file("reading");
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(nonblock_flag());
    options.open(shim.path(STDIN)).unwrap().write_all(b"\n").unwrap();
    shim.wait_for_file("closed");
    // `sleep` has closed its stdin too, so only the shim's own end is open.
    let error = options.open(shim.path(STDIN)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(NO_READER));
}

#[test]
fn unread_input_blocks_nobody() {
    let mut shim = TestArgs { input: "open", ..TestArgs::default() }.run(&["sleep", "1000"]);
    shim.wait_until(|record| record.phase == ShimPhase::Running);
    let mut options = OpenOptions::new();
    let mut writer =
        options.write(true).custom_flags(nonblock_flag()).open(shim.path(STDIN)).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    shim.signal(Signal::TERM);
    assert_eq!(shim.done().exit, Some(ProcessExit::Signal(15)));
}

#[test]
fn a_directory_claimed_by_a_runtime_executes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let id = ProcessId { pid: 1, start: 1 };
    let record = ShimRecord::new(Claimer::Runtime, BootId([0; 16]), id, 0);
    let file = fs::File::create(directory.path().join("claim")).unwrap();
    record.write_to(&file).unwrap();
    let mut shim = TestArgs::default().run_in(directory, &["sh", "-c", "echo > $D/ran"]);
    assert!(shim.exit().success());
    assert!(!shim.path("ran").exists());
    assert_eq!(shim.record(), Some(record));
    assert_eq!(fs::read_dir(shim.directory.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_directory_executes_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let missing = outside.path().join("missing");
    let ran = format!("echo > {}/ran", outside.path().display());
    let status = TestArgs::default().command(&missing, &["sh", "-c", &ran]).status().unwrap();
    assert!(status.success());
    assert!(!outside.path().join("ran").exists());
}

#[test]
fn of_two_shims_exactly_one_executes() {
    for round in 0..200 {
        let directory = tempfile::tempdir().unwrap();
        let words = ["sh", "-c", "echo x >> $D/ran"];
        let start = || TestArgs::default().command(directory.path(), &words).spawn().unwrap();
        let shims = [start(), start()];
        let pids = shims.each_ref().map(|shim| shim.id());
        for mut shim in shims {
            assert!(shim.wait().unwrap().success());
        }
        assert_eq!(fs::read_to_string(directory.path().join("ran")).unwrap(), "x\n", "{round}");
        let file = fs::File::open(directory.path().join("claim")).unwrap();
        assert!(pids.contains(&ShimRecord::read_from(&file).unwrap().shim.pid));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "{round}");
    }
}

#[test]
fn the_lock_shows_whether_the_shim_is_alive() {
    let mut shim = TestArgs::default().run(&["sleep", "1000"]);
    shim.wait_until(|record| record.phase == ShimPhase::Running);
    let claim = fs::File::open(shim.path("claim")).unwrap();
    assert!(claim.try_lock_shared().is_err());
    shim.child.kill().unwrap();
    shim.child.wait().unwrap();
    claim.try_lock_shared().unwrap();
    // The process outlives a killed shim, so this test ends it.
    let command = shim.record().unwrap().command.unwrap();
    let pid = rustix::process::Pid::from_raw(command.pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

fn nonblock_flag() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}
