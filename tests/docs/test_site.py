"""The site builds strictly, has every page, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages

pytest.importorskip("mkdocs", reason="pip install 'adadino[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a broken link or a docstring that cannot be read fails it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_it(site):
    for page in pages()[1:]:
        path = page.relative_to(ROOT / "docs").with_suffix("")
        name = path.parent if path.name == "index" else path
        assert (site / name / "index.html").is_file(), page


def test_nothing_is_loaded_from_elsewhere(site):
    """Scripts, styles, fonts and pictures are the site's own; links may lead away."""
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?((?:https?:)?//[^\s\">]+)", text)
        loaded += re.findall(
            r"<link[^>]+(?:stylesheet|preconnect|icon)[^>]+href=\"?(https?:[^\s\">]+)", text
        )
        loaded += re.findall(r"(?:@import|url\()[\s'\"(]*((?:https?:)?//[^\s'\")]+)", text)
        assert not loaded, f"{path.relative_to(site)}: {loaded}"


def test_the_api_is_documented_from_its_docstrings(site):
    text = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("load", "predict_scene", "SceneResult", "WeightsError"):
        assert re.search(rf"id=\"?adadino[\w.]*\.{name}\b", text), name
