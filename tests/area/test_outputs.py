"""What catalogues, QGIS and web maps get of a region."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pystac
import pytest
import rasterio
from PIL import Image
from pystac.extensions.projection import ProjectionExtension
from pystac.extensions.raster import RasterExtension
from pystac.validation import validate_dict
from rasterio.warp import transform

from adadino.area import join, overviews
from adadino.checkpoint import save
from adadino.cli.predict_area import _print_result
from adadino.domain import Domain
from tests.area.regions import OPTIONS, area
from tests.scene.runs import a_model


@pytest.fixture(scope="module")
def region(dates, model, tmp_path_factory):
    out = tmp_path_factory.mktemp("region")
    patch = pytest.MonkeyPatch()
    patch.setattr("adadino.area.units.BLOCK", 64)
    patch.setattr(overviews, "LEAST", 100)
    patch.setattr(overviews, "FACTOR", 8)
    patch.setattr(join, "CELL", 128)
    result = area([dates], out, model, probability=True, unit=64, web_map=True)
    patch.undo()
    return out, result


def test_the_collection_and_its_items_are_valid_stac(region):
    out, _ = region
    collection = pystac.Collection.from_file(out / "collection.json")
    items = list(collection.get_items())
    assert len(items) == 20
    # The schemas of the extensions are on the web; those of STAC itself come with pystac.
    core = {"stac_extensions": []}
    validate_dict(json.loads((out / "collection.json").read_text()) | core)
    for item in items:
        validate_dict(item.to_dict(include_self_link=False, transform_hrefs=False) | core)
        raster = item.assets["mask"].get_absolute_href()
        band = RasterExtension.ext(item.assets["mask"]).bands[0]
        with rasterio.open(raster) as mask:
            place = ProjectionExtension.ext(item)
            assert place.shape == list(mask.shape)
            assert place.transform == list(mask.transform)[:6]
            assert place.code == str(mask.crs)
            assert (band.nodata, band.data_type, band.spatial_resolution) == (255, "uint8", 0.5)
            west, south, east, north = item.bbox
            x, y = transform(mask.crs, "EPSG:4326", *[[v] for v in mask.xy(0, 0)])
            assert west <= x[0] <= east
            assert south <= y[0] <= north
    west, south, east, north = collection.extent.spatial.bboxes[0]
    assert all(west <= item.bbox[0] and item.bbox[2] <= east for item in items)
    assert RasterExtension.ext(items[0].assets["probability"]).bands[0].nodata == "nan"


def test_overviews_of_the_region_are_those_of_its_pixels(region):
    out, _ = region
    for name in ("change", "probability"):
        with rasterio.open(out / f"{name}.vrt") as whole:
            assert whole.overviews(1)[0] == 8
            pixels = whole.read(1)
        with rasterio.open(out / f"{name}.vrt", overview_level=0) as small:
            seen = small.read(1)
        assert seen.shape == (25, 38)
        blocks = pixels[:200, :296].reshape(25, 8, 37, 8).swapaxes(1, 2).reshape(25, 37, 64)
        if name == "probability":
            np.testing.assert_allclose(seen[:, :37], blocks.mean(-1), atol=1e-5)
        else:
            share = (blocks == 1).mean(-1)
            clear = abs(share - 0.5) > 1e-9
            assert ((seen[:, :37] == 1) == (share > 0.5))[clear].all()


def test_tiles_of_the_web_map_show_the_change(region):
    out, result = region
    pmtiles = pytest.importorskip("pmtiles.reader")
    assert str(out / "change.pmtiles") in result.outputs
    with (out / "change.pmtiles").open("rb") as file:
        reader = pmtiles.Reader(pmtiles.MmapSource(file))
        header = reader.header()
        zoom = header["max_zoom"]
        with rasterio.open(out / "change.vrt") as mask:
            row, col = map(int, np.argwhere(mask.read(1) == 1)[200])
            x, y = transform(mask.crs, "EPSG:3857", *[[v] for v in mask.xy(row, col)])
        half = np.pi * 6378137
        column, line = ((v / (2 * half) * 2**zoom) for v in (x[0] + half, half - y[0]))
        picture = Image.open(io.BytesIO(reader.get(zoom, int(column), int(line))))
        shown = np.array(picture.convert("RGBA"))
        assert shown[int(line % 1 * 256), int(column % 1 * 256)].tolist() == [230, 60, 30, 255]
        assert (shown[..., 3] == 0).any()
        assert reader.get(zoom - 3, int(column) >> 3, int(line) >> 3) is not None


def test_a_second_run_keeps_every_byte(region, dates, model, monkeypatch):
    out, _ = region
    monkeypatch.setattr(overviews, "LEAST", 100)
    monkeypatch.setattr(overviews, "FACTOR", 8)
    monkeypatch.setattr(join, "CELL", 128)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    options = dataclasses.replace(OPTIONS)
    area([dates], out, model, probability=True, unit=64, web_map=True, options=options)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_region_outside_the_model_s_range_has_no_bare_figure(dates, tmp_path, capsys):
    network = a_model()
    network.domain = Domain((1.0, 2.0), {})
    folder = save(network, tmp_path / "model", with_backbone=True)
    result = area([dates], tmp_path / "out", str(folder))
    assert result.domain.startswith("1 of 1 pairs not reliable: 0.5 m pixels, 2.0 times outside")
    _print_result(result, json=False)
    assert f"polygons ({result.domain})" in capsys.readouterr().out
