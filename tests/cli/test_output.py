"""What all verbs print with: tables that lose nothing on their way into a file."""

from __future__ import annotations

import time

import pytest

from adadino.cli import output
from adadino.cli.output import print_table, progress
from adadino.scene.pace import duration


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_long_work_has_a_line_for_every_percent_with_the_time_left(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress("predicting") as report:
        for done in range(0, 401):
            report(done, 400)
            clock.now += 900  # a quarter of an hour each
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 101
    assert lines[0] == "predicting: 0/400"
    assert lines[1] == "predicting: 4/400 4 days 3 h left"
    assert lines[-2].endswith("396/400 1 h 0 min left") or lines[-2].endswith("60 min left")
    assert lines[-1] == "predicting: 400/400"


def test_quick_work_has_a_line_for_every_tenth(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress("tiles") as report:
        for done in range(101):
            report(done, 100)
            clock.now += 0.01
    assert len(capsys.readouterr().err.splitlines()) == 11


def test_silence_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(output, "LONGEST_SILENCE", 0.5)
    with progress("predicting") as report:
        report(0, 0, "opening")
        time.sleep(2.2)
    assert "predicting: opening (still at work)" in capsys.readouterr().err


def test_quiet_is_quiet(capsys):
    with progress("predicting", quiet=True) as report:
        report(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (89, "89 s"),
        (91, "2 min"),
        (3600, "60 min"),
        (12_000, "3 h 20 min"),
        (129_000, "35 h 50 min"),
        (187_300, "2 days 4 h"),
        (86_400 * 3 - 60, "3 days 0 h"),
    ],
)
def test_a_time_as_people_say_it(seconds, text):
    assert duration(seconds) == text


def test_off_a_terminal_a_table_is_as_wide_as_what_it_says(capsys):
    columns = [f"a heading of its own, number {i}" for i in range(12)]
    name = "a-name-without-any-place-to-break-it-" * 4
    print_table("title", ["", *columns], [[name, *range(12)]])
    lines = capsys.readouterr().out.splitlines()
    assert all(column in lines[2] for column in columns)
    assert name in lines[4]
    assert len({len(line) for line in lines[1:]}) == 1
    assert len(lines[1]) < 1000  # no wider than it has to be
