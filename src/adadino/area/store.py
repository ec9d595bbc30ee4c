"""Where a region's files lie: a folder that all workers see, or a bucket (see `bucket`).

- Files have names relative to the region, with slashes. `path` is where a file of a name is written
  on this machine; `publish` makes it visible to all. In a folder both are one place, and writers
  rename what is whole.
- `create` writes a file that is not there yet: of several workers the first one wins, by a
  link in a folder and by a conditional put in a bucket.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from adadino.errors import InputError, WriteError
from adadino.files import locked, write_atomic

SCHEMES = {"s3": "/vsis3/", "gs": "/vsigs/", "az": "/vsiaz/"}
"""The beginnings of names in object stores, and what GDAL calls the same."""


class Store(Protocol):
    """What a region needs of the place where its files lie."""

    where: str
    """What the place is called on every machine: a path or a URL, without a slash at its end."""
    root: Path
    """The folder under which files are written on this machine."""

    def path(self, name: str) -> Path:
        """Where a file is written on this machine."""

    def publish(self, name: str) -> None:
        """Make a written file visible to all."""

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if there is none."""

    def create(self, name: str, content: bytes) -> None:
        """Publish a file if there is none of its name."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The files directly in a folder, and their bytes."""

    def holds(self, folder: str) -> bool:
        """Whether there is anything in a folder."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that it holds."""

    def lock(self) -> AbstractContextManager[None]:
        """Keep a second command out while this one runs, where that is possible."""


def open_store(out: Path | str) -> Store:
    """Open the place of a region by its path or URL."""
    if not is_remote(out):
        return Folder(Path(out))
    from adadino.area.bucket import Bucket

    return Bucket(str(out))


def is_remote(name: Path | str) -> bool:
    """Whether a name is that of an object in a store."""
    return str(name).partition("://")[0] in SCHEMES and "://" in str(name)


def without_secrets(text: str) -> str:
    """A text in which signatures and passwords of addresses are left out.

    A signed address opens its image for a while, and is another one tomorrow. What a region keeps
    and tells must neither hand it on nor depend on it.
    """
    return _PASSWORD.sub("://", _SIGNED.sub(r"\1...", text))


_SIGNED = re.compile(
    r"(?i)([?&](?:x-(?:amz|goog|ms)-[\w-]+|s[vsptrei]|srt|spr|sip|sig|sdd|skt|ske|sks|skv"
    r"|skoid|sktid|saoid|suoid|scid|signature|sign|token|access_token|auth|api_?key|key"
    r"|key-pair-id|policy|expires|awsaccesskeyid|googleaccessid)=)[^&\s\"'<>]*"
)
"""A parameter that signs an address: of S3, Google, Azure (`sv`, `se`, `sig`, ...), CloudFront."""
_PASSWORD = re.compile(r"://[^/@\s]+@")


def inside(name: str) -> str:
    """A name that stays below the place it is relative to.

    Raises:
        InputError: It does not: a pair, a list or a manifest would lead elsewhere.
    """
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or {"", ".", ".."} & set(parts):
        raise InputError(
            f"{name!r} is no name of a file below --out; give pairs plain names, without slashes."
        )
    return name


class Folder:
    """A folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.where = str(self.root)

    def path(self, name: str) -> Path:  # noqa: D102  # the protocol says it
        path = self.root / inside(name)
        # Whoever else may write there could have left a link for us to follow.
        if not path.parent.resolve().is_relative_to(self.root):
            raise WriteError(
                f"{path} lies outside of {self.root}: a folder on the way is a link. Remove the "
                "link, or give another --out."
            )
        return path

    def publish(self, name: str) -> None:  # noqa: D102
        pass  # whoever wrote it has renamed it

    def read(self, name: str) -> bytes | None:  # noqa: D102
        try:
            return self.path(name).read_bytes()
        except OSError:
            return None

    def create(self, name: str, content: bytes) -> None:  # noqa: D102
        path = self.path(name)
        mine = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
        write_atomic(mine, content)
        try:
            os.link(mine, path)  # unlike renaming, it does not replace what is there
        except FileExistsError:
            pass
        except OSError:  # a file system without links, where the last one wins
            write_atomic(path, content)
        finally:
            mine.unlink(missing_ok=True)

    def sizes(self, folder: str) -> dict[str, int]:  # noqa: D102
        try:
            with os.scandir(self.path(folder)) as entries:
                return {e.name: e.stat().st_size for e in entries if e.is_file()}
        except OSError:
            return {}

    def holds(self, folder: str) -> bool:  # noqa: D102
        return self.path(folder).exists()

    def remove(self, name: str) -> None:  # noqa: D102
        path = self.path(name)
        if path.is_dir() and not path.is_symlink():  # of a link only the link goes
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def lock(self) -> AbstractContextManager[None]:  # noqa: D102
        return locked(self.root, "region")

    def sweep(self) -> None:
        """Remove what killed writers left half-written."""
        pairs = self.root / "pairs"
        loose = self.root.glob(".*.part*")
        for path in [*loose, *pairs.glob("*/.*"), *pairs.glob("*/*/.*")]:
            self.remove(path.relative_to(self.root).as_posix())
