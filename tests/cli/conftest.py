from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def adadino(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Run the command in this process, as a shell would."""
    from adadino.cli.app import main

    def run(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["adadino", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capsys.readouterr())

    return run
