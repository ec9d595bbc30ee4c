"""The zip that QGIS installs."""

from __future__ import annotations

import configparser
import zipfile

import adadino
from tests.qgis.conftest import PLUGIN, pack


def test_the_same_files_give_the_same_zip(tmp_path):
    first, second = pack(tmp_path / "a"), pack(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {name.split("/")[0] for name in names} == {PLUGIN.name}
    for needed in ("metadata.txt", "LICENSE", "icon.png", "icon.svg", "__init__.py"):
        assert f"{PLUGIN.name}/{needed}" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_metadata_says_what_qgis_needs():
    metadata = configparser.ConfigParser(interpolation=None)
    metadata.read(PLUGIN / "metadata.txt", encoding="utf-8")
    general = metadata["general"]
    assert general["qgisMinimumVersion"] == "3.22"
    assert general["hasProcessingProvider"] == "yes"  # else qgis_process does not see it
    assert (PLUGIN / general["icon"]).is_file()
    assert adadino.__version__.startswith(general["version"])
