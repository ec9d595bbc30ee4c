"""Changes traced in parts and joined are those of the whole scene, to the last byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adadino.geo.polygons.seams import Part, load_part, merge_parts, save_part, trace_part


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
    theirs = trace_part(mask, probability, 0, 0)
    expect_equal(merge_parts(parts), theirs)
    # Blocks of parts that are joined first, of whatever side, change nothing.
    blocks: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        place = part.rows.start // (2 * side), part.cols.start // (3 * side)
        blocks.setdefault(place, []).append(part)
    expect_equal(merge_parts(merge_parts(blocks[place]) for place in sorted(blocks)), theirs)


def expect_equal(ours: Part, theirs: Part) -> None:
    assert (ours.rows, ours.cols) == (theirs.rows, theirs.cols)
    assert [o.wkb for o in ours.pieces.outlines] == [o.wkb for o in theirs.pieces.outlines]
    for name in ("row", "col", "count", "total", "prob_max", "prob_mean"):
        found, known = (getattr(part.pieces.parts, name) for part in (ours, theirs))
        assert np.array_equal(found, known), name
    for name in ("top", "bottom", "left", "right"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def test_where_a_part_is_missing_nothing_is_joined():
    mask = np.ones((4, 12), np.uint8)
    parts = [trace_part(mask[:, c : c + 4], mask[:, c : c + 4] / 1, 0, c) for c in (0, 8)]
    assert merge_parts(parts).pieces.parts.count.tolist() == [16, 16]
