# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the command without a shell, hands on its lines as they come, and ends it when asked.

- The command has an own process group (an own tree on Windows), so that cancelling ends all of it.
- QGIS sets variables for its own Python, GDAL and PROJ. The command has others, so they are taken
  out of its environment.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Callable, NamedTuple

from .errors import CancelledError, CommandError
from .progress import Line, read_line, why_failed

POLL = 0.1
"""Seconds between two looks at whether the user cancelled."""
PATIENCE = 2.0
"""Seconds that a cancelled command has to close its files, before it is killed."""
KEPT = 500
"""Lines of standard error that are kept to say why a run failed."""
FOREIGN = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONEXECUTABLE",
    "__PYVENV_LAUNCHER__",
    "GDAL_DATA",
    "GDAL_DRIVER_PATH",
    "PROJ_LIB",
    "PROJ_DATA",
)
"""Variables that QGIS sets for its own Python, GDAL and PROJ."""


class Finished(NamedTuple):
    """What a run gave."""

    facts: dict[str, Any]
    """The JSON object of standard output; empty if there was none."""
    output: str
    """Standard output as it was."""


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for the command: QGIS's own without what would mislead it."""
    kept = dict(os.environ if environ is None else environ)
    for name in FOREIGN:
        kept.pop(name, None)
    # Text comes in UTF-8 and at once, whatever the system; help is not folded at 80 columns.
    return {**kept, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "TERMINAL_WIDTH": "200"}


def run_command(
    words: Sequence[str],
    *,
    on_line: Callable[[Line], None],
    is_cancelled: Callable[[], bool],
    environ: Mapping[str, str] | None = None,
) -> Finished:
    """Run the command to its end.

    Args:
        words: The command and its arguments, each one word whatever it holds.
        on_line: Called with every line of standard error.
        is_cancelled: Asked often; when it says yes, the command is ended.
        environ: The environment's variables, if not this process's.

    Raises:
        CancelledError: The user cancelled; every process of the command has ended.
        CommandError: The command could not be started, or failed.
    """
    process = _start(words, clean_environment(environ))
    said: queue.Queue[str | None] = queue.Queue()
    output: list[str] = []
    readers = [
        threading.Thread(target=_pour, args=(process.stderr, said), daemon=True),
        threading.Thread(target=lambda: output.append(process.stdout.read()), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        kept = _follow(said, on_line, is_cancelled)
        while process.poll() is None:  # standard error is closed, the process not yet gone
            if is_cancelled():
                raise CancelledError
            time.sleep(POLL)
    except BaseException:
        end_tree(process)
        raise
    finally:
        for reader, stream in zip(readers, (process.stderr, process.stdout)):
            reader.join(timeout=PATIENCE)
            if not reader.is_alive():
                stream.close()
    if process.returncode:
        raise CommandError(why_failed(kept, process.returncode))
    text = "".join(output)
    return Finished(_json(text), text)


def ask(words: Sequence[str], *, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a short question such as `--version`, and return its whole answer.

    Raises:
        CommandError: It could not be started, or did not answer.
    """
    try:
        return subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            env=clean_environment(),
            **_own_group(),
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"{words[0]} did not answer {' '.join(words[1:])} within {timeout:.0f} seconds; try it "
            "in a terminal."
        ) from error
    except (OSError, ValueError) as error:
        raise CommandError(_not_started(words[0], error)) from error


def end_tree(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started: first by asking, soon after by force."""
    if sys.platform == "win32":
        # taskkill knows the tree; a console event would reach QGIS as well.
        taskkill = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [str(taskkill), "/F", "/T", "/PID", str(process.pid)],
                capture_output=True,
                timeout=10,
                check=False,
                **_own_group(),
            )
        with suppress(OSError):
            process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # it says what is kept, and closes its files
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=PATIENCE)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever of the group is left
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)


def _start(words: Sequence[str], environ: dict[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environ,
            **_own_group(),
        )
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise CommandError(_not_started(words[0], error)) from error


def _not_started(command: str, error: Exception) -> str:
    return (
        f"{command} could not be started ({error}). Choose another command in Settings > Options "
        "> Processing > Providers > adadino, or install adadino again."
    )


def _own_group() -> dict[str, Any]:
    """Arguments that start a process in a group of its own, and on Windows without a window."""
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return {"creationflags": flags}
    return {"start_new_session": True}


def _pour(stream: IO[str], into: queue.Queue[str | None]) -> None:
    for line in stream:
        into.put(line)
    into.put(None)


def _follow(
    said: queue.Queue[str | None],
    on_line: Callable[[Line], None],
    is_cancelled: Callable[[], bool],
) -> list[str]:
    """Hand on the lines until standard error is closed; return the last of them."""
    kept: list[str] = []
    while True:
        if is_cancelled():
            raise CancelledError
        try:
            line = said.get(timeout=POLL)
        except queue.Empty:
            continue
        if line is None:
            return kept
        kept = [*kept[1 - KEPT :], line]
        on_line(read_line(line))


def _json(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
