# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of the command as words: each value is one word, and no value is read as an option."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

Value = Union[str, int, float, Path]


@dataclass
class Call:
    """A verb with its options and its arguments."""

    verb: tuple[str, ...]
    options: list[tuple[str, str]] = field(default_factory=list)
    """Names such as `--aoi` and their values; an empty value is a switch."""
    positional: list[str] = field(default_factory=list)

    def add(self, name: str, value: Value | bool | None) -> None:
        """Add an option, unless there is nothing to say: None, an empty text, or False."""
        if value is True:
            self.options.append((name, ""))
        elif value is not None and value is not False and str(value) != "":
            self.options.append((name, number(value) if isinstance(value, float) else str(value)))

    @property
    def names(self) -> list[str]:
        """The options that the command must know."""
        return [name for name, _ in self.options]

    def words(self, command: Path) -> list[str]:
        """Return the command line, word by word."""
        options = [f"{name}={value}" if value else name for name, value in self.options]
        # After `--` a name that begins with a hyphen is a name.
        return [str(command), *self.verb, *options, "--", *self.positional]


def number(value: float) -> str:
    """Write a number without a needless exponent or fraction."""
    return str(int(value)) if value == int(value) else repr(value)
