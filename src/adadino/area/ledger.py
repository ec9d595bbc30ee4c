"""What is finished, so that a run goes on wherever it was stopped.

    OUT/area.json                       what every unit depends on: model, settings, version
    OUT/pairs/NAME/survey.json          what is settled once for a pair: stretch, shift, chunks
    OUT/pairs/NAME/surveys/BLOCK.json   the same for each of its blocks, if it is cut into such
    OUT/pairs/NAME/mask/UNIT.tif        and probability/UNIT.tif, polygons/UNIT.npz
    OUT/pairs/NAME/raw/UNIT.tif         with a least area, the mask before it, and kept/UNIT.npz
    OUT/pairs/NAME/done/UNIT.json       written last: these files are whole, with their checksums
    OUT/pairs/NAME/tries/UNIT/          one empty file for each worker that began the unit

Workers on many machines write here at once and without locks: every file appears whole, under its
final name, and whoever computes it computes the same bytes. A survey, whose numbers may differ in
the last digit from one GPU to the next, is taken from whoever was first.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from adadino.area.bucket import object_facts
from adadino.area.store import Folder, Store, is_remote, without_secrets
from adadino.area.units import Dates, Unit
from adadino.errors import WriteError
from adadino.files import write_atomic
from adadino.scene.journal import file_facts

Record = dict[str, Any]
"""A unit's results as JSON holds them."""

Done = Mapping[Dates, Mapping[Unit, Record]]
"""The finished units of each pair, from top to bottom."""

Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function for each item, here or on workers; answers come in the items' order."""

ENDINGS = {"mask": ".tif", "probability": ".tif", "polygons": ".npz", "raw": ".tif", "kept": ".npz"}
"""How the names of a unit's files end, by what they hold."""
READERS = 16
"""Threads that read records: most of the time they wait for a server."""


class Ledger:
    """The folder or the bucket of a region."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, facts: Mapping[str, object], *, overwrite: bool) -> None:
        """Begin a job in the folder, or continue the same job.

        Raises:
            WriteError: The folder holds another job, or one of another version.
        """
        store, wanted, where = self.store, json.loads(json.dumps(facts)), self.where
        begun = read_object(store.read("area.json"))
        if overwrite and begun is not None:
            # The facts last: until then, wherever this is stopped, the folder is known as ours.
            store.remove("pairs")
            store.remove("area.json")
            begun = None
        if begun is None:
            if store.holds("pairs"):
                raise WriteError(
                    f"{where} holds results, but its area.json is missing or damaged; give "
                    f"another --out, or remove {where}/pairs yourself."
                )
            store.create("area.json", (json.dumps(wanted, indent=1) + "\n").encode())
            begun = read_object(store.read("area.json")) or {}
        # What only one of the two knows is None for the other.
        for name, value in (dict.fromkeys(begun) | wanted).items():
            if begun.get(name) != value:
                raise WriteError(
                    f"{where} was begun with another {name} ({begun.get(name)}, now {value}); "
                    "give the same, another --out, or start again with --overwrite."
                )

    @property
    def where(self) -> str:
        """What the user calls the place of the region."""
        return self.store.where

    @staticmethod
    def file(unit: Unit, kind: str) -> str:
        """The name of a unit's output: `mask`, `probability` or `polygons`."""
        return f"pairs/{unit.dates.name}/{kind}/{unit.name}{ENDINGS[kind]}"

    def survey(self, dates: Dates, block: str | None = None) -> Record | None:
        """The survey of a pair, or of one of its blocks, if there is one."""
        return read_object(self.store.read(_survey(dates, block)))

    def publish_survey(self, dates: Dates, survey: Record, block: str | None = None) -> Record:
        """Publish a survey for all workers; returns the one that was published first."""
        content = (json.dumps(survey, indent=1) + "\n").encode()
        self.store.create(_survey(dates, block), content)
        settled = self.survey(dates, block)
        assert settled is not None
        return settled

    def forget_changed(self, dates: Dates) -> None:
        """Drop the results of a pair whose input files have changed since."""
        survey = self.survey(dates)
        if survey is None or survey.get("files") != dates_facts(dates):
            # The records first: without them nothing counts, wherever this is stopped.
            for part in (f"pairs/{dates.name}/done", f"pairs/{dates.name}"):
                self.store.remove(part)

    def records(
        self, dates: Dates, units: Sequence[Unit], *, verify: bool, min_area: float = 0.0
    ) -> Iterator[tuple[Unit, Record | None]]:
        """What is known of many units of a pair; None for those that are not finished.

        A unit that was predicted for a smaller least area is not: it has not kept enough.
        """
        folder = f"pairs/{dates.name}"
        done = self.store.sizes(f"{folder}/done")
        sizes = {
            f"{folder}/{kind}/{name}": size
            for kind in ENDINGS
            for name, size in self.store.sizes(f"{folder}/{kind}").items()
        }

        def record(unit: Unit) -> Record | None:
            if f"{unit.name}.json" not in done:
                return None
            said = read_object(self.store.read(_done(unit)))
            found = self._whole(said, sizes, verify=verify)
            if found is not None and not (
                self._is_complete(unit, found) and found.get("min_area", 0) >= min_area
            ):
                found = None
            if found is None:
                self.store.remove(_done(unit))  # so that workers do not take it for finished
            return found

        if isinstance(self.store, Folder):  # threads would only take turns
            yield from ((unit, record(unit)) for unit in units)
        else:
            with ThreadPoolExecutor(READERS) as threads:
                yield from zip(units, threads.map(record, units), strict=True)

    def record(self, unit: Unit) -> Record | None:
        """A finished unit's record, if there is one; its files are not looked at."""
        record = read_object(self.store.read(_done(unit)))
        known = record is not None and _is_record(record) and self._is_complete(unit, record)
        return record if known else None

    def _is_complete(self, unit: Unit, record: Record) -> bool:
        """Whether a record has the files that are needed of its unit."""
        kinds = ("raw", "kept") if "min_area" in record else ("mask", "polygons")
        return set(record["files"]).issuperset(self.file(unit, kind) for kind in kinds)

    def _whole(
        self, record: Record | None, sizes: Mapping[str, int], *, verify: bool
    ) -> Record | None:
        """A record, unless one of its files is missing or not whole."""
        if record is None or not _is_record(record):
            return None
        for name, said in record["files"].items():
            if sizes.get(name) != said["bytes"]:
                return None
            if verify:
                content = self.store.read(name) or b""
                if hashlib.sha256(content).hexdigest() != said["sha256"]:
                    return None
        return record

    def finish(self, unit: Unit, kinds: Iterable[str], **results: float) -> Record:
        """Publish the files of a unit, then its record."""
        record = {"files": self.publish(unit, kinds), **results}
        self.write(_done(unit), json.dumps(record, indent=1) + "\n")
        return record

    def publish(self, unit: Unit, kinds: Iterable[str]) -> Record:
        """Publish written files of a unit; returns their bytes and checksums by name."""
        files = {}
        for name in (self.file(unit, kind) for kind in kinds):
            path = self.store.path(name)
            files[name] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
            self.store.publish(name)
        return files

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file of a region."""
        write_atomic(self.store.path(name), text)
        self.store.publish(name)

    def attempt(self, unit: Unit) -> int:
        """Count that a worker begins a unit; returns how often that happened in this run."""
        self.write(f"{_tries(unit)}/{secrets.token_hex(4)}", b"")
        return len(self.store.sizes(_tries(unit)))

    def end_attempts(self, unit: Unit) -> None:
        """Forget the count: the attempt ended, well or not, and its worker is alive."""
        self.store.remove(_tries(unit))

    def sweep(self, scenes: Iterable[Dates]) -> None:
        """Remove what killed workers left half-written; no worker may be running."""
        for dates in scenes:
            self.store.remove(f"pairs/{dates.name}/tries")
        if isinstance(self.store, Folder):
            self.store.sweep()


def _survey(dates: Dates, block: str | None = None) -> str:
    name = "survey" if block is None else f"surveys/{block}"
    return f"pairs/{dates.name}/{name}.json"


def _done(unit: Unit) -> str:
    return f"pairs/{unit.dates.name}/done/{unit.name}.json"


def _tries(unit: Unit) -> str:
    return f"pairs/{unit.dates.name}/tries/{unit.name}"


def dates_facts(dates: Dates) -> list[list[object]]:
    """The files of a pair: path, size and time of change; for objects their tag."""
    return [
        # An address that is signed anew is the same image.
        object_facts(name) if is_remote(name) else file_facts(without_secrets(name))
        for name in (dates.before, dates.after)
    ]


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_record(said: Record) -> bool:
    """Whether a JSON object is a unit's record."""
    files = said.get("files")
    counted = [said.get(name) for name in ("changed", "valid")]
    return (
        isinstance(files, dict)
        and all(isinstance(f, dict) and {"bytes", "sha256"} <= f.keys() for f in files.values())
        and all(isinstance(number, int) for number in counted)
        and isinstance(said.get("min_area", 0), int | float)
    )


def read_object(text: bytes | None) -> Record | None:
    """A JSON object; None if it is missing or broken."""
    try:
        said = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
