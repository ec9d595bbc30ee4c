"""What stands before every request: is it for us, from our own page, and from someone we know?

- `Host` must be a name of ours: a stranger's page whose name was made to point to this machine
  (DNS rebinding) still sends its own name. Off loopback, the token does the same.
- Requests that another site caused are refused; browsers say so in `Sec-Fetch-Site` and `Origin`.
  Sites of `--allow-origin` may use the API, without cookies: with a token, or where there is none.
- With tokens, everything but `/healthz` wants one: as a bearer, or by the cookie of the login.
  A source that sends wrong ones waits before its next is even looked at.
- HEAD is answered as GET is, without the body.
- Every answer carries the headers that keep the page to itself.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adadino.web.http.body import chunks, drain
from adadino.web.http.identity import (
    CLIENT_COOKIE,
    LONGEST_WAIT_S,
    SESSION_COOKIE,
    Guesses,
    Identities,
    Identity,
    cookies_of,
    set_cookie,
)
from adadino.web.http.problems import RefusedError, answer
from adadino.web.settings import Limits, Settings, Token

STATIC = Path(__file__).parents[1] / "static"
_OPEN = frozenset({"/healthz", "/favicon.ico", "/static/icon.svg", "/static/login.css"})
_LOGIN = Limits(idle_s=5.0, upload_s=10.0)
"""Whoever has no token yet is not waited for as long as an upload."""

_HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}
"""What an allowed site may send. Not cookies: those are for the page alone."""


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self._headers = security_headers(settings.basemap_origin)
        self._identities, self._guesses = Identities(settings), Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        head = scope["method"] == "HEAD"
        if head:
            scope["method"] = "GET"
        if self._allowed_origin(request.headers, scope["path"]) is not None:
            # Browsers send cookies along from a neighbour: another port, another subdomain.
            scope["headers"] = [one for one in scope["headers"] if one[0] != b"cookie"]
            request = Request(scope, receive)
        nobody = self._identities.identify(request, None)
        scope.setdefault("state", {})["identity"] = nobody

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(message, scope)
            elif head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        response = await self._refusal(request, nobody)
        if response is None:
            await self.app(scope, receive, guarded)
        else:
            if response.status_code >= 400:
                await drain(request)
            await response(scope, receive, guarded)

    def _add_headers(self, message: Message, scope: Scope) -> None:
        identity: Identity = scope["state"]["identity"]
        headers = MutableHeaders(scope=message)
        origin = self._allowed_origin(Headers(scope=scope), scope["path"])
        if origin is not None:
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "content-disposition, location, retry-after"
            headers["cross-origin-resource-policy"] = "cross-origin"
        if self.settings.allowed_origins:
            headers.add_vary_header("origin")
        for name, value in self._headers.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-store")
        # With the page, and with a job that somebody could not find again without.
        wanted = scope["path"] == "/" or (identity.needs_cookie and message["status"] == 201)
        if identity.fresh and wanted:
            cookie = set_cookie(CLIENT_COOKIE, identity.fresh, secure=identity.secure)
            headers.append("set-cookie", cookie)

    async def _refusal(self, request: Request, nobody: Identity) -> Response | None:
        """Why a request does not go further; None if it may."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return answer(
                421, f"this server is not {host[:100]!r}; start it with --allow-host to be reached "
                "by that name.",
            )  # fmt: skip
        path = request.scope["path"]  # request.url would also decode the query, maybe no text
        if self._allowed_origin(request.headers, path) is not None:
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=_PREFLIGHT)
        elif is_cross_site(request.headers, host, request.method, path):
            return answer(403, "requests from other sites are not served.")
        if path == "/logout" and request.method == "POST":
            return self._logout(nobody)
        if not self.settings.tokens:
            return None
        return await self._check_token(request, nobody)

    def _is_ours(self, host: str) -> bool:
        if host and not _HOST.fullmatch(host):  # it stands in addresses that services give
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if not self.settings.loopback and not self.settings.allowed_hosts:
            return True
        ours = {"localhost", "127.0.0.1", "::1", self.settings.host.lower()}
        return name in ours | {entry.lower() for entry in self.settings.allowed_hosts}

    def _allowed_origin(self, headers: Headers, path: str) -> str | None:
        """The other site that asks, if it may use the API."""
        origin = headers.get("origin")
        allowed = path.startswith("/api/") and origin in self.settings.allowed_origins
        return origin if allowed else None

    async def _check_token(self, request: Request, nobody: Identity) -> Response | None:
        path, source = request.scope["path"], nobody.address
        token = self._identities.token_of_session(request.headers)
        if token is None and path == "/login" and request.method == "POST":
            return await self._login(request, nobody)
        if token is None and SESSION_COOKIE in cookies_of(request.headers) and path not in _OPEN:
            self._guesses.wrong(source)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if token is None and scheme.lower() == "bearer":
            found = await self._judge(bearer.strip(), source)
            if isinstance(found, Response):
                return found
            token = found
        if token is not None:
            request.scope["state"]["identity"] = self._identities.identify(request, token)
            return None
        if path == "/login":
            return FileResponse(STATIC / "login.html")
        if path in _OPEN:
            return None
        if request.method == "GET" and path == "/":
            return RedirectResponse("/login", status_code=303)
        refusal = answer(401, "this server wants its token: Authorization: Bearer TOKEN.")
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    async def _judge(self, given: str, source: str) -> Token | Response | None:
        """The token of a secret, when it is this source's turn to be looked at."""
        until = time.monotonic() + LONGEST_WAIT_S
        while (wait := self._guesses.wait_s(source)) > 0:
            if time.monotonic() + wait > until:
                return _too_many(wait)
            await asyncio.sleep(wait)
        # Looked at and counted without a pause between: requests at once cannot share a turn.
        found = self._identities.token_of_secret(given)
        if found is None:
            self._guesses.wrong(source)
        return found

    async def _login(self, request: Request, nobody: Identity) -> Response:
        try:
            body = b"".join([part async for part in chunks(request, most=4096, limits=_LOGIN)])
        except RefusedError as error:
            return answer(error.status, error.sentence)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        found = await self._judge(given, nobody.address)
        if isinstance(found, Response):
            return found
        if found is None:
            return RedirectResponse("/login#wrong", status_code=303)
        response = RedirectResponse("/", status_code=303)
        cookie = set_cookie(SESSION_COOKIE, self._identities.session(found), secure=nobody.secure)
        response.headers.append("set-cookie", cookie)
        return response

    def _logout(self, nobody: Identity) -> Response:
        response = RedirectResponse("/login" if self.settings.tokens else "/", status_code=303)
        for name in (SESSION_COOKIE, CLIENT_COOKIE):
            response.headers.append("set-cookie", set_cookie(name, "", secure=nobody.secure))
        return response


def _too_many(wait: float) -> Response:
    refusal = answer(429, "too many wrong tokens came from this address; wait and try again.")
    refusal.headers["retry-after"] = str(math.ceil(wait))
    return refusal


def security_headers(image_origin: str | None) -> dict[str, str]:
    """What every answer carries."""
    images = " ".join(filter(None, ("'self' data:", image_origin)))
    policy = (
        "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        f"img-src {images}; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",  # with none at all, forms would send no Origin either
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=()",
    }


def is_cross_site(headers: Headers, host: str, method: str, path: str) -> bool:
    """Whether another site's page caused a request."""
    site = headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        # Following a link to the page is no harm; asking anything of it is.
        return not (method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate")
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:  # an origin that is no address is not ours
        return True
