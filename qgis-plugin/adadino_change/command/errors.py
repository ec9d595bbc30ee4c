# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong with the command; every message is a sentence with the way out."""

from __future__ import annotations


class CommandError(Exception):
    """The command is missing, too old, or ended with an error."""


class CancelledError(CommandError):
    """The user cancelled the run."""

    def __init__(self) -> None:
        super().__init__("Cancelled. No output was written.")
