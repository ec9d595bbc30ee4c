"""A region's place as an enemy sees it: names, links and records that lead elsewhere."""

from __future__ import annotations

import json

import pytest

from adadino.area.ledger import Ledger
from adadino.area.store import Folder, open_store
from adadino.area.units import Dates, Unit
from adadino.errors import ConfigError, InputError, WriteError
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
