"""The log of a review: lines of JSON to which lines are only ever added.

- A line is on disk (`fsync`) before `append` returns.
- Several processes and threads may add at once: each holds the file's lock while it writes.
- A process that was killed while it wrote leaves a torn last line. It was never acknowledged. The
  next writer ends it with a newline, and readers skip it; `damaged` counts such lines.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from adadino.errors import WriteError
from adadino.files import WAY_OUT, lock
from adadino.review.actions import Action, read_action

Check = Callable[[Sequence[Action], Action], Action]
"""Given the log and a new action, gives the action to keep, or raises."""


class Log:
    """A log of actions, in memory as far as it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        """Lines that cannot be read."""
        self._actions: list[Action] = []
        self._keys: dict[tuple[str, str], Action] = {}
        self._lines, self._offset = 0, 0

    def read(self) -> list[Action]:
        """All actions, with those that other processes have added."""
        try:
            with self.path.open("rb") as file:
                self._read_on(file)
        except FileNotFoundError:
            pass
        return list(self._actions)

    def append(self, actions: Sequence[Action], check: Check) -> list[Action]:
        """Add actions: all of them are on disk when it returns, or none is.

        Args:
            actions: What was done; an action whose key its author has used before is not added.
            check: Called with the log and each action before anything is written.

        Returns:
            The actions as they are in the log, those that were there already included.

        Raises:
            WriteError: The file cannot be written.
        """
        kept: list[Action] = []
        with self._locked() as file:
            self._read_on(file)
            log, lines, new = list(self._actions), self._lines, ""
            for action in actions:
                known = self._keys.get((action.by, action.key)) if action.key else None
                if known is None:
                    lines += 1
                    known = check(log, dataclasses.replace(action, n=lines))
                    log.append(known)
                    new += known.line()
                kept.append(known)
            if new:
                self._write(file, new.encode())
            self._read_on(file)
        return kept

    def _write(self, file: IO[bytes], new: bytes) -> None:
        start = file.seek(0, os.SEEK_END)
        try:
            while new:  # an unbuffered file may take less than it is given
                new = new[file.write(new) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(start)  # a full disk: a half line would be skipped, but looks damaged
            raise WriteError(f"cannot write {self.path}: {error.strerror}. {WAY_OUT}") from error

    def _read_on(self, file: IO[bytes]) -> None:
        """Read the whole lines behind those that are known."""
        file.seek(self._offset)
        text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.split(b"\n")[:-1]:
            self._lines += 1
            action = read_action(line, self._lines)
            if action is None:
                self.damaged += 1
                continue
            self._actions.append(action)
            if action.key:
                self._keys[action.by, action.key] = action

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file, open to be read and extended, while nobody else extends it."""
        try:
            # Unbuffered: after an error nothing waits to be written again on closing.
            file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise WriteError(f"cannot write {self.path}: {error.strerror}. {WAY_OUT}") from error
        with file:
            lock(file, wait=True)
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    self._write(file, b"\n")
            yield file
