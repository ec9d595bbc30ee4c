"""The mask as one file of tiles for a web map: PMTiles, which MapLibre and OpenLayers read.

Tiles are PNG in Web Mercator, 256 pixels a side, and see-through where nothing changed; those
without change are left out. A pixel of a tile shows a change if any pixel below it changed. Zoom
ends where a tile's pixel is no larger than the mask's, or where there would be more tiles than
`MOST_TILES`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import rasterio
from PIL import Image
from rasterio.enums import Resampling
from rasterio.transform import from_origin
from rasterio.vrt import WarpedVRT
from rasterio.warp import transform_bounds
from rasterio.windows import Window

from adadino.area.ledger import Ledger
from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.geo.write.cog import CHANGE_COLOUR

MOST_TILES = 1_000_000
MOST_ZOOM = 20
TILE = 256
HALF = math.pi * 6378137
"""Half the width of Web Mercator in its metres."""

Tile = tuple[int, int, int]
"""Zoom, column and row."""


def write_tiles(raster: str, path: Path) -> None:
    """Write a mask as PMTiles.

    Args:
        raster: The mask, by a name GDAL knows.
        path: The `.pmtiles`.

    Raises:
        ConfigError: pmtiles is not installed.
    """
    try:
        from pmtiles.tile import Compression, TileType, zxy_to_tileid
        from pmtiles.writer import Writer
    except ImportError as error:
        raise ConfigError("tiles need pmtiles: pip install 'adadino[area]'.") from error
    with rasterio.open(raster) as source:
        west, south, east, north = transform_bounds(source.crs, "EPSG:4326", *source.bounds)
        box = transform_bounds(source.crs, "EPSG:3857", *source.bounds)
        zooms = _zooms(box, (box[2] - box[0]) / source.width)

        def write(part: Path) -> None:
            with part.open("wb") as file:
                writer = Writer(file)
                for tile, picture in _tiles(source, box, zooms, zxy_to_tileid):
                    writer.write_tile(zxy_to_tileid(*tile), picture)
                header = {
                    "tile_type": TileType.PNG, "tile_compression": Compression.NONE,
                    "min_zoom": 0, "max_zoom": zooms[-1], "center_zoom": zooms[-1] // 2,
                    "min_lon_e7": int(west * 1e7), "min_lat_e7": int(south * 1e7),
                    "max_lon_e7": int(east * 1e7), "max_lat_e7": int(north * 1e7),
                    "center_lon_e7": int((west + east) * 5e6),
                    "center_lat_e7": int((south + north) * 5e6),
                }  # fmt: skip
                writer.finalize(header, {"name": "change", "format": "png"})

        write_atomic(path, write)


def write_maps(ledger: Ledger, rasters: Sequence[str]) -> list[str]:
    """Write the masks of a region as PMTiles; returns their names."""
    names = []
    for raster in rasters:
        if raster.startswith("change"):
            name = f"{raster.removesuffix('.vrt')}.pmtiles"
            write_tiles(f"{ledger.where}/{raster}", ledger.store.path(name))
            ledger.store.publish(name)
            names.append(name)
    return names


def _zooms(box: tuple[float, ...], pixel: float) -> range:
    """The zooms from the whole Earth to the mask's own pixels, if the tiles are not too many."""
    for zoom in range(MOST_ZOOM + 1):
        left, top, right, bottom = _range(box, zoom)
        if (right - left) * (bottom - top) > MOST_TILES:
            return range(zoom)
        if 2 * HALF / 2**zoom / TILE <= pixel:
            return range(zoom + 1)
    return range(MOST_ZOOM + 1)


def _range(box: tuple[float, ...], zoom: int) -> tuple[int, int, int, int]:
    """First and last columns and rows of tiles in a box."""
    size, most = 2 * HALF / 2**zoom, 2**zoom
    left, right = (box[0] + HALF) // size, -((-box[2] - HALF) // size)
    top, bottom = (HALF - box[3]) // size, -((box[1] - HALF) // size)
    return max(int(left), 0), max(int(top), 0), min(int(right), most), min(int(bottom), most)


def _tiles(
    source: rasterio.DatasetReader,
    box: tuple[float, ...],
    zooms: range,
    number: Callable[[int, int, int], int],
) -> Iterator[tuple[Tile, bytes]]:
    """The tiles that hold a change, in the order in which PMTiles stores them."""
    for zoom in zooms:
        left, top, right, bottom = _range(box, zoom)
        pixel = 2 * HALF / 2**zoom / TILE
        corner = from_origin(left * TILE * pixel - HALF, HALF - top * TILE * pixel, pixel, pixel)
        size = {"width": (right - left) * TILE, "height": (bottom - top) * TILE}
        how = {"crs": "EPSG:3857", "transform": corner, "resampling": Resampling.max}
        places = [(zoom, x, y) for x in range(left, right) for y in range(top, bottom)]
        with WarpedVRT(source, **how, **size) as warped:
            for tile in sorted(places, key=lambda place: number(*place)):
                window = Window((tile[1] - left) * TILE, (tile[2] - top) * TILE, TILE, TILE)
                changed = warped.read(1, window=window) == 1
                if changed.any():
                    yield tile, _png(Image.fromarray(changed.astype("uint8"), "P"))


def _png(picture: Image.Image) -> bytes:
    picture.putpalette([0, 0, 0, *CHANGE_COLOUR])
    file = io.BytesIO()
    picture.save(file, "PNG", transparency=0, optimize=True)
    return file.getvalue()
