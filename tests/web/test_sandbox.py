"""What a worker may reach, by trying: with the very reach that the server gives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adadino.data.synthetic import write_geotiff_pair
from adadino.web.http.identity import Identities
from adadino.web.jobs.process import _plain
from adadino.web.jobs.records import Job
from adadino.web.jobs.sandbox import Reach, has_seccomp, landlock_version, protections
from adadino.web.jobs.worker import used_memory
from adadino.web.service import Service
from adadino.web.settings import ModelChoice, Settings
from adadino.web.view.display import lay_out

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are confined on Linux")
needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
needs_seccomp = pytest.mark.skipif(not has_seccomp(), reason="no seccomp for this machine")
PERMISSION = {"EACCES", "EPERM", "EXDEV", "ENOSYS"}


class World:
    """A server's folders with two jobs, and the reach of each kind of worker."""

    def __init__(self, folder: Path) -> None:
        self.data, jobs = folder / "data", folder / "jobs"
        before, after, _ = write_geotiff_pair(self.data, 3, 96)
        (self.data / "other.tif").write_bytes(before.read_bytes())
        self.canary = folder / "canary.txt"
        self.canary.write_text("canary")
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "model.safetensors").write_text("weights")
        settings = Settings(
            jobs, models=(ModelChoice("m", str(self.model)),), data=self.data, device="cpu",
            demo=False,
        )  # fmt: skip
        Identities(settings)  # writes the server's key
        self.service = Service(settings)
        self.upload = self._job("upload", before, after)
        self.stored = self._job("data", before, after)
        self.other = self._job("upload", before, after)
        self.folder, self.jobs, self.key = folder, jobs, jobs / ".key"

    def _job(self, source: Any, before: Path, after: Path) -> Job:
        store = self.service.store
        identity, draft = store.draft()
        for path in (before, after):
            (draft / path.name).write_bytes(path.read_bytes())
        return store.add(
            Job(
                id=identity, name="a", client="c", model="m", before=before.name,
                after=after.name, before_name="a.tif", after_name="b.tif", source=source,
                state="done", view=_view(before),
            ),
            draft,
        )  # fmt: skip

    def asked(self, ask: Any) -> Reach:
        """The reach with which the service would start a worker."""
        seen: list[Reach] = []

        def start(task: dict[str, Any], reach: Reach) -> None:
            seen.append(reach)
            raise KeyError("that is all")

        self.service.asking.workers.start = start  # type: ignore[method-assign]
        nobody = SimpleNamespace(
            state=SimpleNamespace(identity=SimpleNamespace(payer="p")),
            receive=lambda: asyncio.Event().wait(),
        )

        async def ends() -> None:
            with pytest.raises(KeyError):
                await ask(nobody)

        asyncio.run(ends())
        for path in seen[0].write:  # what the service has removed when its worker was gone
            path.mkdir(exist_ok=True)
        return seen[0]

    def reach(self, kind: str) -> tuple[Reach, list[Path]]:
        """What a worker of a kind may touch, and of which files."""
        service, manager = self.service, self.service.manager
        mine = service.store.path(self.upload.id)
        if kind == "upload":
            return manager._reach(self.upload), [mine / "before.tif", mine / "after.tif"]
        if kind == "data":
            return manager._reach(self.stored), [self.data / "before.tif", self.data / "after.tif"]
        if kind == "probe":
            path = self.data / "before.tif"
            return self.asked(lambda request: service.asking.probe(request, path, "a")), [path]
        if kind == "preview":
            path = self.data / "before.tif"
            return self.asked(lambda request: service.asking.preview(request, path, "a")), [path]
        made = self.asked(
            lambda request: service.asking.made(request, self.upload.id, "mask", "m.tif", {}, str)
        )
        return made, [mine / "before.tif"]


def _view(path: Path) -> dict[str, Any]:
    import rasterio

    from adadino.geo.grid import Grid

    with rasterio.open(path) as dataset:
        return lay_out(Grid.of(dataset)).as_dict()


def confined(reach: Reach, **task: Any) -> subprocess.CompletedProcess[str]:
    server = os.getpid()
    whole = {"reach": _plain(reach), "server": server, "closed": [], "kept": [], "folders": [],
             "own": [], "open": []} | task  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "tests.web.attempts"], input=json.dumps(whole, default=str),
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip


KINDS = ("upload", "data", "probe", "preview", "view")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("sandbox"))


@pytest.fixture(scope="module", params=KINDS)
def tried(request, world) -> dict[str, Any]:
    reach, opened = world.reach(request.param)
    reach = replace(reach, memory=2**30)
    store, server = world.service.store, os.getpid()
    other = store.path(world.other.id)
    closed = [world.canary, other, other / "job.json", other / "before.tif", world.key, world.jobs,
              world.data, world.data / "other.tif", "/etc/passwd", "/etc/shadow", "/proc/self/mem",
              "/proc/self/environ", f"/proc/{server}/environ", f"/proc/{server}/mem",
              f"/proc/{server}/cmdline", f"/proc/{server}/root", "/root", "/home", "/dev/shm",
              ROOT / "pyproject.toml"]  # fmt: skip
    if request.param not in ("upload", "view"):
        closed += [store.path(world.upload.id) / "before.tif"]
    kept = [world.canary, world.data / "other.tif", world.key, other / "job.json",
            world.data / "before.tif", world.model / "model.safetensors"]  # fmt: skip
    own = [str(path) for path in reach.write]
    done = confined(
        reach, closed=closed, kept=kept, open=opened, own=own,
        folders=[world.folder, world.jobs, world.data, other, world.model, "/tmp", "/dev/shm",
                 ROOT],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_landlock
def test_no_other_file_is_read_or_changed(tried):
    words = ("read /", "append", "truncate", "remove", "rename", "make", "link")
    found = {k: v for k, v in tried["refused"].items() if k.startswith(words)}
    there = {k: v for k, v in found.items() if v != "ENOENT"}
    assert len(there) > 40
    assert {k: v for k, v in there.items() if v not in PERMISSION} == {}


@needs_landlock
def test_nothing_but_plain_files_and_folders_is_made(tried):
    words = ("symlink", "fifo", "device", "special")
    found = {k: v for k, v in tried["refused"].items() if k.startswith(words)}
    assert {k: v for k, v in found.items() if v not in PERMISSION} == {}


@needs_seccomp
def test_closed_files_keep_their_modes_and_nobody_watches_them(tried):
    words = ("mode", "time", "label", "watch")  # Landlock leaves these open
    found = {k: v for k, v in tried["refused"].items() if k.startswith(words)}
    assert found
    assert {k: v for k, v in found.items() if v not in PERMISSION} == {}


@needs_seccomp
def test_there_is_no_network(tried):
    found = {k: v for k, v in tried["refused"].items() if k.startswith("socket")}
    assert len(found) > 10
    assert set(found.values()) == {"EPERM"}


@needs_seccomp
def test_other_processes_and_the_kernel_are_out_of_reach(tried):
    names = ("ptrace server", "ptrace parent", "read memory", "write memory", "io_uring", "unshare",
             "keyring", "bpf", "perf", "fork", "shared segment", "message queue", "limit server",
             "slow server", "kill server", "kill parent", "tgkill server",
             "pidfd server")  # fmt: skip
    found = {name: tried["refused"][name] for name in names}
    assert {k: v for k, v in found.items() if v not in PERMISSION} == {}


def test_memory_has_an_end(tried):
    found = {name: tried["refused"][name] for name in ("memory", "mapped memory", "limit")}
    assert found["memory"].startswith("MemoryError")
    assert found["mapped memory"] in ("ENOMEM", "EPERM") or "Memory" in found["mapped memory"]
    assert found["limit"] != "done"


def test_its_own_files_and_the_libraries_work(tried):
    assert len(tried["needed"]) >= 2
    assert {k: v for k, v in tried["needed"].items() if v != "done"} == {}


def test_what_holds_is_what_was_promised(tried):
    promised = {name.lower(): held for name, held, _ in protections()}
    assert tried["held"]["landlock"] == promised["landlock"]
    assert tried["held"]["seccomp"] == promised["seccomp"]
    assert tried["held"]["no_new_privs"]
    assert tried["held"]["limits"]


@pytest.mark.slow
def test_torch_computes_with_two_threads(world):
    reach, opened = world.reach("upload")
    done = confined(reach, torch=True, open=opened, own=[str(p) for p in reach.write])
    assert done.returncode == 0, done.stderr
    needed = json.loads(done.stdout)["needed"]
    assert needed["torch"] == "done", needed


@pytest.mark.slow
def test_the_processor_time_has_an_end(world):
    reach = replace(world.reach("probe")[0], seconds=4.0)
    done = confined(reach, spin=True)
    assert -done.returncode in (signal.SIGKILL, signal.SIGXCPU)


@needs_landlock
def test_an_input_that_was_replaced_by_a_link_is_not_followed(world, tmp_path):
    path = tmp_path / "image.tif"
    path.symlink_to(world.canary)
    done = confined(Reach(read=(path,)), closed=[path, world.canary])
    found = json.loads(done.stdout)["refused"]
    assert {v for k, v in found.items() if k.startswith("read /")} == {"EACCES"}


def test_a_record_that_a_worker_wrote_opens_no_other_file(world):
    for name in (str(world.canary), f"../{world.other.id}/before.tif", "../.key"):
        reach = world.service.manager._reach(replace(world.upload, before=name))
        folder = world.service.store.path(world.upload.id)
        assert {path.parent for path in reach.read if path.suffix != ""} == {folder}


def test_the_server_counts_memory_of_every_kind():
    """Shared memory is no part of a limit on data."""
    import mmap

    before = used_memory(os.getpid())
    with mmap.mmap(-1, 2**26) as shared:  # anonymous and shared
        shared.write(b"1" * 2**26)
        assert used_memory(os.getpid()) - before > 2**25
