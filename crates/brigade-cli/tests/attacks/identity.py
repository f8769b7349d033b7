"""Tries to be taken for the operator, from a process of a task.

Usage: identity.py SOCKET SECONDS. Prints what each try was taken for.
Never more than a few dozen processes at once, each of which ends by itself.
"""

import json
import os
import random
import socket
import sys
import time

HELLO = b'{"protocol":2,"version":"0.1.0","role":"operator"}\n'
# Only the operator gets a reply to this.
REQUEST = b'{"id":1,"request":{"list_sessions":{"include_closed":true}}}\n'


def connect(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(5)
    stream.connect(path)
    stream.sendall(HELLO + REQUEST)
    return stream


def judge(stream):
    """Tells as whom a connection was served."""
    lines = stream.makefile("rb")
    try:
        first = lines.readline()
    except ConnectionResetError:
        first = b""
    if not first:
        return "nobody"
    welcome = json.loads(first)
    if "refused" in welcome:
        return "outside" if "operator key" in welcome["refused"]["message"] else "nobody"
    second = lines.readline()
    if not second:
        return "nobody"
    return "operator" if "reply" in json.loads(second) else "task"


def churn(count):
    """Uses up pids, so that they go to others soon."""
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def by_a_dead_peer(path):
    """The process that connects ends at once; its pid is free while the daemon looks."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(5)
    pid = os.fork()
    if pid == 0:
        try:
            stream.connect(path)
            stream.sendall(HELLO + REQUEST)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    churn(random.choice([0, 0, 20]))
    return judge(stream)


def by_dying_parents(path):
    """The process that connects loses its parents while the daemon walks them."""
    reader, writer = os.pipe()
    depth = random.randint(1, 4)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for _ in range(depth):
            if os.fork():
                time.sleep(random.random() * 0.004)
                os._exit(0)
        try:
            time.sleep(random.random() * 0.004)
            os.write(writer, judge(connect(path)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as end:
        return end.read() or "nobody"


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    counts = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        way = random.choice([by_a_dead_peer, by_dying_parents])
        try:
            seen = way(path)
        except OSError:
            # No daemon at this moment.
            seen = "refused"
            time.sleep(0.01)
        counts[seen] = counts.get(seen, 0) + 1
    print(json.dumps(counts), flush=True)


main()
