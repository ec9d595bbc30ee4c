"""What may come in: GeoTIFF, PNG and JPEG of a bearable size, judged by content and not by name.

Only three of GDAL's drivers look at a stranger's file. Others follow references: a VRT could name
any file of the server, or any address on its network.
"""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import NamedTuple

from adadino.errors import InputError
from adadino.web.settings import Limits

SUFFIXES = {".tif": "GTiff", ".tiff": "GTiff", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_MAGIC = {
    b"II*\x00": "GTiff", b"MM\x00*": "GTiff", b"II+\x00": "GTiff", b"MM\x00+": "GTiff",
    b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG",
}  # fmt: skip
STORED = {"GTiff": ".tif", "PNG": ".png", "JPEG": ".jpg"}
HEAD = 32
"""The bytes that say what a file is."""


class Facts(NamedTuple):
    """What a file's header says."""

    width: int
    height: int
    bands: int
    kind: str
    crs: str | None

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height


def kind_of(head: bytes, name: str) -> str:
    """The format of a file that begins like this.

    Raises:
        InputError: It is none we take.
    """
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    raise InputError(f"{name} is no GeoTIFF, PNG or JPEG, whatever its name says; convert it.")


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


def probe(path: Path, name: str, limits: Limits) -> Facts:
    """Read a file's header and refuse what would not fit the memory.

    Raises:
        InputError: It is no image we take, or too large once unpacked.
    """
    import numpy as np
    import rasterio
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    from adadino.geo.grid import crs_name

    with path.open("rb") as file:
        kind = kind_of(file.read(HEAD), name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.Env(), rasterio.open(path, driver=kind) as dataset:
                width, height, bands = dataset.width, dataset.height, dataset.count
                item = max(np.dtype(dtype).itemsize for dtype in dataset.dtypes)
                block = max(rows * columns for rows, columns in dataset.block_shapes) * item
                crs = crs_name(dataset.crs) if dataset.crs else None
    except (RasterioError, CPLE_BaseError, OSError, ValueError) as error:
        raise InputError(
            f"{name} cannot be read as an image; is it damaged or cut? Copy it again."
        ) from error
    check_pixels(width, height, name, limits)
    if bands > limits.bands:
        raise InputError(
            f"{name} has {bands} bands, and this server takes {limits.bands}; leave some out."
        )
    if block > limits.block_bytes:
        raise InputError(
            f"{name} is stored in blocks of {block / 2**20:,.0f} MB, and this server takes "
            f"{limits.block_bytes / 2**20:,.0f}; store it in tiles (gdal_translate -of COG)."
        )
    return Facts(width, height, bands, kind, crs)
