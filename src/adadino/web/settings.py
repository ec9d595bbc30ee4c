"""The settings of a server."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from adadino.errors import ConfigError
from adadino.runtime.protocol import EngineName
from adadino.scene.options import SceneOptions
from adadino.schema import Bounds, Shown
from adadino.training.adapt.options import AdaptOptions

LEAST_TOKEN = 12
"""Characters of a token: fewer could be guessed."""
GB = 2**30


@dataclass(frozen=True)
class Limits:
    """What the server takes from strangers; an annotated field is an option of `adadino serve`."""

    upload_bytes: Annotated[
        int, "Most GB of one job's files.", Bounds(0.001), Shown("max-upload", GB)
    ] = 4 * GB
    pixels: Annotated[
        int, "Most million pixels of one image.", Bounds(0.1), Shown("max-pixels", 1e6)
    ] = 1_000_000_000
    bands: int = 64
    block_bytes: int = 2**29
    """One strip or tile of a file, decoded: what must be in memory at once."""
    json_bytes: int = 64 * 2**10
    waiting: int = 50
    """Jobs in the queue, of all clients together."""
    waiting_each: int = 5
    """Jobs in the queue of one client."""
    job_s: Annotated[
        float,
        "Most hours of one job; one that is estimated to take longer is refused.",
        Bounds(0.01),
        Shown("max-job-time", 3600),
    ] = 2 * 3600.0
    job_memory: Annotated[
        int, "Most GB of memory of one job, on the host.", Bounds(0.5), Shown("max-job-memory", GB)
    ] = 16 * GB
    heavy: int = 2
    """Cuts and downloads at a time: each takes a core and the memory of its polygons."""
    heavy_waiting: int = 16
    """Requests for cuts and downloads that may wait for their turn."""
    heavy_s: float = 300.0
    """How long a cut, a download or a look at an upload may take."""
    heavy_memory: int = 8 * GB
    idle_s: float = 30.0
    """How long a client may send nothing in the middle of a request."""
    upload_s: float = 3600.0
    """How long an upload may take."""
    connections: int = 400
    connections_each: int = 64
    """Of one address, except this machine's own and those of trusted proxies."""
    keep_days: Annotated[float, "Days after which jobs are removed.", Bounds(0)] = 30.0
    keep_bytes: Annotated[
        int, "Most GB of all jobs; then uploads are refused.", Bounds(0), Shown("keep-size", GB)
    ] = 50 * GB


@dataclass(frozen=True)
class ModelChoice:
    """A model people may choose."""

    name: str
    """What the page shows: never a path of the server."""
    source: str
    """What `adadino.load` takes."""


@dataclass(frozen=True)
class Token:
    """A secret that lets its bearer in, and the name of whoever has it."""

    name: str
    """Empty for a secret that several people share without names."""
    secret: str

    @classmethod
    def parse(cls, text: str) -> Token:
        """`NAME=SECRET`, or a secret alone."""
        name, mark, secret = text.partition("=")
        if mark and re.fullmatch(r"[A-Za-z0-9_.@-]{1,40}", name) and len(secret) >= LEAST_TOKEN:
            return cls(name, secret)
        return cls("", text)

    @property
    def digest(self) -> str:
        """What changes when the secret does."""
        return hashlib.sha256(f"{self.name}={self.secret}".encode()).hexdigest()


def default_jobs_folder() -> Path:
    """The user's own place for data that should survive."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "adadino" / "jobs"


def _given_tokens() -> tuple[str, ...]:
    """The tokens of the environment."""
    return tuple(os.environ.get("ADADINO_TOKEN", "").splitlines())


@dataclass(frozen=True)
class Settings:
    """How `adadino serve` was started; an annotated field is an option, with its help."""

    jobs: Annotated[Path, "Where jobs are kept; a folder of the user by default."] = field(
        default_factory=default_jobs_folder
    )
    host: Annotated[str, "Address; others than loopback need --token."] = "127.0.0.1"
    port: Annotated[int, "Port; 0 for any free one.", Bounds(0, 65535)] = 8000
    models: tuple[ModelChoice, ...] = (ModelChoice("tiny", "tiny"),)
    backbone: str | None = None
    data: Annotated[Path | None, "Folder of images to choose from."] = None
    tokens: Annotated[
        tuple[str, ...],
        "Secret that clients must send, or NAME=SECRET; may be given several times. "
        "Also a line each in ADADINO_TOKEN.",
        Shown("token"),
    ] = field(default_factory=_given_tokens)
    trusted_proxies: Annotated[
        tuple[str, ...],
        "Address or network of a proxy whose X-Forwarded-For and X-Forwarded-Proto are believed.",
        Shown("trusted-proxy"),
    ] = ()
    basemap: Annotated[str | None, "Web Mercator tiles to show below: https://.../{z}/{x}/{y}."] = (
        None
    )
    allowed_hosts: Annotated[
        tuple[str, ...],
        "A name the server may be reached by, behind a proxy.",
        Shown("allow-host"),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        "Another site whose pages may use the API (CORS): https://maps.example.",
        Shown("allow-origin"),
    ] = ()
    device: str = "auto"
    engine: Annotated[EngineName, "Inference engine: auto is bf16 on a GPU, else off."] = (
        SceneOptions.engine
    )
    demo: Annotated[bool, "Open on a demo pair."] = True
    adapt: AdaptOptions = field(default_factory=AdaptOptions)
    """How judged jobs make models."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.loopback and not self.tokens:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines; give --token SECRET, or "
                "leave --host out to serve this machine alone."
            )
        for token in self.all_tokens:
            plain = token.secret.isascii() and token.secret.isprintable()
            if len(token.secret) < LEAST_TOKEN or not plain:
                raise ConfigError(
                    f"--token must be at least {LEAST_TOKEN} printable ASCII characters; this "
                    "makes one: python -c 'import secrets; print(secrets.token_urlsafe())'"
                )
        names = [token.name for token in self.all_tokens]
        if len(set(names)) < len(names):
            raise ConfigError(
                "two tokens have the same name, or none; name each: --token ANNA=SECRET "
                "--token BEN=SECRET."
            )
        self.proxies  # noqa: B018, raises for an address that is none
        if self.data is not None and not self.data.is_dir():
            raise ConfigError(f"--data {self.data} is not a folder; give one that exists.")
        if self.basemap is not None and not _is_template(self.basemap):
            raise ConfigError(
                f"--basemap {self.basemap} must be like https://example.org/{{z}}/{{x}}/{{y}}.png"
            )
        for origin in self.allowed_origins:
            if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+", origin):
                raise ConfigError(
                    f"--allow-origin {origin} must be scheme and host alone: https://maps.example"
                )
        if not self.models:
            raise ConfigError("there is no model to serve; give --model.")

    @functools.cached_property
    def all_tokens(self) -> tuple[Token, ...]:
        """The tokens, each with its name."""
        return tuple(Token.parse(text) for text in self.tokens)

    @functools.cached_property
    def proxies(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of trusted proxies.

        Raises:
            ConfigError: One is neither an address nor a network.
        """
        try:
            return tuple(ipaddress.ip_network(text) for text in self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(
                f"--trusted-proxy: {error}; give an address or a network, 10.0.0.0/8."
            ) from error

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def basemap_origin(self) -> str | None:
        """Where the browser may fetch the basemap's tiles from."""
        if self.basemap is None:
            return None
        parts = urlsplit(self.basemap)
        return f"{parts.scheme}://{parts.netloc}"


def choose_models(sources: list[str]) -> tuple[ModelChoice, ...]:
    """Name the models of the command line: NAME=SOURCE, or a name made from the source."""
    chosen: list[ModelChoice] = []
    for given in sources:
        name, mark, source = given.partition("=")
        if not mark or Path(given).exists():
            source = given
            path = Path(given)
            path = path.resolve() if path.is_dir() else path  # `.` has no name of its own
            # Runs keep their models in best/ and final/: the folder above tells them apart.
            run = path.parent.name if path.name in ("best", "final") else ""
            name = "/".join(filter(None, (run, path.name))) or given
        taken = {choice.name for choice in chosen}
        unique = next(
            n for n in (name, *(f"{name} ({i})" for i in range(2, 999))) if n not in taken
        )
        chosen.append(ModelChoice(unique, source))
    return tuple(chosen)


def _is_template(address: str) -> bool:
    """Whether an address is one of tiles, and safe to stand in a header."""
    clean = address.isascii() and address.isprintable() and not set(" ;,'\"") & set(address)
    marks = all(mark in address for mark in ("{z}", "{x}", "{y}"))
    return clean and marks and urlsplit(address).scheme in ("http", "https")
