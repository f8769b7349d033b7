"""Waits that outlive connections and servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from ..api_request import ApiRequest, api_path
from ..api_types import WaitMode, WaitResult, WaitUntil
from .connection import AsyncConnection

SLICE_SECS = 30
"""The time of one request. A proxy may end longer ones."""


async def wait_for_tasks(
    connection: AsyncConnection,
    session: str,
    tasks: Sequence[str],
    *,
    mode: WaitMode = "any",
    until: WaitUntil = "ended",
    timeout: float | None = None,
    collect: bool = False,
) -> WaitResult:
    """Waits for tasks of one session. A repeated wait returns a collected result again."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        secs = float(SLICE_SECS)
        if end is not None:
            remaining = max(end - time.monotonic(), 0.0)
            if 0.0 < remaining < 1.0:
                # The server counts whole seconds.
                await asyncio.sleep(remaining)
            secs = float(min(int(remaining), SLICE_SECS))
        request = ApiRequest(
            "POST",
            api_path("sessions", session, "wait"),
            {"collect": collect},
            {"tasks": list(tasks), "mode": mode, "until": until},
            {"prefer": f"wait={int(secs)}"},
            is_repeatable=True,
            wait_secs=secs,
            deadline=None if end is None else max(end, time.monotonic() + 1.0),
        )
        waited = cast(WaitResult, (await connection.send(request)).json())
        if waited["done"] or (end is not None and time.monotonic() >= end):
            return waited
