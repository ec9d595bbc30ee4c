"""A region's place as an enemy sees it: names, links and records that lead elsewhere."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from adadino.area import bucket
from adadino.area.ledger import Ledger, dates_facts
from adadino.area.pairs import read_pairs
from adadino.area.store import Folder, open_store, without_secrets
from adadino.area.units import Dates, Unit
from adadino.errors import AdaDINOError, ConfigError, InputError, WriteError
from tests.area.regions import area, tree

EVIL = ["../x", "a/../../x", "/etc/x", "..", ".", "", "a//b", "a/./b", "a\\..\\b", "a\0b"]


@pytest.mark.parametrize("name", EVIL)
def test_names_stay_inside_a_folder(tmp_path, name):
    (tmp_path / "x").write_text("precious")
    store = Folder(tmp_path / "out")
    for do in (store.path, store.read, store.remove, store.holds, store.sizes):
        with pytest.raises(InputError, match="no name of a file below"):
            do(name)
    with pytest.raises(InputError, match="no name of a file below"):
        store.create(name, b"")
    assert (tmp_path / "x").read_text() == "precious"


@pytest.mark.parametrize("name", EVIL)
def test_names_stay_inside_a_bucket(monkeypatch, name):
    pytest.importorskip("obstore")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # no request is sent
    store = open_store("s3://bucket/here")
    for do in (store.path, store.read, store.remove, store.holds):
        with pytest.raises(InputError, match="no name of a file below"):
            do(name)


def test_a_pair_s_name_cannot_remove_what_lies_elsewhere(dates, model, tmp_path):
    (tmp_path / "precious" / "done").mkdir(parents=True)
    (tmp_path / "precious" / "done" / "file").write_text("precious")
    evil = Dates("../../precious", dates.before, dates.after)
    with pytest.raises(InputError, match="give pairs plain names"):
        area([evil], tmp_path / "out", model)
    assert (tmp_path / "precious" / "done" / "file").read_text() == "precious"


def test_links_are_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious")
    out = tmp_path / "out"
    (out / "pairs").mkdir(parents=True)
    (out / "pairs" / "town").symlink_to(precious)
    store = Folder(out)
    for do in (store.path, store.remove):
        with pytest.raises(WriteError, match="a folder on the way is a link"):
            do("pairs/town/file")
    store.remove("pairs/town")  # the link goes, and what it leads to stays
    assert not (out / "pairs" / "town").is_symlink()
    store.remove("pairs")
    assert (precious / "file").read_text() == "precious"
    (tmp_path / "link").symlink_to(out)  # --out itself may be one
    Folder(tmp_path / "link").create("a", b"1")
    assert (out / "a").read_bytes() == b"1"


@pytest.mark.parametrize("url", ["s3://bucket/a/../b", "gs://..", "s3://key:secret@bucket/a"])
def test_urls_that_mean_two_things_are_refused(url):
    with pytest.raises(ConfigError, match=r"without \.\. and without credentials") as error:
        open_store(url)
    assert "secret" not in str(error.value)


def test_a_record_that_names_other_files_does_not_count(tmp_path):
    unit = Unit(Dates("town", "b", "a"), 0, 0, 64, 64)
    ledger = Ledger(Folder(tmp_path))
    secret = {"pairs/../../secret": {"bytes": 6, "sha256": "0"}}
    for files in ({}, secret):
        record = {"files": files, "changed": 0, "valid": 0}
        ledger.write("pairs/town/done/0000000-0000000.json", json.dumps(record))
        assert ledger.record(unit) is None
        assert list(ledger.records(unit.dates, [unit], verify=True)) == [(unit, None)]


@pytest.mark.parametrize("content", ["{", "[1]", '{"change.parquet/x": 3}', '{"a": {"bytes": 1}}'])
def test_damaged_partitions_are_written_again(dates, model, tmp_path, content):
    area([dates], tmp_path, model)
    before = tree(tmp_path)
    said = tmp_path / "pairs" / "town" / "partitions.json"
    said.write_text(content)
    assert area([dates], tmp_path, model).predicted == 0
    assert tree(tmp_path) == before


SIGNED = [
    "https://x/a.tif?sv=2021&se=2030&sr=c&sp=rl&sig=s3cr3t%2B",
    "https://x/a.tif?X-Amz-Credential=s3cr3t&X-Amz-Signature=s3cr3t",
    "/vsicurl/https://me:s3cr3t@x/a.tif",
    "https://x/a.tif?token=s3cr3t",
]


@pytest.mark.parametrize("name", SIGNED)
def test_signatures_are_not_told(name):
    assert "s3cr3t" not in without_secrets(f"cannot open {name} as an image: {name!r}")
    assert without_secrets(f"{name}, 3").startswith(name.partition("?")[0][:9])


def test_other_addresses_stay_as_they_are():
    for name in ("https://x/a.tif?size=3&band=B04&set=1", "s3://b/a.tif", "/data/a@b/c.tif"):
        assert without_secrets(name) == name


def test_an_image_that_is_signed_anew_is_the_same(model, tmp_path):
    """And neither its name nor a message holds the signature."""
    table, facts = tmp_path / "pairs.csv", []
    for signature in ("s3cr3t.x", "0th3r.x"):
        names = (f"https://127.0.0.1:1/{name}.tif?sig={signature}" for name in ("a", "b"))
        table.write_text(f"before,after\n{','.join(names)}\n")
        (dates,) = read_pairs(table)
        assert dates.name == "a"
        facts.append(dates_facts(dates))
        with pytest.raises(InputError, match=r"a\.tif") as error:  # nobody answers there
            area([dates], tmp_path / "out", model)
        assert signature not in str(error.value)
    assert facts[0] == facts[1]


def test_credentials_do_not_follow_a_redirection(monkeypatch):
    """A server that sends us elsewhere does not get our signature sent along."""
    pytest.importorskip("obstore")
    seen = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(dict(self.headers))
            self.send_response(404)
            self.end_headers()

        do_HEAD = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    class Here(Elsewhere):
        def do_GET(self):
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{elsewhere.server_port}/x")
            self.end_headers()

        do_HEAD = do_PUT = do_GET  # noqa: N815

    elsewhere, here = (ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Elsewhere, Here))
    for server in (elsewhere, here):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(bucket, "RETRIES", {"max_retries": 0})
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{here.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with contextlib.suppress(AdaDINOError):
        open_store("s3://bucket/here").read("area.json")
    assert all("authorization" not in {name.lower() for name in one} for one in seen)
    for server in (elsewhere, here):
        server.shutdown()
