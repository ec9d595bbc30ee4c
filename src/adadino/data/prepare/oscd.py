"""OSCD as its authors ship it -> whole scenes of all bands, `DEST/{train,val,test}/{A,B,label}`.

R. Caye Daudt et al., "Urban change detection for multispectral Earth observation using
convolutional neural networks", IGARSS 2018. A city is `CITY/imgs_1_rect/B02.tif` and so on, all
bands on one grid, `imgs_2_rect` for the second date, and `CITY/cm/cm.png`, the mask, in archives of
their own. A scene here is one GeoTIFF of all its bands, each described by its name. It is not cut:
training draws tiles from it.

The dataset has no validation part. Three of its training cities are ours, Bordeaux, Paris and
Rennes; a city whose mask lies in a folder of test labels is test. The licence is CC-BY-NC-SA.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adadino import __version__
from adadino.bands import WAVELENGTHS
from adadino.data.bands import quietly
from adadino.data.folder import find_pairs
from adadino.data.images import open_mask, readable
from adadino.data.prepare.archives import Member, Source
from adadino.data.prepare.cutting import Progress
from adadino.data.prepare.manifest import Manifest, Settings, summarise
from adadino.data.prepare.run import check_places, finished, publish_set
from adadino.data.staging import MANIFEST, stage
from adadino.errors import DataError
from adadino.files import sole_writer, write_atomic

VALIDATION = ("bordeaux", "paris", "rennes")
FOLDERS = {"imgs_1_rect": "A", "imgs_2_rect": "B"}
BANDS = [name for name in WAVELENGTHS if name.startswith("B")]
LICENCE = "OSCD's licence is CC-BY-NC-SA: what is made of it is for non-commercial use"


class City(NamedTuple):
    """The files of one city."""

    name: str
    split: str
    dates: Mapping[str, Mapping[str, Member]]
    """For A and B: a member for each band."""
    mask: Member


def prepare_oscd(
    source: Path | str,
    dest: Path | str,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write every labelled city as two GeoTIFFs and a mask; called again, go on.

    Args:
        source: The folder or zip that holds the three downloaded archives.
        dest: Where the prepared set goes.
        overwrite: Replace a finished or half-finished set in `dest`.
        progress: Called with the files done, the total and the name of the last city.

    Raises:
        DataError: The source is not OSCD, a band or a date is missing, or a file is broken.
    """
    source, dest = Path(source), Path(dest)
    check_places(source, dest)
    with Source(source, scratch=dest) as opened:
        settings = Settings("oscd", "official", 0, 0, opened.digest())
        cities, notes = find_cities(opened.members, str(source))
        with sole_writer(dest / MANIFEST, "preparation"):
            if not overwrite and (found := finished(dest, settings)) is not None:
                return Manifest.verify(dest) and found
            text = json.dumps(asdict(settings), indent=2) + "\n"
            staging = stage(dest, text, anew=overwrite)
            if not (staging / MANIFEST).exists():
                sizes = _write_all(cities, staging, progress)
                splits = sorted({city.split for city in cities})
                Manifest(
                    settings=settings,
                    source=f"{source.resolve().name} (scenes: {len(cities)})",
                    splits={split: summarise(find_pairs(staging, split)) for split in splits},
                    scene_sizes=dict(sorted(sizes.items())),
                    as_expected=None,
                    version=__version__,
                    notes=(*notes, LICENCE),
                ).save(staging)
            return publish_set(staging, dest)


def find_cities(members: Sequence[Member], source: str) -> tuple[list[City], list[str]]:
    """The labelled cities of a source, by name, and notes on those that are left out.

    Raises:
        DataError: There are none, or one lacks a date or a band.
    """
    images: dict[str, dict[str, dict[str, Member]]] = defaultdict(lambda: defaultdict(dict))
    masks: dict[str, Member] = {}
    for member in members:
        if len(member.path.parts) < 3:
            continue
        city, folder = member.path.parts[-3].lower(), member.path.parts[-2].lower()
        stem = member.path.stem.upper()
        if folder in FOLDERS and stem in BANDS:
            images[city][FOLDERS[folder]][stem] = member
        elif folder == "cm" and member.path.name.lower() == "cm.png":
            masks[city] = member
    if not images or not masks:
        missing = "imgs_1_rect and imgs_2_rect" if not images else "cm/cm.png"
        raise DataError(
            f"{source} is not OSCD as it is shipped: no city has {missing}. Give the folder that "
            "holds its archives of images and of labels, zipped or not."
        )
    cities = []
    for name in sorted(images.keys() & masks.keys()):
        dates, mask = images[name], masks[name]
        every = sorted(set().union(*dates.values()), key=BANDS.index)
        for role, place in (("A", "imgs_1_rect"), ("B", "imgs_2_rect")):
            if lacking := [band for band in every if band not in dates.get(role, {})]:
                raise DataError(
                    f"{source}: {name}/{place} lacks {', '.join(lacking)}; extract the archive "
                    "again."
                )
        above = "/".join(mask.path.parts[:-3]).lower()
        split = "test" if "test" in above else "val" if name in VALIDATION else "train"
        cities.append(City(name, split, dates, mask))
    left = sorted(images.keys() - masks.keys())
    notes = [f"cities without labels were left out: {', '.join(left)}"] if left else []
    return cities, notes


def _write_all(cities: Sequence[City], staging: Path, progress: Progress | None) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for number, city in enumerate(cities, 1):
        folder = staging / city.split
        with readable(city.mask.origin), city.mask.open() as file:
            mask = np.array(open_mask(file, city.mask.origin))
        for role, bands in city.dates.items():
            path = folder / role / f"{city.name}.tif"
            if not path.exists():
                write_atomic(path, _encoded(_stack(city, bands, mask.shape), list(bands)))
        _write_mask(folder / "label" / f"{city.name}.png", mask)
        sizes[f"{mask.shape[1]}x{mask.shape[0]}"] += 1
        if progress is not None:
            progress(3 * number, 3 * len(cities), city.name)
    return sizes


def _stack(
    city: City, bands: Mapping[str, Member], shape: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    """The pixels of a date by band, each checked against the mask's size."""
    found: dict[str, NDArray[Any]] = {}
    for name in sorted(bands, key=BANDS.index):
        member = bands[name]
        with quietly(member.origin), member.open() as file:
            import rasterio

            with rasterio.io.MemoryFile(file.read()) as held, held.open() as dataset:
                found[name] = dataset.read(1)
        if found[name].shape != shape:
            height, width = found[name].shape
            raise DataError(
                f"{member.origin} is {width} x {height}, but {city.mask.origin} is {shape[1]} x "
                f"{shape[0]}. The files of a city show one place: replace one of them."
            )
    return found


def _encoded(bands: Mapping[str, NDArray[Any]], names: Sequence[str]) -> bytes:
    """A GeoTIFF of bands, each described by its name."""
    import rasterio

    pixels = np.stack(list(bands.values()))
    count, height, width = pixels.shape
    kind = {"driver": "GTiff", "dtype": pixels.dtype, "compress": "deflate", "predictor": 2}
    with quietly("a new file"), rasterio.io.MemoryFile() as held:
        with held.open(count=count, height=height, width=width, **kind) as dataset:
            dataset.write(pixels)
            dataset.descriptions = tuple(bands)
        return bytes(held.read())


def _write_mask(path: Path, mask: NDArray[np.uint8]) -> None:
    from PIL import Image

    write_atomic(path, lambda part: Image.fromarray(mask).save(part, "PNG"))
