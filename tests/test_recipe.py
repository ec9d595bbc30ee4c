"""The recipe for conda-forge: it asks for what the package asks for, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch"}
"""Packages that conda-forge calls otherwise."""


def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def project():
    return settings()["project"]


def recipe():
    return yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())


def as_conda(requirement):
    name, limit = re.fullmatch(r"([\w-]+)(>=[\d.]+)", requirement).groups()
    return f"{CONDA_NAMES.get(name, name)} {limit}"


def test_its_dependencies_are_the_package_s():
    wanted = [*project()["dependencies"], *project()["optional-dependencies"]["geo"]]
    python, *others = recipe()["requirements"]["run"]
    assert others == [as_conda(one) for one in wanted]
    assert python == "python >=${{ python_min }}"
    assert f">={recipe()['context']['python_min']}" == project()["requires-python"]


def test_it_installs_the_command_and_the_licences():
    found = recipe()
    [(name, target)] = project()["scripts"].items()
    assert found["build"]["python"]["entry_points"] == [f"{name} = {target}"]
    assert found["about"]["license"] == project()["license"]
    assert found["about"]["license_file"] == project()["license-files"]
    assert project()["version"].startswith(found["context"]["version"])
    [backend] = settings()["build-system"]["requires"]
    assert as_conda(backend) in found["requirements"]["host"]
