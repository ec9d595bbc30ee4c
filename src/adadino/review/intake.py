"""Verdicts and outlines that were edited in QGIS, or plain labelled polygons, into a review.

Outlines may be reshaped or split there, and new polygons drawn; `layer` says what the columns are.
Only what differs from the review becomes an action, so that a file may come in twice. A polygon
whose row was deleted stays as it was.
"""

from __future__ import annotations

import getpass
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import shapely
from shapely.geometry import mapping
from shapely.geometry.base import BaseGeometry

from adadino.errors import InputError, say
from adadino.geo.read.trust import check_layer, check_system
from adadino.review.actions import Action, Verdict, make_action
from adadino.review.folder import Review
from adadino.review.shapes import mended
from adadino.review.state import Drawing, State

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.geo.grid import Grid

VERDICTS: tuple[str, ...] = get_args(Verdict)
DRAWN = {"missed": "draw", "unchanged": "unchanged"}
"""The verdicts of new polygons, and the actions that they are."""
MEANING = {
    "right": "found",
    "missed": "change",
    "wrong": "gone",
    "unchanged": "clear",
    "unsure": "unknown",
    "": "unknown",
}
"""What a verdict in a layer makes of its pixels; see `labels.Corrections`."""
MOVED = 0.5
"""Pixels by which an outline may differ and still be the same: another projection's rounding."""
SAME = 0.5
"""Intersection over union from which a labelled polygon is the map's own."""


@dataclass
class Imported:
    """What a file brought."""

    actions: list[Action] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences: what was mended, left out, or understood in a certain way."""


def read_verdicts(review: Review, path: Path | str, *, by: str | None = None) -> Imported:
    """Take over what was judged and drawn in a file; all of it, or nothing.

    A file without the column `verdict` is one of labelled polygons: each is a change that is there.
    One that covers a polygon of the map makes it right; any other is a change that was missed.

    Args:
        review: The review of the same map.
        path: A GeoPackage, GeoJSON, FlatGeobuf or Shapefile; one in another coordinate system is
            transformed.
        by: Who judged, where the file does not say; the user's name by default.

    Raises:
        InputError: The file is of another map, or holds what cannot be understood.
    """
    found = Imported()
    rows = _rows(review, Path(path), found)
    state, who = review.state(), by or user_name()
    if not any("verdict" in row for row in rows):
        rows = _labelled(review, rows, found)
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["id"] in review.polygons:
            groups[row["id"]].append(row)
        else:
            found.actions += _drawing_actions(state, row, who, found)
    for shape, parts in groups.items():
        found.actions += _polygon_actions(review, state, shape, parts, who)
    found.actions = review.act_all(found.actions)
    return found


def read_layer(path: Path, crs: Any, notes: list[str]) -> gpd.GeoDataFrame:
    """The polygons of a file, in a coordinate system; None of it where there are pixels alone.

    Raises:
        InputError: It cannot be read, or nothing leads from its system to the wanted one.
    """
    import geopandas as gpd
    from pyogrio.errors import DataLayerError, DataSourceError

    check_layer(path)
    try:
        with warnings.catch_warnings():  # a GeoPackage may hold its style as a second layer
            warnings.filterwarnings("ignore", message="More than one layer")
            frame = gpd.read_file(path)
    except (DataSourceError, DataLayerError, OSError, ValueError) as error:
        raise InputError(f"cannot read polygons of {path}: {error}. Write it as .gpkg.") from error
    if not isinstance(frame, gpd.GeoDataFrame):
        raise InputError(f"{path} holds no geometries; give a layer of polygons.")
    if frame.crs is not None:
        check_system(frame.crs.to_wkt(), path)
    if (frame.crs is None) != (crs is None):
        without = "the file" if frame.crs is None else "the map"
        raise InputError(f"{path} does not fit the map: {without} has no coordinate system.")
    if crs is not None and frame.crs != crs:
        notes.append(f"{path.name} lies in {frame.crs.name} and was brought to {crs.name}.")
        frame = frame.to_crs(crs)
    empty = frame.geometry.isna() | frame.geometry.is_empty
    if empty.any():
        notes.append(f"{int(empty.sum())} rows without an outline are left out.")
    return frame[~empty]


def layer_outlines(path: Path, grid: Grid) -> dict[str, list[BaseGeometry]]:
    """The outlines of a layer in pixels, by what they do to a map that shows no change.

    A layer without verdicts is one of changes.
    """
    from adadino.geo.polygons.measure import move

    frame = read_layer(path, grid.system, [])
    kinds: dict[str, list[BaseGeometry]] = {kind: [] for kind in MEANING.values()}
    verdicts = frame["verdict"] if "verdict" in frame else ["missed"] * len(frame)
    outlines = move(frame.geometry.to_numpy(), ~grid.transform)
    for number, (outline, value) in enumerate(zip(outlines, verdicts, strict=True), start=1):
        row = _verdict({"row": number, "file": path.name, "verdict": _text(value)})
        kind = MEANING[row["verdict"]]
        kinds[kind].append(mended(outline, grid.shape))
    return kinds


def _rows(review: Review, path: Path, found: Imported) -> list[dict[str, Any]]:
    """The rows of a file: id, verdict, note, judged_by, judged_at, and an outline in pixels."""
    from adadino.geo.polygons.measure import move

    frame = read_layer(path, review.grid.system, found.notes)
    others = {str(v) for v in frame.get("review", ()) if _text(v)} - {review.facts.map}
    if others:
        raise InputError(
            f"{path} holds verdicts of another map ({say(min(others))}, not {review.facts.map}); "
            "give the file that was exported from this review."
        )
    if "review" not in frame and "verdict" in frame:
        found.notes.append(f"{path.name} does not say of which map it is; places were compared.")
    names = [n for n in ("id", "verdict", "note", "judged_by", "judged_at") if n in frame]
    outlines = move(frame.geometry.to_numpy(), ~review.grid.transform)
    rows = []
    for number, (values, outline) in enumerate(
        zip(frame[names].to_dict("records"), outlines, strict=True), start=1
    ):
        row: dict[str, Any] = {name: _text(value) for name, value in values.items()}
        row |= {"id": _number(row.get("id")), "row": number, "file": path.name}
        row["geometry"] = _fit(review, outline, row, found)
        rows.append(_verdict(row))
    return rows


def _fit(review: Review, outline: BaseGeometry, row: dict[str, Any], found: Imported) -> Any:
    """The outline inside the scene; it must touch the polygon whose id it has."""
    where = f"row {row['row']} of {row['file']}"
    try:
        fitted = mended(outline, review.size)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if not shapely.is_valid(outline):
        found.notes.append(f"{where}: the outline crosses itself; what it encloses counts.")
    polygon = review.polygons.get(row["id"])
    if polygon is not None and not shapely.intersects(polygon.outline, fitted):
        raise InputError(
            f"{where} says it is polygon {row['id']}, but lies elsewhere; is the file of another "
            "map? New polygons have an empty id."
        )
    return fitted


def _verdict(row: dict[str, Any]) -> dict[str, Any]:
    if "verdict" in row:
        row["verdict"] = row["verdict"].lower()
        if row["verdict"] not in ("", *VERDICTS, *DRAWN):
            raise InputError(
                f"row {row['row']} of {row['file']} has the verdict {say(row['verdict'])}; write "
                f"{', '.join((*VERDICTS, *DRAWN))}, or leave it empty."
            )
    return row


def _labelled(
    review: Review, rows: Sequence[dict[str, Any]], found: Imported
) -> list[dict[str, Any]]:
    """Rows of a plain file, as verdicts: the map's own polygons are right, others are missed."""
    shapes = list(review.polygons)
    outlines = [review.polygons[shape].outline for shape in shapes]
    tree, labelled = shapely.STRtree(outlines), []
    for row in rows:
        best = 0.0
        row |= {"id": None, "verdict": "missed"}
        for index in tree.query(row["geometry"], predicate="intersects"):
            other = outlines[index]
            share = shapely.intersection(other, row["geometry"]).area
            share /= shapely.union(other, row["geometry"]).area
            if share >= max(best, SAME):
                best = share
                row |= {"id": shapes[index], "verdict": "right"}
        if row["id"] is not None:  # the map's outline stays
            row["geometry"] = review.polygons[row["id"]].outline
        labelled.append(row)
    right = sum(row["verdict"] == "right" for row in labelled)
    found.notes.append(
        f"the file has no column verdict: its {len(labelled)} polygons are changes; {right} are in "
        f"the map, {len(labelled) - right} were missed."
    )
    return labelled


def _drawing_actions(
    state: State, row: dict[str, Any], who: str, found: Imported
) -> Iterator[Action]:
    where = f"row {row['row']} of {row['file']}"
    if row.get("verdict") in VERDICTS:
        raise InputError(
            f"{where} is no polygon of the map, so it cannot be {row['verdict']}; a new polygon is "
            "missed or unchanged."
        )
    if not row.get("verdict"):
        found.notes.append(f"{where} is new and has no verdict; it counts as missed.")
    kind = row.get("verdict") or "missed"
    drawings = state.missed if kind == "missed" else state.unchanged
    shape = row["id"]
    if shape in drawings:
        if _differ(drawings[shape].geometry, row["geometry"]):
            yield _action(row, who, do="reshape", shape=shape, outline=row["geometry"])
        if (row.get("note") or "") != state.notes.get(shape, ""):
            yield _action(row, who, do="note", shape=shape, note=row.get("note") or "")
    elif not _drawn(drawings, row["geometry"]):
        yield _action(row, who, do=DRAWN[kind], outline=row["geometry"], note=row.get("note"))


def _drawn(drawings: dict[int, Drawing], outline: BaseGeometry) -> bool:
    return any(not _differ(drawing.geometry, outline) for drawing in drawings.values())


def _polygon_actions(
    review: Review, state: State, shape: int, parts: Sequence[dict[str, Any]], who: str
) -> Iterator[Action]:
    """What the rows of one polygon say; several rows are the pieces of one that was split."""
    said = {row.get("verdict", "") for row in parts}
    if said & set(DRAWN):
        raise InputError(
            f"polygon {shape} of the map is {say(min(said & set(DRAWN)))} in {parts[0]['file']}; "
            f"write {', '.join(VERDICTS)}, or empty its id if it is a new polygon."
        )
    kept = [row for row in parts if row.get("verdict") != "wrong"] if len(said) > 1 else parts
    gone = [row for row in parts if row not in kept]
    if any(shapely.intersection(a["geometry"], b["geometry"]).area > 1 for a in kept for b in gone):
        raise InputError(
            f"polygon {shape} is in {parts[0]['file']} twice, with the verdicts "
            f"{', '.join(sorted(map(say, said)))}; leave one."
        )
    row = kept[0]
    outline = shapely.union_all([part["geometry"] for part in kept])
    drawn, judged = state.reshaped.get(shape), state.verdicts.get(shape)
    if _differ(drawn.geometry if drawn else review.polygons[shape].outline, outline):
        yield _action(row, who, do="reshape", shape=shape, outline=outline)
    verdict, note = row.get("verdict"), row.get("note") or ""
    note = None if note in (state.notes.get(shape, ""),) or note.startswith("disputed (") else note
    if verdict and (judged is None or judged.verdict != verdict):
        yield _action(row, who, do="judge", shape=shape, verdict=verdict, note=note)
    elif note is not None:
        yield _action(row, who, do="note", shape=shape, note=note)


def _action(
    row: dict[str, Any], who: str, *, outline: BaseGeometry | None = None, **said: Any
) -> Action:
    if outline is not None:
        said["geometry"] = dict(mapping(outline))
    return make_action({**said, "list": "file"}, by=row.get("judged_by") or who)


def _differ(one: BaseGeometry, other: BaseGeometry) -> bool:
    """Whether outlines differ by more than the rounding of a projection."""
    return bool(shapely.hausdorff_distance(one, other) > MOVED) or bool(
        shapely.hausdorff_distance(shapely.boundary(one), shapely.boundary(other)) > MOVED
    )


def _text(value: Any) -> str:
    """A cell as text; nothing for the ways in which tables say so."""
    return "" if value is None or value != value or str(value) == "<NA>" else str(value).strip()


def _number(text: str | None) -> int | None:
    try:
        return int(float(text or ""))
    except ValueError:
        return None


def user_name() -> str:
    """Who judges, as the system calls them."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a process without a user of its own
        return "unknown"
