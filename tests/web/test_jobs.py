"""Jobs through the API: uploads, the data folder, waiting, cancelling, and what is refused."""

from __future__ import annotations

import io
import json
import socket
import struct
import zlib

import numpy as np
import pytest
import rasterio
from PIL import Image

from adadino.data.synthetic import make_pair


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, format="PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def pair():
    return make_pair(11, 128)


def files(before, after, names=("before.png", "after.png")):
    return {"before": (names[0], before), "after": (names[1], after)}


def ids(server):
    return {entry.name for entry in server.jobs.iterdir() if not entry.name.startswith(".l")}


def test_an_uploaded_pair_without_coordinates_is_shown_in_pixels(client, server, pair, tmp_path):
    answer = client.post(
        "/api/jobs", files=files(png(pair.before), png(pair.after)), data={"name": "my place"}
    )
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/api/jobs/{made['id']}"
    assert (made["name"], made["before_name"], made["own"]) == ("my place", "before.png", True)
    job = server.wait(made["id"], "done", "failed")
    assert job["state"] == "done", job["error"]
    assert (job["view"]["crs"], job["view"]["extent"]) == (None, [0, -128, 128, 0])
    found = client.get(f"/api/jobs/{made['id']}/polygons").json()
    assert found["unit"] == "px"
    for name in ("result.gpkg", "result.geojson", "mask.tif", "overview.png"):
        assert client.get(f"/api/jobs/{made['id']}/{name}").status_code == 200
    assert client.delete(f"/api/jobs/{made['id']}").status_code == 204
    assert client.get(f"/api/jobs/{made['id']}").status_code == 404
    assert made["id"] not in ids(server)


def test_a_pair_of_the_data_folder(client, server, data):
    listed = [entry["path"] for entry in client.get("/api/files").json()["files"]]
    assert listed == ["pair/after.tif", "pair/before.tif", "pair/truth.tif"]
    asked = {"before": "pair/before.tif", "after": "pair/after.tif", "register": True}
    job = client.post("/api/jobs", json=asked).json()
    job = server.wait(job["id"], "done", "failed")
    assert job["state"] == "done", job["error"]
    assert job["register"] is True
    assert str(data) not in json.dumps(job)


def many_bands(path, seed):
    """Five bands of uint16 that say nothing of colour; the last is 1000 everywhere."""
    values = np.random.default_rng(seed).integers(0, 500, (5, 96, 96), np.uint16)
    values[4] = 1000
    with rasterio.open(
        path, "w", driver="GTiff", width=96, height=96, count=5, dtype="uint16",
        photometric="minisblack", crs="EPSG:32633", transform=rasterio.Affine.scale(2, -2),
    ) as dataset:  # fmt: skip
        dataset.write(values)
    return path.read_bytes()


def test_bands_and_scale_are_those_that_were_asked_for(client, server, tmp_path):
    images = [many_bands(tmp_path / f"{seed}.tif", seed) for seed in (1, 2)]
    asked = {"bands": "5,2,1", "scale": "0,1250", "register": "off"}
    job = client.post("/api/jobs", files=files(*images), data=asked).json()
    assert (job["bands"], job["scale"], job["register"]) == ([5, 2, 1], [0, 1250], False)
    job = server.wait(job["id"], "done", "failed")
    assert job["state"] == "done", job["error"]
    tile = client.get(f"/api/jobs/{job['id']}/tiles/before/0/0/0.png").content
    with Image.open(io.BytesIO(tile)) as picture:
        red = np.asarray(picture.convert("RGB"))[:96, :96, 0]
    assert red.mean() == pytest.approx(255 * 1000 / 1250, abs=4)


def test_a_scene_in_a_local_system_is_computed_and_measured_in_metres(client, server, tmp_path):
    local = rasterio.crs.CRS.from_wkt('LOCAL_CS["site",UNIT["metre",1]]')
    images = []
    for seed in (1, 2):
        values = np.random.default_rng(seed).integers(0, 255, (3, 96, 96), np.uint8)
        with rasterio.open(
            tmp_path / f"{seed}.tif", "w", driver="GTiff", width=96, height=96, count=3,
            dtype="uint8", crs=local, transform=rasterio.Affine(2, 0, 10, 0, -2, 300),
        ) as dataset:  # fmt: skip
            dataset.write(values)
        images.append((tmp_path / f"{seed}.tif").read_bytes())
    job = client.post("/api/jobs", files=files(*images, ("a.tif", "b.tif"))).json()
    job = server.wait(job["id"], "done", "failed")
    assert job["state"] == "done", job["error"]
    assert job["view"]["mercator"] is None
    at = f"/api/jobs/{job['id']}"
    assert client.get(f"{at}/polygons").json()["unit"] == "m2"
    assert client.get(f"{at}/result.gpkg").status_code == 200
    refused = client.get(f"{at}/result.geojson")
    assert (refused.status_code, "local system" in refused.json()["error"]) == (422, True)
    client.delete(at)


@pytest.mark.parametrize(
    ("asked", "says"),
    [({"bands": "1,2"}, "three band numbers"), ({"bands": "0"}, "three band numbers"),
     ({"bands": "x"}, "three band numbers"), ({"scale": "5,1"}, "a smaller and a larger"),
     ({"scale": "0,inf"}, "a smaller and a larger"), ({"register": "maybe"}, "true or false"),
     ({"bands": "7,2,1"}, "before.tif has no band 7: it has 5 bands"), ({"more": "1"}, "at most")],
)  # fmt: skip
def test_options_that_are_refused(client, tmp_path, asked, says):
    images = [many_bands(tmp_path / f"{seed}.tif", seed) for seed in (1, 2)]
    names = ("before.tif", "after.tif")
    answer = client.post("/api/jobs", files=files(*images, names), data=asked)
    assert (answer.status_code, says in answer.json()["error"]) == (422, True), answer.text


@pytest.mark.parametrize(
    ("asked", "says"),
    [({"bands": [1, 2]}, "three band numbers"), ({"bands": [0]}, "bands"),
     ({"bands": "3,2,1"}, "bands"), ({"bands": [9]}, "no band 9"), ({"scale": [1]}, "scale"),
     ({"scale": [5, 1]}, "a smaller and a larger")],
)  # fmt: skip
def test_options_of_the_data_folder_that_are_refused(client, asked, says):
    paths = {"before": "pair/before.tif", "after": "pair/after.tif"}
    answer = client.post("/api/jobs", json=paths | asked)
    assert (answer.status_code, says in answer.json()["error"]) == (422, True), answer.text


@pytest.mark.parametrize(
    "name",
    ["../outside/before.tif", "/etc/passwd", "link.tif", "notes.txt", "pair", "", "pair/no.tif",
     "pair/before.tif\n", "a\x00b.tif", "./.hidden.tif"],
)  # fmt: skip
def test_only_images_of_the_data_folder_are_taken(client, name):
    answer = client.post("/api/jobs", json={"before": name, "after": "pair/after.tif"})
    assert answer.status_code == 422
    assert "no image" in answer.json()["error"]


def test_a_job_that_fails_says_why_in_the_names_of_its_files(client, server):
    same = {"before": "pair/before.tif", "after": "pair/before.tif"}
    job = server.wait(client.post("/api/jobs", json=same).json()["id"], "failed")
    assert "same image" in job["error"]
    assert str(server.jobs) not in job["error"]
    answer = client.get(f"/api/jobs/{job['id']}/mask.tif")
    assert (answer.status_code, "failed" in answer.json()["error"]) == (409, True)


def test_a_waiting_and_a_running_job_are_cancelled(client, server, tmp_path):
    big = make_pair(12, 960)
    body = files(png(big.before), png(big.after))
    first, second = (client.post("/api/jobs", files=body).json()["id"] for _ in range(2))
    assert client.post(f"/api/jobs/{second}/cancel").json()["state"] == "cancelled"
    server.wait(first, "running", "done")
    assert client.post(f"/api/jobs/{first}/cancel").json()["state"] == "cancelled"
    for identity in (first, second):
        assert [entry.name for entry in (server.jobs / identity).iterdir()] == ["job.json"]
        client.delete(f"/api/jobs/{identity}")
    # The next job gets a new worker.
    asked = {"before": "pair/before.tif", "after": "pair/after.tif"}
    assert server.wait(client.post("/api/jobs", json=asked).json()["id"], "done", "failed")


def test_the_demo_stays(client, demo):
    assert client.delete(f"/api/jobs/{demo['id']}").status_code == 409
    assert client.post(f"/api/jobs/{demo['id']}/cancel").status_code == 409


def test_others_do_not_see_ones_jobs_in_the_list(server, demo):
    asked = {"before": "pair/before.tif", "after": "pair/after.tif"}
    with server.client() as one, server.client() as two:
        for client in (one, two):
            client.get("/")  # gives the cookie
        job = one.post("/api/jobs", json=asked).json()
        listed = [[j["id"] for j in c.get("/api/jobs").json()["jobs"]] for c in (one, two)]
        assert listed[0] == [job["id"], demo["id"]]
        assert listed[1] == [demo["id"]]
        assert two.get(f"/api/jobs/{job['id']}").json()["own"] is False
        assert two.delete(f"/api/jobs/{job['id']}").status_code == 403
        assert two.post(f"/api/jobs/{job['id']}/cancel").status_code == 403
        server.wait(job["id"], "done")


def bomb():
    """A PNG of a few bytes that says it is 100,000 x 100,000 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    crc = struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + crc + b"\x00" * 64


def sparse_tiff(tmp_path):
    """A GeoTIFF of a few kilobytes with four million pixels."""
    path = tmp_path / "sparse.tif"
    with rasterio.open(
        path, "w", driver="GTiff", width=2000, height=2000, count=3, dtype="uint8",
        sparse_ok=True, tiled=True,
    ):  # fmt: skip
        pass
    return path.read_bytes()


VRT = b'<VRTDataset rasterXSize="1" rasterYSize="1"><SourceFilename>/etc/passwd</SourceFilename>'


@pytest.mark.parametrize(
    ("before", "names", "status", "says"),
    [
        (VRT + b" " * 64, ("a.tif", "b.png"), 422, "no GeoTIFF, PNG or JPEG"),
        (b"hello", ("a.tif", "b.png"), 422, "no GeoTIFF, PNG or JPEG"),
        (b"II*\x00" + b"\x00" * 100, ("a.tif", "b.png"), 422, "damaged"),
        (bomb(), ("a.png", "b.png"), 422, "100,000 x 100,000"),
        (None, ("a\nb.png", "b.png"), 400, "control characters"),
        (None, ("a‮gnp.exe", "b.png"), 400, "control characters"),
        (None, ("a" * 300 + ".png", "b.png"), 400, "longer than 200"),
    ],
)
def test_uploads_that_are_refused(client, server, pair, before, names, status, says):
    kept = ids(server)
    good = png(pair.before)
    boundary = "xxBOUNDARYxx"
    body = b""
    for which, name, content in zip(
        ("before", "after"), names, (before or good, good), strict=True
    ):
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{which}"; filename="{name}"'
        body += head.encode() + b"\r\n\r\n" + content + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    kind = {"content-type": f"multipart/form-data; boundary={boundary}"}
    answer = client.post("/api/jobs", content=body, headers=kind)
    if answer.status_code == 400 and says == "control characters" and "\n" in names[0]:
        assert answer.json()["error"]  # a line break already breaks the form
    else:
        assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert ids(server) == kept


def test_too_many_pixels_in_few_bytes(client, pair, tmp_path):
    answer = client.post("/api/jobs", files=files(sparse_tiff(tmp_path), png(pair.after)))
    assert (answer.status_code, "2,000 x 2,000" in answer.json()["error"]) == (422, True)


def test_sizes_that_do_not_match_are_said_at_once(client, pair):
    answer = client.post("/api/jobs", files=files(png(pair.before), png(pair.after[:64])))
    assert (answer.status_code, "128 x 64" in answer.json()["error"]) == (422, True)


def test_a_large_body_is_refused_with_an_answer(client):
    noise = np.random.default_rng(0).bytes(12 * 2**20)
    answer = client.post("/api/jobs", files=files(b"\xff\xd8\xff" + noise, b""))
    assert (answer.status_code, "10 MB" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{" + b" " * 70_000 + b"}", "application/json", 413),
        (b"[" * 30_000, "application/json", 400),
        (b"[]", "application/json", 422),
        (b'{"before": 1, "after": "x"}', "application/json", 422),
        (b'{"before": "x", "after": "y", "extra": 1}', "application/json", 422),
        (b"before=x", "application/x-www-form-urlencoded", 415),
        (b"<a/>", "text/xml", 415),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 422),
        (b"nonsense", "multipart/form-data; boundary=x", 400),
        (b"nonsense", "multipart/form-data", 400),
    ],
)
def test_bodies_that_are_refused(client, server, body, kind, status):
    kept = ids(server)
    answer = client.post("/api/jobs", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert ids(server) == kept


def test_the_queue_has_an_end(server):
    asked = {"before": "pair/before.tif", "after": "pair/after.tif"}
    with server.client() as client:
        client.get("/")
        answers = [client.post("/api/jobs", json=asked) for _ in range(8)]
        assert answers[-1].status_code == 429
        for answer in answers:
            if answer.status_code == 201:
                client.delete(f"/api/jobs/{answer.json()['id']}")


def test_an_unknown_model_is_named(client):
    asked = {"before": "pair/before.tif", "after": "pair/after.tif", "model": "huge"}
    assert "'huge'" in client.post("/api/jobs", json=asked).json()["error"]


def test_info_metrics_and_health(client, demo):
    info = client.get("/api/info").json()
    assert (info["device"], info["models"][0]["name"]) == ("cpu", "model")
    assert info["models"][0]["mp_per_s"] > 0
    text = client.get("/metrics").text
    assert 'adadino_jobs{state="done"}' in text
    assert 'adadino_requests_total{kind="api",status="200"}' in text
    assert client.get("/healthz").json() == {"status": "ok"}


def test_an_upload_that_breaks_off_leaves_nothing(server):
    kept = ids(server)
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as wire:
        wire.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            b'Content-Disposition: form-data; name="before"; filename="a.png"\r\n\r\n\x89PNG'
        )
        server.wait(server.demo()["id"], "done")
    for _ in range(50):
        if ids(server) == kept:
            break
        server.demo()
    assert ids(server) == kept
