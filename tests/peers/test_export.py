"""Peers as files: what is exported computes what the peer computes, for any size."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
import torch

from adadino.errors import AdaDINOError, ConfigError
from adadino.export import ExportOptions, export
from adadino.export.metadata import metadata_of
from adadino.export.portable import PairGraph, portable
from adadino.peers import PEERS, build_peer
from adadino.runtime.exported import ExportedModel
from adadino.scene import predict_scene
from tests.conftest import SMALL, randomise
from tests.peers import NAMES
from tests.scene.runs import two_dates


def a_peer(name):
    return randomise(build_peer(name, config=SMALL), 0.1).eval()


@pytest.mark.parametrize("name", NAMES)
def test_the_portable_peer_computes_what_the_peer_computes(name):
    model = a_peer(name)
    before, after = torch.rand(2, 1, 3, 77, 109)
    with torch.inference_mode():
        expected = model(before, after).logits.softmax(1)[:, 1]
        found = PairGraph(portable(model), k=None)(before, after)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_that_images_are_enlarged_only_where_they_are(name):
    assert metadata_of(a_peer(name))["enlarged"] == (SMALL.scale if PEERS[name].backbone else 1)


def test_chunks_are_not_a_peers_to_choose(tmp_path):
    for options in (ExportOptions(k=6), ExportOptions(selection="static")):
        with pytest.raises(ConfigError, match="unet has no FFN chunks to choose"):
            export(a_peer("unet"), tmp_path / "unet.onnx", options)


def test_a_peer_that_takes_one_size_only_says_so(tmp_path):
    with pytest.raises(AdaDINOError, match="Export for one size instead: --size 256"):
        export(a_peer("tome"), tmp_path / "tome.pt2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fc-siam-diff", "lite-unet", "ban", "tome"])
def test_a_peer_as_onnx(name, tmp_path):
    model, size = a_peer(name), 64 if name == "tome" else None
    done = export(model, tmp_path / "peer.onnx", ExportOptions(size=size))
    assert (done.metadata["peer"], done.metadata["k"]) == (name, None)
    file = ExportedModel(done.path, device="cpu")
    side = 64 if size else 90
    before, after = torch.rand(2, 1, 3, side, side)
    with torch.inference_mode():
        expected = model(before, after).logits.softmax(1)[:, 1].numpy()
    np.testing.assert_allclose(file.predict(before.numpy(), after.numpy()), expected, atol=5e-4)


@pytest.mark.slow
def test_a_scene_with_an_exported_peer(tmp_path):
    export(a_peer("fc-ef"), tmp_path / "peer.onnx")
    output = tmp_path / "change.tif"
    predict_scene(*two_dates(tmp_path), tmp_path / "peer.onnx", output=output)
    with rasterio.open(output) as raster:
        assert raster.tags()["ADADINO_PEER"] == "fc-ef"
        assert "ADADINO_K" not in raster.tags()
