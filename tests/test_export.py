"""Exported models: one graph for every size, the same numbers, and a file only if they agree."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import rasterio
import torch

from adadino.config import ClassesConfig, StreamConfig
from adadino.errors import AdaDINOError, ConfigError, WeightsError, WriteError
from adadino.export import ExportOptions, export
from adadino.export import write as story
from adadino.export.freeze import choose_chunks, freeze_chunks
from adadino.export.portable import PairGraph, PortableSizes, portable
from adadino.model.adadino import AdaDINO
from adadino.model.sizes import Sizes
from adadino.runtime.exported import ExportedModel
from tests.conftest import SMALL, randomise, with_backbone, with_bscs, with_cgla, with_cpgr
from tests.scene.runs import two_dates

# Tracing takes as long as the graph has operators: the dynamic export leaves out what the others
# and the comparison below have.
FEW = with_cpgr(with_cgla(SMALL, mode="off"), prior=(), refiner=False)


def a_model(config=SMALL):
    """A model on whose answer every FFN chunk has a say."""
    model = randomise(AdaDINO(config), 0.3).eval()
    for block in model.encoder.backbone.blocks:
        block.ls2.data *= 10
    return model


def a_pair(batch=1, height=64, width=64):
    return torch.rand(2, batch, 3, height, width).unbind(0)


def probability(model, before, after, **chosen):
    with torch.inference_mode():
        return model(before, after, **chosen).logits.softmax(1)[:, 1]


CONFIGS = {
    "paper": SMALL,
    "order-invariant": dataclasses.replace(SMALL, order_invariant=True),
    "stream": dataclasses.replace(SMALL, stream=StreamConfig("lite0")),
    "gated": with_backbone(SMALL, gated=True),
    "blind": with_cgla(SMALL, mode="blind"),
    "random": with_bscs(SMALL, selection="random"),
    "not enlarged": dataclasses.replace(SMALL, scale=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_portable_model_computes_what_the_model_computes(name):
    model = a_model(CONFIGS[name])
    ours = PairGraph(portable(model), k=SMALL.bscs.k)
    for shape in ((2, 64, 64), (1, 77, 109), (1, 9, 300), (1, 264, 130)):
        before, after = a_pair(*shape)
        with torch.inference_mode():
            assert torch.allclose(ours(before, after), probability(model, before, after), atol=2e-6)


def test_every_operation_that_depends_on_a_size_has_its_portable_form():
    public = {name for name in vars(Sizes) if not name.startswith("_")}
    assert public == {name for name in vars(PortableSizes) if not name.startswith("_")}


@pytest.mark.parametrize("gated", [False, True])
def test_frozen_chunks_compute_what_chosen_ones_do_with_fewer_weights(gated):
    model = a_model(with_backbone(SMALL, gated=gated))
    chunks = choose_chunks(model, 3, [a_pair() for _ in range(4)])
    frozen = portable(model)
    k = freeze_chunks(frozen, chunks)
    before, after = a_pair(2)
    expected = probability(model, before, after, chunks=chunks)
    assert torch.allclose(probability(frozen, before, after, k=k), expected, atol=1e-6)
    assert not torch.allclose(probability(model, before, after, k=8), expected, atol=1e-3)
    for old, new in zip(model.encoder.backbone.blocks, frozen.encoder.backbone.blocks, strict=True):
        assert new.ffn.up.weight.numel() == old.ffn.up.weight.numel() * 3 // 8
    assert not any("policies" in name for name in frozen.state_dict())


def test_static_chunks_are_the_policys_the_rankings_or_an_error():
    model = a_model()
    pairs = [a_pair(), a_pair()]
    with torch.inference_mode():
        scores = torch.cat([model(*pair).scores for pair in pairs]).mean(0)
    assert choose_chunks(model, 3, pairs).tolist() == scores.topk(3).indices.sort().values.tolist()
    with pytest.raises(ConfigError, match="--samples"):
        choose_chunks(model, 3)
    ranking = tuple(tuple(range(7, -1, -1)) for _ in range(4))
    ranked = a_model(with_bscs(SMALL, selection="static", ranking=ranking))
    assert choose_chunks(ranked, 2).tolist() == [[6, 7]] * 4
    assert choose_chunks(model, 8) is None


def test_wrong_requests_are_refused_before_work_is_spent(tmp_path):
    model = a_model()
    taken = tmp_path / "taken.onnx"
    taken.write_text("mine")
    with pytest.raises(WriteError, match="--overwrite"):
        export(model, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(ConfigError, match=r"\.onnx or \.pt2"):
        export(model, tmp_path / "m.pth")
    with pytest.raises(ConfigError, match="k is 9"):
        export(model, tmp_path / "m.onnx", ExportOptions(k=9))
    with pytest.raises(ConfigError, match="Deepness reads ONNX"):
        export(model, tmp_path / "m.pt2", ExportOptions(deepness=True))
    with pytest.raises(ConfigError, match="opset is 9"):
        ExportOptions(opset=9)


@pytest.mark.slow
def test_a_file_that_disagrees_is_not_written(tmp_path, monkeypatch):
    def spoiled(model):
        copy = portable(model)
        copy.decoder.stages[-1].head.bias.data += torch.tensor([0.0, 1.0])
        return copy

    monkeypatch.setattr(story, "portable", spoiled)
    with pytest.raises(AdaDINOError, match="differ from the model's by up to 0"):
        export(a_model(FEW), tmp_path / "m.pt2", ExportOptions(size=40))
    assert list(tmp_path.iterdir()) == []


# --- ONNX ---


def needs_onnx():
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="pip install 'adadino[export]'")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, and its ONNX file for any batch, height and width."""
    needs_onnx()
    torch.manual_seed(0)
    model = a_model(dataclasses.replace(FEW, stream=StreamConfig("lite0")))
    return model, export(model, tmp_path_factory.mktemp("onnx") / "m.onnx")


@pytest.mark.slow
def test_one_onnx_file_takes_any_batch_height_and_width(exported):
    model, done = exported
    runs = ExportedModel(done.path, device="cpu")
    for shape in ((1, 64, 64), (3, 77, 109), (2, 150, 40), (1, 9, 9), (1, 256, 264)):
        before, after = a_pair(*shape)
        got = runs.predict(before.numpy(), after.numpy())
        assert np.abs(got - probability(model, before, after).numpy()).max() < 1e-5
    assert done.worst_difference < 1e-5
    assert len({shape[0] for shape in done.shapes}) > 1
    assert len({shape[1:] for shape in done.shapes}) > 1


@pytest.mark.slow
def test_onnxruntime_has_nothing_to_remark_on_casts(exported):
    onnx = pytest.importorskip("onnx", reason="it reads the file's operators")
    found = {node.op_type for node in onnx.load(exported[1].path).graph.node}
    assert "Cast" in found
    assert "CastLike" not in found


def test_casts_that_take_a_type_from_a_value_are_named():
    onnx = pytest.importorskip("onnx", reason="it makes the graph")
    from onnx import TensorProto, helper

    from adadino.export.trace import name_casts

    nodes = [helper.make_node("CastLike", ["x", "y"], ["z"])]
    values = [
        helper.make_tensor_value_info(name, kind, [2])
        for name, kind in (("x", TensorProto.FLOAT), ("y", TensorProto.INT64))
    ]
    result = helper.make_tensor_value_info("z", TensorProto.INT64, [2])
    proto = helper.make_model(helper.make_graph(nodes, "g", values, [result]))
    name_casts(proto)
    assert [(node.op_type, list(node.input)) for node in proto.graph.node] == [("Cast", ["x"])]
    assert proto.graph.node[0].attribute[0].i == TensorProto.INT64
    onnx.checker.check_model(proto)


@pytest.mark.slow
def test_the_file_says_what_it_is(exported):
    model, done = exported
    said = ExportedModel(done.path).metadata
    assert said == json.loads(json.dumps(done.metadata))
    assert said["classes"] == ["unchanged", "changed"]
    assert (said["threshold"], said["stride"], said["tile"]) == (0.5, 8, 256)
    assert said["normalization"]["mean"] == list(model.config.backbone.mean)
    assert (said["selection"], said["k"], said["precision"]) == ("batch", 3, "fp32")
    assert "DINOv3" in said["licence"]


WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "safetensors"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Blocked())
from adadino.cli.app import main
sys.argv = ["adadino", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_predict_takes_an_onnx_file_where_torch_is_not_installed(exported, tmp_path):
    from adadino.scene import SceneOptions, predict_scene

    model, done = exported
    dates = two_dates(tmp_path)
    outputs = ["-o", tmp_path / "c.tif", "--probability", tmp_path / "p.tif"]
    command = ["predict", *dates, *outputs, "--model", done.path, "--tile", "64", "--overlap", "16"]
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *map(str, command), "--json"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "for every tile" in json.loads(said.stdout)["warnings"][-1]
    # The same tiles through torch, each its own batch as in the file.
    options = SceneOptions(tile=64, overlap=16, selection="batch", batch=1)
    expected = predict_scene(*dates, model, options=options, device="cpu").probability
    with rasterio.open(tmp_path / "p.tif") as raster:
        assert np.abs(raster.read(1) - expected).max() < 1e-5
        assert raster.tags()["ADADINO_SELECTION"] == "tile"
    blocked = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "info"], capture_output=True, text=True, timeout=120
    )
    assert "torch is not installed" in blocked.stderr  # the block does block


@pytest.mark.slow
def test_deepness_reads_six_bands_and_its_keys_in_half_precision(tmp_path):
    needs_onnx()
    import onnx
    import onnxruntime

    model = a_model(FEW)
    options = ExportOptions(deepness=True, half=True, selection="static", size=64, resolution=30)
    samples = [a_pair(), a_pair()]
    done = export(model, tmp_path / "d.onnx", options, samples=samples)
    session = onnxruntime.InferenceSession(done.path)
    (image,), (classes,) = session.get_inputs(), session.get_outputs()
    assert (image.shape, classes.shape) == ([1, 6, 64, 64], [1, 2, 64, 64])
    assert image.type == "tensor(float)"
    before, after = a_pair()
    got = session.run(None, {image.name: torch.cat((before, after), 1).numpy()})[0]
    chunks = choose_chunks(model, 3, samples)
    expected = probability(model, before, after, chunks=chunks).numpy()
    assert np.abs(got[:, 1] - expected).max() < 0.01
    assert np.abs(got.sum(1) - 1).max() < 1e-6
    keys = session.get_modelmeta().custom_metadata_map
    assert json.loads(keys["model_type"]) == "Segmentor"
    assert json.loads(keys["class_names"]) == {"0": "_background", "1": "change"}
    assert json.loads(keys["standardization_mean"]) == [0.0] * 6
    assert json.loads(keys["standardization_std"]) == [1.0] * 6
    numbers = {name: json.loads(keys[name]) for name in ("resolution", "tile_size", "tiles_size")}
    assert numbers == {"resolution": 30, "tile_size": 64, "tiles_size": 64}
    assert (json.loads(keys["tiles_overlap"]), json.loads(keys["seg_thresh"])) == (25, 0.5)
    large = [t for t in onnx.load(done.path).graph.initializer if np.prod(t.dims) > 100]
    assert large
    assert {tensor.data_type for tensor in large} == {onnx.TensorProto.FLOAT16}


def test_files_that_are_not_ours_are_refused(tmp_path):
    needs_onnx()
    import onnx

    with pytest.raises(WeightsError, match="there is no model file"):
        ExportedModel(tmp_path / "none.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match="cannot run"):
        ExportedModel(tmp_path / "broken.onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    same = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [same]
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "o.onnx")
    with pytest.raises(WeightsError, match="not written by adadino export"):
        ExportedModel(tmp_path / "o.onnx")
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        ExportedModel(tmp_path / "o.onnx", device="tpu")


def test_a_model_with_classes_is_not_exported(tmp_path):
    config = dataclasses.replace(SMALL, classes=ClassesConfig(("water", "tree")))
    with pytest.raises(ConfigError, match=r"tells classes \(water, tree\), which an exported file"):
        export(AdaDINO(config), tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
