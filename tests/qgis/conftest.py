"""A real QGIS with the plugin, in a profile of its own; tests skip, and say why, without one."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from adadino.checkpoint import save
from adadino.data.synthetic import write_geotiff_pair
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "qgis-plugin" / "adadino_change"
INSIDE = Path(__file__).parent / "inside"

sys.path.insert(0, str(PLUGIN.parent))
pack: Callable[[Path], Path] = runpy.run_path(str(PLUGIN.parent / "pack.py"))["pack"]


def script(path: Path, text: str) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def ends(pid: int) -> bool:
    """Whether a process is gone, or soon is; a dead one that nobody has collected counts."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


class Qgis:
    """QGIS's two ways in without a window: `qgis_process`, and its Python."""

    def __init__(self, process: str, python: str, folder: Path) -> None:
        self.process_program, self.python, self.folder = process, python, folder
        plugins = folder / "profiles" / "default" / "python" / "plugins"
        plugins.mkdir(parents=True)
        zipfile.ZipFile(pack(folder / "dist")).extractall(plugins)  # as QGIS installs it
        home, running = folder / "home", folder / "run"
        home.mkdir()
        running.mkdir(mode=0o700)
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(running),
            "QGIS_CUSTOM_CONFIG_PATH": str(folder),
            "QT_QPA_PLATFORM": "offscreen",
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }
        self.use("")
        self.process("plugins", "enable", PLUGIN.name)

    def use(self, command: Path | str) -> None:
        """Set the path of the command, as the options dialog does."""
        ini = self.folder / "profiles" / "default" / "QGIS" / "QGIS3.ini"
        ini.parent.mkdir(exist_ok=True)
        ini.write_text(
            f"[PythonPlugins]\nadadino_change=true\nprocessing=true\n"
            f"[Processing]\nConfiguration\\ADADINO_COMMAND={command}\n"
        )

    def process(self, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `qgis_process`."""
        return self._run([self.process_program, *map(str, words)], environ)

    def algorithm(self, name: str, **parameters: object) -> subprocess.CompletedProcess[str]:
        """Run an algorithm by `qgis_process`."""
        given = [f"--{key}={value}" for key, value in parameters.items()]
        return self.process("run", f"adadino:{name}", *given)

    def inside(self, name: str, *words: object) -> dict:
        """Run one of our scripts in QGIS's Python, and return the JSON object that it prints."""
        done = self._run([self.python, str(INSIDE / name), *map(str, words)], {})
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def _run(self, words: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


@pytest.fixture(scope="session")
def qgis(tmp_path_factory: pytest.TempPathFactory) -> Qgis:
    # Debian's wrapper of qgis_process looks for a file that is not there; the program is .bin.
    process = shutil.which("qgis_process.bin") or shutil.which("qgis_process")
    if process is None:
        pytest.skip("QGIS is not installed: there is no qgis_process")
    python = os.environ.get("QGIS_PYTHON", "/usr/bin/python3")
    probe = subprocess.run([python, "-c", "import qgis.core"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"{python} has no qgis module; set QGIS_PYTHON to the Python of QGIS")
    return Qgis(process, python, tmp_path_factory.mktemp("qgis"))


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `adadino` command of this source tree, as an installer would put it."""
    path = tmp_path_factory.mktemp("environment") / "bin" / "adadino"
    source = repr(str(ROOT / "src"))
    text = f"import sys\nsys.path.insert(0, {source})\nfrom adadino.cli.app import main\nmain()\n"
    return script(path, text)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "small"
    return save(AdaDINO(SMALL), folder, with_backbone=True)


@pytest.fixture(scope="session")
def dates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pair whose folder has a name that a shell would take apart."""
    folder = tmp_path_factory.mktemp("pair") / "a b; $(touch x) 'c' ü"
    folder.mkdir()
    before, after, _ = write_geotiff_pair(folder, 3, 64)
    return Path(before), Path(after)
