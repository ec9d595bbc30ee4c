"""A worker that was taken over says what it likes; the server believes none of it blindly."""

from __future__ import annotations

import os
import time

import pytest

from adadino.errors import AdaDINOError
from adadino.web.jobs import worker as workers
from adadino.web.jobs.worker import Worker


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    """There is no parent here that would tell of the end."""
    monkeypatch.setattr(workers, "PATIENCE_S", 0.05)


STARTED = b'{"event": "started", "process": 1, "held": {}}\n'


def hear(*lines: bytes, end: bool = True) -> tuple[Worker, list[str]]:
    """A worker that says these lines, and what was done to it."""
    ours, theirs = os.pipe()
    done: list[str] = []
    worker = Worker(os.fdopen(ours, "rb"), lambda: done.append("killed"))
    os.write(theirs, b"".join(lines))
    if end:
        os.close(theirs)
    return worker, done


def test_it_cannot_say_that_it_has_ended():
    worker, done = hear(
        STARTED, b'{"event": "done"}\n', b'{"event": "ended", "code": 0}\n', end=False
    )
    with pytest.raises(AdaDINOError):  # it still runs, so that its time is counted on
        worker.result(seconds=1.0)
    assert "killed" in done


def test_it_cannot_name_another_process_as_itself():
    worker, _ = hear(STARTED, b'{"event": "done"}\n')
    worker.end(0)
    worker.result(seconds=5)
    assert worker.process != 1


@pytest.mark.parametrize(
    "line", [b'{"event": "started"}\n', b'{"event": "failed"}\n', b'{"event": "ended"}\n']
)
def test_an_event_without_its_parts_is_a_worker_that_failed(line):
    worker, _ = hear(line)
    with pytest.raises(AdaDINOError):
        worker.result(seconds=5)


def test_an_endless_line_ends_the_worker():
    import threading

    ours, theirs = os.pipe()
    done: list[str] = []
    Worker(os.fdopen(ours, "rb"), lambda: done.append("killed"))

    def talk() -> None:
        for _ in range(64):
            if done:
                break
            os.write(theirs, b"x" * 2**20)
        os.close(theirs)

    speaking = threading.Thread(target=talk, daemon=True)
    speaking.start()
    speaking.join(timeout=20)
    time.sleep(0.1)
    assert "killed" in done
