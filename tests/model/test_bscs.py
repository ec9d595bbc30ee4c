"""BSCS against a naive float64 re-statement of Eq. 8-12, and its invariants."""

from __future__ import annotations

import math

import pytest
import torch

from adadino.config import PRESETS
from adadino.model.adadino import AdaDINO
from adadino.model.bscs import (
    ChunkSelector,
    Policy,
    pool_pair,
    rank_chunks,
    straight_through,
    top_chunks,
)
from tests.conftest import randomise, with_bscs

D, C, N, B = 6, 8, 5, 3


def naive_scores(policy: Policy, before: torch.Tensor, after: torch.Tensor) -> list[list[float]]:
    w1, b1 = policy.fc1.weight.tolist(), policy.fc1.bias.tolist()
    w2, b2 = policy.fc2.weight.tolist(), policy.fc2.bias.tolist()
    scores = []
    for one, two in zip(before.tolist(), after.tolist(), strict=True):
        h = [sum(one[t][c] for t in range(N)) / N for c in range(D)]
        h += [sum(two[t][c] for t in range(N)) / N for c in range(D)]
        h += [sum(abs(one[t][c] - two[t][c]) for t in range(N)) / N for c in range(D)]
        h += [sum(one[t][c] * two[t][c] for t in range(N)) / N for c in range(D)]
        a = [
            sum(w * v for w, v in zip(row, h, strict=True)) + b
            for row, b in zip(w1, b1, strict=True)
        ]
        a = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in a]
        scores.append(
            [
                sum(w * v for w, v in zip(row, a, strict=True)) + b
                for row, b in zip(w2, b2, strict=True)
            ]
        )
    return scores


def test_scores_equal_the_equations():
    policy = randomise(Policy(dim=D, hidden=7, chunks=C))
    before, after = torch.randn(B, N, D), torch.randn(B, N, D)
    expected = torch.tensor(naive_scores(policy, before, after))
    assert torch.allclose(policy(before, after), expected, atol=1e-5)


@pytest.mark.parametrize("k", range(1, C + 1))
def test_the_mask_is_the_naive_top_k_of_the_batch_mean(k):
    scores = torch.randn(B, C)
    mean = [sum(scores[b][c].item() for b in range(B)) / B for c in range(C)]
    best = sorted(range(C), key=lambda c: -mean[c])[:k]
    assert top_chunks(scores, k).tolist() == sorted(best)
    mask = straight_through(scores, k)
    assert mask.tolist() == [1.0 if c in best else 0.0 for c in range(C)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_mask_is_exactly_k_hot(dtype):
    for _ in range(50):
        mask = straight_through(torch.randn(4, 16).to(dtype) * 5, 6)
        assert ((mask == 0) | (mask == 1)).all()
        assert mask.sum() == 6


def test_the_gradient_is_the_sigmoids():
    scores = torch.randn(B, C, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(C, dtype=torch.float64)
    (straight_through(scores, 3, temperature=2.0) * weights).sum().backward()
    p = torch.sigmoid(scores.detach().mean(0) / 2)
    expected = (weights * p * (1 - p) / 2 / B).expand(B, C)
    assert torch.allclose(scores.grad, expected)


def test_the_configured_temperature_reaches_the_gradient(small):
    """Eq. 10 of a selector in training: sigmoid of the batch's mean score over tau."""
    weights = torch.randn(8)
    for tau in (0.5, 1.0, 4.0):
        selector = ChunkSelector(with_bscs(small, temperature=tau)).train()
        scores = torch.randn(B, 8, requires_grad=True)
        gate = selector.select(0, k=3, scores=scores, chunks=None).gate
        (gate * weights).sum().backward()
        for c in range(8):
            p = 1 / (1 + math.exp(-sum(scores[b][c].item() for b in range(B)) / B / tau))
            slope = weights[c].item() * p * (1 - p) / tau / B
            assert scores.grad[:, c].tolist() == pytest.approx([slope] * B, rel=1e-4, abs=1e-7)


def test_pooling_accumulates_in_float32():
    tokens = torch.full((1, 4096, 4), 1.0009765625).to(torch.bfloat16)
    small = torch.zeros_like(tokens)
    assert pool_pair(tokens, small).dtype == torch.float32
    noise = torch.randn(1, 4096, 4, dtype=torch.bfloat16) * 100
    assert torch.allclose(
        pool_pair(noise, noise)[:, :4].double(), noise.double().mean(1), atol=1e-3
    )


def test_parameters_are_the_papers():
    with torch.device("meta"):
        selector = ChunkSelector(PRESETS["vitl16"])
    assert sum(p.numel() for p in selector.policies[0].parameters()) == 1_052_944
    assert sum(p.numel() for p in selector.parameters()) == 25_270_656


def images(batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(batch, 3, 32, 32), torch.rand(batch, 3, 32, 32)


@pytest.mark.parametrize("k", range(1, 9))
def test_compact_inference_equals_the_masked_model(small, k):
    """The same weights, once through the gathered FFN and once through the training mask."""
    model = randomise(AdaDINO(small), 0.1).eval()
    before, after = images()
    compact = model(before, after, k=k).logits
    model.encoder.bscs.train()
    masked = model(before, after, k=k).logits
    assert (compact - masked).abs().max() < 1e-5


def test_all_chunks_is_the_dense_model_without_a_policy(small):
    model = randomise(AdaDINO(small), 0.1).eval()
    dense = randomise(AdaDINO(with_bscs(small, selection="off")), 0.1).eval()
    dense.load_state_dict(model.state_dict(), strict=False)
    before, after = images()
    output = model(before, after, k=8)
    assert output.scores is None
    assert torch.equal(output.logits, dense(before, after).logits)


def test_one_mask_for_the_whole_batch(small):
    """A pair's result depends on its batch through the mask alone: fix it, and it does not."""
    model = randomise(AdaDINO(small), 0.3).eval()
    before, after = images(4)
    whole = model(before, after)
    chunks = torch.stack([top_chunks(whole.scores[:, i], 3) for i in range(4)])
    assert torch.equal(model(before, after, chunks=chunks).logits, whole.logits)
    alone = model(before[:1], after[:1], chunks=chunks).logits
    assert torch.allclose(alone, whole.logits[:1], atol=1e-5)
    own_mask = model(before[:1], after[:1]).logits
    assert not torch.allclose(own_mask, whole.logits[:1], atol=1e-4)


def test_every_policy_weight_receives_a_gradient(small):
    model = randomise(AdaDINO(small), 0.3).train()
    model(*images()).logits.square().sum().backward()
    for name, parameter in model.encoder.bscs.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_training_the_mask_reduces_a_loss_that_only_the_choice_can_reduce():
    """The target is the FFN run with two hidden chunks; the policy must find them."""
    from adadino.model.backbone import FeedForward, Selection

    torch.manual_seed(3)
    ffn = randomise(FeedForward(dim=D, hidden=32, gated=False), 1.0).requires_grad_(False)
    policy = Policy(dim=D, hidden=16, chunks=8)
    before, after = torch.randn(4, N, D), torch.randn(4, N, D)
    wanted = torch.tensor([2, 5])
    target = ffn(before, Selection(4, keep=wanted))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    losses = []
    for _ in range(150):
        mask = straight_through(policy(before, after), 2)
        loss = (ffn(before, Selection(4, gate=mask)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.1
    assert losses[-1] < 1e-8
    assert top_chunks(policy(before, after), 2).tolist() == [2, 5]


def test_fixed_selections_come_from_the_ranking(small):
    ranking = tuple(tuple((i + j) % 8 for j in range(8)) for i in range(4))
    static = ChunkSelector(with_bscs(small, selection="static", ranking=ranking))
    bottom = ChunkSelector(with_bscs(small, selection="bottom", ranking=ranking))
    kinds = {"k": 3, "scores": None, "chunks": None}
    assert static.select(1, **kinds).keep.tolist() == [1, 2, 3]
    assert bottom.select(1, **kinds).keep.tolist() == [0, 6, 7]
    one, two = (ChunkSelector(with_bscs(small, selection="random", seed=s)) for s in (1, 1))
    other = ChunkSelector(with_bscs(small, selection="random", seed=2))
    assert torch.equal(one.fixed, two.fixed)
    assert not torch.equal(one.fixed, other.fixed)
    assert not list(static.parameters())


def test_rank_chunks_orders_by_the_mean_score(small):
    model = randomise(AdaDINO(small), 0.3).eval()
    batches = [images(2), images(1)]
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ranking = rank_chunks(model, batches)
    assert model.training  # as it was, and no running statistics moved
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.eval()
    scores = torch.cat([model(*b).scores for b in batches]).mean(0)
    for order, row in zip(ranking, scores, strict=True):
        assert list(order) == sorted(range(8), key=lambda c: -row[c].item())
    AdaDINO(with_bscs(small, selection="static", ranking=ranking))
