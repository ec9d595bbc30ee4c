"""Two mosaics of many images, one for each date, so that there is no seam where files meet.

- Images on one lattice are one virtual raster (`geo.write.vrt`). Places that none covers are gaps.
  Where images overlap, the later one in the list is on top.
- First dates in several coordinate systems, such as zones of UTM, make a pair of mosaics for each
  system. The second dates that lie there are warped onto the lattice of the first, if they are in
  another system. Where two zones overlap, both have a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import rasterio.shutil
import shapely
from affine import Affine
from rasterio.enums import MaskFlags, Resampling
from rasterio.vrt import WarpedVRT
from rasterio.warp import calculate_default_transform, transform_bounds

from adadino.area.gdal import gdal_name, teach_gdal
from adadino.area.pairs import images, read_pairs, two_folders
from adadino.area.store import Store, is_remote, open_store
from adadino.area.units import Dates, folder_name
from adadino.errors import InputError
from adadino.files import write_atomic
from adadino.geo.grid import Grid, crs_name
from adadino.geo.read.source import open_dataset
from adadino.geo.write.vrt import write_mosaic


def as_mosaics(source: Path | str, out: Path | str) -> list[Dates]:
    """All images of a list as a pair of mosaics for each coordinate system, in `out/inputs`.

    A mosaic that is there and says the same is left alone. The two folders of a folder need not
    hold files of the same names here.

    Raises:
        InputError: The images do not lie on one lattice, or the list cannot be read.
    """
    befores, afters = _lists(source)
    here = [file for file in (*befores, *afters) if not file.startswith("/vsi")]
    here = [file for file in here if not is_remote(file)]
    if here and is_remote(out):
        raise InputError(
            f"{here[0]} lies on this machine and the mosaic in {out}, from where it is not seen; "
            "put the images into the bucket, too."
        )
    teach_gdal(*befores, *afters, out)
    store = open_store(out)
    first, second = (_by_system([gdal_name(file) for file in files]) for files in (befores, afters))
    if len(first) == 1 and first.keys() == second.keys():
        files = [list(next(iter(date.values()))) for date in (first, second)]
        return [_write_pair(store, "", files[0], files[1])]
    pairs = []
    for system, members in sorted(first.items()):
        name = folder_name(f"-{system}")
        meeting = _meeting(members, second)
        if not meeting:
            raise InputError(
                f"no image of the second date lies where {next(iter(members))} lies; leave out "
                f"those of the first date in {system}, or add some of the second."
            )
        after = list(meeting)
        if any(crs_name(grid.crs) != system for grid in meeting.values()):
            lattice = next(iter(members.values()))
            after = [
                _warp(store, f"inputs/after{name}-{number}.vrt", file, lattice)
                for number, file in enumerate(meeting, 1)
            ]
        pairs.append(_write_pair(store, name, list(members), after))
    return pairs


def _lists(source: Path | str) -> tuple[list[str], list[str]]:
    """The images of both dates."""
    if is_remote(source) or not Path(source).is_dir():
        pairs = read_pairs(source)
        return [p.before for p in pairs], [p.after for p in pairs]
    befores, afters = (list(map(str, images(f))) for f in two_folders(Path(source)))
    if not befores or not afters:
        raise InputError(
            f"{source} has no images for one of the dates; put some into both of its folders."
        )
    return befores, afters


def _write_pair(store: Store, suffix: str, before: list[str], after: list[str]) -> Dates:
    names = [f"inputs/{date}{suffix}.vrt" for date in ("before", "after")]
    for name, files in zip(names, (before, after), strict=True):
        write_mosaic(store.path(name), files)
        for made in (file for file in files if file.startswith(f"{store.root}/inputs/")):
            store.publish(str(Path(made).relative_to(store.root)))
        store.publish(name)
    return Dates(f"mosaic{suffix}", *(f"{store.where}/{name}" for name in names))


def _by_system(files: Sequence[str]) -> dict[str, dict[str, Grid]]:
    """The images of each coordinate system, with their grids."""
    systems: dict[str, dict[str, Grid]] = {}
    for file in files:
        with open_dataset(file) as dataset:
            grid = Grid.of(dataset)
        systems.setdefault(str(crs_name(grid.crs)), {})[file] = grid
    return systems


def _meeting(members: dict[str, Grid], others: dict[str, dict[str, Grid]]) -> dict[str, Grid]:
    """Of other images, those that lie where some of the members lie."""
    target = next(iter(members.values())).crs
    ground = shapely.union_all([shapely.box(*grid.bounds) for grid in members.values()])

    def lies_there(grid: Grid) -> bool:
        box = shapely.box(*transform_bounds(grid.crs, target, *grid.bounds))
        return bool(ground.intersection(box).area > 0)

    candidates = {file: grid for system in others.values() for file, grid in system.items()}
    return {file: grid for file, grid in candidates.items() if lies_there(grid)}


def _warp(store: Store, name: str, file: str, lattice: Grid) -> str:
    """Write an image as a virtual one on a lattice; returns its path on this machine."""
    path = store.path(name)
    with open_dataset(file) as source:
        step = lattice.resolution
        place, _, _ = calculate_default_transform(
            source.crs, lattice.crs, source.width, source.height, *source.bounds, resolution=step
        )
        col, row = (round(value) for value in ~lattice.transform * (place.c, place.f))
        transform = lattice.transform * Affine.translation(col, row)
        box = transform_bounds(source.crs, lattice.crs, *source.bounds)
        right, bottom = ~transform * (box[2], box[1])
        flags = source.mask_flag_enums[0]
        covered = MaskFlags.nodata in flags or MaskFlags.alpha in flags
        with WarpedVRT(
            source,
            crs=lattice.crs,
            transform=transform,
            width=round(right),
            height=round(bottom),
            resampling=Resampling.bilinear,
            add_alpha=not covered,  # what the image does not cover is no black
        ) as warped:
            write_atomic(path, partial(_copy, warped))
    return str(path)


def _copy(warped: WarpedVRT, path: Path) -> None:
    rasterio.shutil.copy(warped, path, driver="VRT")
