"""`adadino.Client` against a running server: submit, wait, download, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import geopandas as gpd
import pytest
import rasterio

import adadino
from adadino.client import ServerError
from adadino.data.synthetic import World, write_geotiff_pair
from adadino.errors import InputError


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    world = World(plan="organic", empty=0.0)
    return write_geotiff_pair(tmp_path_factory.mktemp("pair"), 51, 128, world)[:2]


def test_a_job_from_two_files_to_its_results(server, pair, tmp_path):
    client, heard = adadino.Client(server.address), []
    job = client.submit(*pair, name="Köln", bands=(3, 2, 1), scale=(0, 255), register=True)
    assert (job["name"], job["bands"], job["scale"]) == ("Köln", [3, 2, 1], [0, 255])
    assert job["register"] is True
    done = client.wait(job, seconds=120, every=0.1, progress=heard.append)
    assert (done["state"], heard[-1]["state"]) == ("done", "done")
    for name in ("change.gpkg", "probability.tif", "mask.tif", "overview.png", "change.geojson"):
        assert client.download(job, tmp_path / name, threshold=0.3).stat().st_size > 100
    with rasterio.open(tmp_path / "mask.tif") as mask, rasterio.open(pair[0]) as before:
        assert (mask.shape, mask.crs) == (before.shape, before.crs)
        assert mask.tags()["ADADINO_THRESHOLD"] == "0.3"
    assert gpd.read_file(tmp_path / "change.gpkg").crs == "EPSG:32633"
    with pytest.raises(InputError, match=r"mask\.tif exists"):
        client.download(job, tmp_path / "mask.tif")
    client.remove(job["id"])
    with pytest.raises(ServerError, match="no such job") as caught:
        client.job(job)
    assert caught.value.status == 404


def test_what_the_server_refuses_is_its_own_sentence(server, pair, tmp_path):
    client = adadino.Client(server.address)
    with pytest.raises(ServerError, match="there is no model 'huge'"):
        client.submit(*pair, model="huge")
    with pytest.raises(InputError, match="there is no file"):
        client.submit(tmp_path / "none.tif", pair[1])
    with pytest.raises(ServerError, match="same image"):
        client.wait(client.submit(pair[0], pair[0]), every=0.1)
    with pytest.raises(InputError, match="end it with"):
        client.download("x", tmp_path / "change.doc")
    with pytest.raises(ServerError):
        client.download("x", tmp_path / "gone.gpkg")
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(ServerError, match="is the server running"):
        adadino.Client("http://127.0.0.1:9", timeout=2).job("x")
    with pytest.raises(InputError, match="no address"):
        adadino.Client("127.0.0.1:8000")


def test_it_needs_neither_torch_nor_rasterio():
    code = (
        "import sys, adadino; adadino.Client('http://127.0.0.1:1');"
        " print({'torch', 'rasterio', 'numpy'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "set()", found.stderr


@contextmanager
def liar(status, headers, body=b""):
    """A server that gives one answer to everything; what it was asked."""
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", asked
        finally:
            running.shutdown()


def test_a_token_follows_no_redirect():
    with (
        liar(200, {}, b"{}") as (elsewhere, asked),
        liar(302, {"location": f"{elsewhere}/x"}) as (address, _),
        pytest.raises(ServerError, match="302"),
    ):
        adadino.Client(address, token="correct horse battery").job("x")
    assert asked == []


def test_a_download_that_ends_early_leaves_no_file(tmp_path):
    with (
        liar(200, {"content-length": "1000"}, b"half") as (address, _),
        pytest.raises(ServerError, match="download again"),
    ):
        adadino.Client(address).download("x", tmp_path / "change.gpkg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("told", ["Wed, 21 Oct 2026 07:28:00 GMT", "-5", "nan"])
def test_whatever_a_busy_server_says_of_when_to_come_back(told, monkeypatch):
    waited = []
    monkeypatch.setattr("adadino.client.time.sleep", waited.append)
    with (
        liar(503, {"retry-after": told}) as (address, _),
        pytest.raises(ServerError, match="503"),
    ):
        adadino.Client(address).job("x")
    assert waited == [1, 2, 3, 4]
