"""docs/paper-to-code.md: what it names exists, its values are the defaults, nothing is left out."""

from __future__ import annotations

import ast
import re
from functools import cache, reduce
from pathlib import Path

import pytest
import yaml

from adadino import schema
from adadino.experiments.tables import TABLES
from adadino.training.config import RunConfig
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
TICKED = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
TESTS = [name for name in TICKED if name.startswith("tests/")]
FILES = [name for name in TICKED if re.fullmatch(r"[\w/]+\.py", name) and name not in TESTS]
SETTINGS = re.findall(r"^\|[^|]+\| `([a-z_.]+)(?<!\.py)` \| `([^`]+)` \|$", TEXT, re.M)
DEFAULTS = schema.to_dict(RunConfig())


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", TESTS)
def test_the_test_exists(name):
    path, _, function = name.partition("::")
    assert (ROOT / path).is_file()
    assert not function or function in functions(ROOT / path)


@pytest.mark.parametrize("name", FILES)
def test_the_file_exists(name):
    assert (ROOT / "src" / "adadino" / name).is_file()


@pytest.mark.parametrize(("path", "value"), SETTINGS)
def test_the_setting_has_the_papers_value_by_default(path, value):
    default = reduce(lambda group, name: group[name], path.split("."), DEFAULTS)
    said = yaml.safe_load(value)
    assert said == (list(default) if isinstance(default, tuple) else default)


def test_every_equation_and_table_is_there():
    numbers: set[str] = set()
    for found in re.findall(r"^\| Eq\. ([S\d, -]+),? ", TEXT, re.M):
        for part in re.findall(r"S?\d+-S?\d+|S?\d+", found):
            first, _, last = part.partition("-")
            sign = "S" if first.startswith("S") else ""
            ends = int(first.lstrip("S")), int((last or first).lstrip("S"))
            numbers |= {f"{sign}{n}" for n in range(ends[0], ends[1] + 1)}
    assert numbers == {*map(str, range(1, 16)), "S1", "S2", "S3", "S4"}
    assert set(re.findall(r"^\| Table (\w+),", TEXT, re.M)) == {
        "1",
        "2",
        "3",
        "4",
        "S1",
        "S2",
        "S3",
        "S4",
    }
    commands = set(re.findall(r"`adadino reproduce ([\w-]+)`", TEXT))
    assert commands <= set(TABLES)


def test_enough_is_named_for_the_map_to_be_one():
    assert len(TESTS) > 40
    assert len(FILES) > 15
    assert len(SETTINGS) > 30
