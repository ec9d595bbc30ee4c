"""A hundred inputs for each parser; the campaign gives them ten thousand."""

from __future__ import annotations

import pytest

from campaign.fuzz import TARGETS, feed, verdict

COUNTS = {"cli": 10, "geotiff": 12, "checkpoint": 30, "configuration": 30, "onnx-file": 60,
          "polyglot": 30}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_given_is_taken_or_refused_in_words(name, tmp_path):
    target = TARGETS[name](tmp_path / "work")
    assert feed(target, tmp_path, count=COUNTS.get(name, 100), seed=5) == {}
    target.close()


@pytest.mark.parametrize("name", [n for n in TARGETS if n not in ("cli", "geotiff")])
def test_the_good_inputs_are_taken(name, tmp_path):
    target = TARGETS[name](tmp_path)
    seeds = target.seeds()
    for data in seeds[: 1 if name == "overrides" else 2]:  # others are wrong, to lead astray
        target.take(data)
    target.close()


class Rude:
    name = "rude"

    def take(self, data: bytes) -> None:
        raise KeyError("href")


def test_the_judge_sees_what_is_no_refusal():
    assert verdict(Rude(), b"").startswith("KeyError at test_fuzz.py")
