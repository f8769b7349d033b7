//! Attempts to leave a sandbox, made inside it by this program.
#![expect(unsafe_code, reason = "makes system calls that no library offers")]

use std::fs;
use std::io;
use std::mem::size_of;
use std::net::UdpSocket;

use crate::support::{ProcessResult, ProcessSettings, TestDirs};

/// The variable with the names of the attempts, for the copy inside.
const ATTEMPTS: &str = "ATTEMPTS";
/// The variable with the pid of a process outside, or with a port there.
const TARGET: &str = "TARGET";

/// Runs a copy of this program inside, which makes the attempts. Each line of its output is `NAME:
/// done`, or `NAME:` and the kernel's error.
pub(crate) async fn attempt(
    run: &ProcessSettings<'_>,
    dirs: &TestDirs,
    names: &[&str],
    target: u64,
) -> ProcessResult {
    let copy = dirs.inside.join("attack");
    if !copy.exists() {
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    }
    let names = names.join(",");
    let script = format!(
        "{ATTEMPTS}='{names}' {TARGET}={target} ./attack --ignored --exact attack::make_attempts --nocapture -q"
    );
    run.script(dirs, &script).await
}

#[test]
#[ignore = "run inside a sandbox by other tests"]
fn make_attempts() {
    let Ok(names) = std::env::var(ATTEMPTS) else { return };
    let target: u64 = std::env::var(TARGET).unwrap().parse().unwrap();
    for name in names.split(',') {
        match make_attempt(name, target) {
            Ok(()) => println!("{name}: done"),
            Err(error) => println!("{name}: {error}"),
        }
    }
}

fn make_attempt(name: &str, target: u64) -> io::Result<()> {
    let pid = target as libc::pid_t;
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut set = [u64::MAX; 16];
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: all pointers are valid during each call, and the lengths are correct.
    unsafe {
        match name {
            "prlimit" => {
                check_result(libc::prlimit(pid, libc::RLIMIT_CORE, &limit, std::ptr::null_mut()))
            }
            "prlimit of the shim" => {
                let shim = libc::getppid();
                check_result(libc::prlimit(shim, libc::RLIMIT_CORE, &limit, std::ptr::null_mut()))
            }
            "own limit" => check_result(libc::setrlimit(libc::RLIMIT_CORE, &limit)),
            "affinity" => check_result(libc::sched_setaffinity(pid, 128, set.as_mut_ptr().cast())),
            "own affinity" => {
                check_result(libc::sched_setaffinity(0, 128, set.as_mut_ptr().cast()))
            }
            "scheduler" => {
                check_result(libc::sched_setscheduler(pid, libc::SCHED_BATCH, &parameters))
            }
            "priority" => check_result(libc::setpriority(libc::PRIO_PROCESS, target as u32, 5)),
            "group priority" => check_result(libc::setpriority(libc::PRIO_PGRP, 0, 5)),
            "user priority" => check_result(libc::setpriority(libc::PRIO_USER, 0, 5)),
            "own priority" => check_result(libc::setpriority(libc::PRIO_PROCESS, 0, 5)),
            "io priority" => system_call(libc::SYS_ioprio_set, [1, target as i64, 0x4007]),
            "kcmp" => {
                system_call(libc::SYS_kcmp, [libc::getpid().into(), libc::getpid().into(), 1])
            }
            "io_uring" => {
                let mut parameters = [0_u8; 120];
                system_call(libc::SYS_io_uring_setup, [4, parameters.as_mut_ptr() as i64, 0])
            }
            "keyring" => system_call(libc::SYS_keyctl, [0, -3, 0]),
            // With size zero, so that it has no effect where it is allowed.
            "clone3" => system_call(libc::SYS_clone3, [0; 3]),
            "x32" => system_call(0x4000_0000 + libc::SYS_getpid, [0; 3]),
            "foreign" => foreign_call(),
            _ => connect(name, target as u16),
        }
    }
}

/// Tries to connect to a local port, or only to create a socket for it.
fn connect(name: &str, port: u16) -> io::Result<()> {
    const MPTCP: i32 = 262;
    const SCTP: i32 = 132;
    const DCCP: i32 = 6;
    const SMC: i32 = 43;
    const RDS: i32 = 21;
    let inet = libc::AF_INET;
    let inet6 = libc::AF_INET6;
    let stream = libc::SOCK_STREAM;
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    match name {
        "tcp" => connect_to(port, socket(inet, stream | libc::SOCK_CLOEXEC, 0)?),
        "tcp with flags" => socket(inet6, stream | flags, libc::IPPROTO_TCP).map(drop),
        "mptcp" => connect_to(port, socket(inet, stream, MPTCP)?),
        "sctp" => socket(inet, libc::SOCK_SEQPACKET, SCTP).map(drop),
        "sctp stream" => socket(inet6, stream, SCTP).map(drop),
        "dccp" => socket(inet, DCCP, 33).map(drop),
        "smc" => socket(SMC, stream, 0).map(drop),
        "rds" => socket(RDS, libc::SOCK_SEQPACKET, 0).map(drop),
        "vsock" => socket(libc::AF_VSOCK, stream, 0).map(drop),
        "fast open" => fast_open(port),
        "udp" => UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", ("127.0.0.1", port)).map(drop),
        "netlink" => socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).map(drop),
        "local" => std::os::unix::net::UnixStream::pair().map(drop),
        unknown => panic!("{unknown}"),
    }
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<i32> {
    // SAFETY: takes three numbers. The process's exit closes the descriptor.
    let fd = unsafe { libc::socket(family, kind, protocol) };
    check_result(fd).map(|()| fd)
}

fn loopback(port: u16) -> libc::sockaddr_in {
    let address = libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) };
    let family = libc::AF_INET as libc::sa_family_t;
    libc::sockaddr_in {
        sin_family: family,
        sin_port: port.to_be(),
        sin_addr: address,
        sin_zero: [0; 8],
    }
}

fn connect_to(port: u16, fd: i32) -> io::Result<()> {
    let address = loopback(port);
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address lives during the call and has this length.
    check_result(unsafe { libc::connect(fd, (&raw const address).cast(), length) })
}

/// Connects with the first bytes, without a call to `connect`.
fn fast_open(port: u16) -> io::Result<()> {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let address = loopback(port);
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let text = b"out";
    let flags = libc::MSG_FASTOPEN;
    // SAFETY: address and text live during the call and have these lengths.
    let sent = unsafe {
        let address = (&raw const address).cast();
        libc::sendto(fd, text.as_ptr().cast(), text.len(), flags, address, length)
    };
    check_result(sent as i32)
}

/// Makes a system call by its 32-bit number, if the architecture has one.
fn foreign_call() -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        const GETPID: u64 = 20;
        let mut _number = GETPID;
        // SAFETY: returns a number only, through an interrupt that every 64-bit process can use.
        unsafe { std::arch::asm!("int 0x80", inout("rax") _number) };
    }
    Ok(())
}

fn system_call(number: i64, arguments: [i64; 3]) -> io::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: only for the calls of `make_attempt`, whose arguments live during the call.
    check_result(unsafe { libc::syscall(number, first, second, third, 0_i64, 0_i64) } as i32)
}

fn check_result(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
