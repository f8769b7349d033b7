"""A real server in a directory of its own, and a proxy that loses answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

BINARY = os.environ.get("BRIGADE_BIN", "brigade")
START_SECS = 30.0

SCRIPT = """
agent *
turn
  say I run it.
  call run_process {"command": "echo allowed"}
turn
  repeat
  say It ran, or it was not allowed.
"""


class Server:
    """A server on a port that stays the same across restarts."""

    def __init__(self) -> None:
        # A short name: the path of a socket is limited.
        self.root = Path(tempfile.mkdtemp(prefix="brigade-py-"))
        self.home = self.root / "home"
        self.project = self.root / "shop"
        self.state = self.root / "state"
        config = self.home / ".config/brigade"
        config.mkdir(parents=True)
        self.project.mkdir()
        script = self.root / "agents.script"
        script.write_text(SCRIPT)
        (config / "config.toml").write_text(f'model = "script:{script}"\n')
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        self.token = self.add_token("tests")

    def start(self) -> None:
        with (self.root / "log").open("ab") as log:
            listen = ["--listen", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(
                [BINARY, "serve", *listen], env=self.env(), cwd=self.project, stdout=log, stderr=log
            )
        end = time.monotonic() + START_SECS
        while not is_listening(self.port):
            assert self.process.poll() is None, (self.root / "log").read_text()
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def env(self) -> dict[str, str]:
        """Variables that every process of this server has, by which `stop` finds them."""
        kept = {name: value for name, value in os.environ.items() if "BRIGADE" not in name}
        return {**kept, "HOME": str(self.home), "BRIGADE_STATE": str(self.state), "XDG_CONFIG_HOME": ""}

    def run(self, *args: str) -> str:
        run = subprocess.run(
            [BINARY, *args], env=self.env(), cwd=self.project, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def add_token(self, *args: str) -> str:
        return str(json.loads(self.run("token", "add", "--json", *args))["secret"])

    def stop(self) -> None:
        """Ends all processes of this server and removes its directory."""
        end = time.monotonic() + START_SECS
        while pids := self.pids():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if self.process is not None:
                self.process.poll()
            assert time.monotonic() < end, f"{pids} do not end"
            time.sleep(0.02)
        shutil.rmtree(self.root, ignore_errors=True)

    def pids(self) -> list[int]:
        mark = str(self.root).encode()
        found = []
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit() or int(directory.name) == os.getpid():
                continue
            try:
                text = (directory / "environ").read_bytes() + (directory / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in text:
                found.append(int(directory.name))
        return found


class LossyProxy:
    """A proxy that forwards bytes. Of the next `lose` requests it drops the answer, after the server
    has given it; the next `refuse` connections it closes at once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.lose = 0
        self.refuse = 0
        self.requests: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self.refuse > 0:
                self.refuse -= 1
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            while data := receive(client):
                self.requests.append(data)
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := receive(server):
            if self.lose > 0:
                self.lose -= 1
                client.shutdown(socket.SHUT_RDWR)
                return
            try:
                client.sendall(data)
            except OSError:
                return


def receive(stream: socket.socket) -> bytes:
    try:
        return stream.recv(65536)
    except OSError:
        return b""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
