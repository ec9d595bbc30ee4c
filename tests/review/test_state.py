"""From a log to a state: undo and redo, two reviewers, outlines."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from adadino.errors import InputError
from adadino.review import folder
from adadino.review.actions import Action
from adadino.review.shapes import check_outline
from adadino.review.state import replay
from tests.review.conftest import square

SHAPES = {1: shapely.box(0, 0, 10, 10), 2: shapely.box(20, 0, 30, 10)}


def log(*entries) -> list[Action]:
    return [
        Action(do=do, by=by, at="2026-01-01T00:00:00Z", n=n, **more)
        for n, (by, do, more) in enumerate(entries, start=1)
    ]


def judged(by, shape, verdict):
    return by, "judge", {"shape": shape, "verdict": verdict}


def verdicts(state) -> dict:
    return {shape: one.verdict for shape, one in state.verdicts.items()}


def test_undo_goes_back_one_by_one_and_redo_forth():
    entries = [judged("a", 1, "right"), judged("a", 1, "wrong"), judged("a", 2, "unsure")]
    undo, redo = ("a", "undo", {}), ("a", "redo", {})
    seen = [verdicts(replay(log(*entries, *[undo] * n), SHAPES)) for n in range(5)]
    assert seen == [{1: "wrong", 2: "unsure"}, {1: "wrong"}, {1: "right"}, {}, {}]
    back = [verdicts(replay(log(*entries, *[undo] * 3, *[redo] * n), SHAPES)) for n in range(5)]
    assert back == [{}, {1: "right"}, {1: "wrong"}, {1: "wrong", 2: "unsure"}, back[3]]


def test_a_new_action_ends_what_could_be_redone():
    state = replay(
        log(judged("a", 1, "right"), ("a", "undo", {}), judged("a", 2, "wrong"), ("a", "redo", {})),
        SHAPES,
    )
    assert verdicts(state) == {2: "wrong"}
    assert state.undo == {"a": 1}
    assert state.redo == {}


def test_undo_leaves_other_reviewers_alone():
    state = replay(log(judged("a", 1, "right"), judged("b", 2, "wrong"), ("a", "undo", {})), SHAPES)
    assert verdicts(state) == {2: "wrong"}
    assert state.redo == {"a": 1}


def test_reviewers_who_disagree_leave_a_polygon_disputed_until_one_gives_way():
    entries = [judged("a", 1, "right"), judged("b", 1, "wrong")]
    state = replay(log(*entries), SHAPES)
    assert state.verdicts[1].verdict == "unsure"
    assert state.verdicts[1].others == (("a", "right"), ("b", "wrong"))
    settled = replay(log(*entries, judged("a", 1, "wrong")), SHAPES).verdicts[1]
    assert (settled.verdict, settled.disputed, settled.by) == ("wrong", False, "a")


def test_a_drawing_that_was_taken_back_takes_what_others_did_to_it_along():
    drawn = ("a", "draw", {"geometry": square(40, 0, 50, 10)})
    bigger = ("b", "reshape", {"shape": 3, "geometry": square(40, 0, 60, 10)})
    assert replay(log(drawn, bigger), SHAPES).missed[3].geometry.area == 200
    assert replay(log(drawn, bigger, ("a", "undo", {})), SHAPES).missed == {}
    back = replay(log(drawn, bigger, ("a", "undo", {}), ("a", "redo", {})), SHAPES)
    assert back.missed[3].geometry.area == 200


def test_a_cut_takes_a_piece_of_what_is_there_now():
    piece = ("a", "cut", {"shape": 1, "geometry": square(0, 0, 5, 20)})
    state = replay(log(piece), SHAPES)
    assert state.reshaped[1].geometry.equals(shapely.box(5, 0, 10, 10))
    twice = ("b", "cut", {"shape": 1, "geometry": square(0, 0, 10, 5)})
    assert replay(log(piece, twice), SHAPES).reshaped[1].geometry.area == 25


def test_a_cut_leaves_no_lines_behind():
    touching = ("a", "cut", {"shape": 1, "geometry": square(10, 0, 20, 10)})
    assert replay(log(touching), SHAPES).reshaped[1].geometry.equals(SHAPES[1])


ACTS = st.one_of(
    st.tuples(st.sampled_from("ab"), st.just("undo"), st.just({})),
    st.tuples(st.sampled_from("ab"), st.just("redo"), st.just({})),
    st.tuples(
        st.sampled_from("ab"),
        st.just("judge"),
        st.fixed_dictionaries(
            {"shape": st.sampled_from([1, 2]), "verdict": st.sampled_from(["right", "wrong"])}
        ),
    ),
)


@settings(max_examples=100)
@given(st.lists(ACTS, max_size=30))
def test_undo_then_redo_is_nothing(entries):
    state = replay(log(*entries), SHAPES)
    for by in "ab":
        if state.undo.get(by):
            again = replay(log(*entries, (by, "undo", {}), (by, "redo", {})), SHAPES)
            assert again == state


def test_a_review_refuses_to_undo_nothing(review):
    with pytest.raises(InputError, match="nothing to undo"):
        review.act({"do": "undo"}, by="ana")
    review.act({"do": "note", "shape": 1, "note": "x"}, by="ana")
    with pytest.raises(InputError, match="ben has nothing to undo"):
        review.act({"do": "undo"}, by="ben")
    review.act({"do": "undo"}, by="ana")
    assert review.state().notes == {}


@pytest.mark.parametrize(
    ("geometry", "words"),
    [
        (square(100, 100, 120, 120), "outside the scene.*64 columns and 48 rows"),
        (square(5, 5, 5, 20), "no area"),
        ({"type": "Point", "coordinates": (1, 1)}, "is a 'Point'"),
        ({"type": "Polygon", "coordinates": [[(0, 0), (1, 1)]]}, "no polygon"),
        ({"type": "Polygon", "coordinates": [[(0, 0), (1, float("nan")), (2, 2), (0, 0)]]}, "no"),
        ({"type": "Polygon"}, "no polygon"),
    ],
)
def test_an_outline_that_is_none_is_refused(review, geometry, words):
    with pytest.raises(InputError, match=words):
        review.act({"do": "draw", "geometry": geometry}, by="ana")
    assert review.log.read() == []


def test_a_line_that_crosses_itself_is_mended_and_cut_to_the_scene(review):
    bow = {"type": "Polygon", "coordinates": [[(50, 0), (70, 10), (70, 0), (50, 10), (50, 0)]]}
    action = review.act({"do": "draw", "geometry": bow}, by="ana")
    kept = review.state().missed[review.drawing(action)].geometry
    assert kept.is_valid
    assert kept.bounds == (50, 0, 64, 10)
    assert kept.area == pytest.approx(50 + 8)  # a whole triangle, and 4 of another's 10 columns


def test_shapes_that_are_not_there_are_refused(review):
    with pytest.raises(InputError, match="there is no polygon 77"):
        review.act({"do": "reshape", "shape": 77, "geometry": square(0, 0, 5, 5)}, by="ana")
    with pytest.raises(InputError, match="judge it wrong"):
        review.act({"do": "erase", "shape": 1}, by="ana")
    drawn = review.drawing(review.act({"do": "draw", "geometry": square(0, 0, 5, 5)}, by="ana"))
    with pytest.raises(InputError, match="is a drawing"):
        review.act({"do": "judge", "shape": drawn, "verdict": "right"}, by="ana")
    review.act({"do": "erase", "shape": drawn}, by="ana")
    assert review.state().missed == {}


def comb(teeth: int, *, across: bool = False) -> dict:
    """A comb from corner to corner of the first square."""
    x = np.repeat(np.linspace(0.1, 9.9, 2 * teeth), 2)
    corners = np.stack([x, np.tile([0.2, 9.8, 9.8, 0.2], teeth)], axis=1)
    outline = shapely.Polygon([*corners, (9.9, 0.1), (0.1, 0.1)])
    return shapely.geometry.mapping(shapely.transform(outline, np.fliplr) if across else outline)


def test_a_scribble_is_refused_at_once_and_a_line_that_crosses_itself_is_mended():
    corners = np.random.default_rng(0).uniform(0, 100, (300, 2)).tolist()
    with pytest.raises(InputError, match="crosses itself too often"):
        check_outline({"type": "Polygon", "coordinates": [[*corners, corners[0]]]}, (100, 100))
    bow = {"type": "Polygon", "coordinates": [[(0, 0), (8, 8), (8, 0), (0, 8), (0, 0)]]}
    assert shapely.geometry.shape(check_outline(bow, (100, 100))).area == 32


def test_combs_that_cross_cut_nothing_even_by_redo():
    up, across = ({"shape": 1, "geometry": comb(100, across=a)} for a in (False, True))
    entries = [("a", "cut", up), ("a", "undo", {}), ("b", "cut", across), ("a", "redo", {})]
    state = replay(log(*entries), SHAPES)
    assert state.reshaped[1].by == "a"
    assert shapely.get_num_coordinates(state.reshaped[1].geometry) < 3000


def test_a_review_refuses_a_cut_that_crosses_too_often(review):
    shape = next(iter(review.polygons))
    up, across = (comb(100, across=a) for a in (False, True))
    corner = np.array(review.polygons[shape].outline.bounds[:2])

    def placed(geometry: dict) -> dict:
        moved = shapely.transform(shapely.geometry.shape(geometry), lambda p: p + corner)
        return shapely.geometry.mapping(moved)

    review.act({"do": "reshape", "shape": shape, "geometry": placed(up)}, by="a")
    with pytest.raises(InputError, match="crosses the outline too often"):
        review.act({"do": "cut", "shape": shape, "geometry": placed(across)}, by="a")
    review.act({"do": "cut", "shape": shape, "geometry": placed(square(2, 2, 4, 4))}, by="a")


def test_a_log_that_did_not_grow_is_not_replayed(review, monkeypatch):
    calls = []
    monkeypatch.setattr(folder, "replay", lambda *given: calls.append(1) or replay(*given))
    shape = next(iter(review.polygons))
    review.state(), review.summary(), review.state()
    assert len(calls) == 1
    review.act({"do": "judge", "shape": shape, "verdict": "right"}, by="a")
    assert verdicts(review.state()) == {shape: "right"}
    assert len(calls) == 2
