"""When a pass is recorded. Recording itself needs a GPU (`benchmarks/engine_checks.py`)."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from adadino.engine import cuda
from adadino.engine.cuda import Graphs, _Recorded


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that note what is recorded, and replay by running the function again."""
    made = Graphs()
    made.noted = []

    def record(self, run, tensors, k):
        inputs = tuple(None if t is None else t.clone() for t in tensors)
        output = torch.zeros_like(inputs[0])

        class Replay:
            def replay(self):
                output.copy_(run(*inputs, k=k))

        self.noted.append(tuple(inputs[0].shape))
        return _Recorded(Replay(), inputs, output)

    monkeypatch.setattr(Graphs, "_record", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return made


def add(x, y, *, k):
    return x + k if y is None else x + y + k


def batch(n):
    return torch.arange(n, dtype=torch.float32)


def test_a_shape_that_comes_once_is_not_recorded(graphs):
    for n in (4, 3, 4, 2, 4):
        assert torch.equal(graphs(add, batch(n), None, k=1), batch(n) + 1)
    assert graphs.noted == []


def test_a_shape_that_comes_twice_in_a_row_is_recorded_once(graphs):
    for scale in (1, 2, 3, 4):
        assert torch.equal(graphs(add, scale * batch(4), batch(4), k=1), (scale + 1) * batch(4) + 1)
    graphs(add, batch(3), None, k=1)
    assert torch.equal(graphs(add, batch(4), batch(4), k=1), 2 * batch(4) + 1)
    assert graphs.noted == [(4,)]


def test_a_result_stays_when_the_next_batch_runs(graphs):
    kept = [graphs(add, scale * batch(4), None, k=0) for scale in (1, 2, 3, 4)]
    for scale, one in enumerate(kept, start=1):
        assert torch.equal(one, scale * batch(4))


def test_the_shape_that_was_not_used_for_longest_goes(graphs, monkeypatch):
    monkeypatch.setattr(cuda, "GRAPHS_KEPT", 2)
    for n in (2, 2, 3, 3, 2, 4, 4):
        graphs(add, batch(n), None, k=1)
    assert graphs.noted == [(2,), (3,), (4,)]
    graphs(add, batch(2), None, k=1)
    assert graphs.noted == [(2,), (3,), (4,)]  # 3 went, 2 was used after it
    for _ in range(2):
        graphs(add, batch(3), None, k=1)
    assert graphs.noted[-1] == (3,)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_a_copy_records_anew(graphs, again):
    for _ in range(2):
        graphs(add, batch(2), None, k=1)
    assert not again(graphs).recorded
