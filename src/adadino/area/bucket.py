"""A region in a bucket of S3, Google Cloud or Azure, or of a server that speaks as one of them.

- A bucket gets each whole file with one request, so nothing partial ever has its final name there.
- obstore repeats requests that fail for a while, and takes credentials from the environment
  (`AWS_*`, `GOOGLE_*`, `AZURE_*`) or the machine. GDAL reads from the same bucket with the same
  variables (`gdal.teach_gdal`).
- Messages name what the reader can correct, and hold no signature of a request.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from adadino.area.store import inside, without_secrets
from adadino.errors import ConfigError, InputError, WriteError

RETRIES = {"max_retries": 40, "retry_timeout": timedelta(seconds=60)}
"""How long obstore repeats a request that fails; a server that restarts is back by then."""


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
    if ".." in rest.split("/") or "@" in rest.partition("/")[0] or "?" in rest:
        # GDAL and obstore would make different things of it, and results would hold the password.
        raise ConfigError(
            f"{scheme}:// takes bucket/folder without .. and without credentials; set those in the "
            "environment."
        )
    plain = any(os.environ.get(name, "").startswith("http://") for name in SERVICES[scheme].server)
    settings: dict[str, Any] = {
        "retry_config": RETRIES,
        "client_options": {"timeout": "60s", "allow_http": plain},
    }
    with _sentences(url):
        return from_url(url, **settings)


class Service(NamedTuple):
    """The variables that a user of a service sets."""

    key: str
    secret: str
    server: tuple[str, ...]


SERVICES = {
    "s3": Service(
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    ),
    "gs": Service(
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS", ("GOOGLE_BASE_URL",)
    ),
    "az": Service(
        "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ),
}  # fmt: skip

CLOCK = "the clock of this machine is wrong; set it (timedatectl)"
NO_BUCKET = "there is no such bucket; create it, or correct its name"
NOT_ALLOWED = "the credentials do not allow it; ask for the right to do so"
NOBODY = "there are no credentials that it takes; set {key} and {secret}"
WAYS_OUT = (
    # Where obstore looks on a cloud's machine when nobody has given any.
    ("169.254.169.254", NOBODY),
    ("metadata.google.internal", NOBODY),
    ("Account must be specified", NOBODY),
    ("RequestTimeTooSkewed", CLOCK),
    ("Request date header", CLOCK),
    ("reasonable timeframe", CLOCK),
    ("InvalidAccessKeyId", "the credentials are unknown there; correct {key}"),
    ("SignatureDoesNotMatch", "the credentials are wrong; correct {secret}"),
    ("AuthorizationFailure", "the credentials are wrong; correct {secret}"),
    ("AuthenticationFailed", "the credentials are wrong; correct {secret}"),
    ("AuthorizationPermissionMismatch", NOT_ALLOWED),
    ("NoSuchBucket", NO_BUCKET),
    ("ContainerNotFound", NO_BUCKET),
    ("specified bucket does not exist", NO_BUCKET),
    ("AccessDenied", NOT_ALLOWED),
    ("403", NOT_ALLOWED),
    ("401", "the credentials are not accepted; correct {secret}"),
    ("redential", NOBODY),
    ("onnect", "the server does not answer; check {server} and the network"),
)
"""What a server's answer means to whoever asked, most telling first."""


@contextmanager
def _sentences(url: str, *, write: bool = False) -> Iterator[None]:
    """Say in one sentence why a request failed."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        kind = WriteError if write else InputError
        said = str(error)
        doing = f"cannot {'write' if write else 'read'} {url}"
        service = SERVICES[url.partition("://")[0]]
        for sign, way_out in WAYS_OUT:
            if sign in said:
                names = {**service._asdict(), "server": service.server[0]}
                raise kind(f"{doing}: {way_out.format(**names)}.") from error
        first = said.splitlines()[0] if said else type(error).__name__
        raise kind(f"{doing}: {without_secrets(first)}.") from error


def _check_bucket(error: Exception) -> None:
    """Tell a bucket that is not there from an object that is not there."""
    if any(sign in str(error) for sign, way_out in WAYS_OUT if way_out == NO_BUCKET):
        raise error
