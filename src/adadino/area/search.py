"""Pairs from a STAC document: an item, an ItemCollection (a search's result), a collection.

- An item with the assets `before` and `after` is a pair.
- Other items are images. Those of one cell of a grid (`grid:code`, `landsat:wrs_path` and `_row`),
  or whose boxes are nearly the same, show one place: satellites do not come back to the pixel.
- Of the images of a place, one of the earlier half of the time and one of the later half are a
  pair: the two with the least clouds (`eo:cloud_cover`) and the most alike seasons, a month apart
  counting as much as ten percent of clouds. Equal ones are told apart by their distance in time,
  the largest first.
- Where the pairs become mosaics, the clearest lies on top.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from adadino.area.units import Dates, folder_name, image_name
from adadino.errors import InputError

ASSETS = ("visual", "image", "data")
"""Names under which catalogues keep the picture, in the order in which they are looked for."""
SAME = 0.8
"""The share of two boxes together that they have in common where they are one place."""
SEASON = 1 / 3
"""How many percent of clouds a day between two seasons counts for."""


Box = tuple[float, float, float, float]
Place = str | Box
"""A cell of a grid, or a box."""


class Shot(NamedTuple):
    """An image of a place."""

    when: datetime
    name: str
    href: str
    cloud: float


def pairs_of_stac(path: Path) -> list[Dates]:
    """The pairs of a STAC document; the clearest last, so that a mosaic shows it on top.

    Raises:
        InputError: It holds no items, or an item lacks what a pair needs.
    """
    found: list[tuple[float, Dates]] = []
    places: list[tuple[Place, list[Shot]]] = []
    for item, base in _all_items(path):
        assets = _assets(item, path)
        if {"before", "after"} <= assets.keys():
            hrefs = (image_name(assets[key]["href"], base, path) for key in ("before", "after"))
            name = folder_name(str(item.get("id", path.stem)))
            found.append((_cloud(item, path), Dates(name, *hrefs)))
        else:
            place = _place(item, path)
            same = next((shots for other, shots in places if _is_same(place, other)), None)
            if same is None:
                same = []
                places.append((place, same))
            same.append(_shot(item, base, path))
    for _, shots in places:
        before, after = _best(sorted(shots), path)
        dates = Dates(folder_name(before.name), before.href, after.href)
        found.append((before.cloud + after.cloud, dates))
    return [dates for _, dates in sorted(found, key=lambda pair: -pair[0])]


def shots_of_stac(path: Path) -> list[Shot]:
    """The images of a STAC document, each with its date.

    Raises:
        InputError: It holds no items, or one has no date or no picture.
    """
    return [_shot(item, base, path) for item, base in _all_items(path)]


def _all_items(path: Path) -> list[tuple[dict[str, Any], Path]]:
    items = list(_items(_json(path), path.resolve(), {path.resolve()}))
    if not items:
        raise InputError(
            f"{path} is no STAC item, and holds and links to none; give one that does, or list the "
            "pairs in a CSV."
        )
    return items


def _shot(item: Mapping[str, Any], base: Path, path: Path) -> Shot:
    href = image_name(_picture(item, path), base, path)
    return Shot(_when(item, path), str(item.get("id")), href, _cloud(item, path))


def _best(shots: Sequence[Shot], path: Path) -> tuple[Shot, Shot]:
    """The best pair of a place: one of the earlier half of its time, one of the later half."""
    middle = shots[0].when + (shots[-1].when - shots[0].when) / 2
    early = [shot for shot in shots if shot.when <= middle]
    late = [shot for shot in shots if shot.when > middle]
    if not late:
        raise InputError(
            f"{path}: item {shots[0].name} has {len(shots) - 1} others of its footprint, where a "
            "pair needs one of another date; leave it out."
        )

    def badness(pair: tuple[Shot, Shot]) -> tuple[float, float]:
        before, after = pair
        apart = abs(before.when.timetuple().tm_yday - after.when.timetuple().tm_yday)
        season = min(apart, 365 - apart)
        span = (after.when - before.when).total_seconds()
        return before.cloud + after.cloud + season * SEASON, -span

    return min(product(early, late), key=badness)


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


def _when(item: Mapping[str, Any], path: Path) -> datetime:
    properties = _object(item, "properties", path)
    said = properties.get("datetime") or properties.get("start_datetime")
    try:
        when = datetime.fromisoformat(said if isinstance(said, str) else "")
    except ValueError as error:
        raise InputError(
            f"{path}: item {item.get('id')} has no datetime; add it, or list the pairs in a CSV."
        ) from error
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _cloud(item: Mapping[str, Any], path: Path) -> float:
    """How much of an image is under clouds, in percent; 0 if nothing is said."""
    said = _object(item, "properties", path).get("eo:cloud_cover")
    return float(said) if isinstance(said, int | float) else 0.0


def _is_same(place: Place, other: Place) -> bool:
    if isinstance(place, str) or isinstance(other, str):
        return place == other
    width, height = (min(place[at + 2], other[at + 2]) - max(place[at], other[at]) for at in (0, 1))
    common = max(width, 0.0) * max(height, 0.0)
    return common >= SAME * (_area(place) + _area(other) - common)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _place(item: Mapping[str, Any], path: Path) -> Place:
    """What two items of one place have in common."""
    properties = _object(item, "properties", path)
    code = properties.get("grid:code")
    landsat = [properties.get(f"landsat:wrs_{name}") for name in ("type", "path", "row")]
    if code is None and None not in landsat[1:]:
        code = f"landsat {landsat}"
    box = item.get("bbox") or properties.get("proj:bbox")
    numbers = isinstance(box, list) and all(isinstance(n, int | float) for n in box)
    if code is None and not numbers:
        raise InputError(
            f"{path}: item {item.get('id')} has no bbox; add it, or list the pairs in a CSV."
        )
    if code is not None:
        return str(code)
    assert isinstance(box, list)
    half = len(box) // 2  # of three dimensions the first two
    if half < 2:
        raise InputError(f"{path}: item {item.get('id')} has a bbox of {len(box)} numbers; give 4.")
    west, south, east, north = (float(box[at]) for at in (0, 1, half, half + 1))
    return west, south, east, north


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
