"""A synthetic place at many dates, with the truth: which date shows each change first.

Things are built, demolished and cleared between known dates and then stay so. Season, sun, haze,
cars and sensor differ at every date, and clouds hide parts of some; none of that is a change.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino.data.synthetic.land import AFTER, BEFORE, BOTH, Building, Land, Wood, change
from adadino.data.synthetic.layout import Layout, Wishes
from adadino.data.synthetic.palette import fractal
from adadino.data.synthetic.plan import DRAWN, PLANS
from adadino.data.synthetic.render import lay_ground, paint_mask, render
from adadino.data.synthetic.view import draw_views, expose
from adadino.data.synthetic.world import World
from adadino.data.synthetic.write import CRS, ORIGIN, require_rasterio, write_geotiff
from adadino.errors import InputError

KINDS = ("built", "demolished", "cleared")
"""The changes of a series; a flood would recede."""
FIRST_DAY, BETWEEN = date(2019, 4, 15), timedelta(days=150)
CLOUDY, COVER = 0.5, (0.05, 0.3)
"""How often a date has clouds, and the share of the image that they hide then."""


class ImageSeries(NamedTuple):
    """One place at many dates."""

    images: tuple[NDArray[np.uint8], ...]
    """(H, W, 3) each."""
    clouds: tuple[NDArray[np.bool_], ...]
    """(H, W) each, true where clouds hide the place; the first date has none."""
    first: NDArray[np.uint8]
    """(H, W), the number of the first image that shows a change, from 1; 0 if none does."""


def make_series(
    seed: int, size: int = 256, dates: int = 8, world: World | None = None
) -> ImageSeries:
    """Make the images, clouds and truth that belong to a seed.

    Args:
        seed: Any whole number from 0; equal arguments give equal pixels.
        size: The side of the images in pixels.
        dates: How many images, 2 to 250.
        world: The settings; all of `KINDS` happen, whatever its `changes` and `empty` say.

    Raises:
        InputError: The number of dates is out of range.
    """
    if not 2 <= dates <= 250:
        raise InputError(f"dates is {dates}; give 2 to 250.")
    world = world or World()
    layout, changes, texture, nuisance = (
        np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(4)
    )
    plan = PLANS[world.plan or str(layout.choice(DRAWN))]
    wishes = Wishes(
        buildings=world.buildings, trees=world.trees, cars=world.cars,
        water=False, wood=True, building=True,
    )  # fmt: skip
    bare = Land(size * world.gsd, size * world.gsd, plan.yard)
    land = Layout(layout, bare, plan, wishes).build()
    change(changes, land, KINDS, world.change_rate)
    when = [int(changes.integers(1, dates)) for _ in _things(land)]

    shape, gsd = (size, size), world.gsd
    lean = texture.uniform(-0.1, 0.1), texture.uniform(-0.1, 0.1)
    ground = lay_ground(texture, land, shape, gsd)
    views = draw_views(nuisance, world.nuisance, len(land.cars), world.season, count=dates)
    clouds = [_clouds(nuisance, shape, clear=number == 0) for number in range(dates)]
    images = []
    for number, view in enumerate(views):
        light = render(
            _land_at(land, when, number), ground, BEFORE, view,
            gsd=gsd, lean=lean, shadows=world.shadows,
        )  # fmt: skip
        image = expose(light, view, nuisance)
        image[clouds[number]] = np.maximum(image[clouds[number]] // 8, 1) + 220
        images.append(image)
    first = np.zeros(shape, np.uint8)
    for number in range(1, dates):
        step = paint_mask(_step_to(land, when, number), ground, shape, gsd=gsd, lean=lean)
        first[step & (first == 0)] = number
    return ImageSeries(tuple(images), tuple(clouds), first)


def write_series(
    directory: Path | str,
    seed: int,
    size: int = 512,
    dates: int = 8,
    world: World | None = None,
) -> tuple[list[Path], list[Path], Path]:
    """Write a series as GeoTIFFs: DIR/DATE.tif, DIR/clouds/DATE.tif (0 and 1), DIR/truth/first.tif.

    Returns:
        The images, the masks of clouds, and the truth, as `ImageSeries.first`.
    """
    require_rasterio()
    gsd = (world or World()).gsd
    made = make_series(seed, size, dates, world)
    days = [f"{FIRST_DAY + number * BETWEEN}.tif" for number in range(dates)]
    folder = Path(directory)
    images = [folder / day for day in days]
    masks = [folder / "clouds" / day for day in days]
    truth = folder / "truth" / "first.tif"
    for path, array in [
        *zip(images, made.images, strict=True),
        *zip(masks, (cloud.astype(np.uint8) for cloud in made.clouds), strict=True),
        (truth, made.first),
    ]:
        write_geotiff(path, array, gsd, CRS, ORIGIN)
    return images, masks, truth


def _clouds(rng: np.random.Generator, shape: tuple[int, int], *, clear: bool) -> NDArray[np.bool_]:
    """Where clouds hide the place."""
    cloudy, cover = rng.random() < CLOUDY, rng.uniform(*COVER)
    thick = fractal(rng, shape, max(shape) / 3, 3)
    if clear or not cloudy:
        return np.zeros(shape, np.bool_)
    hidden: NDArray[np.bool_] = thick > np.quantile(thick, 1 - cover)
    return hidden


def _stands(thing: Building | Wood, when: int, number: int) -> bool:
    """Whether something stands at a date, if it changes at the date numbered `when`."""
    return thing.when == BOTH or (thing.when == AFTER) == (number >= when)


def _things(land: Land) -> list[Building | Wood]:
    """What may change, in the order of its dates."""
    return [*land.buildings, *land.woods]


def _land_at(land: Land, when: list[int], number: int) -> Land:
    """The map of one date, as the earlier date of a pair."""
    things = [
        replace(thing, when=BOTH if _stands(thing, at, number) else 0)
        for thing, at in zip(_things(land), when, strict=True)
    ]
    return _with(land, things)


def _step_to(land: Land, when: list[int], number: int) -> Land:
    """The map of what changes between a date and the one before it."""
    things = [
        replace(thing, when=AFTER if thing.when != BOTH and at == number else BOTH)
        for thing, at in zip(_things(land), when, strict=True)
        # What does not stand hides nothing. Woods stay, for their trees count them.
        if isinstance(thing, Wood) or at == number or _stands(thing, at, number)
    ]
    return _with(land, things)


def _with(land: Land, things: list[Building | Wood]) -> Land:
    buildings = [thing for thing in things if isinstance(thing, Building)]
    return replace(
        land, buildings=buildings, woods=[thing for thing in things if isinstance(thing, Wood)]
    )
