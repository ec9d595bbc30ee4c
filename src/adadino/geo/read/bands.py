"""Which bands are red, green and blue.

In this order: the bands the user names; a palette, expanded to its colours; the bands whose
colour interpretation is red, green and blue; the first three that are not alpha; a single band,
three times, with a warning. Two bands are a question only the user can answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import ColorInterp

from adadino.errors import InputError


@dataclass(frozen=True)
class Bands:
    """The choice for one image.

    Attributes:
        indexes: Three band numbers from 1, equal where one band stands for all.
        alpha: Number of the alpha band, or None.
        palette: Colours (256 or more, 3) to look band values up in, or None.
        is_uint8: Whether the colours are 0 to 255 as they stand.
        repeated: Whether a single band had to stand in, without being asked to.
    """

    indexes: tuple[int, int, int]
    alpha: int | None
    palette: NDArray[np.float32] | None
    is_uint8: bool
    repeated: bool = False


def choose_bands(dataset: Any, name: str, bands: Sequence[int] | None = None) -> Bands:
    """Choose three bands of an open rasterio dataset.

    Args:
        dataset: The dataset.
        name: What to call the image in messages.
        bands: Band numbers from 1, three or one, or None to choose by colour.

    Raises:
        InputError: If there is no such band, no sensible choice, or the values are complex.
    """
    colours = dict(zip(dataset.indexes, dataset.colorinterp, strict=True))
    alpha = next((i for i, colour in colours.items() if colour == ColorInterp.alpha), None)
    plain = [i for i in dataset.indexes if i != alpha]
    palette = None
    if bands is not None:
        indexes = _named(bands, dataset.count, name)
    elif colours[1] == ColorInterp.palette:
        indexes, palette = (1, 1, 1), _palette(dataset)
    else:
        indexes = _by_colour(colours, plain, name)
    types = {dataset.dtypes[i - 1] for i in indexes}
    if any(np.issubdtype(kind, np.complexfloating) for kind in types):
        raise InputError(
            f"{name} holds complex values ({', '.join(sorted(types))}); convert it to amplitudes."
        )
    return Bands(
        indexes,
        alpha,
        palette,
        is_uint8=palette is not None or types == {"uint8"},
        repeated=bands is None and palette is None and len(set(indexes)) == 1,
    )


def _named(bands: Sequence[int], count: int, name: str) -> tuple[int, int, int]:
    if len(bands) not in (1, 3):
        raise InputError(f"--bands takes three band numbers or one, not {len(bands)}: 3,2,1.")
    missing = [band for band in bands if not 1 <= band <= count]
    if missing:
        raise InputError(
            f"{name} has no band {missing[0]}: it has {count}, numbered from 1; change --bands."
        )
    red, green, blue = tuple(bands) * (3 // len(bands))
    return red, green, blue


def _by_colour(
    colours: dict[int, ColorInterp], plain: list[int], name: str
) -> tuple[int, int, int]:
    found = {colour: index for index, colour in reversed(colours.items())}
    try:
        return found[ColorInterp.red], found[ColorInterp.green], found[ColorInterp.blue]
    except KeyError:
        pass
    if len(plain) >= 3:
        return plain[0], plain[1], plain[2]
    if len(plain) == 1:
        return plain[0], plain[0], plain[0]
    raise InputError(
        f"{name} has {len(plain)} bands besides alpha, which are not red, green and blue; choose "
        "with --bands, for example --bands 1,2,2."
    )


def _palette(dataset: Any) -> NDArray[np.float32]:
    colours = dataset.colormap(1)
    table = np.zeros((max(256, max(colours) + 1), 3), dtype=np.float32)
    for value, (red, green, blue, _) in colours.items():
        table[value] = red, green, blue
    return table
