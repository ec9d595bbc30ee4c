"""The one door for strangers' rasters: a file is opened as what it is, and nothing beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from rasterio.vrt import WarpedVRT

from adadino.errors import InputError
from adadino.web.door import DRIVERS, kind_of, narrow_gdal, open_foreign

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
SIDE = 64
SECRET = 200
"""The value of every byte of the canary; images hold small ones."""
KINDS = {"GTiff": "a.tif", "PNG": "a.png", "JPEG": "a.jpg"}


def write(path: Path, kind: str = "GTiff", value: int = 7, tags=None, **profile) -> Path:
    profile = {
        "driver": kind,
        "width": SIDE,
        "height": SIDE,
        "count": 3,
        "dtype": "uint8",
    } | profile
    with rasterio.open(path, "w", **profile) as file:
        shape = (profile["count"], profile["height"], profile["width"])
        file.write(np.full(shape, value, np.uint8))
        for domain, items in (tags or {}).items():
            file.update_tags(ns=domain, **items)
    Path(f"{path}.aux.xml").unlink(missing_ok=True)
    return path


@pytest.fixture
def canary(tmp_path) -> Path:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "canary.bin"
    path.write_bytes(bytes([SECRET]) * 40_000)
    return path


def vrt(canary: Path) -> bytes:
    bands = "".join(
        f'<VRTRasterBand dataType="Byte" band="{n}" subClass="VRTRawRasterBand"><SourceFilename '
        f'relativetoVRT="0">{canary}</SourceFilename><PixelOffset>1</PixelOffset><LineOffset>{SIDE}'
        "</LineOffset></VRTRasterBand>"
        for n in (1, 2, 3)
    )
    size = f'rasterXSize="{SIDE}" rasterYSize="{SIDE}"'
    return f"<VRTDataset {size}>{bands}</VRTDataset>".encode()


def polyglot(path: Path, words: bytes) -> Path:
    """A JPEG with a comment."""
    whole = write(path, "JPEG").read_bytes()
    segment = b"\xff\xfe" + (len(words) + 2).to_bytes(2, "big") + words
    path.write_bytes(whole[:2] + segment + whole[2:])
    return path


def warp_something(tmp_path: Path) -> None:
    """Which registers GDAL's VRT driver, whatever was skipped."""
    path = write(tmp_path / "warped.tif", crs="EPSG:32633", transform=from_origin(5e5, 5e6, 1, 1))
    with rasterio.open(path) as dataset, WarpedVRT(dataset, crs="EPSG:4326") as warped:
        warped.read()


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_an_image_is_opened_by_its_own_driver_whatever_it_is_called(tmp_path, kind, name):
    path = write(tmp_path / name, kind).rename(tmp_path / "image.vrt")
    with open_foreign(path) as dataset:
        assert dataset.driver == kind
        assert dataset.shape == (SIDE, SIDE)
        assert abs(int(dataset.read(1)[0, 0]) - 7) <= 1


def test_a_polyglot_is_the_image_it_begins_like_even_after_a_warp(tmp_path, canary):
    path = polyglot(tmp_path / "a.jpg", vrt(canary))
    warp_something(tmp_path)
    with rasterio.open(path) as dataset:  # so it was: the hole is still in GDAL
        assert dataset.driver == "VRT"
        assert dataset.read(1).max() == SECRET
    with open_foreign(path) as dataset:
        assert dataset.driver == "JPEG"
        assert dataset.read().max() < 20
        assert dataset.read(out_shape=(3, 8, 8)).max() < 20


def test_the_size_is_that_of_what_was_opened(tmp_path):
    empty = b'<VRTDataset rasterXSize="200000" rasterYSize="200000"><VRTRasterBand dataType="Byte" '
    words = empty + b'band="1"/></VRTDataset>' + b" " * 300  # no zero byte may stand before it
    path = polyglot(tmp_path / "a.jpg", words)
    with rasterio.open(path) as dataset:
        assert dataset.shape == (200_000, 200_000)
    with open_foreign(path) as dataset:
        assert dataset.shape == (SIDE, SIDE)


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_files_beside_an_image_are_not_looked_for(tmp_path, kind, name):
    path = write(tmp_path / name, kind)
    half = {"width": SIDE // 2, "height": SIDE // 2}
    write(Path(f"{path}.ovr"), value=SECRET, **half)
    write(Path(f"{path}.msk"), value=0, count=1)
    world = "2\n0\n0\n-2\n100\n100\n"
    for suffix in (".tfw", ".pgw", ".jgw", ".wld", f"{path.suffix}w"):
        path.with_suffix(suffix).write_text(world)
    Path(f"{path}.aux.xml").write_text(
        "<PAMDataset><SRS>EPSG:4326</SRS><GeoTransform>1,2,0,3,0,-2</GeoTransform></PAMDataset>"
    )
    with rasterio.open(path) as dataset:
        assert len(dataset.files) > 1
    with open_foreign(path) as dataset:
        assert dataset.files == [str(path)]
        assert dataset.read(1, out_shape=(8, 8)).max() < 20
        assert dataset.dataset_mask().min() == 255
        assert dataset.overviews(1) == []
        assert dataset.crs is None
        assert dataset.transform.is_identity


@pytest.mark.parametrize(
    ("domain", "item"), [("OVERVIEWS", "OVERVIEW_FILE"), ("GEOLOCATION", "X_DATASET")]
)
def test_a_tiff_that_names_another_file_is_refused_and_that_file_left_alone(tmp_path, domain, item):
    other = write(tmp_path / "other.tif", value=SECRET, width=32, height=32)
    os.utime(other, (1, 1))  # reading it would show, where the disk keeps such times
    path = write(tmp_path / "a.tif", tags={domain: {item: str(other)}})
    opened = seen_by_the_kernel(f"from adadino.web.door import open_foreign\n"
                                f"open_foreign({str(path)!r}, 'photo.tif')", other)  # fmt: skip
    assert "photo.tif points to other files" in opened.said
    assert not opened.touched


def test_overviews_of_its_own_are_welcome(tmp_path):
    path = write(tmp_path / "a.tif")
    with rasterio.open(path, "r+") as file:
        file.build_overviews([2, 4])
    with open_foreign(path) as dataset:
        assert dataset.overviews(1) == [2, 4]


class Seen:
    def __init__(self, said: str, touched: bool) -> None:
        self.said, self.touched = said, touched


def seen_by_the_kernel(code: str, path: Path) -> Seen:
    """Run code elsewhere; what it said, and whether it opened a file."""
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1"):
        pytest.skip("only Linux tells who opened a file")
    handle = libc.inotify_init1(0o4000)
    assert libc.inotify_add_watch(handle, os.fsencode(path), 0x21) > 0
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    try:
        touched = bool(os.read(handle, 4096))
    except BlockingIOError:
        touched = False
    os.close(handle)
    return Seen(done.stdout + done.stderr, touched)


@pytest.mark.parametrize(
    "content",
    [
        b"<VRTDataset rasterXSize='1' rasterYSize='1'/>",
        b"<GDAL_WMS></GDAL_WMS>",
        b'<?xml version="1.0"?><Capabilities/>',
        b'{"type": "FeatureCollection"}',
        b"SQLite format 3\0" + b"\0" * 100,
        b"PK\x03\x04" + b"\0" * 100,
        b"BM" + b"\0" * 100,
        b"GIF89a" + b"\0" * 100,
        b"",
    ],
)
def test_what_is_no_geotiff_png_or_jpeg_is_refused(tmp_path, content):
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"photo\.tif is no GeoTIFF, PNG or JPEG"):
        open_foreign(path, "photo.tif")


@pytest.mark.parametrize(
    "head", [b"II*\0", b"MM\0*", b"II+\0", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"]
)
def test_a_damaged_file_is_refused_in_words(tmp_path, head):
    path = tmp_path / "a.bin"
    path.write_bytes(head + b"\0\1\2\3" * 50)
    assert kind_of(head, "a") in KINDS
    with pytest.raises(InputError, match="cannot be read as an image") as caught:
        open_foreign(path, "photo.tif")
    assert str(tmp_path) not in str(caught.value)


def test_a_png_that_was_cut_is_not_read_as_if_it_were_whole(tmp_path):
    path = write(tmp_path / "a.png", "PNG")
    pixels = np.random.default_rng(0).integers(0, 90, (3, SIDE, SIDE), np.uint8)
    with rasterio.open(
        path, "w", driver="PNG", width=SIDE, height=SIDE, count=3, dtype="uint8"
    ) as f:
        f.write(pixels)
    path.write_bytes(path.read_bytes()[:4000])
    code = (
        "import sys\nfrom adadino.web.door import open_foreign\n"
        f"open_foreign({str(path)!r}).read()\nprint('read')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | narrow_gdal(),
    )  # fmt: skip
    assert "read\n" not in done.stdout
    assert "Read failed" in done.stderr


def test_names_that_only_gdal_knows_are_no_files(tmp_path):
    path = write(tmp_path / "a.tif")
    for name in (f"GTIFF_DIR:1:{path}", f"vrt://{path}", f"/vsizip/{path}", "/vsimem/a.tif"):
        with pytest.raises(InputError, match="cannot be read as an image"):
            open_foreign(name)


def test_a_link_that_came_in_between_leads_nowhere_but_to_an_image(tmp_path, canary, monkeypatch):
    path = write(tmp_path / "a.jpg", "JPEG")
    opened = rasterio.open

    def late(file: Path, **options: str):
        path.unlink()
        path.symlink_to(canary)  # after the first bytes were judged
        return opened(file, **options)

    monkeypatch.setattr(rasterio, "open", late)
    with pytest.raises(InputError, match="cannot be read as an image"):
        open_foreign(path)


def test_a_png_whose_text_is_a_vrt_is_a_png(tmp_path, canary):
    whole = write(tmp_path / "a.png", "PNG").read_bytes()
    text = b"tEXtComment\0" + vrt(canary)
    chunk = (len(text) - 4).to_bytes(4, "big") + text + zlib.crc32(text).to_bytes(4, "big")
    path = tmp_path / "b.png"
    path.write_bytes(whole[:33] + chunk + whole[33:])
    with open_foreign(path) as dataset:
        assert dataset.driver == "PNG"
        assert dataset.read().max() == 7


NARROW = """
import json, warnings
warnings.simplefilter("ignore")
import rasterio, pyogrio
with rasterio.Env() as env:
    found = sorted({*env.drivers(), *pyogrio.list_drivers()})
refused = []
for name in NAMES:
    try:
        rasterio.open(name)
    except rasterio.errors.RasterioError as error:
        refused.append(name)
print(json.dumps([found, refused]))
"""


def test_workers_know_our_formats_alone(tmp_path, canary):
    names = [str(polyglot(tmp_path / "a.jpg", vrt(canary))), str(tmp_path / "a.vrt")]
    Path(names[1]).write_bytes(vrt(canary))
    done = subprocess.run(
        [sys.executable, "-c", NARROW.replace("NAMES", repr(names))],
        capture_output=True, text=True, check=True, env=os.environ | narrow_gdal(),
    )  # fmt: skip
    found, refused = json.loads(done.stdout)
    assert {"GTiff", "PNG", "JPEG", "GPKG", "GeoJSON"} <= set(found) <= DRIVERS
    assert refused == names[1:]  # and the polyglot is a JPEG there


def test_what_is_asked_of_gdal_is_told_to_nobody_else(tmp_path):
    path = write(tmp_path / "a.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an image without coordinates is nothing to warn of
        open_foreign(path).close()
    with rasterio.Env() as env:
        assert "GDAL_DISABLE_READDIR_ON_OPEN" not in env.options


def test_an_image_whose_coordinate_system_names_a_file_is_refused(tmp_path):
    grid = tmp_path / "shift.gsb"
    system = (
        'PROJCS["x",GEOGCS["y",DATUM["D_z",SPHEROID["s",6378137,298.257223563],'
        f'EXTENSION["PROJ4_GRIDS","{grid}"]],PRIMEM["Greenwich",0],UNIT["Degree",0.0174532925199433]],'
        'PROJECTION["Transverse_Mercator"],PARAMETER["central_meridian",9],'
        'PARAMETER["scale_factor",0.9996],PARAMETER["false_easting",500000],UNIT["metre",1]]'
    )
    path = write(tmp_path / "a.tif", crs=system, GEOTIFF_KEYS_FLAVOR="ESRI_PE")
    with rasterio.open(path) as opened:
        assert str(grid) in opened.crs.to_wkt()  # a GeoTIFF can bring it
    with pytest.raises(InputError, match="points to other files"):
        open_foreign(path)
