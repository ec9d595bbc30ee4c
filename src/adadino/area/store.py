"""Where a region's files lie: a folder that all workers see, or a bucket (`s3://`, `gs://`, `az://`).

- Files have names relative to the region, with slashes. `path` is where a file of a name is written
  on this machine; `publish` makes it visible to all. In a folder both are one place, and writers
  rename what is whole. A bucket gets the whole file with one request, so nothing partial ever has
  its final name there.
- `create` writes a file that is not there yet: of several workers the first one wins, by a
  link in a folder and by a conditional put in a bucket.
- obstore repeats requests that fail for a while, and takes credentials from the environment
  (`AWS_*`, `GOOGLE_*`, `AZURE_*`) or the machine. GDAL reads from the same bucket with the same
  variables (`teach_gdal`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from adadino.errors import ConfigError, InputError, WriteError
from adadino.files import locked, write_atomic

SCHEMES = {"s3": "/vsis3/", "gs": "/vsigs/", "az": "/vsiaz/"}
"""The beginnings of names in object stores, and what GDAL calls the same."""
RETRIES = {"max_retries": 40, "retry_timeout": timedelta(seconds=60)}
"""How long obstore repeats a request that fails; a server that restarts is back by then."""


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
    return Bucket(str(out)) if is_remote(out) else Folder(Path(out))


def is_remote(name: Path | str) -> bool:
    """Whether a name is that of an object in a store."""
    return str(name).partition("://")[0] in SCHEMES and "://" in str(name)


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


class Bucket:
    """A prefix of a bucket. Two commands that run at once there do double work, and no harm."""

    def __init__(self, url: str) -> None:
        """Open it; that sends no request.

        Raises:
            ConfigError: obstore is missing, or the URL names no bucket.
        """
        self._store = _open(url)
        self.where = url.rstrip("/")
        self._scratch = tempfile.TemporaryDirectory(prefix="adadino-", ignore_cleanup_errors=True)
        self.root = Path(self._scratch.name)

    def path(self, name: str) -> Path:  # noqa: D102
        path = self.root / inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, name: str) -> None:  # noqa: D102
        path = self.path(name)
        size = path.stat().st_size
        with _sentences(self._said(name), write=True):
            import obstore

            obstore.put(self._store, name, path)
            found = obstore.head(self._store, name)["size"]
        if found != size:
            raise WriteError(
                f"{self._said(name)} holds {found} bytes after {size} were written; something else "
                "writes there. Give another --out."
            )
        path.unlink()

    def read(self, name: str) -> bytes | None:  # noqa: D102
        import obstore

        with _sentences(self._said(name)):
            try:
                return bytes(obstore.get(self._store, inside(name)).bytes())
            except FileNotFoundError as error:
                _check_bucket(error)
                return None

    def create(self, name: str, content: bytes) -> None:  # noqa: D102
        import obstore
        from obstore.exceptions import AlreadyExistsError

        # What is there is the first one's; or ours, if the answer to our request was lost.
        with _sentences(self._said(name), write=True), suppress(AlreadyExistsError):
            obstore.put(self._store, inside(name), content, mode="create")

    def sizes(self, folder: str) -> dict[str, int]:  # noqa: D102
        import obstore

        with _sentences(self._said(folder)):
            start = len(folder) + 1
            found = (o for page in obstore.list(self._store, f"{folder}/") for o in page)
            sizes = {o["path"][start:]: o["size"] for o in found}
        return {name: size for name, size in sizes.items() if "/" not in name}

    def holds(self, folder: str) -> bool:  # noqa: D102
        import obstore

        with _sentences(self._said(folder)):
            return any(len(page) for page in obstore.list(self._store, f"{inside(folder)}/"))

    def remove(self, name: str) -> None:  # noqa: D102
        import obstore

        with _sentences(self._said(name), write=True):
            pages = obstore.list(self._store, f"{inside(name)}/")
            names = [name, *(o["path"] for page in pages for o in page)]
            for one in names:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, one)

    def lock(self) -> AbstractContextManager[None]:  # noqa: D102
        return nullcontext()

    def _said(self, name: str) -> str:
        return f"{self.where}/{name}"

    def __reduce__(self) -> tuple[type[Bucket], tuple[str]]:
        return Bucket, (self.where,)


def gdal_name(name: str) -> str:
    """What GDAL calls an object; other names stay as they are."""
    scheme, _, rest = name.partition("://")
    return SCHEMES[scheme] + rest if is_remote(name) else name


def object_facts(url: str) -> list[object]:
    """The name, size and tag of an object: another content has another tag.

    Raises:
        InputError: It is not there, or may not be read.
    """
    found = _head(url)
    return [url, found["size"], found["e_tag"]]


def object_time(url: str) -> datetime:
    """When an object was written; see `object_facts`."""
    time: datetime = _head(url)["last_modified"]
    return time


def _head(url: str) -> Any:
    import obstore

    folder, _, name = url.rpartition("/")
    with _sentences(url):
        try:
            return obstore.head(_open(folder), name)
        except FileNotFoundError as error:
            raise InputError(f"there is no {url}; check its name.") from error


def teach_gdal(*names: Path | str) -> None:
    """Let GDAL, in all threads, read where obstore does, and repeat requests that fail.

    The settings go into the environment of the process, because rasterio's own are a thread's.
    They are left alone where none of the names can lead to an object store.

    Args:
        names: What GDAL will open; a mosaic (.vrt) may name objects.
    """
    if not any(is_remote(name) or str(name).endswith(".vrt") for name in names):
        return
    settings = {"GDAL_HTTP_MAX_RETRY": "10", "GDAL_HTTP_RETRY_DELAY": "0.5"}
    settings |= {"GDAL_HTTP_RETRY_CODES": "ALL", "GDAL_HTTP_CONNECTTIMEOUT": "20"}
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        at = urlsplit(endpoint)
        https = "YES" if at.scheme == "https" else "NO"
        settings |= {"AWS_S3_ENDPOINT": at.netloc, "AWS_HTTPS": https}
        settings |= {"AWS_VIRTUAL_HOSTING": "FALSE"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _open(url: str) -> Any:
    """The obstore of a bucket and a prefix."""
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise ConfigError(
            f"{url} is in an object store, which needs obstore: pip install 'adadino[area]'."
        ) from error
    scheme, _, rest = url.partition("://")
    if not rest.strip("/"):
        raise ConfigError(f"{url} names no bucket; give one, for example {scheme}://bucket/folder.")
    if ".." in rest.split("/") or "@" in rest.partition("/")[0]:
        # GDAL and obstore would make different things of it, and results would hold the password.
        raise ConfigError(
            f"{scheme}:// takes bucket/folder without .. and without credentials; set those in the "
            "environment."
        )
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    settings: dict[str, Any] = {
        "retry_config": RETRIES,
        "client_options": {"timeout": "60s", "allow_http": plain},
    }
    return from_url(url, **settings)


WAYS_OUT = (
    # Where obstore looks on a cloud's machine when nobody has given any.
    ("169.254.169.254", "there are no credentials; set AWS_ACCESS_KEY_ID and its secret"),
    ("RequestTimeTooSkewed", "the clock of this machine is wrong; set it (timedatectl)"),
    ("InvalidAccessKeyId", "the credentials are unknown there; correct AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch", "the credentials are wrong; correct AWS_SECRET_ACCESS_KEY"),
    ("NoSuchBucket", "there is no such bucket; create it, or correct its name"),
    ("AccessDenied", "the credentials do not allow it; ask for the right to do so"),
    ("403", "the credentials do not allow it; ask for the right to do so"),
    ("401", "the credentials are not accepted; correct them"),
    ("credential", "there are no credentials that it takes; set them in the environment"),
    ("onnect", "the server does not answer; check AWS_ENDPOINT_URL and the network"),
)
"""What a server's answer means to whoever asked, most telling first."""


@contextmanager
def _sentences(url: str, *, write: bool = False) -> Iterator[None]:
    """Say in one sentence why a request failed."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        kind = WriteError if write else InputError
        said = str(error)
        for sign, way_out in WAYS_OUT:
            if sign in said:
                raise kind(f"cannot {'write' if write else 'read'} {url}: {way_out}.") from error
        first = said.splitlines()[0] if said else type(error).__name__
        raise kind(f"cannot {'write' if write else 'read'} {url}: {first}.") from error


def _check_bucket(error: Exception) -> None:
    """Tell a bucket that is not there from an object that is not there."""
    if "NoSuchBucket" in str(error):
        raise error
