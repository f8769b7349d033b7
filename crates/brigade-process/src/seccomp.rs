//! The seccomp filter of a sandbox, compiled here and passed to the shim as bytes.
//!
//! Landlock restricts files, TCP ports and signals. It does not restrict system calls that change
//! another process of the same user by pid, and checks TCP only at bind and connect. The filter
//! denies the rest with `EPERM`, for the process and all its descendants. It ends processes that
//! use calls of another architecture, whose numbers differ.
//!
//! A filter sees numbers, not memory. So it denies calls in which a number is enough: the pid of a
//! process, or the family and type of a new socket. Without a TCP socket, a process cannot connect,
//! listen or send with `MSG_FASTOPEN`.

use std::fmt;

/// The network that a sandboxed process may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkAccess {
    #[default]
    All,
    /// Datagrams only: no TCP, MPTCP, SCTP or other protocol with connections.
    NoTcp,
    /// Local sockets (`AF_UNIX`) only.
    None,
}

/// A reason why the filter cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("no system call filter can be built: {0}")]
pub struct FilterError(String);

impl FilterError {
    fn new(problem: impl fmt::Display) -> Self {
        Self(problem.to_string())
    }
}

/// Compiles the filter to instructions of the kernel's packet filter, in their memory layout.
pub fn compile(network: NetworkAccess) -> Result<Vec<u8>, FilterError> {
    #[cfg(full_linux)]
    return linux::compile(network);
    #[cfg(not(full_linux))]
    {
        let _ = network;
        Err(FilterError::new("this system has no seccomp"))
    }
}

/// Fails if the kernel accepts no filters or the system calls of this processor are unknown.
pub fn check() -> Result<(), FilterError> {
    #[cfg(full_linux)]
    return linux::check();
    #[cfg(not(full_linux))]
    Err(FilterError::new("this system has no seccomp"))
}

#[cfg(full_linux)]
#[expect(unsafe_code, reason = "the check for supported actions is a bare system call")]
mod linux {
    use std::collections::BTreeMap;
    use std::io;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, sock_filter,
    };

    use super::{FilterError, NetworkAccess};

    /// Calls with a pid as their first argument, where zero is the caller. The ids of the caller's
    /// threads are denied too, because a filter cannot recognize them.
    const SELF_ONLY_CALLS: [i64; 7] = [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
    ];
    /// Calls on other processes by descriptor, a second interface to every other call, and
    /// keyrings, which belong to the user.
    const DENIED_CALLS: [i64; 10] = [
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        libc::SYS_kcmp,
        libc::SYS_fanotify_init,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
    ];
    /// The bits of a socket's type that are not flags.
    const TYPE_MASK: u64 = 0xf;
    /// The first number of the x32 calls, which report the usual architecture.
    const X32: u32 = 0x4000_0000;

    type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

    pub(super) fn check() -> Result<(), FilterError> {
        const GET_ACTION_AVAILABLE: libc::c_uint = 2;
        target_architecture()?;
        let action: u32 = libc::SECCOMP_RET_ERRNO;
        // SAFETY: the number is a local that lives during the call, which only reads it.
        let known = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0, &action) };
        match known {
            0 => Ok(()),
            _ => Err(FilterError::new(io::Error::last_os_error())),
        }
    }

    pub(super) fn compile(network: NetworkAccess) -> Result<Vec<u8>, FilterError> {
        let refusal = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let filter = build_rules(network).and_then(|rules| {
            SeccompFilter::new(rules, SeccompAction::Allow, refusal, target_architecture()?)
                .map_err(FilterError::new)
        })?;
        let program = BpfProgram::try_from(filter).map_err(FilterError::new)?;
        let whole = foreign_call_guard().into_iter().chain(program);
        Ok(whole.flat_map(|instruction| instruction_bytes(&instruction)).collect())
    }

    fn target_architecture() -> Result<TargetArch, FilterError> {
        std::env::consts::ARCH.try_into().map_err(|_| {
            FilterError::new("Brigade does not know the system calls of this processor")
        })
    }

    fn build_rules(network: NetworkAccess) -> Result<SeccompRules, FilterError> {
        let mut rules: SeccompRules = DENIED_CALLS.map(|call| (call, Vec::new())).into();
        for call in SELF_ONLY_CALLS {
            rules.insert(call, vec![all_of([not_equal(0, 0)])?]);
        }
        // A process group or a user, even the caller's own, can contain processes outside.
        let own_priority =
            |kind| Ok(vec![all_of([not_equal(0, kind)])?, all_of([not_equal(1, 0)])?]);
        rules.insert(libc::SYS_setpriority, own_priority(u64::from(libc::PRIO_PROCESS))?);
        const IOPRIO_WHO_PROCESS: u64 = 1;
        rules.insert(libc::SYS_ioprio_set, own_priority(IOPRIO_WHO_PROCESS)?);
        let sockets = socket_rules(network)?;
        if !sockets.is_empty() {
            rules.insert(libc::SYS_socketpair, sockets.clone());
            rules.insert(libc::SYS_socket, sockets);
        }
        Ok(rules)
    }

    /// Returns the rules for denied sockets, by family and type.
    fn socket_rules(network: NetworkAccess) -> Result<Vec<SeccompRule>, FilterError> {
        let [local, inet, inet6, netlink, datagram] =
            [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::SOCK_DGRAM]
                .map(|number| u64::from(number.cast_unsigned()));
        match network {
            NetworkAccess::All => Ok(Vec::new()),
            NetworkAccess::None => Ok(vec![all_of([not_equal(0, local)])?]),
            NetworkAccess::NoTcp => {
                let known = [local, inet, inet6, netlink];
                let mut denied = vec![all_of(known.map(|family| not_equal(0, family)))?];
                for family in [inet, inet6] {
                    for kind in (0..=TYPE_MASK).filter(|kind| *kind != datagram) {
                        let is_kind = condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind);
                        denied.push(all_of([condition(0, SeccompCmpOp::Eq, family), is_kind])?);
                    }
                }
                Ok(denied)
            }
        }
    }

    type ConditionResult = Result<SeccompCondition, FilterError>;

    fn all_of(
        conditions: impl IntoIterator<Item = ConditionResult>,
    ) -> Result<SeccompRule, FilterError> {
        let conditions = conditions.into_iter().collect::<Result<_, _>>()?;
        SeccompRule::new(conditions).map_err(FilterError::new)
    }

    fn not_equal(argument: u8, from: u64) -> ConditionResult {
        condition(argument, SeccompCmpOp::Ne, from)
    }

    /// Compares 32 bits: the kernel ignores the upper bits of all these arguments.
    fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> ConditionResult {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .map_err(FilterError::new)
    }

    /// Denies calls that the filter compiler does not support: the x32 calls and `clone3`. With
    /// `clone3` a process could start another one in a control group that it may only read. Its
    /// flags are in memory, which no filter sees. `ENOSYS` makes libraries use `clone` instead.
    fn foreign_call_guard() -> Vec<sock_filter> {
        const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let refusal = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
        let clone3 = libc::SYS_clone3 as u32;
        let mut instructions = vec![
            sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
            sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: clone3 },
            sock_filter { code: RETURN, jt: 0, jf: 0, k: refusal(libc::ENOSYS) },
        ];
        if cfg!(target_arch = "x86_64") {
            instructions.extend([
                sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: X32 },
                sock_filter { code: RETURN, jt: 0, jf: 0, k: refusal(libc::EPERM) },
            ]);
        }
        instructions
    }

    fn instruction_bytes(instruction: &sock_filter) -> [u8; 8] {
        let [code_0, code_1] = instruction.code.to_ne_bytes();
        let [k_0, k_1, k_2, k_3] = instruction.k.to_ne_bytes();
        [code_0, code_1, instruction.jt, instruction.jf, k_0, k_1, k_2, k_3]
    }
}

#[cfg(all(test, full_linux))]
mod tests {
    use super::*;

    #[test]
    fn every_filter_fits_the_kernel() {
        check().unwrap();
        for network in [NetworkAccess::All, NetworkAccess::NoTcp, NetworkAccess::None] {
            let program = compile(network).unwrap();
            assert_eq!(program.len() % 8, 0);
            assert!(program.len() / 8 < 4096, "{} instructions", program.len() / 8);
        }
    }
}
