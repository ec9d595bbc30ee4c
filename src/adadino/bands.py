"""Which bands a model takes: their names, centre wavelengths and the values that become 0 and 1.

A model without bands of its own takes red, green and blue in 0..1. A model with bands takes them in
the order of its configuration. Three of them, the nearest to red, green and blue, go to the frozen
backbone, and all of them to a stream of their own (`model/bands.py`).

A name is one that Sentinel-2 or common speech has for a band (`B08`, `nir`), which states its
wavelength; any other name says it itself: `thermal@10900`, in nanometres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from adadino.errors import ConfigError, InputError
from adadino.schema import added

WAVELENGTHS = {
    "B01": 443.0,
    "B02": 490.0,
    "B03": 560.0,
    "B04": 665.0,
    "B05": 705.0,
    "B06": 740.0,
    "B07": 783.0,
    "B08": 842.0,
    "B8A": 865.0,
    "B09": 945.0,
    "B10": 1375.0,
    "B11": 1610.0,
    "B12": 2190.0,
    "coastal": 443.0,
    "blue": 490.0,
    "green": 560.0,
    "red": 665.0,
    "rededge": 705.0,
    "nir": 842.0,
    "swir16": 1610.0,
    "swir22": 2190.0,
}
"""Centre wavelengths in nanometres, as Sentinel-2 has them; of the common names, STAC's."""

RGB = (665.0, 560.0, 490.0)
MOST = 64
"""The most bands of a model."""
REFLECTANCE = 10_000.0
"""What sensors' products multiply reflectance with."""

Scaling = Literal["percentiles", "reflectance", "given"]
PERCENTILES = (0.5, 99.5)
"""Of the training images' values; what lies outside is clipped."""


class Band(NamedTuple):
    """One band of a model."""

    name: str
    wavelength: float
    """Of its centre, in nanometres."""


def parse_band(text: str) -> Band:
    """Read `B08`, `nir` or `thermal@10900`.

    Raises:
        ConfigError: The name says no wavelength, or none that is one.
    """
    name, sign, number = text.partition("@")
    known = {each.lower(): (each, nm) for each, nm in WAVELENGTHS.items()}
    if not sign and name.lower() in known:
        return Band(*known[name.lower()])
    try:
        wavelength = float(number)
    except ValueError:
        wavelength = math.nan
    if not name or not 100 <= wavelength <= 1e8:
        raise ConfigError(
            f"bands.names has {text!r}, of which no wavelength is known; write NAME@NANOMETRES, "
            f"such as thermal@10900, or one of {', '.join(WAVELENGTHS)}."
        )
    return Band(name, wavelength)


@dataclass(frozen=True)
class BandsConfig:
    """The bands a model takes; without names, red, green and blue as they stand in 0..1."""

    names: tuple[str, ...] = ()
    """In the order of the images: B02, nir, or NAME@NANOMETRES."""
    scaling: Scaling = "percentiles"
    """What becomes 0 and 1 in each band: percentiles of the training images, found when training
    starts; reflectance 0 and 1 (values of 0 and 10,000); or `low` and `high`."""
    low: tuple[float, ...] = ()
    """Values that become 0, one for each band, or one for all."""
    high: tuple[float, ...] = ()
    """Values that become 1, likewise."""
    width: int = 16
    """Channels of the bands' own stream at the images' size."""
    dropout: float = added(0.2)
    """Share of the stream's coarsest channels that are left out while training."""

    def __post_init__(self) -> None:
        names = [band.name.lower() for band in self.bands]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"bands.names has {name} twice; leave one out.")
        if len(names) > MOST:
            raise ConfigError(f"bands.names has {len(names)} names, must have at most {MOST}.")
        if names and len(names) < 3:
            raise ConfigError(
                f"bands.names has {len(names)}, must have three or more: three of them go to the "
                "frozen backbone as red, green and blue."
            )
        if self.width < 8 or self.width % 8 or self.width > 1024:
            raise ConfigError(
                f"bands.width is {self.width}, must be a multiple of 8 and at most 1024."
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"bands.dropout is {self.dropout}, must be at least 0 and below 1.")
        for name in ("low", "high"):
            values = getattr(self, name)
            if len(values) not in (0, 1, len(names)):
                raise ConfigError(
                    f"bands.{name} has {len(values)} values for {len(names)} bands; give one for "
                    "each, or one for all."
                )
        if bool(self.low) != bool(self.high) or (self.scaling == "given" and not self.low):
            raise ConfigError(
                "bands.low and bands.high go together; give both, or bands.scaling=percentiles."
            )
        for low, high in zip(*self.limits, strict=True) if names else ():
            if not low < high:
                raise ConfigError(f"bands.low {low:g} must be below bands.high {high:g}.")

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands with their wavelengths."""
        return tuple(parse_band(name) for name in self.names)

    @property
    def count(self) -> int:
        """How many bands an image has."""
        return len(self.names) or 3

    @property
    def rgb(self) -> tuple[int, int, int]:
        """Places of the three bands that the backbone sees as red, green and blue."""
        if not self.names:
            return 0, 1, 2
        free = {place: band.wavelength for place, band in enumerate(self.bands)}
        chosen = []
        for wanted in RGB:
            nearest = min(free, key=lambda place: abs(math.log(free[place] / wanted)))
            chosen.append(nearest)
            del free[nearest]
        red, green, blue = chosen
        return red, green, blue

    @property
    def is_scaled(self) -> bool:
        """Whether it is known what becomes 0 and 1."""
        return not self.names or bool(self.low) or self.scaling == "reflectance"

    @property
    def limits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values of every band that become 0 and 1; (0, 1) while they are not known."""
        count = len(self.names)
        low = self.low or (0.0,)
        high = self.high or ((REFLECTANCE if self.scaling == "reflectance" else 1.0),)
        return (low * count if len(low) == 1 else low), (high * count if len(high) == 1 else high)

    @property
    def text(self) -> str:
        """The bands for people."""
        return ", ".join(band.name for band in self.bands) or "red, green, blue"


RED_GREEN_BLUE = BandsConfig()
"""What a model without bands of its own takes."""

ALIASES = (
    ("B01", "coastal", "coastal aerosol", "b1"),
    ("B02", "blue", "b", "b2"),
    ("B03", "green", "g", "b3"),
    ("B04", "red", "r", "b4"),
    ("B05", "rededge", "rededge1", "red edge 1", "b5"),
    ("B06", "rededge2", "red edge 2", "b6"),
    ("B07", "rededge3", "red edge 3", "b7"),
    ("B08", "nir", "nir1", "near infrared", "near-infrared", "b8"),
    ("B8A", "nir08", "narrow nir"),
    ("B09", "nir09", "water vapour", "b9"),
    ("B10", "cirrus"),
    ("B11", "swir16", "swir1", "swir 1"),
    ("B12", "swir22", "swir2", "swir 2"),
)
"""What files call one and the same band of Sentinel-2; a file that says `b4` means red here."""

Matched = Literal["by name", "by place", "given"]
ABSENT = 0
"""A band number of the user's for a band that the file does not have: it is read as zeros."""


def same_names(name: str) -> set[str]:
    """All names of a band, in small letters."""
    own = name.lower()
    groups = ({each.lower() for each in group} for group in ALIASES)
    return next((group for group in groups if own in group), {own})


def words_of(description: str | None) -> set[str]:
    """What a description may mean by itself: the whole, or the band of a sentence.

    Some writers put a sentence: "B04, central wavelength 665 nm", "Red (B4)".
    """
    said = (description or "").strip().lower()
    inside = said.partition("(")[2].partition(")")[0].strip()
    parts = {said, said.split(",")[0].split(" (")[0].strip(), said.replace(" ", ""), inside}
    return parts - {""}


def match_bands(
    config: BandsConfig,
    descriptions: Sequence[str | None],
    colours: Sequence[str],
    name: str,
    *,
    given: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], Matched]:
    """Find the bands of a model in a file.

    Args:
        config: The model's bands.
        descriptions: What the file says of each band, the first one first.
        colours: Its colour interpretations, such as `red`, `nir`, `undefined`.
        name: What to call the file in messages.
        given: The user's band numbers in the model's order, from 1; 0 for one that is not there.

    Returns:
        A number from 1 for each band of the model (0: not there), and how they were found.

    Raises:
        InputError: A band is missing, or one is found twice.
    """
    wanted = [band.name for band in config.bands]
    if given is not None:
        return _given(wanted, given, len(descriptions), name), "given"
    said = [words_of(text) | {colour} for text, colour in zip(descriptions, colours, strict=True)]
    found: dict[str, int] = {}
    for band in wanted:
        names = same_names(band)
        places = [i for i, words in enumerate(said, 1) if words & names]
        exact = [i for i in places if band.lower() in said[i - 1]]
        if len(exact or places) > 1:
            raise InputError(
                f"{name} has {band} {len(exact or places)} times, as bands "
                f"{', '.join(map(str, exact or places))}; say which with --bands, in the order "
                f"{config.text}."
            )
        if places:
            found[band] = (exact or places)[0]
    if not found and not any(descriptions) and len(said) == len(wanted):
        return tuple(range(1, len(wanted) + 1)), "by place"
    missing = [band for band in wanted if band not in found]
    if missing:
        has = ", ".join(text or f"band {i}" for i, text in enumerate(descriptions, 1))
        raise InputError(
            f"{name} lacks {', '.join(missing)}, which the model needs; it has {has}. Give the "
            f"band numbers of {config.text} with --bands (0 for a band that is not there, which "
            "costs accuracy), or another model."
        )
    return tuple(found[band] for band in wanted), "by name"


def _given(wanted: Sequence[str], given: Sequence[int], count: int, name: str) -> tuple[int, ...]:
    if len(given) != len(wanted):
        raise InputError(
            f"--bands takes {len(wanted)} band numbers for this model, not {len(given)}: those of "
            f"{', '.join(wanted)}, 0 for one that is not there."
        )
    for band in given:
        if not 0 <= band <= count:
            raise InputError(
                f"{name} has no band {band}: it has {count}, numbered from 1; change --bands."
            )
        if band != ABSENT and list(given).count(band) > 1:
            raise InputError(f"--bands has band {band} twice; give each band once.")
    if not any(given):
        raise InputError("--bands has no band that is there; give at least one number from 1.")
    return tuple(given)
