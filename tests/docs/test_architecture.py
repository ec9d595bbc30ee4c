"""docs/architecture.md: the files it names exist, and no package is left out."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TICKED = sorted(set(re.findall(r"`([\w./-]+)`", TEXT)))
OURS = [name for name in TICKED if name.startswith("adadino/")]
OTHERS = [name for name in TICKED if re.match(r"(tests|docs|configs)/|[A-Z]+\.md$", name)]
PACKAGES = sorted(
    path.name
    for path in (ROOT / "src" / "adadino").iterdir()
    if path.is_dir() and path.name != "__pycache__"
)


@pytest.mark.parametrize("name", OURS)
def test_the_file_or_package_exists(name):
    assert (ROOT / "src" / name).exists()


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_named_outside_the_package_exists(name):
    assert (ROOT / name).exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_its_line(package):
    assert re.search(rf"^\| `adadino/{package}` \| \S", TEXT, re.M)


def test_every_single_file_of_the_root_is_there():
    single = {
        f"adadino/{path.name}"
        for path in (ROOT / "src" / "adadino").glob("*.py")
        if not path.name.startswith("__")
    }
    assert single <= set(OURS)


def section(title: str) -> str:
    """The text below a heading of the second level, up to the next."""
    _, _, rest = TEXT.partition(f"\n## {title}\n")
    assert rest, title
    return rest.partition("\n## ")[0]


def test_there_are_five_walks_and_ten_lookups():
    walks = section("Five walks").split("\n### ")[1:]
    assert len(walks) == 5
    for walk in walks:
        assert len(re.findall(r"^\d+\. ", walk, re.M)) >= 5, walk
    lookups = section("Ten lookups").strip().splitlines()[2:]
    assert len(lookups) == 10
    for line in lookups:
        assert len(re.findall(r"`adadino/[\w/]+\.py`|\]\(#", line)) == 1, line


def test_the_readme_is_read_in_three_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
