"""A local Ray cluster whose workers are killed at random gives the bytes of a single process."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path

import pytest

from adadino.area.units import Dates
from adadino.errors import ConfigError
from tests.area.regions import area, damage, make_strip, tree

KILLS = 3


def our_workers() -> list[int]:
    """The processes of Ray's workers that descend from this one and have loaded the model."""
    parents, named = {}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                line = (folder / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            if line.startswith(b"ray::MapWorker"):
                named.append(int(folder.name))

    def descends(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in named if descends(pid)]


class Killer(threading.Thread):
    """Kills workers at random moments, as a machine that goes away would."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.killed, self.over = 0, threading.Event()

    def run(self) -> None:
        while self.killed < KILLS and not self.over.wait(random.uniform(0.05, 0.6)):
            workers = our_workers()
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
                self.killed += 1
                self.over.wait(2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_workers_killed_at_random_change_no_byte(dates, model, tmp_path):
    pytest.importorskip("ray")
    strip = Dates("strip", *make_strip(tmp_path / "strip"))
    damage(strip.after)
    pairs = [dates, strip]
    expected = area(pairs, tmp_path / "alone", model, probability=True, unit=64)
    killer, reports = Killer(), []
    killer.start()
    result = area(
        pairs,
        tmp_path / "ray",
        model,
        probability=True,
        unit=64,
        workers=2,
        progress=lambda *said: reports.append(said),
    )
    killer.over.set()
    killer.join()
    assert killer.killed == KILLS
    assert result.failed == expected.failed
    assert list(result.failed) == ["strip, rows 0 to 64, columns 1216 to 1280"]
    assert result.predicted == expected.predicted == result.units - 1
    # manifest, rasters, polygons, records: all of it, and nothing half-written beside
    assert tree(tmp_path / "ray") == tree(tmp_path / "alone")
    done, total, message = reports[-1]
    assert done == total == result.units
    assert message.endswith("1 failed")


def test_without_ray_the_error_names_the_extra(dates, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'adadino\[ray\]', or give --workers 0"):
        area([dates], tmp_path / "out", model, workers=2)
    assert not (tmp_path / "out").exists()
