"""Kill a command at a moment, look at what is left, start it again, compare the end.

- A parent that has imported everything and run nothing forks a child for each run, so that a run
  costs its work and not its imports. Nothing that has threads ever runs in the parent.
- Two kinds of moments. `time`: SIGKILL from outside after a random share of an undisturbed run's
  duration. `operation`: SIGKILL from inside, just before the n-th time that the run opens, renames,
  links, removes or makes something in its folder; those are the moments between which a state on
  disk lasts, and a random time rarely finds the short ones.
- After every kill: what is under its final name is whole, and what does not change in a run has the
  bytes of an undisturbed one. At the end: every file equals, nothing is left over, and nothing that
  was finished was lost or done again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.commands import COMMANDS, Command, Inputs, Predict, files, make_inputs
from campaign.whole import broken

EVENTS = frozenset(
    ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
)
SERVER = "server"
LIMIT = 120.0
"""Seconds after which a run counts as hanging."""


@dataclass
class Tally:
    """What came of a command's rounds."""

    rounds: int = 0
    kills: int = 0
    """Processes that were alive when they were killed."""
    checked: int = 0
    """Files opened and compared after a kill."""
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody killed."""

    seconds: float
    operations: int
    files: dict[str, object]
    settled: dict[str, bytes]


def forked(work: Callable[[], None], log: Path) -> int:
    """Run something in a child; returns its process number. Its last words go to `log`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        warnings.simplefilter("ignore")
        with log.open("w") as words:
            os.dup2(words.fileno(), 1)
            os.dup2(words.fileno(), 2)
            try:
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """Wait for a child; its exit status, negative for a signal, or None if it still runs."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(0.002, left))


def watch(folder: Path, kill_at: int | None, count: Path | None = None) -> None:
    """Count this process's operations on a folder; kill it just before one."""
    seen, inside = 0, str(folder)
    # Opened now: a worker that confines itself later reaches neither the file nor other processes.
    number = None if count is None else os.open(count, os.O_WRONLY)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in EVENTS or not str(arguments[0]).startswith(inside):
            return
        seen += 1
        if number is not None:
            os.ftruncate(number, seen)  # its size is the number: cheap, and true whenever we stop
        if seen == kill_at:
            signal.raise_signal(signal.SIGKILL)

    sys.addaudithook(hook)


class Arena:
    """The inputs, the undisturbed runs and a place to work.

    Args:
        folder: An empty folder.
        traced: Whether `export` will be among the commands.
    """

    def __init__(self, folder: Path, *, traced: bool = True) -> None:
        self.folder = folder
        self.inputs: Inputs = {}
        self._undisturbed: dict[str, Undisturbed] = {}
        place = folder / "inputs"

        def make() -> None:
            _remember(make_inputs(place, traced=traced), folder / "names")

        child = forked(make, folder / "log")
        if ended(child, LIMIT) != 0:
            raise RuntimeError((folder / "log").read_text())
        lines = (folder / "names").read_text().splitlines()
        self.inputs = {name: Path(path) for name, path in (line.split("\t") for line in lines)}

    def undisturbed(self, command: Command) -> Undisturbed:
        """What a command leaves when nobody kills it."""
        if command.name not in self._undisturbed:
            folder = self._empty(f"{command.name}-whole")
            count = self.folder / "operations"
            count.write_bytes(b"")

            def work() -> None:
                watch(folder, None, count)
                command.run(self.inputs, folder)

            started = time.monotonic()
            status = ended(forked(work, self.folder / "log"), LIMIT)
            if status != 0:
                raise RuntimeError((self.folder / "log").read_text())
            found = files(folder)
            self._undisturbed[command.name] = Undisturbed(
                time.monotonic() - started,
                count.stat().st_size,
                command.compared(folder),
                {name: p.read_bytes() for name, p in found.items() if command.settled(name)},
            )
        return self._undisturbed[command.name]

    def round(self, command: Command, moments: list[tuple[str, float]], tally: Tally) -> None:
        """Kill a command at each of some moments, then let it end, and compare.

        Args:
            command: The command.
            moments: `time` or `operation`, and where from 0 (the start) to 1 (the end).
            tally: What is counted and found goes there.
        """
        whole = self.undisturbed(command)
        folder = self._empty(f"{command.name}-killed")
        told = f"{command.name} at {', '.join(f'{kind} {share:.4f}' for kind, share in moments)}"
        tally.rounds += 1
        for kind, share in moments:
            before = command.finished(folder)
            if not self._kill(command, folder, kind, share, whole, tally, told):
                break
            tally.failures += [f"{told}: {problem}" for problem in _damage(command, folder, whole)]
            tally.failures += [f"{told}: {p}" for p in _lost(before, command.finished(folder))]
            tally.checked += len(files(folder))
        before = command.finished(folder)
        most = command.most(folder) if isinstance(command, Predict) else None
        status = ended(self._start(command, folder, None), LIMIT)
        words = (self.folder / "log").read_text().strip()
        if status not in (0, 3):
            last = words.splitlines()[-1] if words else "nothing said"
            tally.failures.append(f"{told}: the last run ended with {status}: {last}")
            return
        tally.failures += [f"{told}: {p}" for p in _lost(before, command.finished(folder))]
        tally.failures += [f"{told}: {p}" for p in _differences(command, folder, whole)]
        if most is not None:
            passes = len(folder.with_suffix(".passes").read_text())
            if passes > most:
                tally.failures.append(f"{told}: {passes} passes where {most} were missing")

    def _kill(
        self,
        command: Command,
        folder: Path,
        kind: str,
        share: float,
        whole: Undisturbed,
        tally: Tally,
        told: str,
    ) -> bool:
        """Run and kill; False if the run came to its end before."""
        at = 1 + int(share * whole.operations) if kind == "operation" else None
        child = self._start(command, folder, at)
        status = ended(child, LIMIT if at is not None else share * whole.seconds)
        if status is None:
            if at is not None:
                tally.failures.append(f"{told}: it hangs")
            os.kill(child, signal.SIGKILL)
            status = ended(child, LIMIT)
        if status == -signal.SIGKILL:
            tally.kills += 1
            return True
        if status not in (0, 3):
            words = (self.folder / "log").read_text().strip().splitlines()
            tally.failures.append(f"{told}: a restart ended with {status}: {words[-1:]}")
        return False

    def _start(self, command: Command, folder: Path, at: int | None) -> int:
        def work() -> None:
            watch(folder, at)
            try:
                command.run(self.inputs, folder)
            except Exception as error:
                if command.is_answer(error, folder):
                    os._exit(3)
                raise

        return forked(work, self.folder / "log")

    def _empty(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


def _remember(inputs: Inputs, names: Path) -> None:
    names.write_text("".join(f"{name}\t{path}\n" for name, path in inputs.items()))


def _damage(command: Command, folder: Path, whole: Undisturbed) -> list[str]:
    """What is under a final name and should not be."""
    problems = []
    for name, path in files(folder).items():
        if not command.settled(name):
            hidden = [part for part in Path(name).parts if part[0] == "." and part != ".partial"]
            reason = None if hidden else broken(path)
            if reason is not None:
                problems.append(f"{name} is broken: {reason}")
        elif name not in whole.settled:
            problems.append(f"{name} is there, which no undisturbed run leaves")
        elif path.read_bytes() != whole.settled[name]:
            problems.append(f"{name} has other bytes: {broken(path) or 'whole, but different'}")
    return problems


def _lost(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [
        f"{name} was finished and is {'lost' if name not in after else 'done again'}"
        for name, which in before.items()
        if after.get(name) != which
    ]


def _differences(command: Command, folder: Path, whole: Undisturbed) -> list[str]:
    found = command.compared(folder)
    problems = []
    for name in sorted({*found, *whole.files}):
        if found.get(name) != whole.files.get(name):
            what = "missing" if name not in found else "different"
            what = what if name in whole.files else "left over"
            problems.append(f"in the end {name} is {what}")
    return problems


def campaign(
    folder: Path,
    names: list[str],
    *,
    rounds: int,
    seed: int,
    report: Callable[[str], None] = print,
    seconds: float = float("inf"),
) -> dict[str, Tally]:
    """Kill each command in so many rounds of one to three kills.

    Args:
        folder: Where to work.
        names: Which commands.
        rounds: Of each command.
        seed: Decides every moment.
        report: Takes a line for each command.
        seconds: Stop a command's rounds after so long.
    """
    arena, tallies = Arena(folder, traced="export" in names), {}
    for name in names:
        if name == SERVER:
            from campaign import server  # it needs what only `adadino[web]` brings

            place, limits = folder / "server", {"rounds": rounds, "seconds": seconds}
            tallies[name] = server.campaign(place, arena.inputs, seed=seed, report=report, **limits)
            continue
        rng, tally, command = random.Random(f"{seed} {name}"), Tally(), COMMANDS[name]
        started, whole = time.monotonic(), arena.undisturbed(command)
        # Every operation in turn first, so that enough rounds leave none out; then at random.
        operations = list(range(whole.operations))
        rng.shuffle(operations)
        while tally.rounds < rounds and time.monotonic() - started < seconds:
            moments = []
            for _ in range(rng.choice((1, 1, 2, 3))):
                if operations and rng.random() < 0.6:
                    moments.append(("operation", operations.pop() / whole.operations))
                else:
                    kind = rng.choice(("time", "time", "operation"))
                    moments.append((kind, rng.random()))
            arena.round(command, moments, tally)
        tallies[name] = tally
        report(
            f"{name}: {tally.rounds} rounds, {tally.kills} kills, {tally.checked} files checked, "
            f"{len(tally.failures)} failures ({whole.operations} operations, "
            f"{whole.seconds:.1f} s a run, {time.monotonic() - started:.0f} s in all)"
        )
        for line in list(dict.fromkeys(tally.failures))[:20]:
            report(f"  {line}")
    return tallies
