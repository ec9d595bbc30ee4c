from __future__ import annotations

import os

import pytest

from adadino.area import units
from adadino.area.units import Dates
from tests.area.regions import make_model, make_scene


@pytest.fixture(autouse=True)
def _small_units(monkeypatch):
    """Units may be smaller than the blocks of a raster: the tests' scenes are."""
    monkeypatch.setattr(units, "BLOCK", 64)


@pytest.fixture(autouse=True)
def _own_environment():
    """What a region tells GDAL through the environment is not for the tests that follow."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    return Dates("town", *make_scene(tmp_path_factory.mktemp("scene")))
