"""Our backbone is DINOv3: equal to transformers' released model, block by block.

DINOv2 is in test_dinov2.py.
"""

from __future__ import annotations

import pytest
import torch
from transformers import DINOv3ViTConfig, DINOv3ViTModel

from adadino.config import PRESETS, BackboneConfig
from adadino.model.backbone import Backbone, FeedForward, Selection
from adadino.model.weights import make_backbone, read_backbone
from tests.conftest import randomise


def reference(config: BackboneConfig) -> DINOv3ViTModel:
    return DINOv3ViTModel(
        DINOv3ViTConfig(
            hidden_size=config.dim,
            intermediate_size=config.ffn,
            num_hidden_layers=config.depth,
            num_attention_heads=config.heads,
            num_register_tokens=config.registers,
            use_gated_mlp=config.gated,
            hidden_act="silu" if config.gated else "gelu",
            query_bias=config.qkv_bias,
            value_bias=config.qkv_bias,
        )
    ).eval()


@pytest.mark.filterwarnings("ignore::adadino.errors.NormalizationWarning")
@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize(
    "shape", [(1, 64, 64), (3, 48, 112), (2, 16, 160)], ids=["square", "oblong", "one-row"]
)
def test_every_block_equals_transformers(tmp_path, gated, shape):
    config = BackboneConfig("x", dim=96, depth=5, heads=3, ffn=160, gated=gated, registers=4)
    theirs = randomise(reference(config), 0.1)
    theirs.save_pretrained(tmp_path)
    ours = make_backbone(read_backbone(tmp_path, config))
    image = torch.randn(shape[0], 3, *shape[1:])
    with torch.no_grad():
        expected = theirs(image, output_hidden_states=True)
        got = ours(image)
    # transformers lists the embedding first; its last entry is the un-normalised last block.
    for block, (a, b) in enumerate(zip(got[:-1], expected.hidden_states[1:], strict=False)):
        assert (a - b).abs().max() < 1e-5 * b.abs().max().clamp(min=1), f"block {block}"
    last = expected.last_hidden_state
    assert (got[-1] - last).abs().max() < 1e-5 * last.abs().max().clamp(min=1)


@pytest.mark.parametrize("name", [n for n in PRESETS if not PRESETS[n].backbone.grid])
def test_presets_have_the_released_parameter_counts(name):
    config = PRESETS[name].backbone
    with torch.device("meta"):
        theirs, ours = reference(config), Backbone(config)
    masked = theirs.embeddings.mask_token.numel()  # pretraining only, we have none
    count = sum(p.numel() for p in theirs.parameters()) - masked
    assert sum(p.numel() for p in ours.parameters()) == count


def test_512_pixels_are_1024_patches_and_5_prefix_tokens():
    with torch.device("meta"):
        backbone = Backbone(PRESETS["vitl16"].backbone)
        assert backbone.embed(torch.empty(2, 3, 512, 512)).shape == (2, 1024 + 1 + 4, 1024)


def test_frozen_means_frozen(small):
    backbone = Backbone(small.backbone)
    backbone.train()
    assert not any(m.training for m in backbone.modules())
    assert not any(p.requires_grad for p in backbone.parameters())


def test_trainable_backbone_trains():
    config = BackboneConfig("x", dim=32, depth=2, heads=2, ffn=64, trainable=True)
    backbone = Backbone(config).train()
    assert backbone.training
    backbone(torch.randn(1, 3, 32, 32))[-1].sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("k", range(1, 9))
def test_compact_ffn_equals_masked_ffn(gated, k):
    ffn = randomise(FeedForward(dim=24, hidden=64, gated=gated))
    x = torch.randn(2, 7, 24)
    keep = torch.randperm(8)[:k].sort().values
    gate = torch.zeros(8).scatter(0, keep, 1.0)
    compact = ffn(x, Selection(8, keep=keep))
    masked = ffn(x, Selection(8, gate=gate))
    assert (compact - masked).abs().max() < 1e-5
    if k == 8:
        assert torch.allclose(compact, ffn(x), atol=1e-5)
    else:
        assert not torch.allclose(compact, ffn(x), atol=1e-3)
