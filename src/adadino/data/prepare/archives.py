"""A downloaded dataset as a flat list of members, whether it is a folder, a zip or zips in either.

- Members are read straight from the zip; nothing is extracted. Only a zip inside a zip is copied,
  once, to an unnamed temporary file: seeking back in a compressed stream means reading it again.
- A zip counts as a folder with its name, so that `train.zip` holding `A/1.png` is `train/A/1.png`.
- Archives come from strangers. Paths that leave the archive, links, encrypted members and sizes
  that no dataset has are refused before anything is read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from adadino.data.images import is_image, readable
from adadino.errors import DataError

SIZE_LIMIT = 64 * 2**30
"""Declared bytes of all members together; the largest benchmark unpacks to about 12 GiB."""

RATIO_LIMIT = 200
RATIO_FREE_SIZE = 2**30
"""Up to here any ratio will do: WHU-CD's label, 0.5 GB and nearly all zero, passes 200 honestly."""


@dataclass(frozen=True)
class Member:
    """One image or list file of a source."""

    path: PurePosixPath
    """Where it lies in the source, with zips counted as folders."""
    size: int
    origin: str
    """What an error message calls it."""
    stamp: int
    """Changes with the content: the CRC of a zip's member, the time a file was last written."""
    open: Callable[[], IO[bytes]] = field(compare=False)


class Source(AbstractContextManager["Source"]):
    """The images and lists of a folder or zip; a context manager that closes the archives.

    Args:
        path: A folder or a zip file.
        scratch: Where a zip inside a zip may be copied for as long as the source is open.

    Raises:
        DataError: If the path does not exist, or an archive is broken or refused.
    """

    members: list[Member]
    folders: list[PurePosixPath]
    """All folders of the source, also those without a member."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self._scratch = scratch
        self._declared = 0
        self.folders = []
        self._open_archives = ExitStack()
        try:
            if path.is_dir():
                found = list(self._in_folder(path))
            elif path.is_file():
                found = list(self._in_zip(path, PurePosixPath(), path.name, nested=False))
            else:
                raise DataError(f"{path} does not exist. Give the folder or zip you downloaded.")
        except BaseException:
            self._open_archives.close()
            raise
        self.members = sorted(found, key=lambda member: member.path)

    def __exit__(self, *error: object) -> None:
        self._open_archives.close()

    def digest(self) -> str:
        """Identify the source by its members' paths, sizes and stamps; nothing is decompressed."""
        lines = "".join(f"{one.path}\0{one.size}\0{one.stamp}\n" for one in self.members)
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def _in_folder(self, root: Path) -> Iterator[Member]:
        try:
            yield from self._walk(root)
        except OSError as error:
            raise DataError(
                f"cannot look into {error.filename or root}: {error.strerror}. Give a folder all "
                "of which you may read."
            ) from error

    def _walk(self, root: Path) -> Iterator[Member]:
        seen: set[Path] = set()
        # People link datasets into place, so links are followed, each folder once. A folder that
        # is closed is an error: a set without its images would look like a smaller one.
        for folder, folders, files in os.walk(root, followlinks=True, onerror=_refuse):
            here = Path(folder).resolve()
            if here in seen:
                folders.clear()
                continue
            seen.add(here)
            self.folders.append(PurePosixPath(Path(folder).relative_to(root).as_posix()))
            folders[:] = sorted(name for name in folders if not _is_hidden(PurePosixPath(name)))
            for name in sorted(files):
                path = Path(folder, name)
                virtual = PurePosixPath(path.relative_to(root).as_posix())
                if _is_hidden(PurePosixPath(name)) or not path.is_file():
                    continue
                if path.suffix.lower() == ".zip":
                    yield from self._in_zip(path, virtual.with_suffix(""), str(path), nested=False)
                elif _is_wanted(name):
                    about = path.stat()
                    size, stamp = about.st_size, about.st_mtime_ns
                    yield Member(virtual, size, str(path), stamp, _opener(path))

    def _in_zip(
        self, file: Path | IO[bytes], prefix: PurePosixPath, origin: str, *, nested: bool
    ) -> Iterator[Member]:
        try:
            archive = self._open_archives.enter_context(zipfile.ZipFile(file))
        # UnicodeDecodeError: a name that is said to be UTF-8 and is not.
        except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
            raise DataError(
                f"{origin} is not a readable zip: {error}. Download it again; other kinds of "
                "archive must be unpacked first."
            ) from error
        self.folders.append(prefix)
        for info in archive.infolist():
            path = self._checked(info, origin)
            if _is_hidden(path):
                continue
            if info.is_dir():
                self.folders.append(prefix / path)
                continue
            inner = f"{origin}:{info.filename}"
            if path.suffix.lower() == ".zip":
                if nested:
                    raise DataError(f"{inner} is a zip in a zip in a zip. Unpack {origin} first.")
                copy = self._copied(archive, info, inner)
                yield from self._in_zip(copy, prefix / path.with_suffix(""), inner, nested=True)
            elif _is_wanted(path.name):
                opener = partial(archive.open, info)
                yield Member(prefix / path, info.file_size, inner, info.CRC, opener)

    def _checked(self, info: zipfile.ZipInfo, origin: str) -> PurePosixPath:
        # Zips made on Windows may hold backslashes, which would also hide a `..`.
        path = PurePosixPath(info.filename.replace("\\", "/"))
        self._declared += info.file_size
        problem = None
        if not info.filename:
            problem = "a member without a name"
        elif path.is_absolute() or ".." in path.parts or PureWindowsPath(path).drive:
            problem = "a path that leaves the archive"
        elif stat.S_ISLNK(info.external_attr >> 16):
            problem = "a symbolic link"
        elif info.flag_bits & 0x1:
            problem = "an encrypted member"
        elif info.file_size > RATIO_FREE_SIZE and info.file_size > RATIO_LIMIT * max(
            info.compress_size, 1
        ):
            problem = f"{info.file_size:,} bytes packed into {info.compress_size:,}, a zip bomb"
        elif self._declared > SIZE_LIMIT:
            problem = f"more than {SIZE_LIMIT // 2**30} GiB with this and the members before it"
        if problem:
            raise DataError(
                f"{origin} is refused: {info.filename!r} is {problem}. If you trust the archive, "
                "unpack it yourself and give the folder."
            )
        return path

    def _copied(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> IO[bytes]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115, closed by the stack
        copy = self._open_archives.enter_context(temporary)
        with readable(name), archive.open(info) as packed:
            shutil.copyfileobj(packed, copy, length=2**20)
        return copy


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _is_wanted(name: str) -> bool:
    return is_image(name) or name.lower().endswith(".txt")


def _refuse(error: OSError) -> None:
    raise error


def _is_hidden(path: PurePosixPath) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
