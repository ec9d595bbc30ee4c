"""Which bands are read: red, green and blue, or those that a model names.

In this order: the bands the user names; a palette, expanded to its colours; the bands whose
colour interpretation is red, green and blue; those whose descriptions say so (red, B04); the first
three that are not alpha; a single band, three times. The last two are guesses, of which the user is
warned. Two bands are a question only the user can answer.

A model with bands of its own finds them by description or colour interpretation
(`adadino.bands.match_bands`), or takes the numbers the user gives, in its order. A peer that needs
no training takes all bands but alpha.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rasterio.enums import ColorInterp

from adadino.bands import BandsConfig, match_bands
from adadino.errors import InputError

Chosen = Literal[
    "given", "palette", "by colour", "by name", "by place", "guessed", "one band for all", "all"
]
Wanted = BandsConfig | Literal["all"] | None
"""What a model takes: its own bands, all there are, or None for red, green and blue."""
NAMES = {
    "red": ("red", "r", "b04"),
    "green": ("green", "g", "b03"),
    "blue": ("blue", "b", "b02"),
    "nir": ("nir", "nir1", "near infrared", "near-infrared", "b08", "b8", "b8a"),
}
"""What files call their bands, in words and as Sentinel-2's."""
LIKELY = {
    "red": ("b4", "band4", "sr_b4"),
    "green": ("b3", "band3", "sr_b3"),
    "blue": ("b2", "band2", "sr_b2"),
}
"""The same of Landsat 8 and 9; Landsat 4 to 7 call red B3, so that these are guesses."""


@dataclass(frozen=True)
class Bands:
    """The choice for one image.

    Attributes:
        indexes: Three band numbers from 1, equal where one band stands for all; or one for each
            band of a model, 0 for a band that the file does not have.
        alpha: Number of the alpha band, or None.
        palette: Colours (256 or more, 3) to look band values up in, or None.
        is_uint8: Whether the colours are 0 to 255 as they stand.
        chosen: How the bands were chosen.
        nir: Number of the near-infrared band, if one says that it is; for measures of vegetation.
        rgb: Places of red, green and blue among the indexes.
        names: What the model calls its bands; empty for red, green and blue.
    """

    indexes: tuple[int, ...]
    alpha: int | None
    palette: NDArray[np.float32] | None
    is_uint8: bool
    chosen: Chosen = "given"
    nir: int | None = None
    rgb: tuple[int, int, int] = (0, 1, 2)
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The choice for people: 3,2,1 (by name), or B04=3, B08=absent (given)."""
        if self.names:
            taken = (
                f"{name}={index or 'absent'}"
                for name, index in zip(self.names, self.indexes, strict=True)
            )
            return f"{', '.join(taken)} ({self.chosen})"
        numbers = ",".join(map(str, dict.fromkeys(self.indexes)))
        return f"{numbers} ({self.chosen})"


def choose_bands(
    dataset: Any, name: str, bands: Sequence[int] | None = None, wanted: Wanted = None
) -> Bands:
    """Choose the bands of an open rasterio dataset.

    Args:
        dataset: The dataset.
        name: What to call the image in messages.
        bands: Band numbers from 1, three or one, or None to choose by colour.
        wanted: The bands of the model, if not red, green and blue; `bands` are then in its order.

    Raises:
        InputError: If there is no such band, no sensible choice, or the values are complex.
    """
    if wanted is not None:
        return _for_model(dataset, name, bands, wanted)
    colours = dict(zip(dataset.indexes, dataset.colorinterp, strict=True))
    alpha = next((i for i, colour in colours.items() if colour == ColorInterp.alpha), None)
    plain = [i for i in dataset.indexes if i != alpha]
    called = _called(dataset, NAMES)
    palette = None
    chosen: Chosen = "given"
    if bands is not None:
        indexes = _named(bands, dataset.count, name)
    elif colours[1] == ColorInterp.palette:
        indexes, palette, chosen = (1, 1, 1), _palette(dataset), "palette"
    else:
        indexes, chosen = _found(colours, (called, _called(dataset, LIKELY)), plain, name)
    types = _types(dataset, indexes, name)
    return Bands(
        indexes,
        alpha,
        palette,
        is_uint8=palette is not None or types == {"uint8"},
        chosen=chosen,
        nir=called.get("nir"),
    )


def _for_model(dataset: Any, name: str, bands: Sequence[int] | None, wanted: Wanted) -> Bands:
    """The bands of a model that takes others than red, green and blue."""
    colours = dict(zip(dataset.indexes, dataset.colorinterp, strict=True))
    alpha = next((i for i, colour in colours.items() if colour == ColorInterp.alpha), None)
    called = _called(dataset, NAMES)
    chosen: Chosen
    rgb: tuple[int, int, int]
    if isinstance(wanted, BandsConfig):
        indexes, chosen = match_bands(
            wanted,
            dataset.descriptions,
            [colour.name for colour in colours.values()],
            name,
            given=bands,
        )
        rgb, names = wanted.rgb, tuple(band.name for band in wanted.bands)
    else:
        indexes, chosen = tuple(i for i in dataset.indexes if i != alpha), "all"
        if bands is not None:
            indexes, chosen = tuple(bands), "given"
            missing = [band for band in bands if not 1 <= band <= dataset.count]
            if missing or len(set(bands)) < len(bands):
                raise InputError(
                    f"--bands {','.join(map(str, bands))} must be different bands of {name}, which "
                    f"has {dataset.count}, numbered from 1."
                )
        places = [
            indexes.index(called[c]) for c in ("red", "green", "blue") if called.get(c) in indexes
        ]
        shown = places if len(places) == 3 else [min(i, len(indexes) - 1) for i in range(3)]
        rgb, names = (shown[0], shown[1], shown[2]), ()
    types = _types(dataset, [index for index in indexes if index], name)
    return Bands(
        indexes,
        alpha,
        None,
        is_uint8=types == {"uint8"},
        chosen=chosen,
        nir=called.get("nir"),
        rgb=rgb,
        names=names,
    )


def _types(dataset: Any, indexes: Sequence[int], name: str) -> set[str]:
    """The sample types of bands, none of which may be complex."""
    types = {dataset.dtypes[i - 1] for i in indexes}
    if any(np.issubdtype(kind, np.complexfloating) for kind in types):
        raise InputError(
            f"{name} holds complex values ({', '.join(sorted(types))}); convert it to amplitudes."
        )
    return types


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


def _called(dataset: Any, names: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The bands that have one of the names of a colour, the first for each."""
    found: dict[str, int] = {}
    for index, description in zip(dataset.indexes, dataset.descriptions, strict=True):
        said = (description or "").strip().lower()
        # Some writers put a sentence: "B04, central wavelength 665 nm", "Red (B4)".
        words = {said, said.split(",")[0].split(" (")[0].strip(), said.replace(" ", "")}
        for colour, known in names.items():
            if words & set(known):
                found.setdefault(colour, index)
    return found


def _found(
    colours: dict[int, ColorInterp],
    called: tuple[dict[str, int], dict[str, int]],
    plain: list[int],
    name: str,
) -> tuple[tuple[int, int, int], Chosen]:
    """Red, green and blue without being told, and how they were found."""
    by_colour = {colour: index for index, colour in reversed(colours.items())}
    with suppress(KeyError):
        red, green = by_colour[ColorInterp.red], by_colour[ColorInterp.green]
        return (red, green, by_colour[ColorInterp.blue]), "by colour"
    ways: tuple[Chosen, Chosen] = ("by name", "guessed")
    for known, chosen in zip(called, ways, strict=True):
        with suppress(KeyError):
            return (known["red"], known["green"], known["blue"]), chosen
    if len(plain) >= 3:
        return (plain[0], plain[1], plain[2]), "guessed"
    if len(plain) == 1:
        return (plain[0], plain[0], plain[0]), "one band for all"
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
