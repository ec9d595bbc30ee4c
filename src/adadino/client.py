"""A server's jobs from Python: submit two images, wait, download. Standard library alone.

from adadino import Client

client = Client("http://127.0.0.1:8000", token=None)
job = client.submit("2019.tif", "2024.tif", register=True)
client.wait(job)
client.download(job, "change.gpkg", threshold=0.4)
"""

from __future__ import annotations

import json
import mimetypes
import secrets
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any

from adadino.errors import AdaDINOError, InputError
from adadino.files import write_atomic

FILES = {
    ".gpkg": "result.gpkg", ".geojson": "result.geojson", ".png": "overview.png",
    "probability.tif": "probability.tif", ".tif": "mask.tif",
}  # fmt: skip
"""Which of the server's files is meant, by how a name ends; the first that fits."""
BUSY = (429, 503)
ATTEMPTS = 5
PIECE = 2**20

Job = Mapping[str, Any] | str
"""A job as the server describes it, or its id."""


class ServerError(AdaDINOError):
    """The server did not do what was asked; `status` is its answer, None if there was none."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """Talks to `adadino serve`."""

    def __init__(self, address: str, *, token: str | None = None, timeout: float = 60.0) -> None:
        """Nothing is asked yet.

        Args:
            address: The server, as its first line says it: `http://127.0.0.1:8000`.
            token: Its secret, where it wants one.
            timeout: Seconds to wait for an answer.

        Raises:
            InputError: The address is none.
        """
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise InputError(f"{address} is no address of a server; give http://HOST:PORT.")
        self.address, self._timeout = address.rstrip("/"), timeout
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def submit(
        self,
        before: str | PathLike[str],
        after: str | PathLike[str],
        *,
        name: str | None = None,
        model: str | None = None,
        bands: tuple[int, ...] | None = None,
        scale: tuple[float, float] | None = None,
        register: bool = False,
        any_resolution: bool = False,
    ) -> dict[str, Any]:
        """Send two images and return the job, which waits for its turn.

        Args:
            before: The first date: GeoTIFF, PNG or JPEG.
            after: The second date.
            name: What to call the job.
            model: One of the server's models; its first by default.
            bands: Red, green and blue, counted from 1; or one.
            scale: Raw values that are black and white.
            register: Whether to correct a shift between the dates.
            any_resolution: Whether to predict whatever the model was trained for.

        Raises:
            InputError: There is no such file.
            ServerError: The server does not take it; the sentence says why.
        """
        fields = {
            "name": name, "model": model, "register": register or None,
            "any_resolution": any_resolution or None,
            "bands": bands and ",".join(map(str, bands)),
            "scale": scale and ",".join(map(str, scale)),
        }  # fmt: skip
        given = {key: str(value) for key, value in fields.items() if value is not None}
        form = _Form(given, {"before": Path(before), "after": Path(after)})
        headers = {"Content-Type": form.kind, "Content-Length": str(len(form))}
        return self._json("/api/jobs", data=form, headers=headers)

    def job(self, job: Job) -> dict[str, Any]:
        """A job as it is now."""
        return self._json(f"/api/jobs/{_id(job)}")

    def wait(
        self,
        job: Job,
        *,
        seconds: float | None = None,
        every: float = 1.0,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Wait until a job is done.

        Args:
            job: It.
            seconds: How long at most; for ever by default.
            every: Seconds between questions.
            progress: Told of the job each time.

        Raises:
            ServerError: The job failed, was cancelled, or took longer than that.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            found = self.job(job)
            if progress is not None:
                progress(found)
            if found["state"] == "done":
                return found
            if found["state"] in ("failed", "cancelled"):
                why = found["error"] or "it was cancelled."
                raise ServerError(f"the job {found['name']} ended without a result: {why}")
            if until is not None and time.monotonic() + every > until:
                raise ServerError(
                    f"the job {found['name']} is {found['state']} after {seconds:g} s; wait longer."
                )
            time.sleep(every)

    def download(
        self,
        job: Job,
        path: str | PathLike[str],
        *,
        threshold: float | None = None,
        min_area: float | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Save a file of a finished job; it appears whole or not at all.

        Args:
            job: It.
            path: Where to: `.gpkg` or `.geojson` for polygons, `.png` for the overview,
                `probability.tif` for the probability, any other `.tif` for the mask.
            threshold: From which probability on a pixel changed.
            min_area: Smaller changes are left out: m2, or pixels without a CRS.
            overwrite: Whether a file may be replaced.

        Raises:
            InputError: The name says no file of the server, or is taken.
            ServerError: The server does not give it.
        """
        path = Path(path)
        asked = next((file for end, file in FILES.items() if path.name.endswith(end)), None)
        if asked is None:
            raise InputError(f"{path} is none of the server's files; end it with .gpkg or .tif.")
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; choose another name, or give overwrite=True.")
        query = {"threshold": threshold, "min_area": min_area} if asked != "probability.tif" else {}
        told = urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})

        def save(part: Path) -> None:
            with (
                self._open(f"/api/jobs/{_id(job)}/{asked}?{told}") as answer,
                part.open("wb") as out,
            ):
                shutil.copyfileobj(answer, out, PIECE)
                if getattr(answer, "length", None):  # what the server announced and did not send
                    raise ServerError(f"{self.address} ended before {asked} did; download again.")

        write_atomic(path, save)
        return path

    def adapt(self, job: Job, name: str) -> dict[str, Any]:
        """Adapt the model of a judged job to its review; returns the new job, which waits.

        When that job is done, its `result["adapted"]` has the figures of both models. The new one
        is yours to name in `submit`, if it was kept.

        Args:
            job: A job that was judged.
            name: What to call the new model.

        Raises:
            ServerError: The server does not take it; the sentence says why.
        """
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"name": name}).encode()
        return self._json(f"/api/jobs/{_id(job)}/review/adapt", data=body, headers=headers)

    def remove(self, job: Job) -> None:
        """End a job and delete its files on the server."""
        self._open(f"/api/jobs/{_id(job)}", method="DELETE").close()

    def _json(self, path: str, **request: Any) -> dict[str, Any]:
        with self._open(path, **request) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _open(self, path: str, **request: Any) -> IO[bytes]:
        """The server's answer; a busy server is asked again, but never sent a job twice."""
        headers = self._headers | request.pop("headers", {})
        for attempt in range(1, ATTEMPTS + 1):
            asked = urllib.request.Request(self.address + path, headers=headers, **request)
            try:
                answer: IO[bytes] = _OPENER.open(asked, timeout=self._timeout)
                return answer
            except urllib.error.HTTPError as error:
                again = error.code in BUSY and attempt < ATTEMPTS and asked.get_method() == "GET"
                if not again:
                    raise _refusal(error) from None
                told = error.headers.get("retry-after", "")
                time.sleep(min(10, int(told[:9]) if told.isdecimal() else attempt))
            except OSError as error:
                why = getattr(error, "reason", error)
                raise ServerError(
                    f"{self.address} does not answer ({why}); is the server running?"
                ) from error
        raise AssertionError("the last attempt returns or raises")


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would go to whatever host the answer names."""

    def redirect_request(self, *_: Any) -> None:
        """Have the redirect raised as the error it is."""


_OPENER = urllib.request.build_opener(_Stay)


def _refusal(error: urllib.error.HTTPError) -> ServerError:
    try:
        sentence = json.load(error)["error"]
    except (ValueError, KeyError, TypeError):
        sentence = f"the server answered {error.code}."
    return ServerError(sentence, error.code)


def _id(job: Job) -> str:
    return urllib.parse.quote(job if isinstance(job, str) else job["id"], safe="")


class _Form:
    """multipart/form-data that is read from disk while it is sent."""

    def __init__(self, fields: dict[str, str], files: dict[str, Path]) -> None:
        for file in files.values():
            if not file.is_file():
                raise InputError(f"there is no file {file}; check the path.")
        mark = f"adadino-{secrets.token_hex(16)}"
        self.kind = f"multipart/form-data; boundary={mark}"
        start = f"--{mark}\r\nContent-Disposition: form-data; name="
        self._parts: list[bytes | Path] = [
            f'{start}"{name}"\r\n\r\n{value}\r\n'.encode() for name, value in fields.items()
        ]
        for name, file in files.items():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            called = file.name.replace("\\", "_").replace('"', "_")
            head = f'{start}"{name}"; filename="{called}"\r\nContent-Type: {kind}\r\n\r\n'
            self._parts += [head.encode(), file, b"\r\n"]
        self._parts.append(f"--{mark}--\r\n".encode())

    def __len__(self) -> int:
        return sum(
            len(part) if isinstance(part, bytes) else part.stat().st_size for part in self._parts
        )

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            with part.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
