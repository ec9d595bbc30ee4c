"""Kill the server while a job comes in, waits, runs or ends; start it again, and look.

- A round begins with a folder of jobs in which one is done, sends another over HTTP, and kills.
- The moments: `time`, the server after a share of a whole job's duration; `server`, the server
  just before the n-th time that it opens, renames, removes or makes something in its folder;
  `both`, server and worker just before the n-th such time of the worker, as when a machine stops;
  `worker`, that process alone, which costs the job and no more.
- After a kill, every file under its final name is whole. In the end the job that was done is the
  same file by file and was not written again, the job that was sent has the bytes of an undisturbed
  one, or the server says in words why not, and nothing is left over.

The process that forks workers takes seconds to import what they need. Here it is forked itself, by
a process that has imported everything and run nothing (`campaign.nursery`), at the server's request
and on the server's socket. Workers are confined as always.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadino.web.http.identity import KEY
from adadino.web.jobs import process as processes
from adadino.web.server import serve
from adadino.web.settings import ModelChoice, Settings
from campaign.commands import Inputs, files, identity, is_final
from campaign.kill import LIMIT, Tally, ended, forked, watch
from campaign.nursery import Instead, nursery
from campaign.whole import broken

RESULTS = ("probability.tif", "view-before.tif", "view-after.tif")
"""What a job must have the bytes of an undisturbed one of."""
Moment = tuple[str, float]


@dataclass(frozen=True)
class Undisturbed:
    """A job that nobody killed: how long it took, how many operations, what it left."""

    seconds: float
    operations: dict[str, int]
    results: dict[str, bytes]


class ServerArena:
    """A folder of jobs, a server that is started and killed, and what an undisturbed job leaves.

    Args:
        folder: An empty folder.
        inputs: `make_inputs`.
    """

    def __init__(self, folder: Path, inputs: Inputs) -> None:
        self.place, self.inputs = folder, inputs
        self.jobs, self.template = folder / "jobs", folder / "template"
        self.nursery = forked(lambda: nursery(folder, self.jobs), folder / "nursery-log")
        self._wait(lambda: (folder / "born").exists())
        self.server: int | None = None
        self.address = ("", 0)
        for name in ("server-operations", "worker-operations"):
            (folder / name).touch()
        # One job that is done before every round, and a second that is measured.
        self.start()
        self.done = self._to_its_end(self.send())
        started = time.monotonic()
        before = self._operations()
        again = self._to_its_end(self.send())
        seconds, after = time.monotonic() - started, self._operations()
        self.kill()
        self.whole = Undisturbed(
            seconds,
            # Every job has a worker of its own, which counts from the start.
            {"server": after["server"] - before["server"], "worker": after["worker"]},
            {name: (self.jobs / again / name).read_bytes() for name in RESULTS},
        )
        self.begun = {"server": before["server"], "worker": 0}
        shutil.rmtree(self.jobs / again)
        self.jobs.rename(self.template)

    def close(self) -> None:
        """End what still runs."""
        self.kill()
        os.kill(self.nursery, signal.SIGKILL)
        ended(self.nursery, LIMIT)

    def round(self, moments: list[Moment], tally: Tally) -> None:
        """Send a job, kill at each of some moments, start again, and compare."""
        shutil.rmtree(self.jobs, ignore_errors=True)
        shutil.copytree(self.template, self.jobs)
        kept = {name: identity(path) for name, path in files(self.jobs / self.done).items()}
        told = f"server at {', '.join(f'{kind} {share:.4f}' for kind, share in moments)}"
        tally.rounds += 1
        job: str | None = None
        for kind, share in moments:
            self.start(kind, share)
            try:
                job = self._job() if job else self._job() or self.send()
            except (OSError, http.client.HTTPException):
                job = None  # it died first; whether the job is there shows later
            if not self._kill(kind, share, job):
                break
            tally.kills += 1
            tally.failures += [f"{told}: {problem}" for problem in self._damage()]
            tally.checked += len(files(self.jobs))
        self.kill()
        self.start()
        state = self._end(tally, told, moments)
        self.kill()
        tally.failures += [f"{told}: {p}" for p in self._differences(kept, state)]

    def _end(self, tally: Tally, told: str, moments: list[Moment]) -> dict[str, Any]:
        """Let the last server finish; a job that it says has failed is sent again."""
        job = self._job() or self.send()
        state = self._until_ended(job)
        if state["state"] == "failed":
            kinds = [kind for kind, _ in moments]
            excused = "worker" in kinds or (len(kinds) > 2 and "the server ended" in state["error"])
            if not excused:
                tally.failures.append(f"{told}: the job failed: {state['error']}")
            self._ask("DELETE", f"/api/jobs/{job}")
            state = self._until_ended(self.send())
        if state["state"] != "done":
            tally.failures.append(f"{told}: the job is {state['state']}: {state.get('error')}")
        return state

    def start(self, kind: str = "", share: float = 0.0) -> None:
        """Start a server that may kill itself at an operation; one that still runs is killed."""
        self.kill()
        place, whole = self.place, getattr(self, "whole", None)
        said = place / "address"
        for left in (said, place / "hit"):
            left.unlink(missing_ok=True)
        at = {
            name: 1 + int(share * (whole.operations[name] + self.begun[name] // 2))
            if whole and kind in kinds
            else None
            for name, kinds in (("server", ("server",)), ("worker", ("both", "worker")))
        }
        settings = Settings(
            self.jobs,
            models=(ModelChoice("small", str(self.inputs["model"])),),
            port=0,
            data=self.inputs["before"].parent,
            device="cpu",
            demo=False,
        )

        def work() -> None:
            processes.subprocess = Instead(place, at["worker"], kind == "both")  # type: ignore[assignment]
            self.jobs.mkdir(exist_ok=True)
            watch(self.jobs, at["server"], None if whole else place / "server-operations")

            def hear(line: str) -> None:
                if found := re.search(r"http://\S+/", line):
                    said.write_text(found.group())

            serve(settings, hear)

        self.server = forked(work, place / "log")
        self._wait(lambda: self._gone() or (said.exists() and said.read_text().endswith("/")))
        if not self._gone():
            host, _, port = said.read_text().removeprefix("http://").rstrip("/").rpartition(":")
            self.address = (host, int(port))

    def send(self) -> str:
        """Ask for a comparison; the job's id."""
        body = {"before": self.inputs["before"].name, "after": self.inputs["after"].name}
        return str(self._ask("POST", "/api/jobs", body)["id"])

    def kill(self) -> None:
        """Kill the server and wait for its end."""
        if self.server is not None and not self._gone():
            os.kill(self.server, signal.SIGKILL)
            ended(self.server, LIMIT)
        self.server = None

    def _kill(self, kind: str, share: float, job: str | None) -> bool:
        """Have it killed at a moment; False if the job came to its end before."""
        if kind == "time":
            time.sleep(share * self.whole.seconds)
            alive = not self._gone()
            self.kill()
            return alive
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and not self._gone():
            try:
                state = self._ask("GET", f"/api/jobs/{job}")["state"] if job else ""
                if state in ("done", "failed"):
                    return kind == "worker" and state == "failed"  # its worker was killed
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)
        return self._gone()

    def _gone(self) -> bool:
        if self.server is None:
            return True
        if ended(self.server, 0) is not None:
            self.server = None
        return self.server is None

    def _job(self) -> str | None:
        """The job that is not the one that was done before, if the server knows it."""
        found = [job["id"] for job in self._ask("GET", "/api/jobs")["jobs"]]
        return next((job for job in found if job != getattr(self, "done", None)), None)

    def _to_its_end(self, job: str) -> str:
        state = self._until_ended(job)
        if state["state"] != "done":
            raise RuntimeError(f"{state} {(self.place / 'worker-log').read_text()}")
        return job

    def _until_ended(self, job: str) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT
        while True:
            state = self._ask("GET", f"/api/jobs/{job}")
            if state["state"] in ("done", "failed") or time.monotonic() > deadline:
                return state
            time.sleep(0.02)

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self.address, timeout=LIMIT)
        headers = {"content-type": "application/json"} if body else {}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text!r}")
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def _operations(self) -> dict[str, int]:
        return {n: (self.place / f"{n}-operations").stat().st_size for n in ("server", "worker")}

    def _damage(self) -> list[str]:
        """Files under their final names that are not whole, or that a job must not have yet."""
        problems = []
        for name, path in files(self.jobs).items():
            reason = broken(path) if is_final(name) else None
            if reason is not None:
                problems.append(f"{Path(name).name} is broken: {reason}")
            elif path.name in RESULTS and path.read_bytes() != self.whole.results[path.name]:
                problems.append(f"{path.name} has other bytes")
        return problems

    def _differences(self, kept: dict[str, tuple[int, int]], state: dict[str, Any]) -> list[str]:
        problems = []
        now = {name: identity(path) for name, path in files(self.jobs / self.done).items()}
        if now != kept:
            changed = sorted(name for name in {*now, *kept} if now.get(name) != kept.get(name))
            problems.append(f"of the job that was done {changed} changed")
        folder = self.jobs / str(state["id"])
        for name in RESULTS:
            path = folder / name
            if not path.exists() or path.read_bytes() != self.whole.results[name]:
                problems.append(
                    f"in the end {name} is {'different' if path.exists() else 'missing'}"
                )
        mine = {f"{folder.name}/{name}" for name in (*RESULTS, "job.json", "result.json")}
        theirs = {f"{self.done}/{name}" for name in kept}
        left = sorted({*files(self.jobs)} - mine - theirs - {KEY})
        if left:
            problems.append(f"in the end {left} is left over")
        return problems

    def _wait(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not happened():
            if time.monotonic() > deadline:
                raise RuntimeError("nothing happened")
            time.sleep(0.002)


def campaign(
    folder: Path,
    inputs: Inputs,
    *,
    rounds: int,
    seed: int,
    seconds: float = float("inf"),
    report: Callable[[str], None] = print,
) -> Tally:
    """Kill the server in so many rounds of one to three kills."""
    folder.mkdir()
    arena, tally, rng = ServerArena(folder, inputs), Tally(), random.Random(f"{seed} server")
    started = time.monotonic()
    try:
        while tally.rounds < rounds and time.monotonic() - started < seconds:
            moments = [
                (rng.choice(("time", "time", "server", "both", "both", "worker")), rng.random())
                for _ in range(rng.choice((1, 1, 2, 3)))
            ]
            arena.round(moments, tally)
    finally:
        arena.close()
    operations = sum(arena.whole.operations.values())
    report(
        f"server: {tally.rounds} rounds, {tally.kills} kills, {tally.checked} files checked, "
        f"{len(tally.failures)} failures ({operations} operations, "
        f"{arena.whole.seconds:.1f} s a job, {time.monotonic() - started:.0f} s in all)"
    )
    for line in list(dict.fromkeys(tally.failures))[:20]:
        report(f"  {line}")
    return tally
