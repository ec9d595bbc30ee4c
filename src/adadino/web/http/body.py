"""Request bodies, read with patience and with limits: in size, in silence, and in all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from adadino.web.http.problems import RefusedError
from adadino.web.settings import Limits

DRAIN_BYTES, DRAIN_S = 32 * 2**20, 5.0
"""How much of a refused body is read and forgotten, so that the browser sees the answer."""


async def chunks(request: Request, *, most: int, limits: Limits) -> AsyncIterator[bytes]:
    """Yield the body as it comes.

    Raises:
        RefusedError: It is too long, or nothing comes for too long.
    """
    if declared_length(request) > most:
        raise RefusedError(413, too_large(most))
    stream = request.stream().__aiter__()
    begun, total = time.monotonic(), 0
    while True:
        try:
            chunk = await asyncio.wait_for(anext(stream), limits.idle_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RefusedError(
                408, f"nothing came for {limits.idle_s:g} s; send it again."
            ) from None
        except ClientDisconnect:
            raise RefusedError(
                400, "the connection ended before the request did; send it again."
            ) from None
        total += len(chunk)
        if total > most:
            raise RefusedError(413, too_large(most))
        if time.monotonic() - begun > limits.upload_s:
            raise RefusedError(
                408,
                f"the upload took more than {limits.upload_s / 60:g} minutes; send smaller files.",
            )
        yield chunk


def declared_length(request: Request) -> int:
    """How long a request says its body is; 0 if it does not say it in digits."""
    declared = request.headers.get("content-length", "")
    # Longer than any body is long enough to compare; Python reads no numbers of 5,000 digits.
    return int(declared[:30]) if declared.isascii() and declared.isdigit() else 0


def too_large(most: int) -> str:
    """The sentence for a body over the limit."""
    size = f"{most / 2**20:,.0f} MB" if most >= 2**20 else f"{most / 2**10:,.0f} kB"
    return f"the request is larger than the {size} this server takes."


async def drain(request: Request) -> None:
    """Read on for a moment: a browser that is still sending would not see the refusal."""
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_S):
            read = 0
            async for chunk in request.stream():
                read += len(chunk)
                if read > DRAIN_BYTES:
                    return


async def read_json(request: Request, limits: Limits, *, most: int | None = None) -> dict[str, Any]:
    """A JSON object of at most so many bytes; by default a small one.

    Raises:
        RefusedError: It is none, or too large.
    """
    most = limits.json_bytes if most is None else most
    parts = [part async for part in chunks(request, most=most, limits=limits)]
    try:
        found = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise RefusedError(400, "the body is not JSON; send an object.") from None
    if not isinstance(found, dict):
        raise RefusedError(422, "the body must be a JSON object.")
    return found
