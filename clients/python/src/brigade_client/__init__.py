"""A client of Brigade's HTTP API.

`Client` blocks, and `AsyncClient` has coroutines. Both have the same methods. The types of what the
server sends are in `brigade_client.api_types`.
"""

from . import api_types
from ._async.client import AsyncClient
from ._async.session import AsyncSessionHandle
from ._async.streams import AsyncEventStream, AsyncOutputStream
from ._async.task import AsyncTaskHandle
from ._sync.client import Client
from ._sync.session import SessionHandle
from ._sync.streams import EventStream, OutputStream
from ._sync.task import TaskHandle
from .errors import (
    AnswerError,
    ApiError,
    BrigadeError,
    ConflictError,
    EndedError,
    ForbiddenError,
    InternalError,
    InvalidError,
    LimitError,
    NotFoundError,
    OutcomeError,
    TaskCancelledError,
    TaskFailedError,
    UnauthenticatedError,
    UnavailableError,
    UnknownError,
    WaitTimeoutError,
)
from .items import FeedChange, FeedGap, FeedItem, OutputGap, OutputItem, OutputPart

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "ApiError",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncOutputStream",
    "AsyncSessionHandle",
    "AsyncTaskHandle",
    "BrigadeError",
    "Client",
    "ConflictError",
    "EndedError",
    "EventStream",
    "FeedChange",
    "FeedGap",
    "FeedItem",
    "ForbiddenError",
    "InternalError",
    "InvalidError",
    "LimitError",
    "NotFoundError",
    "OutcomeError",
    "OutputGap",
    "OutputItem",
    "OutputPart",
    "OutputStream",
    "SessionHandle",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskHandle",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownError",
    "WaitTimeoutError",
    "api_types",
]
