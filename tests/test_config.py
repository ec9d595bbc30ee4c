"""Presets as the paper has them, and errors that name the setting."""

from __future__ import annotations

import dataclasses

import pytest

from adadino.config import (
    LVD_MEAN,
    PRESETS,
    SAT_MEAN,
    BackboneConfig,
    BSCSConfig,
    CGLAConfig,
    Config,
    CPGRConfig,
    StreamConfig,
    preset,
)
from adadino.errors import ConfigError
from tests.conftest import with_backbone, with_bscs, with_cgla

VITL = PRESETS["vitl16"]


def test_the_papers_model():
    """App. A: ViT-L/16, eight depths, C = 16, k = 6, H = 512."""
    assert VITL.depths == (2, 5, 8, 11, 14, 17, 20, 23)
    assert VITL.groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert VITL.taps == (5, 11, 17, 23)
    assert (VITL.bscs.chunks, VITL.bscs.k, VITL.bscs.hidden) == (16, 6, 256)
    assert (VITL.cgla_hidden, VITL.cpgr.width, VITL.scale, VITL.stride) == (512, 256, 2, 8)
    assert (VITL.cgla.mode, VITL.cgla.delta) == ("pair", "antisymmetric")
    assert VITL.cpgr.prior == ("spatial", "delta")
    assert VITL.cpgr.alpha_prior == VITL.cgla.eta == VITL.cgla.gamma_delta == 0.05
    assert VITL.backbone.prefix == 5
    assert Config() == VITL


@pytest.mark.parametrize(
    ("name", "dim", "depth", "heads", "ffn", "gated"),
    [
        ("vits16", 384, 12, 6, 1536, False),
        ("vits16plus", 384, 12, 6, 1536, True),
        ("vitb16", 768, 12, 12, 3072, False),
        ("vitl16", 1024, 24, 16, 4096, False),
        ("vith16plus", 1280, 32, 20, 5120, True),
        ("vit7b16", 4096, 40, 32, 8192, True),
        ("tiny", 192, 12, 3, 768, False),
    ],
)
def test_backbones_are_dinov3s(name, dim, depth, heads, ffn, gated):
    backbone = preset(name).backbone
    assert backbone.name == name
    assert (backbone.dim, backbone.depth, backbone.heads) == (dim, depth, heads)
    assert (backbone.ffn, backbone.gated) == (ffn, gated)
    assert (backbone.patch, backbone.registers, backbone.rope_theta) == (16, 4, 100)
    assert backbone.qkv_bias == (name != "vit7b16")
    # Only these two exist with satellite weights.
    assert backbone.mean == (SAT_MEAN if name in ("vitl16", "vit7b16") else LVD_MEAN)
    assert not backbone.trainable


@pytest.mark.parametrize("name", PRESETS)
def test_depths_end_at_the_last_block_in_four_groups(name):
    config = PRESETS[name]
    depth = config.backbone.depth
    assert config.depths[-1] == config.taps[-1] == depth - 1
    assert len(config.depths) == (4 if depth == 12 else 8)
    assert len({b - a for a, b in zip(config.depths, config.depths[1:], strict=False)}) == 1
    assert [i for group in config.groups for i in group] == list(range(len(config.depths)))
    assert config.taps == tuple(config.depths[group[-1]] for group in config.groups)
    if depth == 12:
        assert config.depths == config.taps == (2, 5, 8, 11)


def test_depths_of_ones_own():
    config = with_cgla(VITL, depths=(0, 1, 5, 7, 20))
    assert config.depths == (0, 1, 5, 7, 20)
    assert sum(len(group) for group in config.groups) == 5
    assert len(config.taps) == 4
    assert config.taps[-1] == 20


ROW = tuple(range(16))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BackboneConfig(dim=0), r"backbone\.dim is 0"),
        (lambda: BackboneConfig(depth=-1), r"backbone\.depth is -1"),
        (lambda: BackboneConfig(heads=0), r"backbone\.heads is 0"),
        (lambda: BackboneConfig(ffn=0), r"backbone\.ffn is 0"),
        (lambda: BackboneConfig(patch=0), r"backbone\.patch is 0"),
        (lambda: BackboneConfig(registers=-1), r"backbone\.registers is -1"),
        (lambda: BackboneConfig(dim=36, heads=6), r"backbone\.dim 36 / heads 6"),
        (lambda: BackboneConfig(std=(1, 0, 1)), r"backbone\.std is \(1, 0, 1\)"),
        (lambda: BackboneConfig(rope_theta=0), r"backbone\.rope_theta is 0"),
        (lambda: BackboneConfig(norm_eps=-1e-5), r"backbone\.norm_eps is -1e-05"),
        (lambda: CGLAConfig(ratio=0), r"cgla\.ratio is 0"),
        (lambda: CGLAConfig(ratio=1e308), r"cgla\.ratio is 1e\+308"),
        (lambda: CGLAConfig(groups=0), r"cgla\.groups is 0"),
        (lambda: BSCSConfig(chunks=0), r"bscs\.chunks is 0"),
        (lambda: BSCSConfig(hidden=0), r"bscs\.hidden is 0"),
        (lambda: BSCSConfig(k=0), r"bscs\.k is 0, must be between 1 and bscs\.chunks = 16"),
        (lambda: BSCSConfig(k=17), r"bscs\.k is 17"),
        (lambda: BSCSConfig(temperature=0), r"bscs\.temperature is 0"),
        (lambda: BSCSConfig(ranking=(ROW, (0,) * 16)), r"bscs\.ranking of block 1"),
        (lambda: BSCSConfig(ranking=(ROW[:-1],)), r"bscs\.ranking of block 0"),
        (lambda: CPGRConfig(width=20), r"cpgr\.width is 20"),
        (lambda: CPGRConfig(prior=("delta", "delta")), r"cpgr\.prior .* repeats"),
        (lambda: Config(scale=3), r"scale is 3, must divide the patch side 16"),
        (lambda: Config(scale=0), r"scale is 0"),
        (lambda: with_bscs(VITL, chunks=24), r"bscs\.chunks is 24, must divide .* 4096"),
        (lambda: with_bscs(VITL, ranking=(ROW,)), r"bscs\.ranking has 1 rows, .* 24 blocks"),
        (lambda: with_bscs(VITL, selection="static"), r"static needs bscs\.ranking: train"),
        (lambda: with_bscs(VITL, selection="bottom"), r"bottom needs bscs\.ranking"),
        (lambda: with_cgla(VITL, depths=(1, 2, 3, 24)), r"cgla\.depths .* within 0\.\.23"),
        (lambda: with_cgla(VITL, depths=(-1, 2, 3, 4)), r"cgla\.depths \[-1"),
        (lambda: with_cgla(VITL, depths=(3, 2, 5, 7)), r"cgla\.depths .* must rise"),
        (lambda: with_cgla(VITL, depths=(2, 2, 5, 7)), r"cgla\.depths .* must rise"),
        (lambda: with_cgla(VITL, depths=(2, 5, 7)), r"cgla\.depths .* at least four"),
        (lambda: with_cgla(VITL, depths=()), r"cgla\.depths \[\]"),
        (lambda: with_cgla(VITL, groups=7), r"hidden width of 512, .* cgla\.groups = 7"),
        (lambda: with_backbone(VITL, depth=3), r"backbone\.depth is 3"),
        (
            lambda: Config(order_invariant=True, cgla=CGLAConfig(delta="symmetric")),
            r"order_invariant does not go with cgla\.delta=symmetric",
        ),
        (lambda: Config(stream=StreamConfig(weights="imagenet")), r"there is no stream"),
    ],
)
def test_an_impossible_setting_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_unknown_preset_lists_those_there_are():
    with pytest.raises(ConfigError, match=r"unknown preset 'vitx'; there are tiny, vits16, .*"):
        preset("vitx")


def test_a_configuration_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VITL.bscs.k = 4  # type: ignore[misc]
