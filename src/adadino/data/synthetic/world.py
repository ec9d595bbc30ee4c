"""A synthetic world: procedural image pairs with exact change masks, for tests, demo, pretraining.

- What counts as change: buildings built or demolished, woods cleared, land flooded.
- What does not: season, sun, haze, sensor noise and tone, sub-pixel shift, cars. Shadows neither.
- The mask is drawn from the map, never from the images, so nuisances cannot move it.
- A seed is a pair: layout, change, texture and nuisance have streams of their own, so that a
  setting of one does not reshuffle the others.

Needs numpy and Pillow only; rasterio is imported where a GeoTIFF is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adadino.data.staging import SPLITS
from adadino.data.synthetic.change import CHANGES, change
from adadino.data.synthetic.layout import Layout, Wishes
from adadino.data.synthetic.plan import DRAWN, PLANS
from adadino.data.synthetic.render import lay_ground, paint_mask, render
from adadino.data.synthetic.scene import AFTER, BEFORE, Scene
from adadino.data.synthetic.view import SEASONS, draw_views, expose
from adadino.errors import AdaDINOError, ConfigError, InputError
from adadino.files import atomic

__all__ = [
    "CHANGES",
    "DEMO_SEED",
    "DEMO_SIZE",
    "HELD_OUT",
    "PLANS",
    "SEASONS",
    "Pair",
    "World",
    "check_splits",
    "make_pair",
    "require_rasterio",
    "split_seeds",
    "write_dataset",
    "write_geotiff_pair",
    "write_pair",
]


CRS = "EPSG:32633"
ORIGIN = (500_000.0, 5_800_000.0)
"""Where GeoTIFFs lie: x and y of the upper left corner, in metres."""


class Pair(NamedTuple):
    """One place at two dates."""

    before: NDArray[np.uint8]
    """(H, W, 3)"""
    after: NDArray[np.uint8]
    """(H, W, 3)"""
    mask: NDArray[np.bool_]
    """(H, W), true where the place changed."""


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
"""The world of the demos: a plan and a season that no set of the default settings holds."""
DEMO_SEED, DEMO_SIZE = 20_261_116, 512
"""The demos' place, by the day it was made, and its side in pixels. No split that `adadino
synthesize` writes has this seed."""


def make_pair(seed: int, size: int | tuple[int, int] = 256, world: World | None = None) -> Pair:
    """Make the pair of images and the mask that belong to a seed.

    Args:
        seed: Any whole number from 0; equal arguments give equal pixels.
        size: The side of a square, or (height, width), in pixels.
        world: The settings; the defaults if left out.
    """
    world = world or World()
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
    bare = Scene(shape[0] * world.gsd, shape[1] * world.gsd, plan.yard)
    scene = Layout(layout, bare, plan, wishes).build()
    change(changes, scene, kinds, world.change_rate)

    gsd = world.gsd
    # Up to 8 degrees off nadir: roofs move aside and walls show.
    lean = texture.uniform(-0.1, 0.1), texture.uniform(-0.1, 0.1)
    ground = lay_ground(texture, scene, shape, gsd)
    views = draw_views(nuisance, world.nuisance, len(scene.cars), world.season)
    before, after = (
        expose(
            render(scene, ground, when, view, gsd=gsd, lean=lean, shadows=world.shadows),
            view,
            nuisance,
        )
        for when, view in zip((BEFORE, AFTER), views, strict=True)
    )
    return Pair(before, after, paint_mask(scene, ground, shape, gsd=gsd, lean=lean))


def _draw_kinds(rng: np.random.Generator, world: World) -> tuple[str, ...]:
    """Which kinds of change happen in a pair: none, or one or two of those allowed."""
    empty = rng.random() < world.empty
    count = int(rng.integers(1, 3))
    kinds = tuple(str(kind) for kind in rng.permutation(world.changes)[:count])
    return () if empty else kinds


def write_pair(
    directory: Path | str,
    seed: int,
    size: int | tuple[int, int] = 256,
    world: World | None = None,
    *,
    name: str | None = None,
    geotiff: bool = False,
) -> tuple[Path, Path, Path]:
    """Write a pair as A/NAME.png, B/NAME.png and label/NAME.png, the mask as 0 and 255.

    Args:
        directory: The folder that holds A, B and label.
        seed: As for `make_pair`.
        size: As for `make_pair`.
        world: As for `make_pair`.
        name: The file name without suffix; the seed in eight digits if left out.
        geotiff: Write .tif files with a CRS instead, in the place of `write_geotiff_pair`.
    """
    pair = make_pair(seed, size, world)
    file = (f"{seed:08d}" if name is None else name) + (".tif" if geotiff else ".png")
    before, after, label = (Path(directory) / sub / file for sub in ("A", "B", "label"))
    arrays = pair.before, pair.after, pair.mask.astype(np.uint8) * 255
    for path, array in zip((before, after, label), arrays, strict=True):
        if geotiff:
            _write_geotiff(path, array, (world or World()).gsd, CRS, ORIGIN)
        else:
            with atomic(path) as part:
                Image.fromarray(array).save(part)
    return before, after, label


def write_dataset(
    directory: Path | str,
    splits: Mapping[str, int],
    *,
    seed: int = 0,
    size: int | tuple[int, int] = 256,
    world: World | None = None,
    geotiff: bool = False,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write DIR/SPLIT/{A,B,label}/NAME.png; no two pairs share a seed.

    Pair i of split s (train 0, val 1, test 2) has the seed (100 * seed + s) * 1,000,000 + i, which
    is also its name. So a split stays the same whatever becomes of the others, and `make_pair`
    repeats any pair by its name.

    Args:
        directory: The dataset's folder.
        splits: The number of pairs of each split, for example {"train": 64, "val": 16}.
        seed: Different seeds give different datasets.
        size: As for `make_pair`.
        world: As for `make_pair`.
        geotiff: As for `write_pair`.
        resume: Keep the pairs that are there; the caller knows that the settings were the same.
        progress: Called with (pairs done, pairs in all) after every pair.

    Returns:
        The label files, in order.

    Raises:
        InputError: If there is no such split, or no pair is asked for.
    """
    check_splits(splits)
    labels: list[Path] = []
    total = sum(splits.values())
    for split, count in splits.items():
        folder = Path(directory) / split
        for pair_seed in split_seeds(seed, split, count):
            label = folder / "label" / f"{pair_seed:08d}{'.tif' if geotiff else '.png'}"
            if not (resume and label.exists()):  # the label is written last
                write_pair(folder, pair_seed, size, world, geotiff=geotiff)
            labels.append(label)
            if progress is not None:
                progress(len(labels), total)
    return labels


def split_seeds(seed: int, split: str, count: int) -> range:
    """The seeds of the pairs that `write_dataset` gives to a split."""
    first = (100 * seed + SPLITS.index(split)) * 1_000_000
    return range(first, first + count)


def check_splits(splits: Mapping[str, int]) -> None:
    """Refuse splits that do not exist, and numbers of pairs that cannot be.

    Raises:
        InputError: If there are any, or no pair is asked for.
    """
    possible = all(split in SPLITS and 0 <= n <= 1_000_000 for split, n in splits.items())
    if not possible or not any(splits.values()):
        raise InputError(
            f"splits is {dict(splits)}; give each of {', '.join(SPLITS)} 0 to 1,000,000 pairs, "
            "and at least one of them some."
        )


def write_geotiff_pair(
    directory: Path | str,
    seed: int,
    size: int | tuple[int, int] = 1024,
    world: World | None = None,
    *,
    crs: str = CRS,
    origin: tuple[float, float] = ORIGIN,
) -> tuple[Path, Path, Path]:
    """Write before.tif, after.tif and truth.tif (0 and 1), north up, with a CRS.

    Args:
        directory: The folder to write to.
        seed: As for `make_pair`.
        size: As for `make_pair`.
        world: As for `make_pair`; `gsd` is the pixel size in the CRS' units.
        crs: A projected CRS whose unit is the metre.
        origin: The coordinates (x, y) of the upper left corner.
    """
    require_rasterio()
    world = world or World()
    pair = make_pair(seed, size, world)
    before, after, truth = (
        Path(directory) / f"{name}.tif" for name in ("before", "after", "truth")
    )
    arrays = pair.before, pair.after, pair.mask.astype(np.uint8)
    for path, array in zip((before, after, truth), arrays, strict=True):
        _write_geotiff(path, array, world.gsd, crs, origin)
    return before, after, truth


def require_rasterio() -> None:
    """Say what to install, before any work is done.

    Raises:
        AdaDINOError: If rasterio is not installed.
    """
    try:
        import rasterio  # noqa: F401
    except ImportError as error:
        raise AdaDINOError(
            "GeoTIFFs need rasterio, which is not installed: pip install adadino[geo]"
        ) from error


def _write_geotiff(
    path: Path, array: NDArray[np.uint8], gsd: float, crs: str, origin: tuple[float, float]
) -> None:
    import rasterio
    from rasterio.errors import CRSError
    from rasterio.transform import from_origin

    try:
        place = rasterio.CRS.from_user_input(crs)
    except CRSError as error:
        raise InputError(f"crs is {crs!r}, which is unknown; give one like EPSG:32633.") from error
    bands = np.moveaxis(np.atleast_3d(array), 2, 0)  # (H, W[, C]) -> (C, H, W)
    count, height, width = bands.shape
    profile = {
        "driver": "GTiff", "dtype": "uint8", "height": height, "width": width, "count": count,
        "crs": place, "transform": from_origin(*origin, gsd, gsd),
        "photometric": "RGB" if count == 3 else "MINISBLACK", "compress": "deflate",
        "tiled": True, "blockxsize": 256, "blockysize": 256,
    }  # fmt: skip
    with atomic(path) as part, rasterio.open(part, "w", **profile) as raster:
        raster.write(bands)
