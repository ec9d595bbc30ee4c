"""A killed run goes on to the same bytes; another run may not go on with its rows."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from adadino.data.synthetic import write_geotiff_pair
from adadino.errors import WriteError
from tests.scene.runs import a_model, run, run_and_hang

TILES = 15
SAMPLED = 1  # the chunks of the scene take one forward pass


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    before, after, _ = write_geotiff_pair(tmp_path_factory.mktemp("scene"), 7, (150, 210))
    return before, after


@pytest.fixture(scope="module")
def whole(scene, tmp_path_factory):
    """The bytes of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    run(scene, a_model(), folder)
    return files(folder)


@pytest.fixture(scope="module")
def processes():
    """Processes that start with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.scene.runs"])
    return context


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def kill_at(moment, scene, folder, processes):
    """Start a run, wait until it reaches a moment, and kill it as the system would."""
    flag = folder.parent / "reached"
    process = processes.Process(target=run_and_hang, args=(scene, folder, moment, flag))
    process.start()
    deadline = time.monotonic() + 60
    while not flag.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert flag.exists(), "the run never got there"
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def counting(model):
    """The model, and a list that grows with each forward pass."""
    calls, forward = [], model.forward

    def counted(*arguments, **options):
        calls.append(1)
        return forward(*arguments, **options)

    model.forward = counted
    return model, calls


@pytest.mark.parametrize(
    ("moment", "most"),
    [
        (0, SAMPLED + TILES),  # before the chunks are chosen
        (SAMPLED + 8, TILES),  # within a row of tiles
        (SAMPLED + 14, TILES - 5),  # at the last tile: one row of tiles is not needed any more
        ("write_rasters", 0),
        ("write_vectors", 0),  # the rasters are there
    ],
)
def test_a_killed_run_goes_on_to_the_same_bytes(scene, whole, processes, tmp_path, moment, most):
    folder = tmp_path / "out"
    kill_at(moment, scene, folder, processes)
    assert (folder / ".c.tif.work").is_dir()
    left = files(folder)
    assert set(left) == ({"c.tif", "p.tif"} if moment == "write_vectors" else set())
    model, calls = counting(a_model())
    run(scene, model, folder, resume=True)
    assert len(calls) <= most
    assert files(folder) == whole
    assert not (folder / ".c.tif.work").exists()


@pytest.fixture
def interrupted(scene, tmp_path):
    """A folder with the finished rows of a run."""
    model, calls = counting(a_model())
    forward = model.forward

    def stop(*arguments, **options):
        if len(calls) == SAMPLED + 12:
            raise KeyboardInterrupt
        return forward(*arguments, **options)

    model.forward = stop
    with pytest.raises(KeyboardInterrupt):
        run(scene, model, tmp_path / "out")
    assert not files(tmp_path / "out")
    return tmp_path / "out"


def test_rows_of_an_earlier_run_are_neither_lost_nor_used_unasked(scene, whole, interrupted):
    with pytest.raises(WriteError, match=r"left 91 finished rows in .*--resume.*--overwrite"):
        run(scene, a_model(), interrupted)
    model, calls = counting(a_model())
    run(scene, model, interrupted, overwrite=True)
    assert len(calls) == SAMPLED + TILES
    assert files(interrupted) == whole


@pytest.mark.parametrize("other", ["tile", "model", "input"])
def test_another_run_may_not_go_on(scene, interrupted, tmp_path, other):
    model, options = a_model(), {}
    if other == "tile":
        options = {"tile": 128}
    elif other == "model":
        next(model.parameters()).data[0] += 1
    else:
        scene = write_geotiff_pair(tmp_path, 8, (150, 210))[:2]
    name = {"tile": "tile", "model": "model", "input": "before"}[other]
    with pytest.raises(WriteError, match=rf"cannot resume .* another {name} .*--overwrite"):
        run(scene, model, interrupted, resume=True, **options)
    assert (interrupted / ".c.tif.work").exists()


@pytest.mark.parametrize("tail", ["5", "x\n", "99999\n"])
def test_half_a_write_is_never_believed(scene, whole, interrupted, tail):
    with (interrupted / ".c.tif.work" / "rows.txt").open("a") as lines:
        lines.write(tail)
    with (interrupted / ".c.tif.work" / "rows.f32").open("ab") as rows:
        rows.write(b"half a row")
    run(scene, a_model(), interrupted, resume=True)
    assert files(interrupted) == whole


def test_the_threshold_may_change_because_rows_do_not_depend_on_it(scene, interrupted, tmp_path):
    run(scene, a_model(), interrupted, resume=True, threshold=0.3)
    run(scene, a_model(), tmp_path / "straight", threshold=0.3)
    assert files(interrupted) == files(tmp_path / "straight")


def test_resume_without_an_earlier_run_starts(scene, whole, tmp_path):
    run(scene, a_model(), tmp_path, resume=True)
    assert files(tmp_path) == whole
