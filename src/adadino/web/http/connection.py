"""Connections that do not wait for ever: for a request's headers, or for a reader that stopped."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 15.0
"""For the headers of a request, from its first byte; or for a first byte."""
WRITING_S = 60.0
"""For a reader to take more of an answer."""


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP, which has a time limit only between requests, with two more."""

    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the headers."""
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(HEADERS_S, self._drop)

    def data_received(self, data: bytes) -> None:
        """Stop to wait when a request has begun; a half-sent one goes on waiting."""
        super().data_received(data)
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADERS_S, self._drop)
        elif not waiting:
            self._header_timer = _stopped(self._header_timer)

    def pause_writing(self) -> None:
        """The reader is behind: wait for a while."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITING_S, self._drop)

    def resume_writing(self) -> None:
        """The reader reads."""
        super().resume_writing()
        self._write_timer = _stopped(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        super().connection_lost(exc)
        self._header_timer = _stopped(self._header_timer)
        self._write_timer = _stopped(self._write_timer)

    def _drop(self) -> None:
        self.transport.abort()


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
