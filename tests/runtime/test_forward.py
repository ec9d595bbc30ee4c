"""A torch model over tiles: batches that fit, the engine, a model that was in training."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
import torch

from adadino.errors import AdaDINOError, MemoryWarning
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL
from tests.scene.runs import a_model, files, run


class Tight(AdaDINO):
    """A model on a device with room for a few tiles."""

    room = 0

    def forward(self, before, after, **options):
        if len(before) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(before, after, **options)


def tight(room):
    model = Tight(SMALL)
    model.load_state_dict(a_model().state_dict())
    model.room = room
    return model.eval()


def test_a_batch_that_does_not_fit_is_halved_with_a_warning(scene, model, tmp_path):
    with pytest.warns(MemoryWarning) as caught:
        result = run(scene, tight(2), tmp_path / "tight", selection="batch", batch=8)
    said = [str(warning.message) for warning in caught if warning.category is MemoryWarning]
    assert len(said) == 2  # 8 to 4, 4 to 2, and never again
    assert set(said) <= set(result.warnings)
    assert "going on with 2" in said[1]
    run(scene, model, tmp_path / "two", selection="batch", batch=2)
    assert files(tmp_path / "tight") == files(tmp_path / "two")


def test_a_tile_that_does_not_fit_is_an_error_with_the_way_out(scene, tmp_path):
    with pytest.raises(AdaDINOError, match=r"one tile of 64 x 64 pixels.*--tile.*--device cpu"):
        run(scene, tight(0), tmp_path, selection="batch", batch=1)
    assert not files(tmp_path)


def test_a_sample_that_does_not_fit_is_halved_too(scene, tmp_path):
    with pytest.warns(MemoryWarning, match="sample"):
        result = run(scene, tight(5), tmp_path)
    assert any("sample" in text for text in result.warnings)


def test_a_model_in_training_stays_in_training(scene, model, tmp_path):
    model.train()
    run(scene, model, tmp_path)
    assert model.training
    model.eval()


def test_the_engine_runs_where_it_was_asked_for(scene, model, tmp_path):
    plain = run(scene, model, tmp_path / "off", engine="off")
    auto = run(scene, model, tmp_path / "auto")
    fast = run(scene, model, tmp_path / "bf16", engine="bf16")
    assert (tmp_path / "off" / "p.tif").read_bytes() == (tmp_path / "auto" / "p.tif").read_bytes()
    near = np.abs(fast.probability - plain.probability)
    assert 0 < near.max() < 0.3
    assert near.mean() < 0.02
    with rasterio.open(tmp_path / "bf16" / "c.tif") as raster:
        assert raster.tags()["ADADINO_ENGINE"] == "bf16"
        model_tag = raster.tags()["ADADINO_MODEL"]
    with rasterio.open(tmp_path / "off" / "c.tif") as raster:
        assert "ADADINO_ENGINE" not in raster.tags()
        assert raster.tags()["ADADINO_MODEL"] == model_tag  # the same model, run another way
    assert auto.change_fraction == plain.change_fraction
