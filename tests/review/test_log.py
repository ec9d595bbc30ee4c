"""The log: nothing acknowledged is lost, whoever writes and whenever a writer dies."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from adadino.errors import InputError, WriteError
from adadino.review import Review
from adadino.review.actions import make_action, read_action


def judge(shape: int, verdict: str = "right", **more) -> dict:
    return {"do": "judge", "shape": shape, "verdict": verdict, **more}


def test_an_action_is_one_line_with_who_when_what(review):
    review.act(judge(1, "wrong", note="a shadow", list="picked"), by="ana", key="k1")
    (line,) = (review.folder / "log.jsonl").read_text().splitlines()
    said = json.loads(line)
    assert said["by"] == "ana"
    assert said["verdict"] == "wrong"
    assert said["note"] == "a shadow"
    assert said["at"].endswith("Z")
    assert Review.open(review.folder).state().verdicts[1].verdict == "wrong"


def test_a_torn_last_line_is_skipped_and_what_follows_is_whole(review):
    review.act(judge(1), by="ana")
    path = review.folder / "log.jsonl"
    with path.open("ab") as file:
        file.write(b'{"do":"judge","shape":2,"verd')  # killed while it wrote
    again = Review.open(review.folder)
    assert set(again.state().verdicts) == {1}
    again.act(judge(3), by="ana")
    third = Review.open(review.folder)
    assert set(third.state().verdicts) == {1, 3}
    assert third.summary()["damaged_lines"] == 1


def test_every_prefix_of_a_log_can_be_read(review):
    for shape in (1, 2, 3):
        review.act(judge(shape, note="ü"), by="ana")
    path = review.folder / "log.jsonl"
    text = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(text) if byte == ord("\n")]
    for length in range(len(text) + 1):
        path.write_bytes(text[:length])
        found = Review.open(review.folder).state().verdicts
        assert len(found) == sum(end <= length for end in ends)


def test_a_key_that_comes_again_is_one_action(review):
    first = review.act(judge(1), by="ana", key="x")
    again = Review.open(review.folder).act(judge(1), by="ana", key="x")
    other = review.act(judge(1), by="ben", key="x")  # another's key is another action
    assert again == first
    assert other.n == 2
    assert len(review.log.read()) == 2


def test_threads_lose_no_action(review):
    def one(index: int) -> None:
        Review.open(review.folder).act(judge(1 + index % 5), by=f"r{index}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(40)))
    actions = review.log.read()
    assert sorted(action.by for action in actions) == sorted(f"r{i}" for i in range(40))
    assert [action.n for action in actions] == list(range(1, 41))


def _act_and_die(folder: str, count: int) -> None:
    review = Review.open(folder)
    for index in range(count):
        review.act(judge(1 + index % 5), by=f"p{os.getpid()}", key=str(index))
    os.kill(os.getpid(), 9)


def test_processes_that_die_lose_nothing_they_had_answered(review):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_act_and_die, args=(review.folder, 10)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(review.log.read()) == 20
    assert review.log.damaged == 0


def test_all_or_none_of_several(review):
    good = make_action(judge(1), by="ana")
    bad = make_action(judge(99), by="ana")
    with pytest.raises(InputError, match="no polygon 99"):
        review.act_all([good, bad])
    assert review.log.read() == []


def test_a_log_that_cannot_be_written_says_so(review):
    (review.folder / "log.jsonl").mkdir()
    with pytest.raises(WriteError, match=r"log\.jsonl"):
        review.act(judge(1), by="ana")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"do": "dance"}, "do is 'dance'"),
        ({"do": "judge", "shape": 1}, "needs verdict"),
        ({"do": "judge", "shape": 1, "verdict": "good"}, "verdict is 'good'"),
        ({"do": "judge", "shape": "1", "verdict": "right"}, "whole number"),
        ({"do": "judge", "shape": True, "verdict": "right"}, "whole number"),
        ({"do": "judge", "shape": 1, "verdict": "right", "colour": 1}, "no field 'colour'"),
        ({"do": "note", "shape": 1, "note": "x" * 3000}, "at most 2000"),
        ({"do": "draw", "geometry": "POLYGON"}, "GeoJSON"),
        ({"do": "judge", "shape": 4, "verdict": "right", "list": "mine"}, "list is 'mine'"),
    ],
)
def test_what_is_no_action_is_refused_with_its_value(review, data, words):
    with pytest.raises(InputError, match=words):
        review.act(data, by="ana")


def test_nobody_is_no_reviewer(review):
    with pytest.raises(InputError, match="name of who"):
        review.act(judge(1), by=" ")


@pytest.mark.parametrize("line", [b"", b"[]", b"3", b"null", b'{"do":[]}', b"\xff", b"[" * 9999])
def test_a_damaged_line_is_no_action(line):
    assert read_action(line, 1) is None


@pytest.mark.parametrize(
    "geometry",
    [
        {"type": "Polygon"},
        {"type": "Polygon", "coordinates": [[[0, 0], [9, 9], [9, 0], [0, 9], [0, 0]]]},  # crosses
        {"type": "Polygon", "coordinates": [[[0, 0], [1e308, 0], [None, 1]]]},
        {"type": "LineString", "coordinates": [[0, 0], [5, 5]]},
        {"type": "GeometryCollection", "geometries": []},
    ],
)
def test_an_outline_that_was_never_checked_is_a_damaged_line(review, geometry):
    action = review.act(judge(1), by="ana")
    line = {"do": "draw", "by": "eve", "at": action.at, "geometry": geometry}
    with review.log.path.open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.write(json.dumps({**line, "do": "note", "shape": 1, "note": "\x1b]0;x"}) + "\n")
    opened = Review.open(review.folder)
    assert opened.summary()["judged"] == 1
    assert opened.summary()["damaged_lines"] == 2
    assert opened.state().missed == {}


def test_fields_of_a_later_version_are_ignored():
    line = b'{"do":"undo","by":"ana","at":"2027-01-01T00:00:00Z","mood":"good"}'
    assert read_action(line, 3).n == 3
