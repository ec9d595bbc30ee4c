"""An export for the Deepness plugin of QGIS, read and run by Deepness's own code.

The code is not ours to keep. Set DEEPNESS to the folder that holds its package `deepness` (`src` of
its repository, or `python/plugins` of a QGIS profile that has it); elsewhere the tests skip.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from adadino.export import ExportOptions, export
from tests.test_export import FEW, a_model, a_pair, choose_chunks, needs_onnx, probability

pytestmark = pytest.mark.slow

PROFILES = Path.home() / ".local/share/QGIS/QGIS3/profiles/default/python/plugins"


@pytest.fixture
def segmentor(monkeypatch):
    """Deepness's class of segmentation models."""
    folder = Path(os.environ.get("DEEPNESS", PROFILES))
    if not (folder / "deepness").is_dir():
        pytest.skip(f"the Deepness plugin is not in {folder}; set DEEPNESS to where it is")
    monkeypatch.syspath_prepend(str(folder))
    from deepness.processing.models.segmentor import Segmentor

    yield Segmentor
    for name in [name for name in sys.modules if name.partition(".")[0] == "deepness"]:
        del sys.modules[name]


def test_deepness_reads_and_runs_the_export(segmentor, tmp_path):
    needs_onnx()
    model, samples = a_model(FEW), [a_pair(), a_pair()]
    options = ExportOptions(deepness=True, selection="static", size=64, resolution=30)
    done = export(model, tmp_path / "d.onnx", options, samples=samples)
    theirs = segmentor(str(done.path))
    assert segmentor.get_model_type_from_metadata(str(done.path)) == "Segmentor"
    assert theirs.get_metadata_resolution() == 30
    assert theirs.get_metadata_tile_size() == 64
    assert theirs.get_metadata_tiles_overlap() == 25
    assert theirs.get_metadata_segmentation_threshold() == 0.5
    assert theirs.get_number_of_output_channels() == [2]
    assert theirs.get_outputs_channel_names() == [["_background", "change"]]

    before, after = ((255 * image).round() for image in a_pair())
    stacked = np.concatenate([image.numpy() for image in (before, after)], 1)  # (1, 6, 64, 64)
    tiles = stacked.transpose(0, 2, 3, 1).astype(np.uint8)  # as Deepness cuts them: (1, 64, 64, 6)
    [answer] = theirs.process(tiles)
    chunks = choose_chunks(model, 3, samples)
    expected = probability(model, before / 255, after / 255, chunks=chunks).numpy()
    assert answer.shape == (1, 2, 64, 64)
    assert np.abs(answer[:, 1] - expected).max() < 1e-4
