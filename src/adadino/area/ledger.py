"""What is finished, on disk, so that a run goes on wherever it was stopped.

    OUT/area.json                       what every unit depends on: model, settings, version
    OUT/pairs/NAME/survey.json          what is settled once for a pair: stretch, shift, chunks
    OUT/pairs/NAME/mask/UNIT.tif        and probability/UNIT.tif, polygons/UNIT.npz
    OUT/pairs/NAME/done/UNIT.json       written last: these files are whole, with their checksums

Workers on many machines write here at once and without locks: every file appears whole, under its
final name, and whoever computes it computes the same bytes. A survey, whose numbers may differ in
the last digit from one GPU to the next, is taken from whoever was first.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adadino.area.units import Dates, Unit
from adadino.errors import WriteError
from adadino.files import write_atomic
from adadino.scene.journal import file_facts

Record = dict[str, Any]
"""A unit's results as JSON holds them."""

ENDINGS = {"mask": ".tif", "probability": ".tif", "polygons": ".npz"}
"""How the names of a unit's files end, by what they hold."""


class Ledger:
    """The folder of a region."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def begin(self, facts: Mapping[str, object], *, overwrite: bool) -> None:
        """Begin a job in the folder, or continue the same job.

        Raises:
            WriteError: The folder holds another job.
        """
        path, wanted = self.out / "area.json", json.loads(json.dumps(facts))
        begun = _read(path)
        if overwrite and begun is not None:
            # The facts last: until then, wherever this is stopped, the folder is known as ours.
            shutil.rmtree(self.out / "pairs", ignore_errors=True)
            path.unlink()
            begun = None
        if begun is None:
            if (self.out / "pairs").exists():
                raise WriteError(
                    f"{self.out} holds results, but its area.json is missing or damaged; give "
                    f"another --out, or remove {self.out / 'pairs'} yourself."
                )
            write_atomic(path, json.dumps(wanted, indent=1) + "\n")
            return
        for name, value in wanted.items():
            if begun.get(name) != value:
                raise WriteError(
                    f"{self.out} was begun with another {name} ({begun.get(name)}, now {value}); "
                    "give the same, another --out, or start again with --overwrite."
                )

    def folder(self, dates: Dates) -> Path:
        """Where a pair's results are."""
        return self.out / "pairs" / dates.name

    def file(self, unit: Unit, kind: str) -> Path:
        """A unit's output: `mask`, `probability` or `polygons`."""
        return self.folder(unit.dates) / kind / f"{unit.name}{ENDINGS[kind]}"

    def survey(self, dates: Dates) -> Record | None:
        """The survey of a pair, if there is one."""
        return _read(self.folder(dates) / "survey.json")

    def publish_survey(self, dates: Dates, survey: Record) -> Record:
        """Publish a survey for all workers; returns the one that was published first."""
        path = self.folder(dates) / "survey.json"
        mine = path.with_name(f".survey.{secrets.token_hex(4)}.json")
        write_atomic(mine, json.dumps(survey, indent=1) + "\n")
        try:
            os.link(mine, path)  # unlike renaming, it does not replace what is there
        except FileExistsError:
            pass
        except OSError:  # a file system without links, where the last one wins
            write_atomic(path, mine.read_bytes())
        finally:
            mine.unlink(missing_ok=True)
        settled = self.survey(dates)
        assert settled is not None
        return settled

    def forget_changed(self, dates: Dates) -> bool:
        """Drop the results of a pair whose input files have changed since."""
        survey = self.survey(dates)
        if survey is not None and survey.get("files") == dates_facts(dates):
            return False
        gone = (self.folder(dates) / "done").exists()
        # The records first: without them nothing counts, wherever this is stopped.
        shutil.rmtree(self.folder(dates) / "done", ignore_errors=True)
        shutil.rmtree(self.folder(dates), ignore_errors=True)
        return gone

    def record(self, unit: Unit, *, verify: bool = False) -> Record | None:
        """A finished unit's results; None if it is not finished or its files are not whole.

        Args:
            unit: The unit.
            verify: Compare checksums, too, and not only sizes.
        """
        record = _read(self._done(unit))
        if record is None:
            return None
        try:
            for name, said in record["files"].items():
                path = self.out / name
                if path.stat().st_size != said["bytes"]:
                    return None
                if verify and checksum(path) != said["sha256"]:
                    return None
        except (OSError, KeyError, TypeError, AttributeError, ValueError):
            return None  # no such file, or no record of ours
        counted = [record.get(name) for name in ("changed", "valid")]
        return record if all(isinstance(number, int) for number in counted) else None

    def reopen(self, unit: Unit) -> None:
        """Count a unit as not finished."""
        self._done(unit).unlink(missing_ok=True)

    def finish(self, unit: Unit, kinds: Iterable[str], **results: int) -> Record:
        """Record a unit whose files are all there."""
        files = {}
        for path in (self.file(unit, kind) for kind in kinds):
            name = path.relative_to(self.out).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
        record = {"files": files, **results}
        write_atomic(self._done(unit), json.dumps(record, indent=1) + "\n")
        return record

    def attempt(self, unit: Unit) -> int:
        """Count that a worker begins a unit; returns how often that happened in this run."""
        path = self._tries(unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b".")
            return file.tell()

    def end_attempts(self, unit: Unit) -> None:
        """Forget the count: the attempt ended, well or not, and its worker is alive."""
        self._tries(unit).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed workers left half-written; no worker may be running."""
        pairs = self.out / "pairs"
        loose = self.out.glob(".*.part*")
        for path in [*loose, *pairs.glob("*/.*"), *pairs.glob("*/*/.*")]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _tries(self, unit: Unit) -> Path:
        return self.folder(unit.dates) / "done" / f".{unit.name}.tries"

    def _done(self, unit: Unit) -> Path:
        return self.folder(unit.dates) / "done" / f"{unit.name}.json"


def dates_facts(dates: Dates) -> list[list[object]]:
    """The files of a pair: path, size and time of change."""
    return [file_facts(dates.before), file_facts(dates.after)]


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> Record | None:
    """Read a JSON object; None if it is missing or broken."""
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
