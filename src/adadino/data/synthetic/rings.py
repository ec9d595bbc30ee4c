"""A plan of rings and spokes around a square."""

from __future__ import annotations

import numpy as np

from adadino.data.synthetic.plan import Frame, Plan, Rect
from adadino.data.synthetic.scene import Points

SQUARE = (18.0, 26.0)  # metres from the middle of the square to the street around it


class Rings(Frame):
    """Rolls the plan up into rings.

    Ring k is a strip of the plan along y = k `strip`, as long as the ring is around its middle. So
    blocks and lots stay rectangles of the plan, and metres are metres in the middle of a ring.
    """

    def __init__(self, rng: np.random.Generator, centre: Points, plan: Plan, reach: float) -> None:
        self._centre = centre + rng.uniform(-plan.block / 2, plan.block / 2, 2)
        self._start = rng.uniform(0, 2 * np.pi)
        edges = [rng.uniform(*SQUARE)]
        while edges[-1] < reach:
            edges.append(edges[-1] + plan.block * rng.uniform(0.75, 1.1))
        self._widths = np.diff(edges)
        self._middles = np.array(edges[:-1]) + self._widths / 2
        self._strip = 4 * plan.block  # wider than any ring with what leans out of it

    def __call__(self, points: Points) -> Points:
        """Plan to image, (n, 2) -> (n, 2)."""
        x, y = points.T
        ring = np.clip(np.rint(y / self._strip), 0, len(self._middles) - 1).astype(int)
        middle = self._middles[ring]
        angle, radius = self._start + x / middle, middle + y - ring * self._strip
        rolled = np.stack((np.cos(angle), np.sin(angle)), axis=1) * radius[:, None]
        placed: Points = rolled + self._centre
        return placed

    def split(
        self, rng: np.random.Generator, plan: Plan, reach: float
    ) -> tuple[list[Rect], list[tuple[Rect, float]]]:
        """Split the rings into blocks; spokes double where blocks would become too long.

        Returns:
            As `Frame.split`; the spokes that begin at the square are the main roads.
        """
        pieces: list[Rect] = []
        cuts: list[tuple[Rect, float]] = []
        main = spokes = int(rng.integers(5, 8))
        for ring, (middle, width) in enumerate(zip(self._middles, self._widths, strict=True)):
            around = 2 * np.pi * middle
            while around / spokes > 1.3 * plan.block:
                spokes *= 2
            y0, y1 = ring * self._strip - width / 2, ring * self._strip + width / 2
            x = np.linspace(0, around, spokes + 1).tolist()
            cuts.append(((0.0, y0, around, y0), plan.block))
            for k in range(spokes):
                starts_at_square = k % (spokes // main) == 0
                cuts.append(((x[k], y0, x[k], y1), reach if starts_at_square else plan.block))
                pieces.append((x[k], y0, x[k + 1], y1))
        return pieces, sorted(cuts, key=lambda cut: -cut[1])
