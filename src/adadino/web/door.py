"""The one door for rasters that are not ours: uploads, images of the data folder, a job's files.

GDAL asks every driver whether a file is its own, and some drivers follow what they find in it: a
VRT in a JPEG's comment names any file of the machine, or any address on its network. Therefore:

- The format is told by the first bytes, must be GeoTIFF, PNG or JPEG, and its driver is named to
  GDAL, at every opening. `GDAL_SKIP` alone is not enough: warping registers the VRT driver again.
- Files beside the image (`.aux.xml`, `.ovr`, `.msk`, world files) are not looked for.
- A TIFF that names a file of overviews or of places in its tags is refused, since GDAL would
  open it. So is an image whose coordinate system names a file, which PROJ would open.
- Sizes are those of what was finally opened.

`narrow_gdal` gives the environment of the processes in which strangers' files are opened; there
the other drivers are not even registered, and nothing is fetched.
"""

from __future__ import annotations

import threading
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from adadino.errors import InputError
from adadino.geo.read.trust import names_files

MAGIC = {
    b"II*\x00": "GTiff", b"MM\x00*": "GTiff", b"II+\x00": "GTiff", b"MM\x00+": "GTiff",
    b"\x89PNG\r\n\x1a\n": "PNG", b"\xff\xd8\xff": "JPEG",
}  # fmt: skip
"""How files of the formats we take begin, and GDAL's driver for each."""
HEAD = 32
"""The bytes that say what a file is."""
DRIVERS = frozenset({"GTiff", "COG", "PNG", "JPEG", "MEM", "Memory", "GPKG", "GeoJSON"})
"""What a job reads and writes; the other drivers of GDAL are not registered there."""
ELSEWHERE = ("OVERVIEWS", "GEOLOCATION")
"""Domains of metadata whose items name files that GDAL opens: overviews, and arrays to warp by."""
_OPTIONS: dict[str, Any] = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO",  # it reads a PNG that was cut as if nothing were missing
    "CPL_VSIL_CURL_ALLOWED_FILENAME": "none",
}

# warnings.catch_warnings changes the process, so that only one thread may open at a time.
_opening = threading.Lock()


def kind_of(head: bytes, name: str) -> str:
    """The GDAL driver of a file that begins like this.

    Raises:
        InputError: It is none we take.
    """
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    raise InputError(f"{name} is no GeoTIFF, PNG or JPEG, whatever its name says; convert it.")


def open_foreign(path: str | PathLike[str], name: str | None = None) -> Any:
    """Open a raster that may be anybody's, and nothing but that file.

    Args:
        path: A file; never one of GDAL's own names.
        name: What to call it in a message.

    Raises:
        InputError: It is no image we take, is damaged, or points to another file.
    """
    import rasterio
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    file, name = Path(path).absolute(), name or str(path)
    try:
        with file.open("rb") as opened:
            kind = kind_of(opened.read(HEAD), name)
        with rasterio.Env(**_OPTIONS), _opening, warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)  # pixel mode is welcome
            dataset = rasterio.open(file, driver=kind)
            elsewhere = any(dataset.tags(ns=domain) for domain in ELSEWHERE)
            elsewhere = elsewhere or (dataset.crs and names_files(dataset.crs.to_wkt()))
            # Asked last: to list the files of an image, GDAL opens the overviews that it names.
            beside = [] if elsewhere else [one for one in dataset.files if Path(one) != file]
    except (RasterioError, CPLE_BaseError, OSError, ValueError) as error:
        raise InputError(
            f"{name} cannot be read as an image; is it damaged or cut? Copy it again."
        ) from error
    problem = None
    if elsewhere or beside:
        problem = f"{name} points to other files; write it again with gdal_translate -of COG."
    elif dataset.driver != kind:
        problem = f"{name} is not the {kind} it begins like; convert it."
    elif not (dataset.count and dataset.width and dataset.height):
        problem = f"{name} has no pixels; convert it."
    if problem is not None:
        dataset.close()
        raise InputError(problem)
    return dataset


def narrow_gdal() -> dict[str, str]:
    """Environment variables under which GDAL and PROJ know our formats and fetch nothing."""
    import pyogrio
    import rasterio

    with rasterio.Env() as env:
        known = {*env.drivers(), *pyogrio.list_drivers()}  # two wheels, each with a GDAL of its own
    # Names may hold spaces, so that commas must part them.
    skipped = ",".join(sorted(known - DRIVERS))
    return {
        "GDAL_SKIP": skipped,
        "OGR_SKIP": skipped,
        "GDAL_HTTP_CONNECTTIMEOUT": "1",
        "PROJ_NETWORK": "OFF",
        "GDAL_DRIVER_PATH": "disable",
        **{name: str(value) for name, value in _OPTIONS.items()},
    }
