"""Tries to disturb the daemon and its own shim with system calls, from within a sandbox.

Usage: limits.py DAEMON-PID SECONDS. Prints the calls that succeeded.
With 0 seconds it tries once, and neither its own shim nor signals: to see that the calls work outside.
"""

import ctypes
import json
import os
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
X86_64 = {
    "prlimit64": 302, "sched_setaffinity": 203, "setpriority": 141, "ioprio_set": 251,
    "sched_setscheduler": 144, "kcmp": 312, "ptrace": 101, "process_vm_readv": 310,
    "migrate_pages": 256, "pidfd_open": 434, "pidfd_getfd": 438, "io_uring_setup": 425, "kill": 62,
}
AARCH64 = {
    "prlimit64": 261, "sched_setaffinity": 122, "setpriority": 140, "ioprio_set": 30,
    "sched_setscheduler": 119, "kcmp": 272, "ptrace": 117, "process_vm_readv": 270,
    "migrate_pages": 238, "pidfd_open": 434, "pidfd_getfd": 438, "io_uring_setup": 425, "kill": 129,
}
NUMBERS = AARCH64 if os.uname().machine == "aarch64" else X86_64


def call(name, *arguments):
    return LIBC.syscall(NUMBERS[name], *arguments)


def limit(pid, resource, value):
    bounds = ctypes.create_string_buffer(struct.pack("QQ", value, value))
    return call("prlimit64", pid, resource, bounds, None)


def get_descriptor(pid):
    held = call("pidfd_open", pid, 0)
    if held < 0:
        return held
    try:
        return call("pidfd_getfd", held, 3, 0)
    finally:
        os.close(held)


def attempts(pid):
    mask = ctypes.create_string_buffer(b"\1" + b"\0" * 127)
    param = ctypes.create_string_buffer(struct.pack("i", 0))
    yield "limit of file size", limit(pid, 1, 0)
    yield "limit of processor time", limit(pid, 0, 1)
    yield "limit of files", limit(pid, 7, 0)
    yield "limit of memory", limit(pid, 9, 1 << 20)
    yield "affinity", call("sched_setaffinity", pid, 128, mask)
    yield "priority", call("setpriority", 0, pid, 19)
    yield "io priority", call("ioprio_set", 1, pid, 3 << 13)
    yield "scheduler", call("sched_setscheduler", pid, 5, param)
    yield "comparison", call("kcmp", pid, os.getpid(), 1, 0, 0)
    yield "trace", call("ptrace", 0x4206, pid, 0, 0)
    yield "descriptor", get_descriptor(pid)
    yield "signal", call("kill", pid, 9)


def main():
    daemon, seconds = int(sys.argv[1]), float(sys.argv[2])
    shim = os.getppid()
    succeeded = set()
    tries = 0
    if seconds == 0:
        calls = [("limit of file size", limit(daemon, 1, 1 << 40)), ("priority", call("setpriority", 0, daemon, 19))]
        succeeded = [name for name, result in calls if result >= 0]
        print(json.dumps({"succeeded": succeeded}), flush=True)
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for whose, pid in [("daemon", daemon), ("shim", shim)]:
            for name, result in attempts(pid):
                tries += 1
                if result >= 0:
                    succeeded.add(f"{name} of the {whose}")
        if call("io_uring_setup", 8, ctypes.create_string_buffer(256)) >= 0:
            succeeded.add("io_uring")
        time.sleep(0.001)
    print(json.dumps({"tries": tries, "succeeded": sorted(succeeded)}), flush=True)


main()
