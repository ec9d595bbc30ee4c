"""Let things happen between the dates of a synthetic scene."""

from __future__ import annotations

import math

import numpy as np

from adadino.data.synthetic.scene import AFTER, BEFORE, Scene

CHANGES = ("built", "demolished", "cleared", "flooded")


def change(rng: np.random.Generator, scene: Scene, kinds: tuple[str, ...], rate: float) -> None:
    """Edit the dates at which things exist.

    Args:
        rng: The stream to draw from.
        scene: Edited in place.
        kinds: What happens, from CHANGES.
        rate: The mean share of the buildings, and of the woods, that each kind touches.
    """
    if "built" in kinds or "demolished" in kinds:
        _change_buildings(rng, scene, kinds, rate)
    stands = [
        wood for wood in scene.woods if any(scene.sees(x, y) for x, y in wood.outline.tolist())
    ]
    if "cleared" in kinds and stands:
        for i in rng.permutation(len(stands))[: _count(rng, rate, len(stands))]:
            stands[i].when = BEFORE
    if "flooded" in kinds and scene.water is not None:
        rise = rng.uniform(0.03, 0.12) * min(scene.width, scene.height)
        scene.water = scene.water._replace(rise=max(3.0, rise))


def _change_buildings(
    rng: np.random.Generator, scene: Scene, kinds: tuple[str, ...], rate: float
) -> None:
    inside = [b for b in scene.buildings if scene.sees(b.boxes[0].x, b.boxes[0].y)]
    order = rng.permutation(len(inside))
    if rng.random() < 0.5:  # a whole quarter rather than single houses
        x, y = rng.uniform(0, 1, 2) * (scene.width, scene.height)
        order = np.argsort([math.hypot(b.boxes[0].x - x, b.boxes[0].y - y) for b in inside])
    todo = [inside[i] for i in order]
    for kind, when in (("built", AFTER), ("demolished", BEFORE)):
        if kind in kinds:
            count = _count(rng, rate, len(inside))
            for building in todo[:count]:
                building.when, building.pad = when, bool(rng.random() < 0.6)
            todo = todo[count:][::-1]  # the other kind starts at the far end


def _count(rng: np.random.Generator, rate: float, among: int) -> int:
    return max(1, round(rng.uniform(0.3, 1.7) * rate * among))
