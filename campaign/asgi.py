"""Ask an application in this process, as a web server would call it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

BOUNDARY = b"----part"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """What the application sent back."""

    status: int
    kind: str
    body: bytes


async def ask(app: Any, method: str, target: str, headers: Headers, body: bytes) -> Answer:
    """Send a request in one to five pieces and a rest; the client stays until it is answered."""
    raw, _, query = target.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": method, "path": unquote(raw), "raw_path": raw.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"), "root_path": "",
        "headers": [(n.encode("latin-1", "replace"), v.encode("latin-1", "replace"))
                    for n, v in headers],
        "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8000),
    }  # fmt: skip
    size = max(1, len(body) // (1 + len(body) % 5))
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            await asyncio.Event().wait()  # a client that waits for its answer
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    await asyncio.sleep(0)  # a body that was not read to its end is closed now
    said = {name.lower(): value for name, value in sent[0]["headers"]}
    kind = said.get(b"content-type", b"").decode("latin-1")
    return Answer(sent[0]["status"], kind, b"".join(m.get("body", b"") for m in sent[1:]))


def form(before: bytes, after: bytes, fields: Sequence[tuple[str, bytes]]) -> bytes:
    """The value of Content-Type, and the body from the next line on."""
    parts = [(f'name="{name}"', value) for name, value in fields]
    parts += [('name="before"; filename="old.tif"', before),
              ('name="after"; filename="new.tif"', after)]  # fmt: skip
    body = b"".join(
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (BOUNDARY, head.encode(), value)
        for head, value in parts
    )
    return b"multipart/form-data; boundary=%s\n%s--%s--\r\n" % (BOUNDARY, body, BOUNDARY)
