"""The synthetic world's settings, and the pair of images that belongs to a seed.

- What counts as change: buildings built or demolished, woods cleared, land flooded.
- What does not: season, sun, haze, shadows, cars, sensor noise and tone, shifts below a pixel.
- The mask is drawn from the map, never from the images, so nuisances cannot move it.
- A seed is a pair: layout, change, texture and nuisance have streams of their own, so that a
  setting of one does not reshuffle the others.

Needs numpy and Pillow only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.data.synthetic.cover import Covers, paint_covers
from adadino.data.synthetic.land import AFTER, BEFORE, CHANGES, Land, Point, change
from adadino.data.synthetic.layout import Layout, Wishes
from adadino.data.synthetic.plan import DRAWN, PLANS
from adadino.data.synthetic.render import Ground, lay_ground, paint_mask, render
from adadino.data.synthetic.view import SEASONS, draw_views, expose
from adadino.errors import ConfigError, InputError


class ImagePair(NamedTuple):
    """One place at two dates."""

    before: NDArray[np.uint8]
    """(H, W, 3)"""
    after: NDArray[np.uint8]
    """(H, W, 3)"""
    mask: NDArray[np.bool_]
    """(H, W), true where the place changed."""


class ClassPair(NamedTuple):
    """One place at two dates, and what stood where."""

    pair: ImagePair
    classes: Covers
    """The classes of both dates, from 1 in the order of `cover.CLASSES`."""


@dataclass(frozen=True, kw_only=True)
class World:
    """The settings of the synthetic world."""

    plan: str | None = None
    """The settlement: grid (a city), organic (suburbs), rural, or radial (a town of rings). None
    lets the seed choose, but never radial, which is kept for places no model was trained on."""
    season: str | None = None
    """None lets the seed choose any time of the year; drought is a season it never takes."""
    gsd: float = 0.5
    """Metres on the ground for one pixel."""
    changes: tuple[str, ...] = CHANGES
    """The changes that may happen: built, demolished, cleared, flooded."""
    change_rate: float = 0.18
    """The mean share of the buildings, and of the woods, that one kind of change touches."""
    empty: float = 0.05
    """The share of pairs in which nothing changes."""
    buildings: float = 1.0
    """The density of buildings: 0 is none, 1 the plan's own."""
    trees: float = 1.0
    """The density of single trees; woods do not depend on it."""
    cars: float = 1.0
    """The density of cars."""
    nuisance: float = 1.0
    """How much the dates differ without a change: 0 is not at all, 1 realistically."""
    shadows: bool = True
    """Whether things cast shadows."""

    def __post_init__(self) -> None:
        if self.plan is not None and self.plan not in PLANS:
            raise ConfigError(f"plan is {self.plan!r}; choose one of {', '.join(PLANS)}, or None.")
        if self.season is not None and self.season not in SEASONS:
            raise ConfigError(
                f"season is {self.season!r}; choose one of {', '.join(SEASONS)}, or None."
            )
        if unknown := set(self.changes) - set(CHANGES):
            raise ConfigError(
                f"changes has {', '.join(sorted(unknown))}; choose from {', '.join(CHANGES)}."
            )
        if not self.gsd > 0:
            raise ConfigError(f"gsd is {self.gsd}; give the metres for one pixel, more than 0.")
        for name in ("change_rate", "empty", "buildings"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; choose from 0 to 1.")
        for name in ("trees", "cars", "nuisance"):
            if not 0 <= getattr(self, name) <= 3:
                raise ConfigError(f"{name} is {getattr(self, name)}; choose from 0 to 3.")


HELD_OUT = World(plan="radial", season="drought", empty=0.0)
"""The world of the demos: a plan and a season that the default settings never give."""
DEMO_SEED, DEMO_SIZE = 20_261_116, 512
"""The demos' place, by the day it was made, and its side in pixels. No split that `adadino
synthesize` writes has this seed."""


def make_pair(
    seed: int, size: int | tuple[int, int] = 256, world: World | None = None
) -> ImagePair:
    """Make the pair of images and the mask that belong to a seed.

    Args:
        seed: Any whole number from 0; equal arguments give equal pixels.
        size: The side of a square, or (height, width), in pixels.
        world: The settings; the defaults if left out.
    """
    place = _draw_place(seed, size, world or World())
    return _picture(place)


def make_classes(
    seed: int, size: int | tuple[int, int] = 256, world: World | None = None
) -> ClassPair:
    """`make_pair`, and the classes of both dates.

    Args:
        seed: As for `make_pair`, which gives the same pixels.
        size: As for `make_pair`.
        world: As for `make_pair`.
    """
    place = _draw_place(seed, size, world or World())
    covers = paint_covers(
        place.land, place.ground, place.shape, gsd=place.world.gsd, lean=place.lean
    )
    return ClassPair(_picture(place), covers)


class _Place(NamedTuple):
    """A place and how it will be seen."""

    world: World
    shape: tuple[int, int]
    land: Land
    ground: Ground
    lean: Point
    nuisance: np.random.Generator


def _draw_place(seed: int, size: int | tuple[int, int], world: World) -> _Place:
    shape = (size, size) if isinstance(size, int) else size
    if min(shape) < 1:
        raise InputError(f"size is {size}; give a height and width of at least 1 pixel.")
    if seed < 0:
        raise InputError(f"seed is {seed}; give a whole number from 0.")
    streams = [
        np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(4)
    ]
    layout, changes, texture, nuisance = streams

    kinds = _draw_kinds(changes, world)
    plan = PLANS[world.plan or str(layout.choice(DRAWN))]
    wishes = Wishes(
        buildings=world.buildings,
        trees=world.trees,
        cars=world.cars,
        water="flooded" in kinds,
        wood="cleared" in kinds,
        building=world.buildings > 0 and not {"built", "demolished"}.isdisjoint(kinds),
    )
    bare = Land(shape[0] * world.gsd, shape[1] * world.gsd, plan.yard)
    land = Layout(layout, bare, plan, wishes).build()
    change(changes, land, kinds, world.change_rate)

    gsd = world.gsd
    # Up to 8 degrees off nadir: roofs move aside and walls show.
    lean = texture.uniform(-0.1, 0.1), texture.uniform(-0.1, 0.1)
    return _Place(world, shape, land, lay_ground(texture, land, shape, gsd), lean, nuisance)


def _picture(place: _Place) -> ImagePair:
    """Both dates and the mask of a place; its generator can draw them once."""
    world, shape, land, ground, lean, nuisance = place
    gsd = world.gsd
    views = draw_views(nuisance, world.nuisance, len(land.cars), world.season)
    before, after = (
        expose(
            render(land, ground, when, view, gsd=gsd, lean=lean, shadows=world.shadows),
            view,
            nuisance,
        )
        for when, view in zip((BEFORE, AFTER), views, strict=True)
    )
    return ImagePair(before, after, paint_mask(land, ground, shape, gsd=gsd, lean=lean))


def _draw_kinds(rng: np.random.Generator, world: World) -> tuple[str, ...]:
    """Which kinds of change happen in a pair: none, or one or two of those allowed."""
    empty = rng.random() < world.empty
    count = int(rng.integers(1, 3))
    kinds = tuple(str(kind) for kind in rng.permutation(world.changes)[:count])
    return () if empty else kinds
