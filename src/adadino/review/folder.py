"""An open review: the map that is judged, and the log of what people did."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry import mapping
from shapely.geometry import shape as from_json
from shapely.geometry.base import BaseGeometry

from adadino.errors import InputError, say
from adadino.geo.read.trust import check_system, check_tiff
from adadino.review.actions import Action, make_action
from adadino.review.log import Log
from adadino.review.propose import Proposal, order, summarise, waiting
from adadino.review.shapes import check_outline
from adadino.review.state import MOST_CROSSINGS, State, crossings, drawing_id, replay

if TYPE_CHECKING:
    from adadino.geo.grid import Grid

FORMAT = 1
FACTS, POLYGONS, MASK, LOG = "review.json", "polygons.json", "mask.tif", "log.jsonl"


@dataclass(frozen=True)
class Facts:
    """What `review.json` says of the map."""

    map: str
    """A digest of the polygons: which map it is."""
    crs: str | None
    """The coordinate system as WKT; None for pixels."""
    transform: tuple[float, ...]
    """From pixels (column, row) to the map: a, b, c, d, e, f."""
    width: int
    height: int
    threshold: float
    seed: int
    sample: int
    """How many polygons the random list has."""
    unit: str
    """What areas are measured in: m2 or px."""
    name: str
    """What the map is called, for the names of tiles."""


@dataclass(frozen=True)
class Polygon:
    """A polygon of the map."""

    id: int
    area: float
    prob_mean: float | None
    prob_max: float | None
    outline: BaseGeometry
    """In pixels."""


class Review:
    """A review folder; see the package. Safe for several processes, one object for a thread."""

    def __init__(self, folder: Path, facts: Facts, polygons: dict[int, Polygon]) -> None:
        self.folder, self.facts, self.polygons = folder, facts, polygons
        self.log = Log(folder / LOG)
        self._outlines = {shape: polygon.outline for shape, polygon in polygons.items()}
        self._known: tuple[int, State] | None = None
        """What so many actions amount to: with many cuts it takes seconds."""

    @classmethod
    def open(cls, folder: Path | str) -> Review:
        """Open a review.

        Raises:
            InputError: The folder holds none, a damaged one, or one of a later version.
        """
        folder = Path(folder)
        try:
            said = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            if (written := said.pop("format", None)) != FORMAT:
                raise InputError(
                    f"{folder} has the format {say(written)}, and this version reads {FORMAT}; "
                    "open it with the version of adadino that wrote it. Nothing of it was changed."
                )
            facts = Facts(**{**said, "transform": tuple(said["transform"])})
            _check_facts(facts, folder)
            rows = json.loads((folder / POLYGONS).read_text(encoding="utf-8"))
            polygons = {row["id"]: _polygon(row) for row in rows}
        except FileNotFoundError as error:
            raise InputError(
                f"{folder} is no review: it has no {Path(error.filename).name}. Begin one with "
                "adadino judge start."
            ) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"cannot read the review {folder}: {error}. Restore {FACTS} and {POLYGONS} from "
                f"a copy; the verdicts are in {LOG}."
            ) from error
        return cls(folder, facts, polygons)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the scene in pixels."""
        return self.facts.height, self.facts.width

    @property
    def mask(self) -> Path:
        """The map, as a TIFF.

        Raises:
            InputError: It is something else under that name.
        """
        check_tiff(self.folder / MASK)
        return self.folder / MASK

    @property
    def grid(self) -> Grid:
        """Where the pixels lie."""
        from affine import Affine
        from rasterio.crs import CRS

        from adadino.geo.grid import Grid

        crs = None if self.facts.crs is None else CRS.from_wkt(self.facts.crs)
        return Grid(crs, Affine(*self.facts.transform), self.facts.width, self.facts.height)

    @cached_property
    def proposals(self) -> list[Proposal]:
        """All polygons in the order in which they are proposed."""
        threshold = self.facts.threshold
        uncertainty = {
            shape: None if p.prob_mean is None else abs(p.prob_mean - threshold)
            for shape, p in self.polygons.items()
        }
        return order(uncertainty, seed=self.facts.seed, sample=self.facts.sample)

    def act(self, data: dict[str, Any], *, by: str, key: str = "") -> Action:
        """Do something; it is on disk when this returns.

        Args:
            data: `do` and what that needs; see `Action`. Outlines are in pixels.
            by: Who does it.
            key: What the client calls the action. One that comes again is not done again.

        Raises:
            InputError: It cannot be done: there is no such polygon, nothing to undo, an outline
                outside the scene.
            WriteError: The log cannot be written.
        """
        return self.act_all([make_action(data, by=by, key=key)])[0]

    def act_all(self, actions: Sequence[Action]) -> list[Action]:
        """Do several things, all or none; see `act`."""
        return self.log.append(actions, self._check)

    def state(self) -> State:
        """What all actions amount to, with those of other processes."""
        actions = self.log.read()
        if self._known is None or self._known[0] != len(actions):  # lines are only ever added
            self._known = len(actions), replay(actions, self._outlines)
        return self._known[1]

    def next(self, count: int = 1) -> list[Proposal]:
        """The polygons to judge next: disputed ones, the random list, then the least certain."""
        return list(islice(waiting(self.proposals, self.state()), count))

    def summary(self) -> dict[str, Any]:
        """Counts and the precision so far, as JSON has them."""
        return summarise(self.proposals, self.state()) | {"damaged_lines": self.log.damaged}

    def drawing(self, action: Action) -> int:
        """The id of what an action has drawn."""
        return drawing_id(action, len(self.polygons))

    def to_map(self, geometry: dict[str, Any]) -> dict[str, Any]:
        """A GeoJSON geometry in pixels, in coordinates of the map."""
        return _moved(geometry, self._matrix)

    def to_pixels(self, geometry: dict[str, Any]) -> dict[str, Any]:
        """A GeoJSON geometry in coordinates of the map, in pixels."""
        return _moved(geometry, np.linalg.inv(self._matrix).astype(np.float64))

    @property
    def _matrix(self) -> NDArray[np.float64]:
        """From pixels to the map, for columns (x, y, 1)."""
        return np.array([*self.facts.transform, 0.0, 0.0, 1.0]).reshape(3, 3)

    def _check(self, log: Sequence[Action], action: Action) -> Action:
        """Refuse what cannot be done after this log; mend an outline."""
        if action.do in ("undo", "redo"):
            state = replay(log, self._outlines)
            if not getattr(state, action.do).get(action.by):
                raise InputError(
                    f"{action.by} has nothing to {action.do}; judge or draw something first."
                )
        if action.geometry is not None:
            outline = check_outline(action.geometry, self.size)
            action = dataclasses.replace(action, geometry=outline)
        if action.shape is not None:
            self._check_shape(log, action, action.shape)
        if action.do == "cut":
            self._check_cut(log, action)
        return action

    def _check_cut(self, log: Sequence[Action], action: Action) -> None:
        """Refuse a cut that would have no effect; see `state`."""
        assert action.shape is not None
        state, shape = replay(log, self._outlines), action.shape
        drawn = state.missed.get(shape) or state.unchanged.get(shape) or state.reshaped.get(shape)
        current = drawn.geometry if drawn is not None else self._outlines[shape]
        if crossings(current, from_json(action.geometry)) > MOST_CROSSINGS:
            raise InputError("the cut crosses the outline too often; cut a simpler piece.")

    def _check_shape(self, log: Sequence[Action], action: Action, shape: int) -> None:
        if shape in self.polygons:
            if action.do == "erase":
                raise InputError(f"polygon {shape} is the map's; judge it wrong instead.")
            random = Proposal(shape, "random") in self.proposals
            if action.list in ("random", "uncertain") and random != (action.list == "random"):
                raise InputError(
                    f"polygon {shape} is not in the {action.list} list; say that it was picked."
                )
            return
        state = replay(log, self._outlines)
        if shape not in state.missed and shape not in state.unchanged:
            raise InputError(
                f"there is no polygon {say(shape)}: the map has {len(self.polygons)}, and no "
                "drawing has this number."
            )
        if action.do == "judge":
            raise InputError(f"{shape} is a drawing; reshape or erase it instead of judging it.")


def _check_facts(facts: Facts, folder: Path) -> None:
    """Refuse facts that lead to other files; a review may come from somebody else."""
    name = facts.name
    if not name or name != Path(name).name or "\\" in name or not name.isprintable():
        raise InputError(f"{folder / FACTS} calls the map {say(name)}; a name has no folders.")
    if facts.crs is not None:
        check_system(facts.crs, folder / FACTS)


def _polygon(row: dict[str, Any]) -> Polygon:
    outline = shapely.Polygon(row["rings"][0], row["rings"][1:])
    return Polygon(row["id"], row["area"], row["prob_mean"], row["prob_max"], outline)


def _moved(geometry: dict[str, Any], by: NDArray[np.float64]) -> dict[str, Any]:
    moved = shapely.transform(from_json(geometry), lambda xy: xy @ by[:2, :2].T + by[:2, 2])
    return dict(mapping(moved))
