# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the command writes to standard error: progress, warnings, and why it failed."""

from __future__ import annotations

import re
from typing import NamedTuple

_COUNT = re.compile(r"^\D[^:<]*: (?P<done>\d+)/(?P<total>[1-9]\d*)\b[^<]*$")
"""Without <: QGIS shows progress in a label that takes such text for HTML."""
_WARNING = "adadino: warning: "
_ERROR = "adadino: "
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Line(NamedTuple):
    """One line of standard error, understood."""

    kind: str
    """`progress`, `warning`, `error` or `text`."""
    text: str
    percent: float | None = None
    """How much is done, of `progress`."""


def read_line(raw: str) -> Line:
    """Understand one line."""
    text = _COLOURS.sub("", raw).rstrip()
    if text.startswith(_WARNING):
        return Line("warning", text[len(_WARNING) :])
    if text.startswith(_ERROR):
        return Line("error", text[len(_ERROR) :])
    count = _COUNT.match(text)
    if count:
        percent = 100 * int(count["done"]) / int(count["total"])
        if percent <= 100:
            return Line("progress", text, percent)
    return Line("text", text)


def why_failed(lines: list[str], code: int) -> str:
    """Say why a run ended with an exit code other than 0, by what it wrote to standard error."""
    read = [read_line(line) for line in lines if line.strip()]
    errors = [line.text for line in read if line.kind == "error"]
    if errors:
        return errors[-1]
    usage = _usage_error(lines)
    if usage:
        return f"The adadino command does not take what the plugin gave it: {usage}"
    if code < 0:
        return (
            f"The adadino command was ended from outside (signal {-code}). The computer may have "
            "run out of memory; close other programs, or choose a smaller area."
        )
    last = read[-1].text if read else "It said nothing."
    return f"The adadino command ended with the exit code {code}: {last}"


def _usage_error(lines: list[str]) -> str:
    """The message of a wrong command line, without the box that is drawn around it."""
    cleaned = [_COLOURS.sub("", line).strip() for line in lines]
    if not any(line.startswith("Usage:") for line in cleaned):
        return ""
    inside = [line.strip("│| ").strip() for line in cleaned if line.startswith(("│", "|"))]
    plain = [line[len("Error: ") :] for line in cleaned if line.startswith("Error: ")]
    return " ".join(plain or inside)
