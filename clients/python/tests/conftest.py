from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from brigade_client import Client, SessionHandle
from server import Server


TEST_SECS = 120
"""The time of one test. Only a failing one reaches it, also on a busy machine."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Ends a test that waits for something that never comes."""

    def fail(*_: object) -> None:
        raise AssertionError(f"the test takes more than {TEST_SECS} seconds")

    signal.signal(signal.SIGALRM, fail)
    signal.alarm(TEST_SECS)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that all tests share. Tests that kill it start it again."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.token) as client:
        yield client


@pytest.fixture
def session(client: Client, server: Server) -> SessionHandle:
    return client.session(server.project)
