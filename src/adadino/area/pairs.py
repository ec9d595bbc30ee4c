"""What to compare: a table, a folder, a STAC document; as pairs, or as one pair of mosaics.

- CSV: a row for each pair with the columns `before`, `after` and optionally `name`. Relative names
  are relative to the table; names such as `s3://` and `/vsicurl/` are left to GDAL.
- A folder with `before/` and `after/` (or `A/` and `B/`): files of one name are a pair.
- STAC: an item with the assets `before` and `after` is a pair. Else the items of a document
  (ItemCollection, or the local items that a collection links to) are images: those of one
  footprint are a pair, the earlier one first.
- With `mosaic`, all first dates are one image and all second dates another (`geo.write.vrt`), so
  that the result has no seam where files meet.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adadino.area.store import gdal_name, is_remote, open_store, teach_gdal
from adadino.area.units import Dates
from adadino.errors import InputError
from adadino.geo.write.vrt import write_mosaic

FOLDERS = (("before", "after"), ("A", "B"))
SUFFIXES = (".tif", ".tiff", ".vrt", ".png", ".jpg", ".jpeg", ".jp2")
ASSETS = ("visual", "image", "data")
"""Names under which catalogues keep the picture, in the order in which they are looked for."""


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
        found = _from_stac(source)
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


def as_mosaics(source: Path | str, out: Path | str) -> list[Dates]:
    """All images of a list as one pair of mosaics, which are written to `out/inputs`.

    A mosaic that is there and says the same is left alone. The two folders of a folder need not
    hold files of the same names here.

    Raises:
        InputError: The images do not lie on one lattice, or the list cannot be read.
    """
    source = source if is_remote(source) else Path(source)
    if isinstance(source, Path) and source.is_dir():
        befores, afters = (list(map(str, images(folder))) for folder in _two_folders(source))
        if not befores or not afters:
            raise InputError(
                f"{source} has no images for one of the dates; put some into both of its folders."
            )
    else:
        pairs = read_pairs(source)
        befores, afters = [p.before for p in pairs], [p.after for p in pairs]
    teach_gdal()
    store, paths = open_store(out), []
    for name, files in (("inputs/before.vrt", befores), ("inputs/after.vrt", afters)):
        here = [file for file in files if not file.startswith("/vsi") and not is_remote(file)]
        if here and is_remote(out):
            raise InputError(
                f"{here[0]} lies on this machine and the mosaic in {out}, from where it is not "
                "seen; put the images into the bucket, too."
            )
        write_mosaic(store.path(name), [gdal_name(file) for file in files])
        store.publish(name)
        paths.append(f"{store.where}/{name}")
    return [Dates("mosaic", *paths)]


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
        before, after = (_resolve(row[key], path.parent, path) for key in ("before", "after"))
        found.append(Dates(_safe(row.get("name") or Path(before).stem), before, after))
    return found


def _from_folder(folder: Path) -> list[Dates]:
    befores, afters = _two_folders(folder)
    first = {path.stem: path for path in images(befores)}
    second = {path.stem: path for path in images(afters)}
    alone = sorted(first.keys() ^ second.keys())
    if alone:
        raise InputError(
            f"{folder}: {alone[0]} is in only one of {befores.name}/ and {afters.name}/ "
            f"({len(alone)} such); give files of one name for each pair, or --mosaic to compare "
            "the two folders as a whole."
        )
    return [Dates(_safe(stem), str(first[stem]), str(second[stem])) for stem in sorted(first)]


def _two_folders(folder: Path) -> tuple[Path, Path]:
    for before, after in FOLDERS:
        if (folder / before).is_dir() and (folder / after).is_dir():
            return folder / before, folder / after
    raise InputError(
        f"{folder} has neither before/ and after/ nor A/ and B/; put each date into one of "
        "them, or list the pairs in a CSV."
    )


def _from_stac(path: Path) -> list[Dates]:
    document = _json(path)
    items = list(_items(document, path.resolve(), {path.resolve()}))
    if not items:
        raise InputError(
            f"{path} is no STAC item, and holds and links to none; give one that does, or list the "
            "pairs in a CSV."
        )
    found, single = [], []
    for item, base in items:
        assets = _assets(item, path)
        if {"before", "after"} <= assets.keys():
            hrefs = (_resolve(assets[key]["href"], base, path) for key in ("before", "after"))
            found.append(Dates(_safe(str(item.get("id", path.stem))), *hrefs))
        else:
            single.append((item, base))
    by_place: dict[str, list[tuple[str, str, str]]] = {}
    for item, base in single:
        when, href = _when(item, path), _resolve(_picture(item, path), base, path)
        by_place.setdefault(_place(item, path), []).append((when, str(item.get("id")), href))
    for dated in by_place.values():
        dated.sort()
        if len({when for when, _, _ in dated}) != 2 or len(dated) != 2:
            raise InputError(
                f"{path}: item {dated[0][1]} has {len(dated) - 1} others of its footprint, where a "
                "pair needs one of another date; leave the others out."
            )
        (_, name, before), (_, _, after) = dated
        found.append(Dates(_safe(name), before, after))
    return found


def _items(
    document: Mapping[str, Any], path: Path, seen: set[Path]
) -> Iterator[tuple[dict[str, Any], Path]]:
    """The items of a document, each with the folder its links are relative to."""
    if document.get("type") == "Feature":
        yield dict(document), path.parent
    for feature in _list(document, "features", path):
        yield feature, path.parent
    for link in _list(document, "links", path) if document.get("type") in _PARENTS else []:
        if link.get("rel") in ("item", "child"):
            href = link.get("href")
            if not isinstance(href, str) or "\0" in href:
                raise InputError(f"{path} has a link without a file name; correct its href.")
            linked = (path.parent / href).resolve()
            if linked not in seen:  # a catalogue may link back to where one came from
                seen.add(linked)
                yield from _items(_json(linked), linked, seen)


def _list(document: Mapping[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    """The objects under a name."""
    found = document.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{path} is no STAC document: its {name} are no list of objects.")
    return found


def _object(item: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = item.get(name) or {}
    if not isinstance(found, dict):
        raise InputError(f"{path}: item {item.get('id')} has {name} that are no object.")
    return found


def _assets(item: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The files of an item that have a name."""
    assets = _object(item, "assets", path)
    for name, asset in assets.items():
        if not isinstance(asset, dict) or not isinstance(asset.get("href"), str):
            raise InputError(
                f"{path}: item {item.get('id')} has an asset {name} without a file name; correct "
                "its href."
            )
    return assets


_PARENTS = ("Collection", "Catalog")


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"cannot read {path} as JSON: {error}. Give a STAC document, or a CSV of pairs."
        ) from error
    if not isinstance(document, dict):
        raise InputError(f"{path} is no STAC document; give one, or list the pairs in a CSV.")
    return document


def _when(item: Mapping[str, Any], path: Path) -> str:
    properties = _object(item, "properties", path)
    when = properties.get("datetime") or properties.get("start_datetime")
    if not isinstance(when, str):
        raise InputError(
            f"{path}: item {item.get('id')} has no datetime; add it, or list the pairs in a CSV."
        )
    return when


def _place(item: Mapping[str, Any], path: Path) -> str:
    """What two items of one footprint have in common."""
    properties = _object(item, "properties", path)
    code = properties.get("grid:code")
    box = properties.get("proj:bbox") or item.get("bbox")
    numbers = isinstance(box, list) and all(isinstance(n, int | float) for n in box)
    if code is None and not numbers:
        raise InputError(
            f"{path}: item {item.get('id')} has no bbox; add it, or list the pairs in a CSV."
        )
    return str(code) if code is not None else str([round(n, 6) for n in box or ()])


def _picture(item: Mapping[str, Any], path: Path) -> str:
    assets = _assets(item, path)
    named = [assets[name] for name in ASSETS if name in assets]
    tiffs = [asset for asset in assets.values() if "tiff" in str(asset.get("type", ""))]
    chosen = [*named, *(tiffs if len(tiffs) == 1 else [])]
    if not chosen:
        raise InputError(
            f"{path}: item {item.get('id')} has no asset named {', '.join(ASSETS)}, nor a single "
            "GeoTIFF; say which images to compare in a CSV."
        )
    return str(chosen[0]["href"])


def _resolve(name: str, base: Path, source: Path) -> str:
    """A name as GDAL opens it from anywhere."""
    if "\0" in name:
        raise InputError(f"{source} names a file with a zero byte in it, {name!r}; correct it.")
    if name.startswith(("/vsi", "/")) or "://" in name:
        return re.sub(r"^https?://", lambda scheme: f"/vsicurl/{scheme[0]}", name)
    return str((base / name).resolve())


def _safe(name: str) -> str:
    """A name that a folder can have: plain characters, and not too long."""
    return re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:60] or "pair"
