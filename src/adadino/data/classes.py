"""Labels of classes: `classes.json` beside a set, and the images that hold a class for each pixel.

- `classes.json` names the classes from 1 and their colours: `{"names": [...], "colours": [...]}`. 0
  is no class: unchanged in SECOND, unlabelled elsewhere.
- An image of classes is grey or has a palette, and its values are the classes; or it has the
  colours of `classes.json`, and what is white or black there is no class.
- One mask of from-to codes is split by `codes`: `{"12": ["forest", "building"]}`. Without them a
  code is ten times the first class and the second, as numbers; 0 is no change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adadino import schema
from adadino.config import ClassesConfig
from adadino.data.images import open_values, readable
from adadino.data.staging import TABLE
from adadino.errors import ConfigError, DataError

BLANK = ((255, 255, 255), (0, 0, 0))
"""Colours of no class."""
DIGIT = 10

SECOND = ClassesConfig(
    ("water", "ground", "low vegetation", "tree", "building", "playground"),
    ("#0000ff", "#808080", "#008000", "#00ff00", "#800000", "#ff0000"),
)
"""The classes of SECOND (Yang et al. 2022), in the order of its released values."""

Values = NDArray[np.uint8]


@dataclass(frozen=True)
class Codes:
    """The classes of a source, and what its codes of change mean."""

    classes: ClassesConfig
    pairs: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """From-to codes and their classes from 1."""

    def split(self, codes: Values, name: str) -> tuple[Values, Values]:
        """One mask of codes as the classes of both dates.

        Raises:
            DataError: It holds a code that means nothing.
        """
        table = np.zeros((256, 2), np.uint8)
        known = np.zeros(256, bool)
        known[0] = True
        for code, pair in self.pairs.items():
            table[code], known[code] = pair, True
        strange = sorted(set(np.unique(codes)) - set(np.flatnonzero(known)))
        if strange:
            raise DataError(
                f"{name} holds the code {strange[0]}, which {TABLE} does not explain; add it to "
                f'"codes" there, as in "{strange[0]}": ["forest", "building"].'
            )
        before, after = np.moveaxis(table[codes], -1, 0)
        return before, after


def read_table(path: Path | str) -> Codes:
    """Read a `classes.json`.

    Raises:
        DataError: It is missing or cannot be understood.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}. It names a set's classes, as in "
            '{"names": ["water", "building"], "colours": ["#0000ff", "#800000"]}.'
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not text: {error}. Write it as UTF-8.") from error
    try:
        said: Any = json.loads(text)
        if not isinstance(said, dict) or not said.get("names"):
            raise ConfigError('it must hold "names", a list of at least two classes')
        codes = said.pop("codes", None)
        classes = schema.build(ClassesConfig, said, "classes")
        return Codes(classes, _digits(classes) if codes is None else _named(classes, codes))
    except (ValueError, RecursionError, ConfigError) as error:
        raise DataError(f"{path} cannot be understood: {error}. Correct it there.") from error


def table_text(classes: ClassesConfig) -> str:
    """What a `classes.json` holds."""
    return json.dumps(schema.to_dict(classes), indent=2) + "\n"


def read_classes(path: Path | str, classes: ClassesConfig) -> Values:
    """Read an image of classes as values (H, W): 0 is no class.

    Raises:
        DataError: It cannot be read, or holds a class that is not among those named.
    """
    with readable(str(path)), Path(path).open("rb") as file:
        return open_classes(file, str(path), classes)


def open_classes(file: IO[bytes], name: str, classes: ClassesConfig) -> Values:
    """`read_classes` of an open file; `name` is what errors call it."""
    values = open_values(file, name)
    if values.ndim == 3:
        values = _of_colours(values, name, classes)
    most = int(values.max(initial=0))
    if most > len(classes.names):
        raise DataError(
            f"{name} holds the class {most}, but only 1 to {len(classes.names)} are named "
            f"({', '.join(classes.names)}); add it to {TABLE}, or correct the image."
        )
    return values


def translation(given: ClassesConfig, wanted: ClassesConfig, where: Path | str) -> Values:
    """A table (256,) from a set's classes to a model's, by their names.

    Raises:
        DataError: The model does not know one of them.
    """
    strange = [name for name in given.names if name not in wanted.names]
    if strange:
        raise DataError(
            f"{where} has classes that the model does not know: {', '.join(strange)}; it knows "
            f"{', '.join(wanted.names)}. Rename them there, or train a model with them."
        )
    table = np.zeros(256, np.uint8)
    for value, name in enumerate(given.names, 1):
        table[value] = wanted.names.index(name) + 1
    return table


def as_image(values: Values, classes: ClassesConfig) -> Image.Image:
    """Values (H, W) as an image with a palette, which viewers show in the classes' colours."""
    image = Image.fromarray(values).convert("P")
    image.putpalette([*BLANK[0], *(part for colour in classes.rgb for part in colour)])
    return image


def _of_colours(colours: NDArray[np.uint8], name: str, classes: ClassesConfig) -> Values:
    """The classes of a coloured image (H, W, 3)."""
    packed = colours.astype(np.uint32) @ np.array((65536, 256, 1), np.uint32)
    found = np.zeros(packed.shape, np.uint8)
    known = np.zeros(packed.shape, bool)
    table = [(colour, 0) for colour in BLANK]
    table += [(colour, value) for value, colour in enumerate(classes.rgb, 1)]
    for (red, green, blue), value in table:  # a class may be black or white: it comes last
        here = packed == red * 65536 + green * 256 + blue
        found[here], known[here] = value, True
    if not known.all():
        red, green, blue = colours[~known][0].tolist()
        raise DataError(
            f"{name} holds the colour #{red:02x}{green:02x}{blue:02x}, which is no class's; name "
            f"it in {TABLE}, or write the classes as numbers in a grey image."
        )
    return found


def _digits(classes: ClassesConfig) -> dict[int, tuple[int, int]]:
    """Codes of two digits, where there are few enough classes."""
    numbers = range(1, min(len(classes.names), DIGIT - 1) + 1)
    return {DIGIT * one + two: (one, two) for one in numbers for two in numbers if one != two}


def _named(classes: ClassesConfig, codes: Any) -> dict[int, tuple[int, int]]:
    """Codes as the file explains them."""
    if not isinstance(codes, dict):
        raise ConfigError('"codes" must map codes to pairs of classes')
    pairs = {}
    for code, pair in codes.items():
        if not (str(code).isdecimal() and 0 < int(code) <= 255):
            raise ConfigError(f"the code {code!r} must be a number from 1 to 255")
        if not (isinstance(pair, list) and len(pair) == 2):
            raise ConfigError(f"code {code} must have two classes, from and to")
        for one in pair:
            if one not in classes.names:
                raise ConfigError(
                    f"code {code} names {one!r}, which is not among the names; add it to them"
                )
        pairs[int(code)] = (classes.names.index(pair[0]) + 1, classes.names.index(pair[1]) + 1)
    return pairs
