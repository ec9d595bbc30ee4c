"""The pair of classes that is chosen, against a search over all pairs."""

from __future__ import annotations

from itertools import permutations

import torch

from adadino.semantic.choice import from_to


def test_it_is_the_best_pair_of_different_classes():
    chances = torch.randn(3, 2, 5, 7, 11).softmax(2)
    found = from_to(chances).long() - 1
    first, second = chances.unbind(1)
    products = torch.stack([first[:, i] * second[:, j] for i, j in permutations(range(5), 2)])
    chosen = first.gather(1, found[:, :1]) * second.gather(1, found[:, 1:])
    assert torch.equal(chosen[:, 0], products.amax(0))
    assert (found[:, 0] != found[:, 1]).all()


def test_where_the_dates_differ_each_has_its_own_largest():
    chances = torch.randn(2, 2, 4, 9, 9).softmax(2)
    own = chances.argmax(2) + 1
    differ = own[:, 0] != own[:, 1]
    assert torch.equal(from_to(chances)[:, 0][differ].long(), own[:, 0][differ])
    assert torch.equal(from_to(chances)[:, 1][differ].long(), own[:, 1][differ])


def test_swapped_dates_swap_the_classes():
    chances = torch.rand(2, 2, 4, 9, 9)
    assert torch.equal(from_to(chances.flip(1)), from_to(chances).flip(1))


def test_one_scene_without_a_batch_will_do():
    assert from_to(torch.rand(2, 3, 4, 5)).shape == (2, 4, 5)
