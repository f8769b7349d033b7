# Generated from _async/connection.py by `node clients/generate.js`. Do not edit.
"""Sends requests, again if that is safe."""

from __future__ import annotations

import time

import httpx

from ..api_request import MAX_ANSWER_BYTES, ApiAnswer, ApiRequest, check_answer, failed_attempt
from ..errors import AnswerError, ApiError
from ..retry import UNREACHED_RETRY_FOR, RetryPause, can_repeat
from ..settings import ClientSettings


class Connection:
    """The connections to one server."""

    def __init__(self, settings: ClientSettings, http: httpx.Client | None = None) -> None:
        self.settings = settings
        # A proxy of the environment does not reach a server on this machine.
        self._http = http or httpx.Client(trust_env=not settings.is_local)
        self._owns_http = http is None
        self.has_answered = False

    def send(self, request: ApiRequest) -> ApiAnswer:
        """Returns the answer of a request. Repeats what changed nothing, and what may be repeated."""
        pause = self.new_pause(request.deadline)
        while True:
            try:
                return self._send_once(request)
            except ApiError as error:
                if not can_repeat(error, request.is_repeatable):
                    raise
                secs = pause.next_pause(error, self.retry_for())
            time.sleep(secs)

    def open(self, request: ApiRequest, silence_secs: float | None = None) -> httpx.Response:
        """Returns a response whose body is not read yet. The caller closes it."""
        settings = self.settings
        read_secs = silence_secs or settings.timeout + request.wait_secs
        built = self._http.build_request(
            request.method,
            settings.url + request.path,
            params=request.params(),
            headers=request.all_headers(settings.token),
            content=request.content(),
            timeout=httpx.Timeout(settings.timeout, read=read_secs),
        )
        try:
            response = self._http.send(built, stream=True, follow_redirects=False)
        except httpx.RequestError as error:
            raise failed_attempt(request, settings.url, error) from error
        return response

    def read(self, request: ApiRequest, response: httpx.Response) -> ApiAnswer:
        """Reads the body of a response and closes it. Raises the error that it has."""
        body = bytearray()
        end = time.monotonic() + self.settings.timeout
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise AnswerError(f"an answer of the server is above {MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the body takes too long", request=response.request)
        except httpx.RequestError as error:
            raise failed_attempt(request, self.settings.url, error) from error
        finally:
            response.close()
        self.has_answered = True
        return check_answer(request, response.status_code, response.headers, bytes(body))

    def new_pause(self, deadline: float | None = None) -> RetryPause:
        """Returns the pauses of a new request or stream."""
        return RetryPause(self.settings.retry_for, deadline)

    def retry_for(self) -> float:
        """Returns the seconds for which a failure is tried again."""
        return self.settings.retry_for if self.has_answered else UNREACHED_RETRY_FOR

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    def _send_once(self, request: ApiRequest) -> ApiAnswer:
        return self.read(request, self.open(request))
