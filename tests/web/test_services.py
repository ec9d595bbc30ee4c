"""Standard services as other programs read them: XYZ, TileJSON, WMTS, OGC API Features, STAC."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import numpy as np
import pyogrio
import pyproj
import pytest
import rasterio
from fastapi.testclient import TestClient
from PIL import Image

from adadino.errors import ConfigError
from adadino.web.app import create_app
from adadino.web.settings import Settings

WORLD = math.pi * 6378137.0


def at(demo):
    return f"/api/jobs/{demo['id']}"


def web_tile(client, demo, layer, z, x, y):
    answer = client.get(f"{at(demo)}/xyz/{layer}/{z}/{x}/{y}.png")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    with Image.open(io.BytesIO(answer.content)) as picture:
        return np.asarray(picture.convert("RGBA"))


def tile_at(lon, lat, z):
    """The tile of a place, as the formula of XYZ has it."""
    north = math.log(math.tan(math.pi / 4 + math.radians(lat) / 2))
    x = (lon + 180) / 360 * 2**z
    return int(x), int((1 - north / math.pi) / 2 * 2**z)


def test_a_web_tile_shows_every_pixel_where_it_lies(client, server, demo):
    told = client.get(f"{at(demo)}/tilejson/after.json").json()
    west, south, east, north = told["bounds"]
    z = told["maxzoom"]
    x, y = tile_at((west + east) / 2, (south + north) / 2, z)
    drawn = web_tile(client, demo, "after", z, x, y)
    with rasterio.open(server.jobs / demo["id"] / "after.tif") as dataset:
        scene, transform, crs = dataset.read(), dataset.transform, dataset.crs
    way = pyproj.Transformer.from_crs("EPSG:3857", crs.to_wkt(), always_xy=True)
    wanted = np.zeros((256, 256, 3))
    inside = np.zeros((256, 256), bool)
    side = 2 * WORLD / 2**z
    for row in range(0, 256, 5):
        for column in range(0, 256, 5):
            mercator = (
                -WORLD + (x + (column + 0.5) / 256) * side,
                WORLD - (y + (row + 0.5) / 256) * side,
            )
            i, j = (math.floor(value) for value in ~transform * way.transform(*mercator))
            if 0 <= i < 512 and 0 <= j < 512:
                inside[row, column], wanted[row, column] = True, scene[:, j, i]
    assert inside.sum() > 500
    looked = np.zeros_like(inside)
    looked[::5, ::5] = True
    np.testing.assert_array_equal(drawn[..., 3][looked] == 255, inside[looked])
    off = np.abs(drawn[inside][:, :3] - wanted[inside]).mean()
    assert off < 8  # JPEG, but in the right place:
    moved = np.roll(drawn, 10, axis=0)
    assert off < 0.6 * np.abs(moved[inside][:, :3] - wanted[inside]).mean()


def test_the_levels_of_tilejson_go_from_one_tile_to_every_pixel(client, demo):
    told = client.get(f"{at(demo)}/tilejson/probability.json").json()
    assert told["tiles"][0].endswith("/xyz/probability/{z}/{x}/{y}.png")
    metres = 2 * WORLD / 256 / 2 ** told["maxzoom"] * math.cos(math.radians(told["bounds"][1]))
    assert 0.25 < metres <= 0.5001  # of scene pixels of 0.5 m
    x, y = tile_at(told["bounds"][0] + 1e-4, told["bounds"][3] - 1e-4, told["minzoom"])
    assert web_tile(client, demo, "probability", told["minzoom"], x, y)[..., 3].any()
    for path in (
        f"xyz/after/3/{tile_at(*told['bounds'][:2], 3)[0] + 1}/0.png",
        "xyz/after/30/1/1.png",
    ):
        assert client.get(f"{at(demo)}/{path}").status_code == 404


def test_gdal_opens_the_wmts_and_finds_the_scene(client, server, demo):
    with rasterio.open(f"WMTS:{server.address}{at(demo)}/wmts,layer=after") as dataset:
        assert dataset.crs.to_epsg() == 3857
        left, bottom, right, top = dataset.bounds
        small = dataset.read(out_shape=(4, 64, 64))
    way = pyproj.Transformer.from_crs("EPSG:32633", "EPSG:3857", always_xy=True)
    for wanted, got in zip(way.transform_bounds(*demo["view"]["extent"]),
                           (left, bottom, right, top), strict=True):  # fmt: skip
        assert got == pytest.approx(wanted, abs=2)
    assert small[3].mean() > 200  # most of it holds data


def test_the_capabilities_are_xml_whatever_a_job_is_called(client, server, demo):
    answer = client.get(
        f"{at(demo)}/wmts", params={"SERVICE": "WMTS", "REQUEST": "GetCapabilities"}
    )
    root = ElementTree.fromstring(answer.content)
    names = {"w": "http://www.opengis.net/wmts/1.0", "o": "http://www.opengis.net/ows/1.1"}
    found = [one.text for one in root.findall("w:Contents/w:Layer/o:Identifier", names)]
    assert found == ["before", "after", "probability"]


def test_gdal_reads_the_polygons_as_ogc_api_features(client, server, demo, tmp_path):
    frame = pyogrio.read_dataframe(f"OAPIF:{server.address}{at(demo)}/features/0.45/4")
    shown = client.get(f"{at(demo)}/polygons", params={"threshold": 0.45, "min_area": 4}).json()
    assert len(frame) == shown["count"] > 3
    assert frame["area_m2"].sum() == pytest.approx(shown["area"], rel=1e-6)
    moved = frame.to_crs(32633).area.sum()
    assert moved == pytest.approx(shown["area"], rel=0.002)


def test_pages_and_boxes_of_features(client, demo):
    items = f"{at(demo)}/features/0.5/0/collections/change/items"
    whole = client.get(items).json()
    assert whole["numberMatched"] == whole["numberReturned"] == len(whole["features"]) > 3
    first = client.get(items, params={"limit": 2}).json()
    following = next(link["href"] for link in first["links"] if link["rel"] == "next")
    second = client.get(following).json()
    ids = [one["id"] for page in (first, second) for one in page["features"]]
    assert ids == [one["id"] for one in whole["features"][:4]]
    one = client.get(f"{items}/{ids[0]}").json()
    assert one == whole["features"][0]
    x, y = one["geometry"]["coordinates"][0][0][:2]
    box = client.get(items, params={"bbox": f"{x - 1e-6},{y - 1e-6},{x + 1e-6},{y + 1e-6}"}).json()
    assert ids[0] in [found["id"] for found in box["features"]]
    assert box["numberMatched"] < whole["numberMatched"]
    assert client.get(f"{items}/99999").status_code == 404
    for wrong in ("1,2,x", "nan,0,1,1", "0,0,inf,1"):
        assert client.get(items, params={"bbox": wrong}).status_code == 422


def test_the_stac_item_has_the_jobs_place_time_and_files(client, demo):
    item = client.get(f"{at(demo)}/stac.json").json()
    assert (item["stac_version"], item["id"]) == ("1.1.0", demo["id"])
    assert item["properties"]["proj:code"] == "EPSG:32633"
    assert item["properties"]["datetime"].endswith("Z")
    told = client.get(f"{at(demo)}/tilejson/after.json").json()["bounds"]
    assert item["bbox"] == pytest.approx(told, abs=1e-5)
    for asset in item["assets"].values():
        assert client.head(asset["href"]).status_code == 200


def test_a_job_without_a_place_has_no_services(client, server):
    def png(seed):
        file = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(file, format="PNG")
        return file.getvalue()

    files = {"before": ("a.png", png(1)), "after": ("b.png", png(2))}
    job = client.post("/api/jobs", files=files).json()
    server.wait(job["id"], "done")
    for path in (
        "wmts",
        "stac.json",
        "tilejson/after.json",
        "xyz/after/0/0/0.png",
        "features/0.5/0",
    ):
        answer = client.get(f"{at(job)}/{path}")
        assert (answer.status_code, "no place on Earth" in answer.json()["error"]) == (422, True)


QGIS = """
import sys
from qgis.core import QgsApplication, QgsRasterLayer, QgsVectorLayer
QgsApplication.setPrefixPath("/usr", True)
app = QgsApplication([], False)
app.initQgis()
at = sys.argv[1]
uri = "crs=EPSG:3857&format=image/png&layers=after&styles=default&tileMatrixSet=WebMercatorQuad"
tiles = QgsRasterLayer(f"{uri}&url={at}/wmts", "after", "wms")
polygons = QgsVectorLayer(f"url='{at}/features/0.5/0' typename='change'", "change", "OAPIF")
box = tiles.extent()
picture = tiles.dataProvider().block(1, box, 64, 64) if tiles.isValid() else None
print(tiles.isValid(), polygons.isValid(), polygons.featureCount(), sep=",")
"""


@pytest.mark.slow
def test_qgis_loads_both(client, server, demo):
    python = shutil.which("python3", path="/usr/bin")
    found = python and subprocess.run([python, "-c", "import qgis.core"], capture_output=True)
    if not found or found.returncode:
        pytest.skip("needs QGIS: apt install qgis")
    clean = {"PATH": "/usr/bin:/bin", "QT_QPA_PLATFORM": "offscreen", "HOME": "/tmp"}
    address = f"{server.address}{at(demo)}"
    said = subprocess.run(
        [python, "-c", QGIS, address], capture_output=True, text=True, env=clean, timeout=120
    )
    count = client.get(f"{at(demo)}/polygons").json()["count"]
    assert said.stdout.strip().splitlines()[-1] == f"True,True,{count}", said.stderr[-2000:]


def local(tmp_path, **options):
    app = create_app(Settings(jobs=tmp_path / "jobs", demo=False, **options))
    return TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)


MAPS = "https://maps.example"
CROSS = {"origin": MAPS, "sec-fetch-site": "cross-site"}


def test_other_sites_use_the_api_only_where_they_are_allowed(tmp_path):
    asked = CROSS | {"access-control-request-method": "GET"}
    closed = local(tmp_path / "closed")
    assert closed.get("/api/info", headers=CROSS).status_code == 403
    assert closed.options("/api/info", headers=asked).status_code == 403
    opened = local(tmp_path / "open", allowed_origins=(MAPS,))
    answer = opened.get("/api/info", headers=CROSS)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == MAPS
    assert "access-control-allow-credentials" not in answer.headers
    assert "origin" in answer.headers["vary"].lower()
    before = opened.options("/api/jobs", headers=asked)
    assert (before.status_code, before.headers["access-control-allow-origin"]) == (204, MAPS)
    assert "authorization" in before.headers["access-control-allow-headers"]
    other = CROSS | {"origin": "https://evil.example"}
    assert opened.get("/api/info", headers=other).status_code == 403
    for path in ("/", "/login", "/logout"):
        assert opened.post(path, headers=CROSS).status_code == 403
    assert "access-control-allow-origin" not in opened.get("/api/info").headers


def test_an_allowed_site_still_needs_the_token(tmp_path):
    secret = "correct horse battery"
    opened = local(tmp_path, allowed_origins=(MAPS,), tokens=(secret,))
    assert opened.get("/api/info", headers=CROSS).status_code == 401
    bearer = {"authorization": f"Bearer {secret}"}
    assert opened.get("/api/info", headers=CROSS | bearer).status_code == 200


def test_an_allowed_neighbour_cannot_use_the_cookie_of_the_page(tmp_path):
    secret, neighbour = "correct horse battery", "http://127.0.0.1:3000"
    opened = local(tmp_path, allowed_origins=(neighbour,), tokens=(secret,))
    opened.post("/login", data={"token": secret})
    assert opened.get("/api/info").status_code == 200
    asks = {"origin": neighbour, "sec-fetch-site": "same-site"}
    assert opened.get("/api/info", headers=asks).status_code == 401
    assert opened.post("/api/jobs", headers=asks).status_code == 401


@pytest.mark.parametrize("origin", ["*", "maps.example", "https://maps.example/path", "null"])
def test_an_origin_is_scheme_and_host(tmp_path, origin):
    with pytest.raises(ConfigError, match="--allow-origin"):
        local(tmp_path, allowed_origins=(origin,))


def test_the_document_names_tokens_types_and_operations(tmp_path):
    document = local(tmp_path).get("/api/openapi.json").json()
    schemes = document["components"]["securitySchemes"]
    assert {scheme["type"] for scheme in schemes.values()} == {"http", "apiKey"}
    assert "security" not in document
    secret = "correct horse battery"
    opened = local(tmp_path / "two", tokens=(secret,))
    guarded = opened.get("/api/openapi.json", headers={"authorization": f"Bearer {secret}"}).json()
    assert guarded["security"] == [{"token": []}, {"session": []}]
    job = document["components"]["schemas"]["JobOut"]["properties"]
    for part, model in (("view", "Display"), ("result", "Found")):
        assert job[part]["anyOf"][0]["$ref"].endswith(f"/{model}")
    names = [route["operationId"] for path in document["paths"].values() for route in path.values()]
    assert len(names) == len(set(names))
    assert {
        "create_job", "list_jobs", "get_job", "delete_job", "cancel_job", "get_info", "get_tile",
        "get_polygons", "get_mask", "get_probability", "get_geopackage", "get_geojson",
        "get_overview", "start_review", "get_review", "act_on_review", "get_web_tile",
        "get_tilejson", "get_wmts_capabilities", "get_stac_item", "list_features",
    } <= set(names)  # fmt: skip
