"""`adadino demo`: placeholder."""

from __future__ import annotations


def command() -> None:
    """Show a pair."""
