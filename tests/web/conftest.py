"""A server of its own for each test process: the real command, on a free port."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from adadino.data.synthetic import World, write_geotiff_pair
from adadino.web.http import connection
from tests.cli.conftest import adadino
from tests.web.models import small_checkpoint

__all__ = ["adadino"]  # a fixture
PATIENCE_S = 120.0


@dataclass
class Running:
    """A server that was started with `adadino serve`."""

    process: subprocess.Popen[str]
    address: str
    jobs: Path

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.address, timeout=60, **options)

    def wait(self, identity: str, *states: str) -> dict[str, Any]:
        """A job, when it has reached a state."""
        with self.client() as client:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                job = client.get(f"/api/jobs/{identity}").json()
                if job["state"] in states:
                    return job
                time.sleep(0.1)
        raise AssertionError(f"{identity} is {job['state']}, not {states}: {job}")

    def demo(self) -> dict[str, Any]:
        with self.client() as client:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                jobs = client.get("/api/jobs").json()["jobs"]
                if found := [job["id"] for job in jobs if job["source"] == "demo"]:
                    return self.wait(found[0], "done")
                time.sleep(0.1)
        raise AssertionError("there is no demo")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def start(model: Path | None, jobs: Path, *options: str) -> Running:
    """Start the command and wait until it says where it is; without a model, the default's."""
    # One thread: the tests share two cores with one another.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "adadino", "serve", "--port", "0", "--jobs", str(jobs)]
    chosen = [] if model is None else ["--model", str(model)]
    process = subprocess.Popen(
        [*command, *chosen, "--device", "cpu", *options],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+:\d+", process.stdout.readline())
    assert found, f"serve ended with {process.wait()}"
    return Running(process, found.group(), jobs)


@contextmanager
def listening(app: Any) -> Iterator[tuple[str, int]]:
    """An address at which the application is served, without its queue."""
    config = uvicorn.Config(
        app, http=connection.PatientProtocol, ws="none", lifespan="off", log_level="error"
    )
    server = uvicorn.Server(config)
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        door.bind(("127.0.0.1", 0))
        door.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield door.getsockname()
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return small_checkpoint(tmp_path_factory.mktemp("web") / "model")


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """A data folder with a pair, and things that must stay hidden."""
    folder = tmp_path_factory.mktemp("data")
    write_geotiff_pair(folder / "pair", 7, 320, World(plan="organic", empty=0.0))
    outside = tmp_path_factory.mktemp("outside")
    write_geotiff_pair(outside, 8, 64)
    (folder / "link.tif").symlink_to(outside / "before.tif")
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture(scope="session")
def server(model, data, tmp_path_factory) -> Iterator[Running]:
    running = start(
        model, tmp_path_factory.mktemp("jobs"), "--data", str(data), "--max-upload", "0.01",
        "--max-pixels", "1", "--model", f"other={model}",
    )  # fmt: skip
    yield running
    running.stop()


@pytest.fixture
def client(server) -> Iterator[httpx2.Client]:
    with server.client() as opened:
        yield opened


@pytest.fixture(scope="session")
def demo(server) -> dict[str, Any]:
    return server.demo()


@pytest.fixture(scope="module")  # not longer: its event loop would be in the way of others
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium: apt install chromium")
    with api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=chromium, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def desk(browser, server, demo) -> Iterator[Any]:
    """A window that tests use one after the other."""
    from tests.web.browsing import Watched

    opened = Watched(browser, server)
    opened.leave()
    yield opened
    opened.context.close()


@pytest.fixture
def watched(desk) -> Iterator[Any]:
    desk.open()
    yield desk
    desk.leave()


@pytest.fixture
def page(watched) -> Any:
    return watched.page
