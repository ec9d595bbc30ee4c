"""What may come in: GeoTIFF, PNG and JPEG of a bearable size, judged by content and not by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from adadino.errors import InputError
from adadino.web.door import kind_of, open_foreign
from adadino.web.settings import Limits

SUFFIXES = {".tif": "GTiff", ".tiff": "GTiff", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
STORED = {"GTiff": ".tif", "PNG": ".png", "JPEG": ".jpg"}


class Facts(NamedTuple):
    """What a file's header says."""

    width: int
    height: int
    bands: int
    kind: str
    crs: str | None
    block: int
    """Bytes of the largest strip or tile, decoded."""

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height


def check_head(head: bytes, name: str, limits: Limits) -> str:
    """Judge a file by its first bytes, while the rest is still on its way; returns its format.

    Raises:
        InputError: It is no image, or says already here that it is too large.
    """
    kind = kind_of(head, name)
    if kind == "PNG" and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        check_pixels(width, height, name, limits)
    return kind


def check_pixels(width: int, height: int, name: str, limits: Limits) -> None:
    """Refuse an image with more pixels than the server takes.

    Raises:
        InputError: It has.
    """
    if width * height > limits.pixels:
        raise InputError(
            f"{name} has {width:,} x {height:,} pixels, and this server takes "
            f"{limits.pixels / 1e6:,.0f} million; cut it, or use `adadino predict`."
        )


def read_facts(path: Path, name: str) -> Facts:
    """Read a file's header; in a worker, since it is a stranger's file.

    Raises:
        InputError: It is no image we take.
    """
    import numpy as np

    from adadino.geo.grid import crs_name

    with open_foreign(path, name) as dataset:
        item = max(np.dtype(dtype).itemsize for dtype in dataset.dtypes)
        return Facts(
            width=dataset.width,
            height=dataset.height,
            bands=dataset.count,
            kind=dataset.driver,
            crs=crs_name(dataset.crs) if dataset.crs else None,
            block=max(rows * columns for rows, columns in dataset.block_shapes) * item,
        )


def check_facts(facts: Facts, name: str, limits: Limits) -> None:
    """Refuse what would not fit the memory.

    Raises:
        InputError: It has too many pixels or bands, or is stored in blocks that are too large.
    """
    check_pixels(facts.width, facts.height, name, limits)
    if facts.bands > limits.bands:
        raise InputError(
            f"{name} has {facts.bands} bands, and this server takes {limits.bands}; leave some out."
        )
    if facts.block > limits.block_bytes:
        raise InputError(
            f"{name} is stored in blocks of {facts.block / 2**20:,.0f} MB, and this server takes "
            f"{limits.block_bytes / 2**20:,.0f}; store it in tiles (gdal_translate -of COG)."
        )
