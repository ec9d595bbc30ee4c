"""The walk through areas to judge, without QGIS."""

from __future__ import annotations

import pytest
from adadino_change.review.session import Area, Change, Session

import tests.qgis.conftest  # noqa: F401  (puts the plugin on the path)


def walk(*verdicts: str) -> Session:
    return Session(Area(fid, 10 - fid, verdict) for fid, verdict in enumerate(verdicts))


def test_the_order_is_the_proposed_one_and_begins_where_it_ended():
    session = walk("", "", "", "right")
    assert [area.fid for area in session.areas] == [3, 2, 1, 0]
    assert session.current.fid == 2


def test_a_verdict_goes_on_to_the_next_open_area_and_around_the_end():
    session = walk("", "right", "", "")
    session.step(1)
    assert session.judge("wrong") == Change(2, "wrong")
    assert session.current.fid == 0  # 1 has its verdict
    session.judge("unsure")
    assert session.current.fid == 3
    assert session.counts() == "3 of 4 judged: 1 right, 1 wrong, 1 unsure"


def test_steps_stay_inside_and_reach_judged_areas():
    session = walk("right", "right")
    for _ in range(3):
        session.step(-1)
    assert session.current.fid == 1
    for _ in range(3):
        session.step(1)
    assert session.current.fid == 0


def test_undo_takes_back_one_by_one_to_what_was_there():
    session = walk("", "wrong")
    session.step(-1)
    session.judge("right")
    session.judge("unsure")
    assert session.undo() == Change(0, "")
    assert session.current.fid == 0
    assert session.undo() == Change(1, "wrong")
    assert session.undo() is None
    assert session.counts() == "1 of 2 judged: 0 right, 1 wrong, 0 unsure"


def test_nothing_to_judge_is_no_error():
    session = Session([])
    session.step(1)
    assert session.current is None
    assert session.judge("right") is None
    assert session.counts().startswith("0 of 0 judged")


def test_another_word_is_no_verdict():
    with pytest.raises(ValueError, match="choose one of right, wrong, unsure"):
        walk("").judge("maybe")
