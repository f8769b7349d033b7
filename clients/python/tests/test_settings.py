from __future__ import annotations

from pathlib import Path

import pytest
from brigade_client import ApiError, Client, UnavailableError, UnknownError
from brigade_client.errors import ConflictError
from brigade_client.retry import FIRST_PAUSE, LONGEST_PAUSE, RetryPause, can_repeat


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BRIGADE_URL", "BRIGADE_TOKEN", "BRIGADE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def settings_of(client: Client) -> tuple[str, str]:
    settings = client._connection.settings
    return settings.url, settings.token


def test_arguments_come_before_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert settings_of(Client(token="a")) == ("http://127.0.0.1:7777", "a")
    monkeypatch.setenv("BRIGADE_URL", "https://brigade.example/base/")
    monkeypatch.setenv("BRIGADE_TOKEN_FILE", str(file))
    assert settings_of(Client()) == ("https://brigade.example/base", "from-file")
    monkeypatch.setenv("BRIGADE_TOKEN", "from-variable")
    assert settings_of(Client())[1] == "from-variable"
    assert settings_of(Client("http://localhost:1", token_file=file)) == (
        "http://localhost:1",
        "from-file",
    )


@pytest.mark.parametrize("url", ["brigade.example", "ftp://x", "http://", "https://a@b", "http://x/?a"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Client(url, "secret")


def test_a_token_over_http_goes_to_this_machine_only() -> None:
    for local in ("http://[::1]:7777", "http://127.0.0.2", "http://dev.localhost"):
        Client(local, "secret").close()
    for other in ("http://10.0.0.1", "http://brigade.example", "http://127.0.0.1.example"):
        with pytest.raises(ValueError, match="https"):
            Client(other, "secret")
    Client("http://10.0.0.1", "secret", insecure_http=True).close()


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb: c", "ü"])
def test_a_wrong_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="token") as raised:
        Client("http://localhost", token)
    assert token.strip() == "" or token not in str(raised.value)


def test_a_missing_token_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match="brigade token add"):
        Client()


def test_the_token_is_not_shown() -> None:
    client = Client(token="s3cret")
    assert "s3cret" not in repr(client) + repr(client._connection.settings)


def test_only_what_is_safe_is_repeated() -> None:
    assert can_repeat(UnavailableError("x"), is_repeatable=False)
    assert can_repeat(UnknownError("x"), is_repeatable=True)
    assert not can_repeat(UnknownError("x"), is_repeatable=False)
    assert not can_repeat(ConflictError("x"), is_repeatable=True)


def test_pauses_double_and_end() -> None:
    now = 0.0
    error: ApiError = UnavailableError("down")
    pause = RetryPause(30.0, now=lambda: now, jitter=lambda: 1.0)
    pauses = []
    with pytest.raises(UnavailableError):
        while True:
            pauses.append(pause.next_pause(error))
            now += pauses[-1]
    assert pauses[0] == FIRST_PAUSE
    assert max(pauses) == LONGEST_PAUSE
    assert 20.0 < sum(pauses) <= 30.0
    # It can be used again after it has given up.
    assert pause.next_pause(error) == FIRST_PAUSE


def test_a_pause_respects_the_deadline_and_the_server() -> None:
    error = UnavailableError("down", retry_after=2.0)
    pause = RetryPause(30.0, now=lambda: 0.0)
    assert pause.next_pause(error) == 2.0
    with pytest.raises(UnavailableError):
        RetryPause(30.0, 1.0, now=lambda: 0.0).next_pause(error)
    with pytest.raises(UnavailableError):
        RetryPause(30.0, now=lambda: 0.0).next_pause(error, 1.0)
    far = UnavailableError("down", retry_after=3600.0)
    assert RetryPause(30.0, now=lambda: 0.0).next_pause(far) == LONGEST_PAUSE
