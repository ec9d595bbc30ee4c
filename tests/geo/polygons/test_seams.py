"""Changes traced in parts and joined are those of the whole scene, to the last byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adadino.geo.polygons.seams import join_parts, load_part, save_part, trace_part
from adadino.geo.polygons.vector import trace


@settings(max_examples=25)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(3, 17), st.integers(0, 2**32 - 1))
def test_parts_joined_are_the_whole(tmp_path_factory, height, width, side, seed):
    random = np.random.default_rng(seed)
    probability = random.random((height, width), np.float32)
    mask = (probability >= random.choice([0.3, 0.45, 0.5, 0.8])).astype(np.uint8)
    mask[random.random(mask.shape) < 0.05] = 255
    file, parts = tmp_path_factory.getbasetemp() / "part.npz", []
    for row in range(0, height, side):
        for col in range(0, width, side):
            piece = slice(row, row + side), slice(col, col + side)
            file.write_bytes(save_part(trace_part(mask[piece], probability[piece], row, col)))
            parts.append(load_part(file))
    ours, theirs = join_parts(parts, width=width), trace(mask, probability)
    assert [o.wkb for o in ours.outlines] == [o.wkb for o in theirs.outlines]
    for name in ("row", "col", "count", "total", "prob_max", "prob_mean"):
        assert np.array_equal(getattr(ours.parts, name), getattr(theirs.parts, name)), name


def test_where_a_part_is_missing_nothing_is_joined():
    mask = np.ones((4, 12), np.uint8)
    parts = [trace_part(mask[:, c : c + 4], mask[:, c : c + 4] / 1, 0, c) for c in (0, 8)]
    assert join_parts(parts, width=12).parts.count.tolist() == [16, 16]
    assert len(join_parts([], width=12).outlines) == 0
