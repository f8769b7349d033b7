# Generated from _async/pages.py by `node clients/generate.js`. Do not edit.
"""Lists in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from ..api_request import ApiRequest
from ..api_types import Task, TaskList
from .connection import Connection


def list_tasks(
    connection: Connection, path: str, selection: Mapping[str, str | int | bool | None]
) -> Iterator[Task]:
    """Yields the tasks of all pages."""
    query = dict(selection)
    while True:
        request = ApiRequest("GET", path, query, is_repeatable=True)
        page = cast(TaskList, (connection.send(request)).json())
        for task in page["items"]:
            yield task
        query["page"] = page.get("next_page")
        if query["page"] is None:
            return
