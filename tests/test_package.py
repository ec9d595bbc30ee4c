"""The package's face: cheap to import, and every public name resolves."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import adadino

HEAVY = ("torch", "numpy", "PIL", "yaml", "matplotlib", "rasterio", "pytorch_lightning")


def modules_after(code: str) -> set[str]:
    """The top-level modules a fresh interpreter has loaded after running `code`."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_heavy():
    loaded = modules_after("import adadino; adadino.__version__; dir(adadino)")
    assert "adadino" in loaded
    assert not loaded & {*HEAVY, "typer", "rich"}


def test_help_imports_nothing_heavy():
    code = """
import sys
from adadino.cli.app import main
sys.argv = ["adadino", "--help"]
try:
    main()
except SystemExit as stop:
    assert stop.code == 0, stop.code
"""
    loaded = modules_after(code)
    assert "typer" in loaded
    assert not loaded & set(HEAVY)


def test_every_public_name_resolves():
    for name in adadino.__all__:
        assert getattr(adadino, name).__name__ == name
        assert name in dir(adadino)
    from adadino.checkpoint import load

    assert adadino.load is load
    assert adadino.__version__ == version("adadino")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'adadino' has no attribute 'lod'"):
        _ = adadino.lod
    assert not hasattr(adadino, "__path_to_nowhere__")


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "adadino", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, adadino.__version__)


def test_a_name_whose_extra_is_missing_says_what_to_install():
    code = "import sys; sys.modules['rasterio'] = None; import adadino; adadino.predict_scene"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "predict_scene needs rasterio" in done.stderr
    assert "pip install 'adadino[geo]'" in done.stderr.splitlines()[-1]
