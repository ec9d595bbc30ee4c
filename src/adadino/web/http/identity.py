"""Who asks. The server decides; nothing that a client makes up counts.

Two questions, two answers:

- **Owner**: whose jobs are these? The name of the token one came with; without names, the cookie
  that this server gave and signed; without a cookie, the address, if it is the client's own.
- **Payer**: whose limits count? The token's name, else the address. A cookie can be thrown away,
  so that it must not be a way around a limit.

The address is that of the connection, or what a proxy forwards that `--trusted-proxy` names. A
request that came through any other proxy has no address of its own: it gets a cookie at once, and
shares its limits with all who come through that proxy.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from adadino.files import write_atomic
from adadino.web.settings import Settings, Token

SESSION_COOKIE, CLIENT_COOKIE = "adadino_session", "adadino_client"
KEY = ".key"
"""The file in the jobs' folder with which cookies are signed."""
YEAR_S = 365 * 86400
GUESS_S, LONGEST_WAIT_S = 0.5, 5.0
"""What a wrong token costs its source, and how long a request waits for its turn."""
SOURCES = 10_000
"""Addresses whose wrong tokens are remembered."""


@dataclass(frozen=True)
class Identity:
    """Who asks, as digests: nothing here names a person or an address."""

    owner: str
    former: str | None
    """Who it was to version 0.1, which took any cookie as it came."""
    payer: str
    name: str | None
    """The name of the token, if there is one."""
    fresh: str | None
    """A cookie to set with the page, so that the client is known the next time."""
    needs_cookie: bool
    """Whether it is known by that cookie alone, which must then come with every answer."""
    secure: bool
    """Whether the request came by TLS."""
    address: str

    def owns(self, client: str) -> bool:
        """Whether a job is this client's; those of version 0.1 know its cookie."""
        return client in (self.owner, self.former)


class Identities:
    """Tells clients apart, and signs what they are told apart by."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = _read_key(settings.jobs / KEY)

    def identify(self, request: HTTPConnection, token: Token | None) -> Identity:
        """Who a request is from, given the token it came with."""
        address, own = self._address(request)
        address = _counted(address)
        own = own and address != "?"  # a socket without an address, or words of a proxy
        cookie = cookies_of(request.headers).get(CLIENT_COOKIE)
        known = self._unsigned(cookie, "client")
        plain = known or cookie
        fresh = secrets.token_urlsafe(16) if known is None else None
        name = token.name if token is not None and token.name else None
        if name is not None:
            owner = f"token {name}"
        elif known is not None:
            owner = f"cookie {known}"
        else:
            owner = f"address {address}" if own else f"cookie {fresh}"
        payer = f"token {name}" if name is not None else f"address {address}"
        return Identity(
            owner=_digest(owner),
            former=None if plain is None else _digest(plain),
            payer=_digest(payer),
            name=name,
            fresh=None if fresh is None else self._signed(fresh, "client"),
            needs_cookie=owner == f"cookie {fresh}",
            secure=self._is_secure(request),
            address=address,
        )

    def session(self, token: Token) -> str:
        """What the login's cookie holds; it follows from no token that somebody guesses."""
        return self._signed(f"{int(time.time())}~{token.name}", f"session {token.digest}")

    def token_of_session(self, headers: Headers) -> Token | None:
        """The token that a login's cookie stands for."""
        kept = cookies_of(headers).get(SESSION_COOKIE)
        for token in self._settings.all_tokens:
            text = self._unsigned(kept, f"session {token.digest}")
            begun, _, name = (text or "").partition("~")
            if begun.isdigit() and name == token.name and time.time() - int(begun) < YEAR_S:
                return token
        return None

    def token_of_secret(self, given: str) -> Token | None:
        """The token of a secret; every one is compared, whichever it is."""
        same = [
            token
            for token in self._settings.all_tokens
            if secrets.compare_digest(given.encode(), token.secret.encode())
        ]
        return same[0] if same else None

    def _address(self, request: HTTPConnection) -> tuple[str, bool]:
        """The client's address, and whether it is its own."""
        near = request.client.host if request.client else "?"
        forwarded = request.headers.get("x-forwarded-for")
        if not self._trusts(near):
            return near, forwarded is None and "forwarded" not in request.headers
        # From the right: whatever stands before a proxy's own entry, the client may have written.
        for entry in reversed([part.strip() for part in (forwarded or near).split(",")]):
            if not self._trusts(entry):
                return _plain_address(entry), True
        return near, True

    def _is_secure(self, request: HTTPConnection) -> bool:
        near = request.client.host if request.client else "?"
        told = request.headers.get("x-forwarded-proto", "") if self._trusts(near) else ""
        return request.scope.get("scheme") == "https" or told.split(",")[-1].strip() == "https"

    def _trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(_plain_address(address))
        except ValueError:
            return False
        return any(found in network for network in self._settings.proxies)

    def _signed(self, text: str, purpose: str) -> str:
        mark = hmac.new(self._key, f"{purpose}\n{text}".encode(), "sha256").hexdigest()
        return f"{text}.{mark}"

    def _unsigned(self, signed: str | None, purpose: str) -> str | None:
        text, _, _ = (signed or "").rpartition(".")
        wanted = self._signed(text, purpose)
        fits = secrets.compare_digest((signed or "").encode(), wanted.encode())
        return text if text and fits else None


class Guesses:
    """Makes whoever sends wrong tokens wait, each source by itself, however many come at once."""

    def __init__(self) -> None:
        self._next: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, source: str) -> float:
        """How long a source has to wait before its next token is looked at."""
        return max(0.0, self._next.get(source, 0.0) - time.monotonic())

    def wrong(self, source: str) -> None:
        """Count a wrong token."""
        self._next[source] = max(self._next.get(source, 0.0), time.monotonic()) + GUESS_S
        self._next.move_to_end(source)
        while len(self._next) > SOURCES:
            self._next.popitem(last=False)


def set_cookie(name: str, value: str, *, secure: bool) -> str:
    """The header that sets a cookie; an empty value takes it back."""
    age = YEAR_S if value else 0
    parts = [f"{name}={value}", "Path=/", f"Max-Age={age}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if secure else parts)


def cookies_of(headers: Headers) -> dict[str, str]:
    """The cookies of a request; lines that are none are passed over."""
    found: dict[str, str] = {}
    for line in headers.getlist("cookie"):
        try:
            found |= {name: item.value for name, item in SimpleCookie(line).items()}
        except CookieError:
            continue
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain_address(text: str) -> str:
    """An address without its port: `[::1]:80`, `10.0.0.1:80`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _counted(address: str) -> str:
    """The address that limits are counted by: of IPv6 the network, of which one client has all."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "?"
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def _read_key(path: Path) -> bytes:
    """The server's own secret; made by the first server of a folder."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) < 32:
        found = secrets.token_bytes(32)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, found)
        path.chmod(0o600)
    return found
