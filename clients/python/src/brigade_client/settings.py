"""The address and the token of a server, from arguments, variables and files."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7777"


@dataclass(frozen=True)
class ClientSettings:
    """The settings of a client."""

    url: str
    """The URL of the server, without a slash at its end."""
    token: str = field(repr=False)
    timeout: float
    """The seconds for one attempt of a request, beside the time that a wait asks for."""
    retry_for: float
    """The seconds for which a server that does not answer is tried again."""
    is_local: bool
    """The server is on this machine."""


def read_settings(
    url: str | None,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    *,
    timeout: float,
    retry_for: float,
    insecure_http: bool,
) -> ClientSettings:
    """Returns the settings. Arguments come before `BRIGADE_URL`, `BRIGADE_TOKEN` and
    `BRIGADE_TOKEN_FILE`."""
    if timeout <= 0 or retry_for < 0:
        raise ValueError("timeout must be above 0, and retry_for at least 0")
    url = _check_url(url or os.environ.get("BRIGADE_URL") or DEFAULT_URL)
    is_local = _is_local(urlsplit(url).hostname or "")
    if url.startswith("http:") and not is_local and not insecure_http:
        raise ValueError(
            f"{url}: a token over http goes to this machine only; use https, or pass "
            "insecure_http=True for a network that you trust"
        )
    return ClientSettings(url, _read_token(token, token_file), timeout, retry_for, is_local)


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no URL of a server; write http://HOST:PORT or https://HOST")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("the URL of a server has no user, query or fragment")
    return url.rstrip("/")


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_token(token: str | None, token_file: str | os.PathLike[str] | None) -> str:
    if token is not None and token_file is not None:
        raise ValueError("pass either token or token_file")
    if token is None and token_file is None:
        token = os.environ.get("BRIGADE_TOKEN")
        token_file = os.environ.get("BRIGADE_TOKEN_FILE")
    if not token and token_file:
        token = Path(token_file).read_text(encoding="utf-8")
    token = (token or "").strip()
    if not token:
        raise ValueError(
            "there is no token: run `brigade token add NAME`, and pass token=, or set "
            "BRIGADE_TOKEN or BRIGADE_TOKEN_FILE"
        )
    # The text itself is a secret, so that the error does not have it.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token has characters that no token has")
    return token
