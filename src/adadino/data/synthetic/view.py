"""How a date is seen: season, sun, haze and sensor. None of it is a change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SEASONS = ("drought",)
"""Seasons that no seed draws; ask for them by name."""
HAZE = np.array((205.0, 212.0, 222.0))  # the colour of scattered light


class View(NamedTuple):
    """The conditions of one date."""

    season: float
    """The time of the year in [0, 1); 0 is midwinter."""
    azimuth: float
    """Where the sun stands, in radians clockwise from north (up)."""
    elevation: float
    """How high the sun stands, in radians."""
    haze: float
    """The share of the light that is scattered."""
    gain: NDArray[np.float64]
    """(3,)"""
    offset: NDArray[np.float64]
    """(3,), in 8-bit units."""
    gamma: float
    noise: float
    """The standard deviation of the sensor's noise in 8-bit units."""
    shift: NDArray[np.float64]
    """(2,) pixels to the right and down."""
    cars: NDArray[np.bool_]
    """Which of the scene's places for cars are taken."""
    drought: float = 0.0
    """How far what grows is parched, 0 to 1."""

    @property
    def sun(self) -> NDArray[np.float64]:
        """The unit vector to the sun: right, down, up."""
        flat = np.cos(self.elevation)
        return np.array((
            np.sin(self.azimuth) * flat,
            -np.cos(self.azimuth) * flat,
            np.sin(self.elevation),
        ))  # fmt: skip


def draw_views(
    rng: np.random.Generator,
    strength: float,
    cars: int,
    season: str | None = None,
    *,
    count: int = 2,
) -> tuple[View, ...]:
    """Draw the conditions of both dates around common ones.

    Args:
        rng: The stream to draw from.
        strength: 0 gives all dates the same conditions and a perfect sensor, 1 realistic ones.
        cars: How many places for cars the scene has.
        season: One of SEASONS; if left out, any time of a year with rain.
        count: The number of dates.
    """
    time, azimuth = rng.random(), np.pi + rng.uniform(-0.9, 0.9)
    elevation = np.radians(rng.uniform(34, 60))
    parked = rng.random(cars) < 0.5
    drought = 0.0
    if season == "drought":
        time, drought = 0.55, rng.uniform(0.6, 0.8)  # late in a summer

    def one() -> View:
        swap = rng.random(cars) < min(1.0, 0.9 * strength)
        return View(
            season=time + strength * rng.uniform(-0.3, 0.3),
            azimuth=azimuth + strength * rng.uniform(-0.7, 0.7),
            elevation=np.clip(elevation + strength * rng.uniform(-0.18, 0.18), 0.4, 1.25),
            haze=strength * rng.uniform(0, 0.16),
            gain=1 + strength * (rng.normal(0, 0.06) + rng.normal(0, 0.025, 3)),
            offset=strength * rng.normal(0, 3, 3),
            gamma=np.exp(strength * rng.normal(0, 0.08)),
            noise=strength * rng.uniform(1, 4),
            # Each date is off by half of what a careful coregistration leaves, 0.7 px.
            shift=np.clip(strength * rng.uniform(-0.35, 0.35, 2), -0.49, 0.49),
            cars=np.where(swap, rng.random(cars) < 0.5, parked),
            drought=np.clip(drought + strength * rng.uniform(-0.2, 0.2), 0, 1) if drought else 0.0,
        )

    return tuple(one() for _ in range(count))


def expose(light: NDArray[np.uint8], view: View, rng: np.random.Generator) -> NDArray[np.uint8]:
    """What the sensor records of the light (H, W, 3) that leaves the ground."""
    image = Image.fromarray(light).point(_tone_curves(view))
    if view.shift.any():
        dx, dy = view.shift.tolist()
        move = (1, 0, -dx, 0, 1, -dy)
        affine, bilinear = Image.Transform.AFFINE, Image.Resampling.BILINEAR
        image = image.transform(image.size, affine, move, bilinear)
    if not view.noise:
        return np.array(image)
    noisy = rng.standard_normal(light.shape, np.float32)
    noisy *= np.float32(view.noise)
    noisy += np.asarray(image)
    return np.clip(noisy, 0, 255, out=noisy).astype(np.uint8)


def _tone_curves(view: View) -> list[int]:
    """Haze, gain, offset and gamma of the three channels as one table of 3 x 256 values."""
    light = np.arange(256.0) + view.haze * (HAZE[:, None] - np.arange(256.0))
    light = np.clip(light * view.gain[:, None] + view.offset[:, None], 0, 255)
    return [int(value) for value in np.rint(255 * (light / 255) ** view.gamma).ravel()]
