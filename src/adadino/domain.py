"""Where a model can be trusted: the ground resolution and the look of the images it learnt from.

A model's card (`config.json`, or an exported file's metadata) may hold both under `domain`. One
rule compares a scene with them, for the command line, the page and QGIS alike:

- inside the range of resolution, or without a range, nothing is said;
- up to `FAR` times outside, a `DomainWarning` says by how much, and the work goes on;
- beyond that it is an error, unless the user wants any resolution.

The look is a handful of robust statistics of image tiles. A scene whose middle tile lies outside
of what nearly all training tiles show gets a warning, never an error: other light is no other
planet. `benchmarks/domain_statistics.py` computes the figures of the bundled model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from adadino.errors import InputError, WeightsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Range = tuple[float, float]

FAR = 4.0
"""How many times outside the range a scene may lie before it is refused."""
NEAR = 1.05
"""What still counts as inside: 0.48 m is half a metre."""
TILE = 256
"""Side of the tiles whose statistics are compared."""

LOOKS = {
    "brightness": "the mean of all bands",
    "contrast": "the deviation of the brightness",
    "texture": "the mean step from a pixel to its neighbours",
    "colour": "the mean spread of red, green and blue",
    "warmth": "the mean of red minus blue",
    "green": "the mean of green minus that of red and blue",
}
"""The statistics of a tile, of values from 0 to 1."""


@dataclass(frozen=True)
class Domain:
    """What a model was trained on."""

    resolution: Range | None
    """The finest and the coarsest pixels, in metres on the ground; None where nothing says it."""
    look: Mapping[str, Range]
    """For each of `LOOKS`, what nearly all training tiles show."""

    @classmethod
    def of_card(cls, card: Mapping[str, Any], source: object) -> Domain | None:
        """The domain that a card holds; None if it holds none, as users' own models may.

        Raises:
            WeightsError: What it holds is no range.
        """
        said = card.get("domain")
        if said is None:
            return None
        try:
            look = {name: _range(span) for name, span in dict(said.get("look", {})).items()}
            resolution = said["resolution_m"]
            domain = cls(None if resolution is None else _range(resolution), look)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WeightsError(
                f"{source} says that its domain is {said!r:.200}, which is no range of ground "
                "resolution; write resolution_m as two numbers of metres, or leave domain out."
            ) from error
        if domain.resolution is not None and not domain.resolution[0] > 0:
            raise WeightsError(
                f"{source} says that it is for pixels of {domain.resolution[0]} m; write "
                "resolution_m as two positive numbers of metres, or leave domain out."
            )
        return domain

    def as_card(self) -> dict[str, Any]:
        """The same as a card holds it."""
        look = {name: list(span) for name, span in self.look.items()}
        known = None if self.resolution is None else list(self.resolution)
        return {"resolution_m": known, "look": look}

    def joined(self, other: Domain) -> Domain:
        """The range of a model that learned from both; of one's resolution alone if it says so."""
        known = [one.resolution for one in (self, other) if one.resolution is not None]
        names = self.look if self.look.keys() == other.look.keys() else {}
        look = {name: _hull([self.look[name], other.look[name]]) for name in names}
        return Domain(_hull(known) if known else None, look or self.look or other.look)

    @property
    def text(self) -> str:
        """The range of resolution for people: 0.5 to 2 m."""
        if self.resolution is None:
            return "unknown resolution"
        low, high = self.resolution
        return f"{low:g} m" if low == high else f"{low:g} to {high:g} m"

    def times_outside(self, metres: float) -> float:
        """How many times finer or coarser than the range pixels are; 1 inside, or without one."""
        if self.resolution is None:
            return 1.0
        low, high = self.resolution
        return max(1.0, low / metres, metres / high)


@dataclass(frozen=True)
class Fit:
    """How a scene fits the model."""

    metres: float | None
    """Side of the pixels on the ground, of the coarser date; None if it is not known."""
    domain: Domain | None = None
    times: float = 1.0
    """How many times outside the range of resolution."""
    sentences: tuple[str, ...] = ()
    """What the user is warned of."""

    @property
    def inside(self) -> bool:
        """Whether the model is known for such pixels, or nothing is known of it."""
        return self.times <= NEAR

    @property
    def remark(self) -> str | None:
        """What must stand beside every figure of a scene outside the range."""
        if self.inside or self.domain is None:
            return None
        return (
            f"not reliable: {metres_text(self.metres)} pixels, {self.times:.1f} times outside the "
            f"model's {self.domain.text}"
        )

    def as_json(self) -> dict[str, Any]:
        """What --json and the page tell."""
        said = None if self.domain is None else self.domain.resolution
        known = None if said is None else list(said)
        return {
            "resolution_m": None if self.metres is None else round(self.metres, 4),
            "range_m": known,
            "times_outside": round(self.times, 2),
            "inside": self.inside,
        }


UNKNOWN = Fit(None)
"""Nothing is known of the scene, or of the model."""


def judge(
    domain: Domain | None, metres: float | None, *, own: float | None = None, any_too: bool
) -> Fit:
    """Compare the resolution of a scene with what a model was trained on.

    Enlarging adds no detail: of the pixels that the model sees and those of the images, the coarser
    ones count.

    Args:
        domain: The model's; None for a model that does not say.
        metres: Side of the pixels that the model sees; None if it is not known.
        own: Side of the pixels of the coarser image, if it is resampled.
        any_too: Accept whatever it is (`--any-resolution`).

    Raises:
        InputError: It is more than `FAR` times outside, and `any_too` is not given.
    """
    if domain is None or metres is None:
        return Fit(metres, domain)
    coarser = max(metres, own or metres)
    times = domain.times_outside(coarser)
    if times <= NEAR:
        return Fit(metres, domain)
    enlarged = f" (enlarged to {metres_text(metres)})" if coarser > NEAR * metres else ""
    assert domain.resolution is not None, "without a range nothing is outside"
    text = (
        f"the images have {metres_text(coarser)} pixels{enlarged}, {times:.1f} times outside the "
        f"{domain.text} that the model was trained on: what it finds, or does not find, is not "
        f"reliable; {_way_out(domain.resolution, coarser, enlarged=bool(enlarged))}"
    )
    if times > FAR and not any_too:
        raise InputError(f"{text}; use --any-resolution to predict all the same.")
    return Fit(coarser, domain, times, (f"{text}.",))


def metres_text(metres: float | None) -> str:
    """A resolution for people: 0.5 m, 29.8 m."""
    return "unknown" if metres is None else f"{metres:.3g} m"


def _way_out(known: Range, metres: float, *, enlarged: bool) -> str:
    low, high = known
    if metres < low:
        return f"resample them with --gsd {low:g}"
    for name, other in bundled_domains().items():
        if other.times_outside(metres) <= NEAR:
            return f"take the bundled model for such images, --model {name}"
    larger = f"enlarge them with --gsd {high:g}, " if metres / high <= FAR and not enlarged else ""
    return (
        f"{larger}give images of {high:g} m or finer, a model trained on such images, or take "
        "--model cva, which needs no training"
    )


def bundled_domains() -> dict[str, Domain]:
    """The domains of the models that come with the package, by their names."""
    found = {}
    for folder in sorted(resources.files("adadino").joinpath("bundled").iterdir(), key=str):
        card = folder.joinpath("config.json")
        if card.is_file():
            domain = Domain.of_card(json.loads(card.read_text(encoding="utf-8")), folder.name)
            if domain is not None:
                found[folder.name] = domain
    return found


def look_of(tile: NDArray[np.float32], valid: NDArray[np.bool_] | None = None) -> dict[str, float]:
    """The statistics of a tile (3, h, w) in 0..1, over its valid pixels."""
    import numpy as np

    red, green, blue = (band.astype(np.float64) for band in tile)
    grey = (red + green + blue) / 3
    seen = np.ones(grey.shape, bool) if valid is None else valid
    across = np.abs(np.diff(grey, axis=1))[seen[:, 1:] & seen[:, :-1]]
    down = np.abs(np.diff(grey, axis=0))[seen[1:] & seen[:-1]]
    steps = np.concatenate([across, down])
    spread = np.ptp(np.stack([red, green, blue]), axis=0)
    return {
        "brightness": float(grey[seen].mean()),
        "contrast": float(grey[seen].std()),
        "texture": float(steps.mean()) if steps.size else 0.0,
        "colour": float(spread[seen].mean()),
        "warmth": float((red - blue)[seen].mean()),
        "green": float((green - (red + blue) / 2)[seen].mean()),
    }


def strange_looks(domain: Domain, name: str, looks: Sequence[Mapping[str, float]]) -> list[str]:
    """A sentence if the middle tile of a date looks like hardly any training tile.

    Args:
        domain: The model's.
        name: What to call the date.
        looks: The statistics of its tiles.
    """
    found = []
    for kind, (low, high) in domain.look.items():
        values = sorted(look[kind] for look in looks if kind in look)
        if not values:
            continue
        middle = values[len(values) // 2]
        if not low <= middle <= high:
            found.append(f"{kind} {middle:.2f} (training {low:.2f} to {high:.2f})")
    if not found:
        return []
    return [
        f"{name} does not look like the model's training images: {', '.join(found)}; check --bands "
        "and --scale, or train a model on such images."
    ]


def _hull(ranges: Sequence[Range]) -> Range:
    """The smallest range that holds all of them."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _range(values: Any) -> Range:
    low, high = (float(value) for value in values)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"{values} is no range")
    return low, high
