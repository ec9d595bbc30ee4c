"""The finished rows of a run, on disk beside its output, so that a killed run goes on.

`.change.tif.work/` beside `change.tif` holds

- `run.json`: what the rows depend on: inputs, settings, the model's tensors, and the chunks that
  were chosen. A run with anything else may not continue it.
- `rows.f32`: the probabilities, row after row as plain float32, NaN where there is no data.
- `classes.u8`: of a model that tells classes, those of both dates: for each row two rows of bytes.
- `rows.txt`: after each block, how many rows are finished, one number a line. A line is written
  when its rows are on disk, so whatever kills the run, the last whole line is true.

The folder is removed when the outputs are there. Every row is flushed to disk, because the
probabilities of a large scene are hours of work.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

from adadino.errors import AdaDINOError, InputError, WriteError
from adadino.files import locked, sweep, work_folder, write_atomic

Float = NDArray[np.float32]
Bytes = NDArray[np.uint8]
CLASSES = "classes.u8"
Facts = dict[str, Any]
"""What JSON holds."""


def outputs_begun(folder: Path) -> list[str]:
    """The outputs of the run that left a work folder; that run found their names free."""
    try:
        begun = json.loads((folder / "run.json").read_text())
        return [str(name) for name in begun["outputs"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def clear_remnant(output: Path) -> None:
    """Remove the work folder of a run that was killed after its outputs were complete."""
    folder = work_folder(output)
    if folder.is_dir() and not (folder / "run.json").exists():
        with suppress(AdaDINOError), locked(folder, "prediction"):
            if not (folder / "run.json").exists():  # else another run has just begun
                _remove(folder)


class Journal:
    """An open work folder: takes rows from top to bottom, and gives them back.

    It reads like a raster of one band, for those who read rasters: `shape`, `width` and `read`.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, int], facts: Facts, *, classes: bool = False
    ) -> None:
        self.folder = folder
        self.shape = shape
        self.width = shape[1]
        self.facts = facts
        self.classes = classes
        """Whether it holds the classes of both dates as well."""
        self.done = _rows_done(folder, shape, classes=classes)
        """Rows finished so far."""

    def remember(self, **facts: object) -> None:
        """Keep what this run has chosen, for the run that may continue it."""
        self.facts |= facts
        write_atomic(self.folder / "run.json", json.dumps(self.facts, indent=1))

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open the rows for `append`; those that were not finished are cut off first."""
        rows, lines = self.folder / "rows.f32", self.folder / "rows.txt"
        with _on_disk(self.folder):
            # Half a line at the end would spoil the next one. Replaced, the file is never missing.
            write_atomic(lines, f"{self.done}\n")
            mode = "r+b" if self.done else "wb"
            with ExitStack() as stack:
                self._rows = stack.enter_context(rows.open(mode))
                self._lines = stack.enter_context(lines.open("a"))
                self._rows.truncate(self.done * self.width * 4)
                self._rows.seek(0, os.SEEK_END)
                if self.classes:
                    self._bytes = stack.enter_context((self.folder / CLASSES).open(mode))
                    self._bytes.truncate(self.done * self.width * 2)
                    self._bytes.seek(0, os.SEEK_END)
                yield

    def append(self, row: int, block: Float, classes: Bytes | None = None) -> None:
        """Take the next rows; when this returns they are on disk.

        Args:
            row: The first of them.
            block: Their probabilities (h, width).
            classes: The classes of both dates (2, h, width), if the journal holds them.
        """
        if row != self.done:
            raise ValueError(f"rows from {row} on do not continue {self.done} rows")
        self._rows.write(np.ascontiguousarray(block, np.float32).data)
        self._rows.flush()
        os.fsync(self._rows.fileno())
        if self.classes:
            assert classes is not None, "a journal of classes needs them in every row"
            self._bytes.write(np.ascontiguousarray(classes.swapaxes(0, 1), np.uint8).data)
            self._bytes.flush()
            os.fsync(self._bytes.fileno())
        self.done += len(block)
        self._note()

    def read(self, band: int = 1, *, window: Window) -> Float:
        """Read full rows, as from a raster."""
        width = self.shape[1]
        first, rows = int(window.row_off), int(window.height)
        path = self.folder / "rows.f32"
        return np.fromfile(path, np.float32, rows * width, offset=first * width * 4).reshape(
            rows, width
        )

    def read_classes(self, row: int, rows: int) -> Bytes:
        """The classes of both dates in full rows (2, rows, width)."""
        each = 2 * self.width
        values = np.fromfile(
            self.folder / CLASSES, np.uint8, rows * each, offset=row * each
        ).reshape(rows, 2, self.width)
        return values.swapaxes(0, 1)

    def blocks(self, rows: int) -> Iterator[tuple[int, Float]]:
        """Yield (first row, block) from top to bottom."""
        height, width = self.shape
        for row in range(0, height, rows):
            yield row, self.read(window=Window(0, row, width, min(rows, height - row)))

    def _note(self) -> None:
        self._lines.write(f"{self.done}\n")
        self._lines.flush()
        os.fsync(self._lines.fileno())


@contextmanager
def open_journal(
    output: Path,
    shape: tuple[int, int],
    facts: Mapping[str, object],
    *,
    outputs: list[str],
    resume: bool,
    overwrite: bool,
    classes: bool = False,
) -> Iterator[Journal]:
    """Open the work folder of an output; it is removed when the block ends without an error.

    After an error or Ctrl-C the folder stays if it holds finished rows, unless it was the input
    that was wrong.

    Args:
        output: What the run makes.
        shape: Height and width of the scene.
        facts: What the rows depend on.
        outputs: The names of all that the run makes.
        resume: Go on from the rows of an earlier run, if there are any.
        overwrite: Remove such rows.
        classes: Whether rows hold the classes of both dates as well.

    Raises:
        WriteError: There are rows of an earlier run, and neither `resume` nor `overwrite` is given;
            or that run had other settings; or the folder cannot be written.
    """
    folder = work_folder(output)
    wanted: Facts = json.loads(json.dumps(facts))
    with locked(folder, "prediction"):
        found = _rows_done(folder, shape, classes=classes)
        if found and not resume and not overwrite:
            raise WriteError(
                f"an earlier run left {found} finished rows in {folder}; go on with --resume, or "
                "start again with --overwrite."
            )
        if resume and (found or _has_rows(folder)):
            begun = _begun(folder)
            _compare(wanted, begun, folder)
        if not (found and resume):
            _empty(folder)
            begun = wanted | {"outputs": outputs}
        for name in outputs:
            sweep(name)
        journal = Journal(folder, shape, begun, classes=classes)
        try:
            journal.remember(outputs=outputs)
            yield journal
        except BaseException as error:
            if not journal.done or isinstance(error, InputError):
                _remove(folder)
            raise
        _remove(folder)


def file_facts(path: str | PathLike[str]) -> list[object]:
    """A file's path, size and time of change; its name alone if only GDAL knows it."""
    file = Path(path)
    try:
        stat = file.stat()
    except (OSError, ValueError):
        return [str(path)]
    return [str(file.resolve()), stat.st_size, stat.st_mtime_ns]


def _rows_done(folder: Path, shape: tuple[int, int], *, classes: bool) -> int:
    """How many rows are finished, by the last whole line; 0 if it or the rows are missing."""
    height, width = shape
    try:
        # What follows the last line end is half a line.
        lines = (folder / "rows.txt").read_text().split("\n")[:-1]
        rows = int(lines[-1])
        there = (folder / "rows.f32").stat().st_size // (4 * width)
        if classes:
            there = min(there, (folder / CLASSES).stat().st_size // (2 * width))
    except (OSError, ValueError, IndexError):
        return 0
    return rows if 0 < rows <= min(height, there) else 0


def _has_rows(folder: Path) -> bool:
    """Whether rows of some shape are finished: another area of interest has another shape."""
    try:
        lines = (folder / "rows.txt").read_text().split("\n")[:-1]
        return int(lines[-1]) > 0 and (folder / "rows.f32").stat().st_size > 0
    except (OSError, ValueError, IndexError):
        return False


def _begun(folder: Path) -> Facts:
    try:
        begun = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError, RecursionError):
        begun = None
    if not isinstance(begun, dict):
        raise WriteError(
            f"{folder / 'run.json'} is damaged, so its rows cannot be used; start again with "
            "--overwrite."
        )
    return begun


def _compare(wanted: Facts, begun: Facts, folder: Path) -> None:
    for name, value in wanted.items():
        if begun.get(name) != value:
            raise WriteError(
                f"cannot resume {folder}: it was begun with another {name} ({begun.get(name)}, now "
                f"{value}); give the same, or start again with --overwrite."
            )


def _empty(folder: Path) -> None:
    """Remove what an earlier run left; first the numbers, without which no row counts."""
    for name in ("rows.txt", "rows.f32", CLASSES, "run.json"):
        (folder / name).unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove the folder of a finished run; killed half-way, the run must not look unfinished."""
    # First the file that lets a resumed run replace the outputs: they are complete.
    (folder / "run.json").unlink(missing_ok=True)
    (folder / "rows.txt").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _on_disk(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"cannot write to {folder}; is the disk full? The system says: {error.strerror}."
        ) from error
