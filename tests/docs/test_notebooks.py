"""The notebooks: without outputs in the repository, and every cell runs.

A runner of our own instead of nbclient: the notebooks use no magics and no widgets, and a kernel
with what it needs would add twenty-five packages to the tests. A cell's last expression is shown as
a notebook would show it, so a broken `_repr_html_` fails here, too.
"""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[str]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def run_cell(code: str, namespace: dict[str, Any], name: str) -> str:
    """Run a cell; what a notebook would show below it."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if not isinstance(last, ast.Expr):
        return ""
    value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    show = getattr(value, "_repr_html_", None)
    return str(show() if show is not None else repr(value))


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["analyst", "researcher"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_analysts_notebook_ends_with_files_and_a_fair_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown = [run_cell(code, namespace, "analyst") for code in code_cells(NOTEBOOKS[0])]
    assert any("data:image/png;base64," in text for text in shown)  # the scene shows itself
    assert "% changed" in capsys.readouterr().out
    assert (tmp_path / "result" / "polygons.gpkg").is_file()
    assert 2 * namespace["both"] / (namespace["found"].sum() + namespace["changed"].sum()) > 0.5


@pytest.mark.slow
def test_the_researchers_notebook_trains_evaluates_and_ablates(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for code in code_cells(NOTEBOOKS[1]):
            run_cell(code, namespace, "researcher")
    assert namespace["result"].epochs == 2
    said = capsys.readouterr().out
    assert said.count("GFLOPs a pair") == 3
    assert "bundled" in said
