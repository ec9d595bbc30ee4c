# SPDX-License-Identifier: GPL-2.0-or-later
"""What an installed command can do, asked of the command itself, so that an older one is known."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from .errors import CommandError
from .run import ask

UPDATE = "Update it: pipx upgrade adadino (or pip install --upgrade 'adadino[geo]')."
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def version_of(command: Path) -> str:
    """Return the version that the command says it has.

    Raises:
        CommandError: It does not answer as adadino does.
    """
    return _version(str(command), _stamp(command))


def options_of(command: Path, *verb: str) -> frozenset[str]:
    """Return the options of a verb, such as `--aoi`; empty if the command has no such verb."""
    return _options(str(command), _stamp(command), verb)


def check_able(command: Path, verb: tuple[str, ...], options: Iterable[str]) -> None:
    """Refuse what this version of the command cannot do.

    Raises:
        CommandError: It lacks the verb or one of the options.
    """
    version = version_of(command)
    known = options_of(command, *verb)
    if not known:
        raise CommandError(
            f"{command} is adadino {version}, which has no `{' '.join(verb)}`. {UPDATE}"
        )
    missing = sorted(set(options) - known)
    if missing:
        raise CommandError(
            f"{command} is adadino {version}, whose `{' '.join(verb)}` does not know "
            f"{', '.join(missing)}. {UPDATE} Or leave that setting out."
        )


def _stamp(command: Path) -> int:
    """When the command was installed: after an update it is asked again."""
    try:
        return command.stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=32)
def _version(command: str, stamp: int) -> str:
    answer = ask([command, "--version"])
    version = answer.stdout.strip()
    if answer.returncode or not re.match(r"\d+\.\d+\S*$", version):
        said = (answer.stderr.strip() or version or "nothing").splitlines()[-1]
        raise CommandError(
            f"{command} --version answers {said[:200]!r}, which is not adadino's answer. Choose "
            "another command in Settings > Options > Processing > Providers > adadino, or install "
            "adadino again."
        )
    return version


@functools.lru_cache(maxsize=64)
def _options(command: str, stamp: int, verb: tuple[str, ...]) -> frozenset[str]:
    answer = ask([command, *verb, "--help"])
    return frozenset(_OPTION.findall(answer.stdout)) if answer.returncode == 0 else frozenset()
