"""The settings of a server."""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from adadino.errors import ConfigError

LEAST_TOKEN = 12
"""Characters of a token: fewer could be guessed."""


@dataclass(frozen=True)
class Limits:
    """What the server takes from strangers."""

    upload_bytes: int = 4 * 2**30
    """Both files of a job together."""
    pixels: int = 1_000_000_000
    """Of one image."""
    bands: int = 64
    block_bytes: int = 2**29
    """One strip or tile of a file, decoded: what must be in memory at once."""
    json_bytes: int = 64 * 2**10
    waiting: int = 50
    """Jobs in the queue, of all clients together."""
    waiting_each: int = 5
    """Jobs in the queue of one client."""
    idle_s: float = 30.0
    """How long a client may send nothing in the middle of a request."""
    upload_s: float = 3600.0
    """How long an upload may take."""
    connections: int = 400
    keep_days: float = 30.0
    keep_bytes: int = 50 * 2**30
    """All jobs together; the oldest go first."""


@dataclass(frozen=True)
class ModelChoice:
    """A model people may choose."""

    name: str
    """What the page shows: never a path of the server."""
    source: str
    """What `adadino.load` takes."""


@dataclass(frozen=True)
class Settings:
    """How `adadino serve` was started."""

    jobs: Path
    models: tuple[ModelChoice, ...] = (ModelChoice("tiny", "tiny"),)
    backbone: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    data: Path | None = None
    token: str | None = None
    basemap: str | None = None
    device: str = "auto"
    engine: Literal["auto", "off", "bf16", "fp8", "int8"] = "auto"
    """As in `SceneOptions`."""
    allowed_hosts: tuple[str, ...] = ()
    demo: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.loopback and self.token is None:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines; give --token SECRET, or "
                "leave --host out to serve this machine alone."
            )
        token = self.token if self.token is not None else "x" * LEAST_TOKEN
        if len(token) < LEAST_TOKEN or not (token.isascii() and token.isprintable()):
            raise ConfigError(
                f"--token must be at least {LEAST_TOKEN} printable ASCII characters; this makes "
                "one: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        if self.data is not None and not self.data.is_dir():
            raise ConfigError(f"--data {self.data} is not a folder; give one that exists.")
        if self.basemap is not None and not _is_template(self.basemap):
            raise ConfigError(
                f"--basemap {self.basemap} must be like https://example.org/{{z}}/{{x}}/{{y}}.png"
            )
        if not self.models:
            raise ConfigError("there is no model to serve; give --model.")

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
            # Runs keep their models in best/ and last/: the folder above tells them apart.
            run = path.parent.name if path.name in ("best", "last") else ""
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


def default_jobs_folder() -> Path:
    """The user's own place for data that should survive."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "adadino" / "jobs"
