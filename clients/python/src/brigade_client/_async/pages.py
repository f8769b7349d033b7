"""Lists in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import cast

from ..api_request import ApiRequest
from ..api_types import Task, TaskList
from .connection import AsyncConnection


async def list_tasks(
    connection: AsyncConnection, path: str, selection: Mapping[str, str | int | bool | None]
) -> AsyncIterator[Task]:
    """Yields the tasks of all pages."""
    query = dict(selection)
    while True:
        request = ApiRequest("GET", path, query, is_repeatable=True)
        page = cast(TaskList, (await connection.send(request)).json())
        for task in page["items"]:
            yield task
        query["page"] = page.get("next_page")
        if query["page"] is None:
            return
