# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the `adadino` command: the path in the settings, then PATH, then where installers put it.

- QGIS started from a menu has a shorter PATH than a terminal, so pip's, pipx's, uv's and conda's
  usual folders are looked at as well.
- A batch file is refused: Windows runs it through a shell, which would read meaning into names of
  files.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import CommandError

CONDA = ("miniforge3", "mambaforge", "miniconda3", "anaconda3", "micromamba", ".conda")
"""Names under which conda and its kin install themselves."""
POSIX = (
    ".local/bin",
    ".local/share/pipx/venvs/adadino/bin",
    ".local/pipx/venvs/adadino/bin",
    ".local/share/uv/tools/adadino/bin",
    "Library/Python/3.*/bin",
    ".virtualenvs/*/bin",
    ".venv/bin",
    "venv/bin",
    "adadino/.venv/bin",
    "adadino/venv/bin",
)
"""Folders in the home of a user of Linux or macOS."""
POSIX_ROOTS = ("/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/usr/bin")
WINDOWS = (
    ("USERPROFILE", ".local/bin"),
    ("USERPROFILE", "pipx/venvs/adadino/Scripts"),
    ("LOCALAPPDATA", "pipx/pipx/venvs/adadino/Scripts"),
    ("APPDATA", "uv/tools/adadino/Scripts"),
    ("APPDATA", "Python/Python3*/Scripts"),
    ("LOCALAPPDATA", "Programs/Python/Python3*/Scripts"),
    (
        "LOCALAPPDATA",
        "Packages/PythonSoftwareFoundation.Python.3*/LocalCache/local-packages/Python3*/Scripts",
    ),
    ("PROGRAMFILES", "Python3*/Scripts"),
    ("SYSTEMDRIVE", "Python3*/Scripts"),
    ("USERPROFILE", ".virtualenvs/*/Scripts"),
    ("USERPROFILE", ".venv/Scripts"),
    ("USERPROFILE", "venv/Scripts"),
    ("USERPROFILE", "adadino/.venv/Scripts"),
    ("USERPROFILE", "adadino/venv/Scripts"),
)
"""Variables of Windows, and folders below what they name."""
HOW_TO_INSTALL = (
    "Install adadino once, in a terminal: pipx install 'adadino[geo]' (or in an environment of "
    "your own: pip install 'adadino[geo]'). If it is installed already, tell QGIS where: Settings "
    "> Options > Processing > Providers > adadino > Path of the adadino command."
)


def find_command(
    setting: str = "",
    *,
    system: str | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Path:
    """Return the command to run.

    Args:
        setting: What the user gave: the command, the folder that holds it, or an environment.
        system: The operating system, as `platform.system` names it.
        environ: The environment's variables.
        home: The user's folder.

    Raises:
        CommandError: There is none, or not where the setting says.
    """
    system = system or platform.system()
    environ = os.environ if environ is None else environ
    home = home or Path.home()
    if setting.strip():
        return _as_set(Path(setting.strip().strip('"')).expanduser(), system)
    on_path = shutil.which(_name(system), path=environ.get("PATH", ""))
    found = [Path(on_path)] if on_path else []
    for folder in usual_folders(system, environ, home):
        command = folder / _name(system)
        if command.is_file() and os.access(command, os.X_OK):
            found.append(command)
    if not found:
        raise CommandError(f"The adadino command was not found on this computer. {HOW_TO_INSTALL}")
    return found[0]


def usual_folders(system: str, environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the folders into which the usual installers put commands; some may not exist."""
    if system == "Windows":
        bases = {name: Path(environ[name] + os.sep) for name, _ in WINDOWS if environ.get(name)}
        for name, pattern in WINDOWS:
            if name in bases:
                yield from _below(bases[name], pattern)
        roots = [bases[name] for name in ("USERPROFILE", "LOCALAPPDATA") if name in bases]
        if environ.get("PROGRAMDATA"):
            roots.append(Path(environ["PROGRAMDATA"]))
        scripts = "Scripts"
    else:
        for pattern in POSIX:
            yield from _below(home, pattern)
        yield from map(Path, POSIX_ROOTS)
        roots, scripts = [home, Path("/opt"), Path("/opt/homebrew/Caskroom")], "bin"
    for root in roots:
        for name in CONDA:
            yield root / name / scripts
            yield from _below(root / name, f"envs/*/{scripts}")


def _below(base: Path, pattern: str) -> list[Path]:
    """The folders that match, the newest version first."""
    try:
        return sorted(base.glob(pattern), reverse=True)
    except OSError:  # a folder that we may not read holds nothing for us
        return []


def _name(system: str) -> str:
    return "adadino.exe" if system == "Windows" else "adadino"


def _as_set(path: Path, system: str) -> Path:
    """The command that the settings name."""
    if path.is_dir():
        for folder in (path, path / "bin", path / "Scripts"):
            if (folder / _name(system)).is_file():
                return folder / _name(system)
        raise CommandError(
            f"The settings look for the adadino command in {path}, which holds none. "
            f"{HOW_TO_INSTALL}"
        )
    if path.suffix.lower() in (".bat", ".cmd"):
        raise CommandError(
            f"The settings name {path}, a batch file, which Windows would run through a shell. "
            "Name adadino.exe itself; it lies in the folder Scripts of its environment."
        )
    if not path.is_file():
        raise CommandError(f"The settings name {path}, which does not exist. {HOW_TO_INSTALL}")
    if not os.access(path, os.X_OK):
        raise CommandError(f"The settings name {path}, which is no program. {HOW_TO_INSTALL}")
    return path
