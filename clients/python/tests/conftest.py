from __future__ import annotations

from collections.abc import Iterator

import pytest
from brigade_client import Client, SessionHandle
from server import Server


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
