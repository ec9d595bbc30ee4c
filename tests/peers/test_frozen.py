"""The peers on the frozen backbone: they start from AdaDINO's baseline; tokens merge rightly."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from adadino.benchmark.cost import count_flops
from adadino.model.adadino import AdaDINO
from adadino.peers import build_peer
from adadino.peers.ban import Bridge
from adadino.peers.frozen import FrozenPeer, baseline
from adadino.peers.peftcd import LowRank
from adadino.peers.tome import Pairing, Tokens, ToMe, _start, attend
from adadino.peers.ttp import TimeGate
from tests.conftest import SMALL, randomise


def as_baseline(peer: FrozenPeer) -> AdaDINO:
    """AdaDINO's frozen baseline with a peer's own weights."""
    model = AdaDINO(baseline(peer.config), backbone=peer.backbone)
    model.neck, model.decoder, model.refiner = peer.neck, peer.decoder, peer.refiner
    return model.eval()


def roughen(peer: FrozenPeer) -> FrozenPeer:
    """A backbone and decoder of noise, and the adaptation as it starts."""
    for part in (peer.backbone, peer.neck, peer.decoder):
        randomise(part, 0.2)
    return peer.eval()


@pytest.mark.parametrize("name", ["peftcd", "ttp", "tome"])
@pytest.mark.parametrize("scale", [1, 2])
@torch.inference_mode()
def test_an_adaptation_starts_as_the_frozen_baseline(name, scale):
    config = dataclasses.replace(SMALL, scale=scale)
    peer = roughen(build_peer(name, config))
    if name == "tome":
        peer.left = 1
    before, after = torch.rand(2, 3, 40, 72), torch.rand(2, 3, 40, 72)
    ours, theirs = peer(before, after), as_baseline(peer)(before, after)
    assert torch.allclose(ours.logits, theirs.logits, atol=1e-4)
    for one, two in zip(ours.pyramid, theirs.pyramid, strict=True):
        assert torch.allclose(one, two, atol=1e-4)


def test_a_low_rank_update_is_the_product_of_its_factors():
    lora = LowRank(inside=6, outside=9, rank=2, alpha=8)
    weight = torch.randn(9, 6)
    assert torch.equal(lora(weight), weight)
    torch.nn.init.normal_(lora.up)
    update = lora(weight) - weight
    assert torch.linalg.matrix_rank(update) == 2
    x = torch.randn(5, 6)
    beside = F.linear(x, weight) + 4 * F.linear(F.linear(x, lora.down), lora.up)
    assert torch.allclose(F.linear(x, lora(weight)), beside, atol=1e-5)


@torch.inference_mode()
def test_gates_let_one_date_reach_the_other_and_leave_prefix_tokens():
    peer = roughen(build_peer("ttp", SMALL))
    for gate in peer.gates.values():
        torch.nn.init.normal_(gate.ffn[2].weight)
    x = torch.randn(4, 3 + 6, 32)
    gate = peer.gates["0"]
    changed = x.clone()
    changed[2:] += 1
    moved = gate(x[:, 3:])[:2] - gate(changed[:, 3:])[:2]
    assert moved.abs().min(-1).values.gt(0).all()
    rope = peer.backbone.rope(2, 3)
    frozen = FrozenPeer.step(peer, 0, x, rope)
    assert torch.equal(peer.step(0, x, rope)[:, :3], frozen[:, :3])


@torch.inference_mode()
def test_a_gate_gives_a_date_what_the_other_has():
    """TTP: x1 + FFN(sigmoid(w [x1; x2]) x2), and the reverse; ours gives both dates at once."""
    gate = randomise(TimeGate(6))
    before, after = torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    first, second = gate(torch.cat((before, after))).unflatten(0, (2, 2))
    (w,) = gate.gate.weight
    for b in range(2):
        for place in range(5):
            x1, x2 = before[b, place], after[b, place]
            opened = 1 / (1 + torch.exp(-(w[:6] @ x1 + w[6:] @ x2)))
            assert torch.allclose(first[b, place], x1 + gate.ffn(opened * x2), atol=1e-5)
            assert torch.allclose(second[b, place], x2 + gate.ffn(opened * x1), atol=1e-5)


def test_a_gate_starts_as_the_mean_of_all_channels():
    gate = TimeGate(6)
    x = torch.randn(3, 12)
    assert torch.allclose(gate.gate(x)[:, 0], x.mean(1), atol=1e-6)


@torch.inference_mode()
def test_a_bridge_adds_the_frozen_features_resized():
    """BAN: with nothing read by attention and nothing from the FFN, branch plus resized frozen."""
    bridge = randomise(Bridge(frozen=12, width=8, heads=2))
    for last in (bridge.proj, bridge.ffn.down):
        last.weight.zero_()
        last.bias.zero_()
    x, frozen = torch.randn(2, 8, 6, 4), torch.randn(2, 12, 3, 5)
    norm, conv = bridge.align
    normed = F.layer_norm(frozen.movedim(1, -1), (12,), norm.weight, norm.bias).movedim(-1, 1)
    aligned = torch.einsum("oc,bchw->bohw", conv.weight[:, :, 0, 0], normed)
    aligned = aligned + conv.bias[:, None, None]
    resized = F.interpolate(aligned, (6, 4), mode="bilinear", align_corners=False)
    assert torch.allclose(bridge(x, frozen), x + resized, atol=1e-5)


def test_the_most_similar_pairs_merge():
    # Patches 0, 2, 4 look for partners among 1, 3, 5. 4 equals 1; 0 is near 3; 2 is unlike all.
    keys = torch.tensor([[[1.0, 0.1], [0.0, 1.0], [-1.0, -1.0], [1.0, 0.0], [0.0, 1.0], [0.9, -1]]])
    pairing = Pairing.find(keys, 2)
    assert pairing.merged.tolist() == [[2, 0]]  # positions in the first set: patches 4 and 0
    assert pairing.target.tolist() == [[0, 1]]  # positions in the second set: patches 1 and 3
    assert pairing.kept.tolist() == [[1]]
    values = torch.arange(6.0).view(1, 6, 1)
    assert pairing.select(values).flatten().tolist() == [2, 1, 3, 5]
    assert pairing.add(values).flatten().tolist() == [2, 5, 3, 5]
    assert pairing.moves(6).tolist() == [[2, 1, 0, 2, 1, 3]]


def test_merged_tokens_are_means_and_every_patch_finds_its_own():
    prefix, n = 3, 15
    x = torch.randn(2, prefix + n, 8)
    tokens = _start(x, prefix)
    for r in (4, 3, 2):
        tokens = tokens.merge(torch.randn(2, tokens.x.shape[1], 4), prefix=prefix, r=r)
    assert tokens.x.shape == (2, prefix + n - 9, 8)
    assert torch.equal(tokens.x[:, :prefix], x[:, :prefix])
    assert tokens.weight.sum((1, 2)).tolist() == [prefix + n] * 2
    restored = tokens.restore(prefix)
    assert restored.shape == x.shape
    for sample in range(2):
        for token in range(n - 9):
            mine = tokens.source[sample] == token
            assert int(mine.sum()) == int(tokens.weight[sample, prefix + token])
            mean = x[sample, prefix:][mine].mean(0)
            assert torch.allclose(tokens.x[sample, prefix + token], mean, atol=1e-5)
            # It lies where one of its own patches lay.
            assert mine[tokens.place[sample, prefix + token] - prefix]


@torch.inference_mode()
def test_attention_over_single_patches_is_the_backbones():
    """`attend` mirrors `Attention.forward`: one that changes alone is noticed here."""
    peer = roughen(ToMe(SMALL))
    attention, tables = peer.backbone.blocks[0].attn, peer.backbone.rope(3, 5)
    x = torch.randn(2, SMALL.backbone.prefix + 15, 32)
    rope = tuple(table.expand(2, -1, -1) for table in tables)
    got, _ = attend(attention, x, rope, torch.ones(2, x.shape[1], 1))
    assert torch.allclose(got, attention(x, tables), atol=1e-5)


@torch.inference_mode()
def test_merging_equal_patches_changes_nothing():
    """Attention counts a token as often as it has patches, so equal ones may as well be one."""
    peer = roughen(ToMe(SMALL))
    rope = tuple(torch.ones(2, 7, 16) * value for value in (1.0, 0.0))  # no places
    x = torch.randn(2, 7, 32)
    x[:, 6] = x[:, 3]
    block = peer.backbone.blocks[0]
    every, _ = attend(block.attn, x, rope, torch.ones(2, 7, 1))
    weight = torch.ones(2, 6, 1)
    weight[:, 3] = 2
    fewer, _ = attend(block.attn, x[:, :6], tuple(t[:, :6] for t in rope), weight)
    assert torch.allclose(every[:, :6], fewer, atol=1e-5)


@pytest.mark.parametrize("left", [0.25, 0.5, 0.9])
@torch.inference_mode()
def test_the_share_of_patches_that_is_left(left, monkeypatch):
    seen = []
    merge = Tokens.merge

    def watch(tokens, keys, *, prefix, r):
        tokens = merge(tokens, keys, prefix=prefix, r=r)
        seen.append(tokens.x.shape[1] - prefix)
        return tokens

    monkeypatch.setattr(Tokens, "merge", watch)
    peer = ToMe(SMALL).eval()
    peer.left = left
    peer(torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64))  # 64 patches, four blocks
    assert seen == [round(64 - 64 * (1 - left) * i / 4) for i in (1, 2, 3, 4)]


@torch.inference_mode()
def test_merging_costs_less():
    costs = []
    with torch.device("meta"):
        image = torch.empty(1, 3, 128, 128)
        for left in (1, 0.25):
            peer = ToMe(SMALL).eval()
            peer.left = left
            images = peer.prepare_pair(image, image)
            costs.append(count_flops(lambda p=peer, i=images: p.encode(i)))
    assert costs[1] < 0.8 * costs[0]
