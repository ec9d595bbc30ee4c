"""A small scene and a small model, for the tests of scenes and of what runs models."""

from __future__ import annotations

import pytest

from adadino.data.synthetic import write_geotiff_pair
from tests.scene.runs import a_model


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    before, after, _ = write_geotiff_pair(folder, 7, (150, 210))
    return before, after


@pytest.fixture(scope="module")
def model():
    return a_model()
