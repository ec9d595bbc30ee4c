"""Three key layouts load back to identical outputs; anything else gets one clear error."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file
from transformers import DINOv3ViTConfig, DINOv3ViTModel

from adadino.checkpoint import save
from adadino.config import LVD_MEAN, SAT_MEAN, BackboneConfig
from adadino.errors import NormalizationWarning, WeightsError
from adadino.hub import is_hub_id
from adadino.model.adadino import AdaDINO
from adadino.model.backbone import Backbone
from adadino.model.weights import make_backbone, read_backbone
from tests.conftest import SMALL, randomise

pytestmark = pytest.mark.filterwarnings("ignore::adadino.errors.NormalizationWarning")

PLAIN = BackboneConfig("x", dim=32, depth=2, heads=2, ffn=48, registers=4)
GATED = BackboneConfig("x", dim=32, depth=2, heads=2, ffn=48, registers=4, gated=True)


def hf(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Write the weights as transformers does, through its own class."""
    c = backbone.config
    model = DINOv3ViTModel(
        DINOv3ViTConfig(
            hidden_size=c.dim,
            intermediate_size=c.ffn,
            num_hidden_layers=c.depth,
            num_attention_heads=c.heads,
            num_register_tokens=c.registers,
            use_gated_mlp=c.gated,
        )
    )
    state = {
        "embeddings.cls_token": backbone.cls_token,
        "embeddings.mask_token": torch.zeros(1, 1, c.dim),
        "embeddings.register_tokens": backbone.registers,
        "embeddings.patch_embeddings.weight": backbone.patch_embed.weight,
        "embeddings.patch_embeddings.bias": backbone.patch_embed.bias,
        "norm.weight": backbone.norm.weight,
        "norm.bias": backbone.norm.bias,
    }
    for i, block in enumerate(backbone.blocks):
        p = f"model.layer.{i}."
        q, k, v = block.attn.qkv.weight.chunk(3)
        state |= {
            p + "norm1.weight": block.norm1.weight,
            p + "norm1.bias": block.norm1.bias,
            p + "norm2.weight": block.norm2.weight,
            p + "norm2.bias": block.norm2.bias,
            p + "attention.q_proj.weight": q,
            p + "attention.q_proj.bias": block.attn.q_bias,
            p + "attention.k_proj.weight": k,
            p + "attention.v_proj.weight": v,
            p + "attention.v_proj.bias": block.attn.v_bias,
            p + "attention.o_proj.weight": block.attn.proj.weight,
            p + "attention.o_proj.bias": block.attn.proj.bias,
            p + "layer_scale1.lambda1": block.ls1,
            p + "layer_scale2.lambda1": block.ls2,
        }
        for part in ("gate", "up", "down") if c.gated else ("up", "down"):
            linear = getattr(block.ffn, part)
            state[p + f"mlp.{part}_proj.weight"] = linear.weight
            state[p + f"mlp.{part}_proj.bias"] = linear.bias
    model.load_state_dict({k: v.detach().clone() for k, v in state.items()}, strict=True)
    return {k.removeprefix("model."): v.clone() for k, v in model.state_dict().items()}


def meta(backbone: Backbone) -> dict[str, torch.Tensor]:
    state = {
        "cls_token": backbone.cls_token,
        "storage_tokens": backbone.registers,
        "mask_token": torch.zeros(1, backbone.config.dim),
        "rope_embed.periods": torch.ones(4),
        "patch_embed.proj.weight": backbone.patch_embed.weight,
        "patch_embed.proj.bias": backbone.patch_embed.bias,
        "norm.weight": backbone.norm.weight,
        "norm.bias": backbone.norm.bias,
        # The SAT and 7B releases carry a second norm for the class token.
        "local_cls_norm.weight": torch.ones(backbone.config.dim),
        "local_cls_norm.bias": torch.zeros(backbone.config.dim),
    }
    for i, block in enumerate(backbone.blocks):
        p = f"blocks.{i}."
        # The key's part of the bias is masked in DINOv3, whatever the file holds there.
        k_bias = torch.full_like(block.attn.q_bias, float("nan"))
        state |= {
            p + "attn.qkv.weight": block.attn.qkv.weight,
            p + "attn.qkv.bias": torch.cat((block.attn.q_bias, k_bias, block.attn.v_bias)),
            p + "attn.qkv.bias_mask": torch.ones(3 * backbone.config.dim),
            p + "attn.proj.weight": block.attn.proj.weight,
            p + "attn.proj.bias": block.attn.proj.bias,
            p + "ls1.gamma": block.ls1,
            p + "ls2.gamma": block.ls2,
        }
        for norm in ("norm1", "norm2"):
            for kind in ("weight", "bias"):
                state[f"{p}{norm}.{kind}"] = getattr(getattr(block, norm), kind)
        gated = {"gate": "w1", "up": "w2", "down": "w3"}
        for part, name in (
            gated if backbone.config.gated else {"up": "fc1", "down": "fc2"}
        ).items():
            state[f"{p}mlp.{name}.weight"] = getattr(block.ffn, part).weight
            state[f"{p}mlp.{name}.bias"] = getattr(block.ffn, part).bias
    return {k: v.detach().clone() for k, v in state.items()}


def timm(backbone: Backbone) -> dict[str, torch.Tensor]:
    rename = {
        "storage_tokens": "reg_token",
        ".ls1.gamma": ".gamma_1",
        ".ls2.gamma": ".gamma_2",
        ".w1.": ".fc1_g.",
        ".w2.": ".fc1_x.",
        ".w3.": ".fc2.",
    }
    state = {}
    for key, value in meta(backbone).items():
        if key.startswith(("local_cls", "rope", "mask")) or key.endswith("bias_mask"):
            continue
        for a, b in rename.items():
            key = key.replace(a, b)
        if key.endswith("qkv.bias"):
            q, _, v = value.chunk(3)
            state[key.replace("qkv.bias", "q_bias")] = q.clone()
            state[key.replace("qkv.bias", "v_bias")] = v.clone()
        else:
            state[key] = value
    return state


def write_folder(path, state, **beside):
    path.mkdir()
    save_file({k: v.contiguous() for k, v in state.items()}, path / "model.safetensors")
    for name, data in beside.items():
        (path / f"{name}.json").write_text(json.dumps(data))
    return path


@pytest.mark.parametrize("config", [PLAIN, GATED], ids=["plain", "gated"])
@pytest.mark.parametrize("layout", ["huggingface", "meta", "timm"])
def test_each_layout_loads_to_identical_outputs(tmp_path, layout, config):
    backbone = randomise(Backbone(config))
    if layout == "meta":
        source = tmp_path / "dinov3_x_pretrain_sat493m-0123abcd.pth"
        torch.save(meta(backbone), source)
    else:
        writer = hf if layout == "huggingface" else timm
        source = write_folder(tmp_path / "w", writer(backbone))
    weights = read_backbone(source, config)
    assert weights.layout == layout
    loaded = make_backbone(weights)
    image = torch.randn(2, 3, 48, 32)
    for a, b in zip(backbone(image), loaded(image), strict=True):
        assert torch.equal(a, b)
    assert not any(p.requires_grad for p in loaded.parameters())


def test_sharded_folder(tmp_path):
    backbone = randomise(Backbone(PLAIN))
    state = hf(backbone)
    names = sorted(state)
    shards = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, keys in shards.items():
        save_file({k: state[k] for k in keys}, tmp_path / file)
    index = {"weight_map": {k: file for file, keys in shards.items() for k in keys}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = make_backbone(read_backbone(tmp_path, PLAIN))
    assert torch.equal(loaded.norm.weight, backbone.norm.weight)


def test_timm_without_qkv_bias_means_zero(tmp_path):
    backbone = randomise(Backbone(PLAIN))
    state = {k: v for k, v in timm(backbone).items() if not k.endswith(("q_bias", "v_bias"))}
    loaded = make_backbone(read_backbone(write_folder(tmp_path / "w", state), PLAIN))
    assert loaded.blocks[0].attn.q_bias.abs().max() == 0


@pytest.mark.parametrize(
    ("beside", "name", "expected"),
    [
        (
            {"preprocessor_config": {"image_mean": SAT_MEAN, "image_std": [0.2, 0.2, 0.2]}},
            "w",
            SAT_MEAN,
        ),
        ({"config": {"pretrained_cfg": {"mean": LVD_MEAN, "std": [0.2] * 3}}}, "w", LVD_MEAN),
        ({}, "vit_large_patch16_dinov3.sat493m", SAT_MEAN),
        ({}, "dinov3-vitl16-pretrain-lvd1689m", LVD_MEAN),
    ],
    ids=["preprocessor", "timm-config", "sat-name", "lvd-name"],
)
def test_the_normalisation_travels_with_the_weights(tmp_path, beside, name, expected):
    source = write_folder(tmp_path / name, timm(randomise(Backbone(PLAIN))), **beside)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_backbone(source, PLAIN).config.mean == tuple(expected)


def test_an_unknown_normalisation_warns(tmp_path):
    source = write_folder(tmp_path / "w", timm(randomise(Backbone(PLAIN))))
    with pytest.warns(NormalizationWarning, match="does not say"):
        read_backbone(source, PLAIN)


def _lacks_tensor(state):
    del state["blocks.1.norm2.weight"]
    return r"blocks\.1\.norm2\.weight is missing"


def _wrong_shape(state):
    state["blocks.0.mlp.fc1.weight"] = torch.zeros(7, 32)
    return r"ffn\.up\.weight is \(7, 32\), not \(48, 32\)"


def _foreign_key(state):
    state["head.weight"] = torch.zeros(2, 2)
    return r"holds head\.weight"


def _not_finite(state):
    state["norm.weight"] = torch.full((32,), float("inf"))
    return r"norm\.weight holds NaN or infinity"


def _other_model(state):
    state.clear()
    state["conv1.weight"] = torch.zeros(1)
    return r"not DINOv3 .* conv1\.weight"


@pytest.mark.parametrize(
    "spoil", [_lacks_tensor, _wrong_shape, _foreign_key, _not_finite, _other_model]
)
def test_wrong_weights_are_refused_by_name(tmp_path, spoil):
    state = timm(randomise(Backbone(PLAIN)))
    message = spoil(state)
    with pytest.raises(WeightsError, match=message):
        read_backbone(write_folder(tmp_path / "w", state), PLAIN)


def _no_class_token(state):
    del state["cls_token"]
    return "cls_token is missing.*; download them again"


def _scalar(state):
    state["blocks.0.mlp.fc1.weight"] = torch.zeros(())
    return r"ffn\.up\.weight is \(\)"


def _half_a_bias(state):
    for name in ("q_bias", "v_bias"):
        del state[f"blocks.0.attn.{name}"]
    state["storage_tokens"] = state.pop("reg_token")
    for block in (0, 1):
        for i in "12":
            state[f"blocks.{block}.ls{i}.gamma"] = state.pop(f"blocks.{block}.gamma_{i}")
    for name in ("q_bias", "v_bias"):
        del state[f"blocks.1.attn.{name}"]
    state["blocks.0.attn.qkv.bias"] = torch.zeros(64)
    return r"blocks\.0\.attn\.qkv\.bias is \(64,\), not three equal parts"


@pytest.mark.parametrize("spoil", [_no_class_token, _scalar, _half_a_bias])
def test_tensors_of_odd_shape_are_an_error_of_ours(tmp_path, spoil):
    state = timm(randomise(Backbone(PLAIN)))
    message = spoil(state)
    with pytest.raises(WeightsError, match=message):
        read_backbone(write_folder(tmp_path / "w", state), PLAIN)


def test_a_projection_of_another_shape_is_refused(tmp_path):
    state = hf(randomise(Backbone(PLAIN)))
    state["layer.0.attention.k_proj.weight"] = torch.zeros(7, 5)
    with pytest.raises(WeightsError, match=r"equal shape beside blocks\.0\.attn\.q\.weight"):
        read_backbone(write_folder(tmp_path / "w", state), PLAIN)


@pytest.mark.parametrize("shards", [{}, [], None, {"a": "../x"}, {"a": 3}, {"a": "/etc/passwd"}])
def test_a_hostile_index_is_refused(tmp_path, shards):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(WeightsError, match=r"names no weight files|no weights file|cannot read"):
        read_backbone(tmp_path, PLAIN)


def test_a_state_dict_must_be_plain_tensors_by_name(tmp_path):
    for number, state in enumerate(
        (
            {1: torch.zeros(1)},
            {"cls_token": torch.eye(2).to_sparse()},
            {"cls_token": torch.empty(2, device="meta")},
            [torch.zeros(1)],
        )
    ):
        path = tmp_path / f"{number}.pth"
        torch.save(state, path)
        with pytest.raises(WeightsError, match=rf"{number}\.pth"):
            read_backbone(path, PLAIN)


@pytest.mark.parametrize(
    "said", [{"mean": [0.5] * 2}, {"mean": "grey"}, {"std": [0, 1, 1]}, {"mean": [1e999, 0, 0]}]
)
def test_a_normalisation_that_is_no_three_numbers_is_refused(tmp_path, said):
    beside = {"config": {"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3} | said}}
    source = write_folder(tmp_path / "w", timm(randomise(Backbone(PLAIN))), **beside)
    with pytest.raises(WeightsError, match="not three numbers each"):
        read_backbone(source, PLAIN)


def test_weights_of_another_preset_name_it(tmp_path):
    from adadino.config import preset

    source = write_folder(tmp_path / "w", timm(Backbone(preset("tiny").backbone)))
    with pytest.raises(WeightsError, match="look like tiny"):
        read_backbone(source, PLAIN)
    assert read_backbone(source).config.name == "tiny"


def test_a_pickle_with_code_is_refused_and_never_run(tmp_path):
    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    path = tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps({"storage_tokens": Hostile()}))
    torch.save({"storage_tokens": Hostile()}, tmp_path / "evil2.pth")
    for file in (path, tmp_path / "evil2.pth"):
        with pytest.raises(WeightsError, match="never loaded"):
            read_backbone(file, PLAIN)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("keep", [0, 4, 100, 3000])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_truncated_files_are_refused(tmp_path, keep, suffix):
    whole = tmp_path / f"whole{suffix}"
    state = meta(randomise(Backbone(PLAIN)))
    if suffix == ".pth":
        torch.save(state, whole)
    else:
        save_file(state, whole)
    part = tmp_path / f"part{suffix}"
    part.write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(WeightsError, match="cannot read weights"):
        read_backbone(part, PLAIN)


def test_a_model_of_ours_gives_its_backbone(tmp_path):
    from adadino.checkpoint import load, save

    for source in ("tiny", save(load("tiny"), tmp_path / "model", with_backbone=True)):
        weights = read_backbone(source)
        assert (weights.config.name, weights.layout) == ("tiny", "adadino")
        own = load("tiny").dino.state_dict()
        assert all(torch.equal(weights.tensors[name], own[name].float()) for name in own)


def test_a_mistyped_path_is_not_looked_for_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    assert is_hub_id("facebook/dinov3-vitl16-pretrain-sat493m")
    for name in ("weights/vitl16", "./model", "../x", "runs/best.safetensors"):
        assert not is_hub_id(name)


def test_a_missing_file_is_named():
    with pytest.raises(WeightsError, match=r"no weights file .*nowhere\.pth"):
        read_backbone("nowhere.pth", PLAIN)


def test_another_number_of_heads_is_refused(tmp_path):
    """The shapes fit; only config.json tells."""
    state = hf(randomise(Backbone(PLAIN)))
    source = write_folder(tmp_path / "w", state, config={"num_attention_heads": 4})
    with pytest.raises(WeightsError, match="has 4 attention heads, x 2"):
        read_backbone(source, PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 4}, "has 4 attention heads, small 2"),
        ({"rope_theta": 50.0}, r"rope_theta 50\.0, small 100\.0; set model\.backbone\.rope_theta"),
    ],
)
def test_a_checkpoint_of_ours_with_another_attention_is_refused(tmp_path, change, message):
    config = dataclasses.replace(SMALL.backbone, **change)
    held = save(AdaDINO(dataclasses.replace(SMALL, backbone=config)), tmp_path, with_backbone=True)
    assert read_backbone(held, config).config.heads == config.heads
    with pytest.raises(WeightsError, match=message):
        read_backbone(held, SMALL.backbone)
