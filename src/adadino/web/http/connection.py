"""Connections that do not wait for ever: for a request's headers, or for a reader that stopped."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from adadino.web.settings import Settings

HEADERS_S = 15.0
"""For the headers of a request, from its first byte; or for a first byte."""
WRITING_S = 60.0
"""For a reader to take more of an answer."""
_open: Counter[str] = Counter()
"""Connections by address."""


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP, with limits on waiting within requests and on connections of one address."""

    most_each: int | None = None
    """Connections of one address; a subclass sets it (`limited`)."""
    exempt: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    """Proxies, through which many come."""
    _counted: str | None = None
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the headers."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self.most_each is not None and self._is_counted(address):
            if _open[address] >= self.most_each:
                self.transport.abort()
                return
            _open[address] += 1
            self._counted = address
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
        if self._counted is not None:
            _open[self._counted] -= 1
            if _open[self._counted] <= 0:
                del _open[self._counted]
            self._counted = None
        self._header_timer = _stopped(self._header_timer)
        self._write_timer = _stopped(self._write_timer)

    def _is_counted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return not found.is_loopback and not any(found in network for network in self.exempt)

    def _drop(self) -> None:
        self.transport.abort()


def limited(settings: Settings) -> type[PatientProtocol]:
    """The protocol with a server's limits."""
    return type(
        "LimitedProtocol",
        (PatientProtocol,),
        {"most_each": settings.limits.connections_each, "exempt": settings.proxies},
    )


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
