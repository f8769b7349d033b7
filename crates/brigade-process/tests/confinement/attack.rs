//! Attempts to get out of a sandbox, made from inside it by this program itself.
#![expect(unsafe_code, reason = "makes system calls that no library offers")]

use std::fs;
use std::io;
use std::mem::size_of;
use std::net::UdpSocket;

use crate::support::{Place, Ran, Run};

/// Names what is to be tried, in the environment of the copy that runs inside.
const ATTEMPTS: &str = "ATTEMPTS";
/// A process outside, or a port there.
const TARGET: &str = "TARGET";

/// Runs a copy of this program inside, which makes the attempts. Its lines are `NAME: done`, or `NAME:` and
/// the kernel's error.
pub(crate) async fn attempt(run: &Run<'_>, place: &Place, names: &[&str], target: u64) -> Ran {
    let copy = place.inside.join("attack");
    if !copy.exists() {
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    }
    let names = names.join(",");
    let script = format!(
        "{ATTEMPTS}='{names}' {TARGET}={target} ./attack --ignored --exact attack::inside --nocapture -q"
    );
    run.script(place, &script).await
}

#[test]
#[ignore = "is run inside a sandbox by other tests"]
fn inside() {
    let Ok(names) = std::env::var(ATTEMPTS) else { return };
    let target: u64 = std::env::var(TARGET).unwrap().parse().unwrap();
    for name in names.split(',') {
        match make(name, target) {
            Ok(()) => println!("{name}: done"),
            Err(error) => println!("{name}: {error}"),
        }
    }
}

fn make(name: &str, target: u64) -> io::Result<()> {
    let pid = target as libc::pid_t;
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut set = [u64::MAX; 16];
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: what is pointed to lives through each call and is as long as it is said to be.
    unsafe {
        match name {
            "prlimit" => done(libc::prlimit(pid, libc::RLIMIT_CORE, &limit, std::ptr::null_mut())),
            "prlimit of the shim" => {
                let shim = libc::getppid();
                done(libc::prlimit(shim, libc::RLIMIT_CORE, &limit, std::ptr::null_mut()))
            }
            "own limit" => done(libc::setrlimit(libc::RLIMIT_CORE, &limit)),
            "affinity" => done(libc::sched_setaffinity(pid, 128, set.as_mut_ptr().cast())),
            "own affinity" => done(libc::sched_setaffinity(0, 128, set.as_mut_ptr().cast())),
            "scheduler" => done(libc::sched_setscheduler(pid, libc::SCHED_BATCH, &parameters)),
            "priority" => done(libc::setpriority(libc::PRIO_PROCESS, target as u32, 5)),
            "group priority" => done(libc::setpriority(libc::PRIO_PGRP, 0, 5)),
            "user priority" => done(libc::setpriority(libc::PRIO_USER, 0, 5)),
            "own priority" => done(libc::setpriority(libc::PRIO_PROCESS, 0, 5)),
            "io priority" => call(libc::SYS_ioprio_set, [1, target as i64, 0x4007]),
            "kcmp" => call(libc::SYS_kcmp, [libc::getpid().into(), libc::getpid().into(), 1]),
            "io_uring" => {
                let mut parameters = [0_u8; 120];
                call(libc::SYS_io_uring_setup, [4, parameters.as_mut_ptr() as i64, 0])
            }
            "keyring" => call(libc::SYS_keyctl, [0, -3, 0]),
            // Of no size, so that nothing comes of it where it is allowed.
            "clone3" => call(libc::SYS_clone3, [0; 3]),
            "x32" => call(0x4000_0000 + libc::SYS_getpid, [0; 3]),
            "foreign" => foreign(),
            _ => connect(name, target as u16),
        }
    }
}

/// Tries to reach a port of this machine, or only to have a socket for it.
fn connect(name: &str, port: u16) -> io::Result<()> {
    const MPTCP: i32 = 262;
    const SCTP: i32 = 132;
    const DCCP: i32 = 6;
    const SMC: i32 = 43;
    const RDS: i32 = 21;
    let (inet, inet6) = (libc::AF_INET, libc::AF_INET6);
    let (stream, flags) = (libc::SOCK_STREAM, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    match name {
        "tcp" => to(port, socket(inet, stream | libc::SOCK_CLOEXEC, 0)?),
        "tcp with flags" => socket(inet6, stream | flags, libc::IPPROTO_TCP).map(drop),
        "mptcp" => to(port, socket(inet, stream, MPTCP)?),
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
    // SAFETY: takes three numbers. The descriptor is closed with the process.
    let fd = unsafe { libc::socket(family, kind, protocol) };
    done(fd).map(|()| fd)
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

fn to(port: u16, fd: i32) -> io::Result<()> {
    let address = loopback(port);
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address lives through the call and is as long as that.
    done(unsafe { libc::connect(fd, (&raw const address).cast(), length) })
}

/// Connects with the first bytes, without a call to `connect`.
fn fast_open(port: u16) -> io::Result<()> {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    let address = loopback(port);
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let (text, flags) = (b"out", libc::MSG_FASTOPEN);
    // SAFETY: address and text live through the call and are as long as that.
    let sent = unsafe {
        let address = (&raw const address).cast();
        libc::sendto(fd, text.as_ptr().cast(), text.len(), flags, address, length)
    };
    done(sent as i32)
}

/// A call by the numbers of 32 bits, where there are such.
fn foreign() -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        const GETPID: u64 = 20;
        let mut _number = GETPID;
        // SAFETY: asks for a number only, by a door of the kernel that all 64-bit processes have.
        unsafe { std::arch::asm!("int 0x80", inout("rax") _number) };
    }
    Ok(())
}

fn call(number: i64, arguments: [i64; 3]) -> io::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: for the calls of `make`, whose arguments live through it.
    done(unsafe { libc::syscall(number, first, second, third, 0_i64, 0_i64) } as i32)
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
