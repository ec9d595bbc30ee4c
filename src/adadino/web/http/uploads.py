"""Two images from a form, straight to disk; a wrong one is refused as soon as it shows."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from adadino.errors import InputError
from adadino.web.door import HEAD
from adadino.web.http.body import chunks
from adadino.web.http.options import PARSERS
from adadino.web.http.problems import RefusedError, disk_problem
from adadino.web.jobs.rasters import STORED, Facts, check_head
from adadino.web.settings import Limits

FILES = ("before", "after")
FIELDS = ("model", "name", *PARSERS)
FIELD_BYTES = 1000
LONGEST_NAME = 200
Probe = Callable[[Path, str], Awaitable[Facts]]


@dataclass
class Upload:
    """What a form held."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)


def clean_name(name: str) -> str:
    """The last part of a file's name, as people may see it.

    Raises:
        RefusedError: It holds control characters or is too long.
    """
    checked = clean_text(name, "the file's name")
    return PureWindowsPath(PurePosixPath(checked).name).name or "unnamed"


def clean_text(name: str, what: str) -> str:
    """A name as people may see it.

    Raises:
        RefusedError: It holds control characters or is too long.
    """
    if len(name) > LONGEST_NAME:
        raise RefusedError(400, f"{what} is longer than {LONGEST_NAME} characters; rename it.")
    if any(unicodedata.category(letter).startswith("C") for letter in name):
        raise RefusedError(400, f"{what} holds control characters; rename it.")
    return name


class _Form:
    """Takes the parser's events; one part is open at a time."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.upload = Upload()
        self.finished = False
        self.closed: list[str] = []
        """Files that have come in whole since somebody last looked."""
        self._folder, self._limits = folder, limits
        self._header, self._value = b"", b""
        self._disposition = b""
        self._name = ""
        self._file: BinaryIO | None = None
        self._head = b""
        self._text = b""

    def callbacks(self) -> dict[str, object]:
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_header,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._open,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def close(self) -> None:
        """Close what is open, after a refusal."""
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        self._disposition, self._head, self._text, self._file = b"", b"", b"", None

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        given = options.get(b"filename")
        taken = {*self.upload.files, *self.upload.fields}
        wanted = FILES if given is not None else FIELDS
        if self._name not in wanted or self._name in taken:
            raise RefusedError(
                422, "the form must hold the files before and after once each, and of fields at "
                f"most {', '.join(FIELDS)}.",
            )  # fmt: skip
        if given is not None:
            self.upload.names[self._name] = clean_name(given.decode("utf-8", "replace"))
            path = self._folder / f"{self._name}.part"
            self._file = path.open("xb")
            self.upload.files[self._name] = path

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = data[start:end]
        if self._file is None:
            self._text += part
            if len(self._text) > FIELD_BYTES:
                raise RefusedError(
                    413, f"the field {self._name} is longer than {FIELD_BYTES} bytes; shorten it."
                )
            return
        if len(self._head) < HEAD:
            self._head += part[: HEAD - len(self._head)]
            if len(self._head) == HEAD:
                check_head(self._head, self.upload.names[self._name], self._limits)
        self._file.write(part)

    def _end(self) -> None:
        if self._file is None:
            text = self.upload.fields[self._name] = self._text.decode("utf-8", "replace")
            if self._name in PARSERS:  # a wrong one is said now, not when the files have come
                PARSERS[self._name](text)
            return
        self._file.close()
        self._file = None
        name = self.upload.names[self._name]
        part = self.upload.files[self._name]
        path = part.with_suffix(STORED[check_head(self._head, name, self._limits)])
        part.rename(path)
        self.upload.files[self._name] = path
        self.closed.append(self._name)

    def _finish(self) -> None:
        self.finished = True


async def receive(request: Request, folder: Path, limits: Limits, probe: Probe) -> Upload:
    """Read a form with two images into a folder.

    Args:
        request: The request.
        folder: Where to.
        limits: The server's.
        probe: Looks at a file that has come, while the next is still on its way.

    Raises:
        RefusedError: The form is not what it should be, too large, or too slow.
        InputError: An image is none, or too large.
    """
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:
        raise RefusedError(400, "the form has no usable boundary; send multipart/form-data.")
    form = _Form(folder, limits)
    parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
    try:
        async for chunk in chunks(request, most=limits.upload_bytes, limits=limits):
            await run_in_threadpool(parser.write, chunk)
            while form.closed:  # the first file is judged while the second is still coming
                which = form.closed.pop()
                path, name = form.upload.files[which], form.upload.names[which]
                form.upload.facts[which] = await probe(path, name)
        parser.finalize()
    except MultipartParseError:
        raise RefusedError(400, "the form is damaged or cut; send it again.") from None
    except OSError as error:
        raise disk_problem(error) from None
    finally:
        form.close()
    if not form.finished:
        raise RefusedError(400, "the form is damaged or cut; send it again.")
    for which in FILES:
        if which not in form.upload.facts:
            raise InputError(f"the form has no file {which}; send before and after.")
    return form.upload
