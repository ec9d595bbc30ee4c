"""`adadino calibrate`, and what predict makes of a calibrated model."""

from __future__ import annotations

import json

import numpy as np
import rasterio

from adadino.checkpoint import load, save
from adadino.data.synthetic import write_geotiff_pair
from tests.training.adapt.test_adapt import base, data  # noqa: F401  (fixtures)


def test_a_model_is_calibrated_on_tiles(base, data, tmp_path, adadino):  # noqa: F811
    said = adadino("calibrate", base, "--data", data, "-o", tmp_path / "mine", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert load(tmp_path / "mine").temperature == found["temperature"]


def test_predict_writes_calibrated_values_and_says_so(base, tmp_path, adadino):  # noqa: F811
    model = load(base)
    model.temperature = 2.5
    save(model, tmp_path / "mine")
    before, after, _ = write_geotiff_pair(tmp_path, 7, (64, 96))
    maps = {}
    for name, folder in (("old", base), ("new", tmp_path / "mine")):
        said = adadino(
            "predict", before, after, "-o", tmp_path / f"{name}.tif", "--probability",
            tmp_path / f"{name}-p.tif", "--model", folder, "--tile", 64, "--overlap", 16,
            "--device", "cpu",
        )  # fmt: skip
        assert said.code == 0, said.err
        assert ("probabilities: calibrated" in said.out) == (name == "new")
        with rasterio.open(tmp_path / f"{name}-p.tif") as file:
            maps[name] = file.read(1).astype(np.float64)
            assert ("ADADINO_TEMPERATURE" in file.tags()) == (name == "new")
    assert not np.allclose(maps["old"], maps["new"], atol=1e-3)
