"""Tries to reach a TCP listener on this machine from a sandbox without TCP.

Usage: tcp.py PORT SECONDS. Prints the ways that seemed to work; the listener counts the rest.
"""

import ctypes
import json
import os
import socket
import struct
import sys
import time

FASTOPEN = 0x20000000
TCP_FASTOPEN_CONNECT = 30
MPTCP, SCTP, DCCP = 262, 132, 33


def stream(protocol=0, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    made = socket.socket(family, kind, protocol)
    made.settimeout(1)
    return made


def address(family, port):
    return ("::ffff:127.0.0.1" if family == socket.AF_INET6 else "127.0.0.1", port)


def by_connect(port, protocol, family):
    stream(protocol, family).connect(address(family, port))


def by_sendto(port, protocol, family):
    stream(protocol, family).sendto(b"out", FASTOPEN, address(family, port))


def by_sendmsg(port, protocol, family):
    stream(protocol, family).sendmsg([b"out"], [], FASTOPEN, address(family, port))


def by_sendmmsg(port, protocol, family):
    made = stream(protocol, family)
    packed = struct.pack("!HH", 0, port)
    name = struct.pack("H", socket.AF_INET) + packed[2:] + socket.inet_aton("127.0.0.1") + b"\0" * 8
    name = ctypes.create_string_buffer(name)
    data = ctypes.create_string_buffer(b"out")
    vector = struct.pack("PN", ctypes.addressof(data), 3)
    vector = ctypes.create_string_buffer(vector)
    header = struct.pack(
        "PIxxxxPNPNixxxx", ctypes.addressof(name), 16, ctypes.addressof(vector), 1, 0, 0, 0
    )
    header = ctypes.create_string_buffer(header + struct.pack("Ixxxx", 0))
    number = 269 if os.uname().machine == "aarch64" else 307
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, made.fileno(), header, 1, FASTOPEN) < 0:
        raise OSError(ctypes.get_errno(), "sendmmsg")


def by_option(port, protocol, family):
    made = stream(protocol, family)
    made.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    made.connect(address(family, port))
    made.send(b"out")


def by_listening(port, protocol, family):
    made = stream(protocol, family)
    made.bind((address(family, 0)[0], 0))
    made.listen()


def main():
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    ways = [by_connect, by_sendto, by_sendmsg, by_sendmmsg, by_option, by_listening]
    seemed = set()
    tries = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for way in ways:
            for protocol in [0, socket.IPPROTO_TCP, MPTCP, SCTP, DCCP]:
                for family in [socket.AF_INET, socket.AF_INET6]:
                    tries += 1
                    try:
                        way(port, protocol, family)
                        seemed.add(f"{way.__name__} {protocol} {family.name}")
                    except OSError:
                        pass
        time.sleep(0.001)
    print(json.dumps({"tries": tries, "seemed": sorted(seemed)}), flush=True)


main()
