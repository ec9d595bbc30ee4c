"""Feed the parsers inputs nobody meant, and hold them to one rule.

An input is taken, or refused with an `AdaDINOError` in words. Anything else is a failure: another
exception, a refusal of more than `LONGEST` characters, a hang, a crash of the process, or something
left behind that looks finished. Each parser runs in a child with a limit on its memory; the input
at hand lies in a file, so that what kills the child is known.

A hang is told by the processor time that an input costs, not by the clock: on a busy machine any
input may wait for ten seconds. The clock counts too, with `WAIT`, for an input that only sleeps.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch

from adadino.errors import AdaDINOError
from campaign.geotiff import GeoTiff
from campaign.kill import ended, forked
from campaign.lines import CommandLine
from campaign.polyglots import Polyglot
from campaign.targets import FIGURES, Target
from campaign.targets import TARGETS as PARSERS
from campaign.web import WEB

TARGETS: dict[str, type[Target]] = (
    PARSERS | WEB | {kind.name: kind for kind in (GeoTiff, CommandLine, Polyglot)}
)
PATIENCE = 10
"""Seconds of processor time that one input may take."""
WAIT = 120
"""Seconds by the clock: more is a hang even if the processor has nothing to do."""
SLOW = 2.0
"""Seconds of processor time from which an input is kept, to be looked at; it is no failure."""
LONGEST = 1500
"""Characters of a refusal; names and values in it may be long, but not as long as the input."""
MEMORY = 12 * 2**30
KEPT = 40
"""Failures that are kept with their inputs, for each parser."""


class Hang(BaseException):
    """An input that takes longer than it may."""


def verdict(target: Target, data: bytes) -> str | None:
    """Give a parser one input; None if it behaves, else what it did."""
    try:
        target.take(data)
    except AdaDINOError as error:
        words = str(error)
        if not words.strip():
            return "a refusal without a word"
        if len(words) > LONGEST:
            return f"a refusal of {len(words) // 1000},000 characters: {words[:60]}"
        if "Traceback (most recent call last)" in words:
            return "a refusal with a traceback in it"
        return None
    except Hang:
        return f"it takes more than {PATIENCE} seconds of the processor, or {WAIT} of the clock"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "/adadino/" in f.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return f"{type(error).__name__} at {where}: {str(error)[:160]}"
    return None


def feed(
    target: Target, folder: Path, *, count: int, seed: int, seconds: float = float("inf")
) -> Counter[str]:
    """Give a parser so many inputs in this process; what it did wrong, and how often.

    The inputs of the first failures are kept in `folder`.
    """

    def alarm(number: int, frame: FrameType | None) -> None:
        raise Hang

    previous = {number: signal.signal(number, alarm) for number in (signal.SIGALRM, signal.SIGPROF)}
    problems: Counter[str] = Counter()
    following = target.inputs(seed)
    done, deadline = 0, time.monotonic() + seconds
    try:
        while done < count and time.monotonic() < deadline:
            data = following()
            (folder / "current").write_bytes(data)
            started = time.process_time()
            _timers(PATIENCE, WAIT)
            problem = verdict(target, data)
            _timers(0, 0)
            done += 1
            if (spent := time.process_time() - started) > SLOW:
                (folder / f"{target.name}-slow-{done}-{spent:.1f}s.bin").write_bytes(data)
            if problem is not None:
                problems[problem] += 1
                if problems[problem] == 1 and len(problems) <= KEPT:
                    (folder / f"{target.name}-{len(problems)}.bin").write_bytes(data)
            if done % 50 == 0 or done == count:
                (folder / "done").write_text(str(done))
    finally:
        _timers(0, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
        (folder / "done").write_text(str(done))
    return problems


def _timers(processor: float, clock: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, processor)
    signal.setitimer(signal.ITIMER_REAL, clock)


def follow_branches(target: Target, folder: Path, *, count: int, seed: int) -> Counter[str]:
    """The same with atheris, which prefers inputs that reach new branches of our code."""
    import importlib

    import atheris  # type: ignore[import-not-found]

    for name in target.modules:
        module = importlib.import_module(name)
        for key, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value.__module__ == name:
                setattr(module, key, atheris.instrument_func(value))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(target.seeds()):
        (corpus / str(number)).write_bytes(data)
    problems: Counter[str] = Counter()
    done = 0

    def one(data: bytes) -> None:
        nonlocal done
        problem = verdict(target, data)
        done += 1
        if problem is not None:
            problems[problem] += 1
            if problems[problem] == 1:
                (folder / f"{target.name}-{len(problems)}.bin").write_bytes(data)
        if done % 50 == 0 or problem is not None:
            (folder / "done").write_text(str(done))
            _write(problems, folder)

    options = [f"-runs={count}", f"-seed={seed + 1}", f"-timeout={PATIENCE}", "-rss_limit_mb=0"]
    atheris.Setup(["campaign", *options, str(corpus)], one)
    atheris.Fuzz()
    return problems


def _write(problems: Counter[str], folder: Path) -> None:
    lines = [f"{number}\t{' '.join(problem.split())}\n" for problem, number in problems.items()]
    (folder / "problems").write_text("".join(lines))


def campaign(
    folder: Path,
    names: list[str],
    *,
    count: int,
    seed: int,
    seconds: float = float("inf"),
    engine: str = "own",
    report: Callable[[str], None] = print,
    keep: Path | None = None,
) -> int:
    """Fuzz each parser in a child; returns 1 if one misbehaved.

    Inputs that failed, or that were slow, are copied to `keep`.
    """
    failed = 0
    for name in names:
        place = folder / name
        place.mkdir()

        def work(name: str = name, place: Path = place) -> None:
            warnings.simplefilter("ignore")
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            torch.set_num_threads(1)  # threads that wait for each other cost processor time
            target = TARGETS[name](place / "work")
            if engine == "atheris":
                follow_branches(target, place, count=count, seed=seed)
                return
            found = feed(target, place, count=count, seed=seed, seconds=seconds)
            _write(found, place)
            target.close()

        started = time.monotonic()
        child = forked(work, place / "log")
        status, last = None, ""
        # A loop in C does not hear the alarm; the same input for long is a hang, too.
        while status is None:
            status = ended(child, WAIT + 60)
            said = _read(place / "done") + str(_mtime(place / "current"))
            if status is None and said == last:
                os.kill(child, signal.SIGKILL)
                status = ended(child, PATIENCE)
            last = said
        problems = _read(place / "problems").splitlines()
        if status != 0 and not (engine == "atheris" and status == 0):
            words = _read(place / "log").strip().splitlines()[-1:]
            problems.append(f"1\tthe process ended with {status}: {words}")
        failed += bool(problems)
        report(
            f"{name}: {_read(place / 'done') or 0} inputs, {len(problems)} kinds of failure "
            f"({time.monotonic() - started:.0f} s, {engine})"
        )
        for line in problems[:KEPT]:
            report(f"  {line}")
        for line in _read(place / "work" / FIGURES).splitlines():
            report(f"  {line}")
        kept = sorted(place.glob("*.bin"))
        slow = [path for path in kept if "-slow-" in path.name]
        if slow:
            report(f"  {len(slow)} inputs took more than {SLOW:g} s of the processor")
        if status != 0 and (place / "current").exists():
            kept.append((place / "current").rename(place / f"{name}-last.bin"))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for path in kept:
                shutil.copy(path, keep)
    return int(failed > 0)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _mtime(path: Path) -> Any:
    return path.stat().st_mtime_ns if path.exists() else None
