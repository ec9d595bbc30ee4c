"""From a log to a state: a pure function, so that undo and redo have no end.

- Undo takes back the last action of the same reviewer that still holds; redo brings the last one
  back that he took back. A new action ends what he could redo. Other reviewers are not touched.
- What an action was about may be gone, because its author took it back: the action then has no
  effect until it returns.
- A cut whose line crosses an outline more often than any drawing does has no effect.
- Every reviewer has one verdict on a polygon, his last. Where reviewers disagree the polygon is
  disputed and counts as unsure; all verdicts are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import shape as from_json
from shapely.geometry.base import BaseGeometry

from adadino.review.actions import Action, Origin, Verdict

MOST_CROSSINGS = 5000
"""Places where lines may cross: what crosses more often is no drawing, and takes minutes."""
MOST_PAIRS = 1_000_000
"""Pairs of edges that are compared: about a second."""


@dataclass(frozen=True)
class Judged:
    """The verdict on a polygon."""

    verdict: Verdict
    by: str
    """Who judged last."""
    at: str
    list: Origin
    others: tuple[tuple[str, Verdict], ...] = ()
    """All reviewers and their verdicts, where they disagree."""

    @property
    def disputed(self) -> bool:
        """Whether reviewers disagree."""
        return bool(self.others)


@dataclass(frozen=True)
class Drawing:
    """An outline that a reviewer drew."""

    geometry: BaseGeometry
    """In pixels."""
    by: str
    at: str


@dataclass(frozen=True)
class State:
    """What a log amounts to; polygons and drawings by their ids."""

    verdicts: dict[int, Judged] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    reshaped: dict[int, Drawing] = field(default_factory=dict)
    """Polygons of the map that have another outline now."""
    missed: dict[int, Drawing] = field(default_factory=dict)
    """Changes that the map lacks."""
    unchanged: dict[int, Drawing] = field(default_factory=dict)
    """Areas where nothing changed."""
    undo: dict[str, int] = field(default_factory=dict)
    """How many actions each reviewer can take back."""
    redo: dict[str, int] = field(default_factory=dict)
    """How many actions each reviewer can bring back."""


def replay(actions: Iterable[Action], outlines: Mapping[int, BaseGeometry]) -> State:
    """The state that a log leads to.

    Args:
        actions: The log.
        outlines: The map's polygons in pixels. Their ids count from 1; a drawing's id is their
            number plus the number of the action that drew it.
    """
    holding, undo, redo = _holding(actions)
    state = State(undo=undo, redo=redo)
    last: dict[int, dict[str, Action]] = defaultdict(dict)
    for action in holding:
        if action.do == "judge":
            assert action.shape is not None
            last[action.shape].pop(action.by, None)  # the last verdict comes last
            last[action.shape][action.by] = action
        if action.note is not None and action.shape is not None:
            state.notes[action.shape] = action.note
        _draw(state, action, outlines)
    for shape, verdicts in last.items():
        state.verdicts[shape] = _agree(list(verdicts.values()))
    return state


def drawing_id(action: Action, polygons: int) -> int:
    """The id of what an action drew, where a map has so many polygons."""
    return polygons + action.n


def _holding(actions: Iterable[Action]) -> tuple[list[Action], dict[str, int], dict[str, int]]:
    """The actions that were not taken back, in order, and how far each reviewer can go."""
    done: dict[str, list[Action]] = defaultdict(list)
    undone: dict[str, list[Action]] = defaultdict(list)
    for action in actions:
        own, back = done[action.by], undone[action.by]
        if action.do == "undo":
            if own:
                back.append(own.pop())
        elif action.do == "redo":
            if back:
                own.append(back.pop())
        else:
            own.append(action)
            back.clear()
    holding = sorted((a for own in done.values() for a in own), key=lambda action: action.n)
    count = {by: len(own) for by, own in done.items() if own}
    return holding, count, {by: len(back) for by, back in undone.items() if back}


def _agree(verdicts: Sequence[Action]) -> Judged:
    """One verdict of the last ones of all reviewers, in the order they were given."""
    final = verdicts[-1]
    assert final.verdict is not None
    if len({action.verdict for action in verdicts}) == 1:
        return Judged(final.verdict, final.by, final.at, final.list)
    others = tuple((action.by, action.verdict) for action in verdicts if action.verdict)
    return Judged("unsure", final.by, final.at, final.list, others)


def _draw(state: State, action: Action, outlines: Mapping[int, BaseGeometry]) -> None:
    """Apply an action that changes outlines."""
    if action.do in ("draw", "unchanged") and action.geometry is not None:
        into = state.missed if action.do == "draw" else state.unchanged
        into[drawing_id(action, len(outlines))] = _drawing(action, from_json(action.geometry))
        return
    shape = action.shape
    if shape is None:
        return
    if action.do == "erase":
        for drawings in (state.missed, state.unchanged):
            drawings.pop(shape, None)
    elif action.do in ("reshape", "cut") and action.geometry is not None:
        drawn = next((d for d in (state.missed, state.unchanged) if shape in d), state.reshaped)
        current = drawn[shape].geometry if shape in drawn else outlines.get(shape)
        if current is None:  # a drawing that its author took back
            return
        geometry = from_json(action.geometry)
        if action.do == "cut":
            if crossings(current, geometry) > MOST_CROSSINGS:
                return
            geometry = polygonal(shapely.difference(current, geometry))
        drawn[shape] = _drawing(action, geometry)


def _drawing(action: Action, geometry: BaseGeometry) -> Drawing:
    return Drawing(geometry, action.by, action.at)


def crossings(one: BaseGeometry, other: BaseGeometry) -> int:
    """In how many places edges of two geometries meet; more than can be drawn is just `MOST_PAIRS`.

    Every edge of a geometry meets itself and its two neighbours.
    """
    edges, others = _edges(one), _edges(other)
    tree = shapely.STRtree(others)
    count = near = 0
    for start in range(0, len(edges), 100):  # a few: all pairs at once might not fit into memory
        first, second = tree.query(edges[start : start + 100])
        near += len(first)
        if near > MOST_PAIRS:
            return MOST_PAIRS
        count += int(shapely.intersects(edges[start + first], others[second]).sum())
    return count


def _edges(geometry: BaseGeometry) -> NDArray[np.object_]:
    rings = [shapely.get_coordinates(ring) for ring in shapely.get_rings(geometry)]
    pairs = [np.stack([ring[:-1], ring[1:]], axis=1) for ring in rings]
    edges: NDArray[np.object_] = shapely.linestrings(np.concatenate([np.empty((0, 2, 2)), *pairs]))
    return edges


def polygonal(geometry: BaseGeometry) -> BaseGeometry:
    """The polygons of a geometry, without the points and lines that operations leave behind."""
    parts = [p for p in shapely.get_parts(geometry) if p.geom_type in ("Polygon", "MultiPolygon")]
    return shapely.union_all(parts) if parts else shapely.Polygon()
