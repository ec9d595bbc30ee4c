"""Fifty clients read tiles while two jobs run: errors, and how long a tile takes.

    python benchmarks/serve.py [MODEL] [--clients 50] [--seconds 20] [--side 2048]

A server of its own is started on a free port with a scene of its own. Every client asks for one
random tile after the other, of all three layers of the demo and the dates of the running jobs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from adadino.data.synthetic import write_geotiff_pair


def ask(address: str, path: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address + path, data, {"content-type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return answer.read()


def find(address: str, path: str) -> dict:
    return json.loads(ask(address, path))


def tiles(job: dict) -> list[str]:
    view = job["view"]
    layers = ["before", "after"] + (["probability"] if job["state"] == "done" else [])
    found = []
    for z in range(view["levels"]):
        side = 256 * 2 ** (view["levels"] - 1 - z)
        across, down = -(-view["width"] // side), -(-view["height"] // side)
        found += [
            f"/api/jobs/{job['id']}/tiles/{layer}/{z}/{x}/{y}.png"
            for layer in layers
            for x in range(across)
            for y in range(down)
        ]
    return found


def read(address: str, paths: list[str], until: float, times: list[float], errors: list[str]):
    draw = random.Random(threading.get_ident())
    while time.perf_counter() < until:
        started = time.perf_counter()
        try:
            ask(address, draw.choice(paths))
            times.append(time.perf_counter() - started)
        except (URLError, OSError) as error:
            errors.append(str(error))


def wait(address: str, identity: str, ready) -> dict:
    while True:
        job = find(address, f"/api/jobs/{identity}")
        if ready(job) or job["state"] == "failed":
            return job
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="tiny", help="the bundled one by default")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--side", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_geotiff_pair(folder / "data", 1, options.side)
        command = [sys.executable, "-m", "adadino", "serve", "--port", "0", "--model"]
        command += [options.model, "--jobs", str(folder / "jobs"), "--data", str(folder / "data")]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+:\d+", server.stdout.readline()).group()  # type: ignore[union-attr]
            measure(address, options)
        finally:
            server.terminate()
            server.wait()


def measure(address: str, options: argparse.Namespace) -> None:
    while not (found := find(address, "/api/jobs")["jobs"]):
        time.sleep(0.1)
    demo = found[0]
    demo = wait(address, demo["id"], lambda job: job["state"] == "done")
    asked = {"before": "before.tif", "after": "after.tif"}
    jobs = [json.loads(ask(address, "/api/jobs", asked))["id"] for _ in range(2)]
    running = wait(address, jobs[0], lambda job: job["view"] is not None)
    paths = tiles(demo) + tiles(running)
    times: list[float] = []
    errors: list[str] = []
    until = time.perf_counter() + options.seconds
    threads = [
        threading.Thread(target=read, args=(address, paths, until, times, errors))
        for _ in range(options.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = [find(address, f"/api/jobs/{identity}")["state"] for identity in jobs]
    ordered = sorted(times)
    print(
        json.dumps(
            {
                "clients": options.clients,
                "tiles": len(times),
                "different_tiles": len(paths),
                "errors": len(errors),
                "tiles_per_s": round(len(times) / options.seconds, 1),
                "median_ms": round(1000 * statistics.median(times), 1),
                "p95_ms": round(1000 * ordered[int(0.95 * len(ordered))], 1),
                "jobs_after": states,
            }
        )
    )
    for text in sorted(set(errors))[:5]:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
