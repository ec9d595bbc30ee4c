"""What stands before every request: is it for us, from our own page, and from someone we know?

- `Host` must be a name of ours: a stranger's page whose name was made to point to this machine
  (DNS rebinding) still sends its own name. Off loopback, the token does the same.
- Requests that another site caused are refused; browsers say so in `Sec-Fetch-Site` and `Origin`.
- With a token, everything but `/healthz` wants it: as a bearer, or as the cookie of the login.
- Every answer carries the headers that keep the page to itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adadino.web.http.body import chunks, drain
from adadino.web.http.problems import RefusedError, answer
from adadino.web.settings import Settings

TOKEN_COOKIE, CLIENT_COOKIE = "adadino_token", "adadino_client"
STATIC = Path(__file__).parents[1] / "static"
_OPEN = frozenset({"/healthz", "/favicon.ico", "/static/icon.svg", "/static/login.css"})
_YEAR = 365 * 86400


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self._headers = security_headers(settings.basemap_origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        cookies = _cookies(request.headers)
        fresh = None if CLIENT_COOKIE in cookies else secrets.token_urlsafe(16)
        scope.setdefault("state", {})["client"] = client_of(request, cookies)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if fresh and scope["path"] == "/":
                    headers.append("set-cookie", _cookie(CLIENT_COOKIE, fresh))
            await send(message)

        response = await self._refusal(request, cookies)
        if response is None:
            await self.app(scope, receive, guarded)
        else:
            if response.status_code >= 400:
                await drain(request)
            await response(scope, receive, guarded)

    async def _refusal(self, request: Request, cookies: dict[str, str]) -> Response | None:
        """Why a request does not go further; None if it may."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return answer(
                421, f"this server is not {host[:100]!r}; start it with --allow-host to be reached "
                "by that name.",
            )  # fmt: skip
        path = request.scope[
            "path"
        ]  # request.url would also decode the query, which may be no text
        if is_cross_site(request.headers, host, request.method, path):
            return answer(403, "requests from other sites are not served.")
        if self.settings.token is None:
            return None
        return await self._check_token(request, cookies, self.settings.token)

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if not self.settings.loopback and not self.settings.allowed_hosts:
            return True
        ours = {"localhost", "127.0.0.1", "::1", self.settings.host.lower()}
        return name in ours | {entry.lower() for entry in self.settings.allowed_hosts}

    async def _check_token(
        self, request: Request, cookies: dict[str, str], token: str
    ) -> Response | None:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        offered = bearer.strip() if scheme.lower() == "bearer" else None
        kept = cookies.get(TOKEN_COOKIE)
        if _same(offered, token) or _same(kept, _proof(token)):
            return None
        path = request.scope["path"]
        if path == "/login":
            if request.method == "POST":
                return await self._login(request, token)
            return FileResponse(STATIC / "login.html")
        if path in _OPEN:
            return None
        if offered is not None:
            await asyncio.sleep(0.5)  # guessing takes time
        if request.method == "GET" and path == "/":
            return RedirectResponse("/login", status_code=303)
        refusal = answer(401, "this server wants its token: Authorization: Bearer TOKEN.")
        refusal.headers["www-authenticate"] = "Bearer"
        return refusal

    async def _login(self, request: Request, token: str) -> Response:
        limits = self.settings.limits
        try:
            body = b"".join([part async for part in chunks(request, most=4096, limits=limits)])
        except RefusedError as error:
            return answer(error.status, error.sentence)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not _same(given, token):
            await asyncio.sleep(0.5)
            return RedirectResponse("/login#wrong", status_code=303)
        response = RedirectResponse("/", status_code=303)
        response.headers.append("set-cookie", _cookie(TOKEN_COOKIE, _proof(token)))
        return response


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


def client_of(request: Request, cookies: dict[str, str]) -> str:
    """Who asks, as a digest: by the page's cookie, or by address where there is none."""
    known = cookies.get(CLIENT_COOKIE)
    address = request.client.host if request.client else "?"
    return hashlib.sha256((known or f"address {address}").encode()).hexdigest()[:16]


def _proof(token: str) -> str:
    """What the login's cookie holds: not the token itself."""
    return hmac.new(token.encode(), b"adadino login", "sha256").hexdigest()


def _same(given: str | None, wanted: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), wanted.encode())


def _cookies(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _lines(headers):
        try:
            found |= {name: item.value for name, item in SimpleCookie(line).items()}
        except CookieError:
            continue
    return found


def _lines(headers: Headers) -> Iterable[str]:
    return headers.getlist("cookie")


def _cookie(name: str, value: str) -> str:
    return f"{name}={value}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Strict"
