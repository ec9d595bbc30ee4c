"""What the synthetic world's surfaces look like: colours in 8-bit RGB, and smooth noise.

What grows has a colour for every season.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FloatImage = NDArray[np.float32]
Colour = tuple[float, float, float]

# Winter, spring, summer, autumn.
COVERS = {
    "grass": ((118, 114, 86), (104, 120, 78), (112, 120, 80), (124, 116, 84)),
    "lawn": ((112, 112, 82), (96, 118, 72), (102, 120, 76), (114, 116, 78)),
    "meadow": ((120, 114, 84), (100, 122, 72), (126, 130, 84), (132, 122, 86)),
    "wheat": ((108, 116, 78), (92, 120, 66), (196, 172, 112), (164, 142, 106)),
    "maize": ((140, 120, 94), (146, 124, 96), (76, 106, 50), (158, 142, 92)),
    "rape": ((98, 118, 66), (188, 182, 62), (148, 146, 86), (138, 122, 92)),
    "plough": ((122, 100, 80), (136, 112, 88), (150, 126, 98), (116, 94, 74)),
    "soil": ((140, 122, 102), (152, 130, 106), (164, 142, 116), (146, 126, 102)),
    "floor": ((74, 70, 52), (58, 70, 40), (52, 66, 38), (84, 72, 46)),
    "paved": ((150, 147, 142), (152, 149, 143), (154, 151, 144), (150, 147, 141)),
    "asphalt": ((104, 104, 106), (106, 106, 107), (110, 109, 109), (105, 105, 106)),
    "bank": ((134, 124, 102), (132, 126, 98), (142, 132, 106), (134, 122, 98)),
    "water": ((56, 72, 76), (60, 80, 76), (52, 78, 78), (64, 76, 68)),
}
# What weeks without rain make of what grows; no time of the year gives these colours.
PARCHED = {
    "grass": (176, 158, 112), "lawn": (170, 154, 106), "meadow": (182, 164, 114),
    "wheat": (202, 180, 124), "maize": (164, 150, 92), "rape": (178, 162, 112),
    "floor": (104, 90, 60), "bank": (164, 148, 112),
}  # fmt: skip
PARCHED_LEAF = (122, 112, 68)
BROADLEAF = ((106, 97, 84), (94, 116, 64), (70, 92, 54), (132, 106, 62))
CONIFER = ((46, 66, 46), (52, 76, 48), (50, 74, 46), (48, 68, 44))

ROOFS = {
    "flat": ((176, 174, 170), (142, 140, 138), (206, 204, 198), (120, 116, 114), (162, 150, 138)),
    "gable": ((166, 92, 68), (146, 78, 60), (128, 104, 88), (92, 88, 90), (178, 112, 82)),
    "hip": ((158, 88, 66), (112, 98, 90), (96, 92, 96), (172, 106, 80), (134, 90, 74)),
}
CARS = ((226, 226, 226), (40, 42, 46), (150, 152, 156), (156, 36, 34), (44, 66, 118), (94, 98, 100))

# How strongly the grain shows on a surface, 0 to 255: the canvas' fourth channel.
ROUGH = {"leaf": 230, "ground": 110, "soil": 160, "road": 60, "roof": 55, "water": 14, "paint": 25}


def seasonal(colours: Sequence[Sequence[float]], season: float) -> Colour:
    """One colour at a time of the year from four; 0 and 1 are midwinter."""
    at = season % 1 * 4
    low, high = colours[int(at) % 4], colours[(int(at) + 1) % 4]
    r, g, b = (x + (y - x) * (at % 1) for x, y in zip(low, high, strict=True))
    return r, g, b


def cover_colour(name: str, season: float, drought: float = 0.0) -> Colour:
    """The colour of a ground cover at a time of the year, so far towards its parched one."""
    colour = seasonal(COVERS[name], season)
    return fade(colour, PARCHED[name], drought) if drought and name in PARCHED else colour


def fade(colour: Colour, to: Colour, share: float) -> Colour:
    """A colour between two; a share of 0 is the first."""
    r, g, b = (x + (y - x) * share for x, y in zip(colour, to, strict=True))
    return r, g, b


def pick(colours: Sequence[Colour], tone: float) -> Colour:
    """One of the colours, a little lighter or darker, chosen by a number in [0, 1)."""
    at = tone * len(colours)
    r, g, b = (value * (0.88 + 0.24 * (at % 1)) for value in colours[int(at)])
    return r, g, b


def enlarge(field: FloatImage, shape: tuple[int, ...], cell: float) -> FloatImage:
    """Interpolate a field with a sample every `cell` pixels to (H, W).

    The field needs H / cell by W / cell samples; more are cut off.
    """
    height, width = shape[:2]
    box = (0.0, 0.0, width / cell, height / cell)
    wide = Image.fromarray(field).resize((width, height), Image.Resampling.BICUBIC, box)
    return np.asarray(wide, np.float32)


def smooth(rng: np.random.Generator, shape: tuple[int, ...], cell: float) -> FloatImage:
    """Noise (H, W) with mean 0, a deviation of about 1, and features of `cell` pixels."""
    rows, columns = (int(np.ceil(size / cell)) + 1 for size in shape[:2])
    return enlarge(rng.standard_normal((rows, columns), np.float32), shape, cell)


def fractal(
    rng: np.random.Generator, shape: tuple[int, ...], cell: float, octaves: int
) -> FloatImage:
    """Noise (H, W) whose features of `cell`, `cell` / 2, ... pixels fade by half each time."""
    total = np.zeros(shape[:2], np.float32)
    for octave in range(octaves):
        if cell / 2**octave >= 1:
            total += np.float32(0.5**octave) * smooth(rng, shape, cell / 2**octave)
    return total
