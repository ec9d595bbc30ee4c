"""What to compare: the pairs of a table, a folder or a STAC document.

- CSV: a row for each pair with the columns `before`, `after` and optionally `name`. Relative names
  are relative to the table; names such as `s3://` and `/vsicurl/` are left to GDAL.
- A folder with `before/` and `after/` (or `A/` and `B/`): files of one name are a pair.
- STAC: see `search`. All of them as two mosaics: see `mosaic`.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

from adadino.area.search import pairs_of_stac
from adadino.area.store import is_remote, open_store
from adadino.area.units import Dates, folder_name, image_name
from adadino.errors import InputError

FOLDERS = (("before", "after"), ("A", "B"))
SUFFIXES = (".tif", ".tiff", ".vrt", ".png", ".jpg", ".jpeg", ".jp2")


def read_pairs(source: Path | str) -> list[Dates]:
    """Read a list of pairs.

    Args:
        source: A `.csv`, a STAC `.json`, or a folder; the first two may lie in an object store.

    Raises:
        InputError: It is none of them, is empty, or names something twice or not at all.
    """
    if is_remote(source):
        return _from_bucket(str(source))
    source = Path(source)
    if source.is_dir():
        found = _from_folder(source)
    elif not source.is_file():
        raise InputError(f"there is no file or folder {source}; check --pairs.")
    elif source.suffix.lower() == ".csv":
        found = _from_csv(source)
    elif source.suffix.lower() in (".json", ".geojson"):
        found = pairs_of_stac(source)
    else:
        raise InputError(f"{source} is no list of pairs; give a .csv, a STAC .json or a folder.")
    if not found:
        raise InputError(f"{source} names no pair; list at least one before and after.")
    seen: dict[str, str] = {}
    for dates in found:
        if dates.name in seen:
            raise InputError(
                f"{source} has two pairs of the name {dates.name}, {seen[dates.name]} and "
                f"{dates.before}; give them names of their own."
            )
        seen[dates.name] = dates.before
    return found


def _from_bucket(url: str) -> list[Dates]:
    """Read a table or a STAC document in an object store; its names are relative to itself."""
    place, _, name = url.rpartition("/")
    content = open_store(place).read(name)
    if content is None:
        raise InputError(f"there is no {url}; check --pairs.")
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(folder).resolve())
        (Path(here) / name).write_bytes(content)
        return [
            Dates(d.name, d.before.replace(here, place, 1), d.after.replace(here, place, 1))
            for d in read_pairs(Path(here) / name)
        ]


def images(folder: Path) -> Iterator[Path]:
    """The images of a folder, by name."""
    return (p for p in sorted(folder.iterdir()) if p.suffix.lower() in SUFFIXES)


def _from_csv(path: Path) -> list[Dates]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"cannot read {path}: {error}. Give a CSV in UTF-8 that begins with before,after."
        ) from error
    found = []
    for number, row in enumerate(rows, 2):
        if not row.get("before") or not row.get("after"):
            raise InputError(
                f"{path}, line {number}: no before or no after; the first line must be "
                "before,after or before,after,name."
            )
        before, after = (image_name(row[key], path.parent, path) for key in ("before", "after"))
        name = row.get("name") or Path(before.partition("?")[0]).stem
        found.append(Dates(folder_name(name), before, after))
    return found


def _from_folder(folder: Path) -> list[Dates]:
    befores, afters = two_folders(folder)
    first = {path.stem: path for path in images(befores)}
    second = {path.stem: path for path in images(afters)}
    alone = sorted(first.keys() ^ second.keys())
    if alone:
        raise InputError(
            f"{folder}: {alone[0]} is in only one of {befores.name}/ and {afters.name}/ "
            f"({len(alone)} such); give files of one name for each pair, or --mosaic to compare "
            "the two folders as a whole."
        )
    return [Dates(folder_name(stem), str(first[stem]), str(second[stem])) for stem in sorted(first)]


def two_folders(folder: Path) -> tuple[Path, Path]:
    """The folders of the two dates."""
    for before, after in FOLDERS:
        if (folder / before).is_dir() and (folder / after).is_dir():
            return folder / before, folder / after
    raise InputError(
        f"{folder} has neither before/ and after/ nor A/ and B/; put each date into one of "
        "them, or list the pairs in a CSV."
    )
