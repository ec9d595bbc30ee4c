"""Every command and Python block of README and docs: run, or skipped for a reason and parsed."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from adadino import extras
from adadino.cli.app import app, main
from adadino.cli.train import parse_overrides
from adadino.training.config import load_run
from tests.docs.blocks import (
    ROOT,
    SHELL,
    SMALL,
    STAND_IN,
    Block,
    blocks,
    commands,
    looks_like_a_command,
    pages,
)

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
VERBS: Any = typer.main.get_command(app)


def run_adadino(words: list[str], monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """As a shell would, but in this process: importing torch anew each time would take minutes."""
    monkeypatch.setattr(sys, "argv", words)
    code: object = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a page may well show a command that warns
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert code == 0, f"{place}: {' '.join(words)} ended with {code}"


def parse_adadino(words: list[str], place: str) -> None:
    """The verb is there, and knows every option; a training run's settings, too."""
    assert words[1] in VERBS.commands, f"{place}: there is no verb {words[1]}"
    inner = getattr(VERBS.commands[words[1]], "commands", None)
    if inner is not None:  # a verb with verbs of its own
        assert words[2] in inner, f"{place}: {words[1]} has no verb {words[2]}"
        inner[words[2]].make_context(words[2], words[3:])
        return
    context = VERBS.commands[words[1]].make_context(words[1], words[2:])
    if words[1] == "train":
        config = context.params["config"]
        load_run(None if config is None else ROOT / config, parse_overrides(context.args))


def check_other(words: list[str], place: str) -> bool:
    """Commands that are not ours: their parts that are must exist. Whether one is known."""
    match words:
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", makefile, re.M), f"{place}: no make target {target}"
        case ["pip", "install", *rest]:
            for word in rest:
                for extra in re.findall(r"^(?:adadino|\.)\[([\w,]+)\]$", word):
                    known = extras.requirements("adadino")
                    assert set(extra.split(",")) <= set(known), f"{place}: no extra {extra}"
                if word.endswith((".txt", ".lock")):
                    assert (ROOT / word).is_file(), f"{place}: there is no {word}"
        case [program, script, *_] if program.endswith("python") and script.endswith(".py"):
            assert (ROOT / script).is_file(), f"{place}: there is no {script}"
        case _:
            return False
    return True


def run_shell(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in commands(block):
        if words[0] == "adadino":
            if block.skipped:
                parse_adadino(words, block.place)
            else:
                if block.directive == "small":
                    words = [STAND_IN.get(word, word) for word in words]
                    words += SMALL.get(words[1], ())
                run_adadino(words, monkeypatch, block.place)
        elif not check_other(words, block.place):
            assert block.skipped, f"{block.place}: {words[0]} cannot be run here; say why with skip"


QUICK = ("README.md", "docs/quickstart-analysts.md")
"""Pages whose commands run with every change; `make test-all` runs those of all."""


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PAGES],
)
def test_what_a_page_says_works(name, reader, monkeypatch):
    namespace: dict[str, Any] = {}
    for block in blocks(PAGES[name]):
        if block.language in SHELL:
            run_shell(block, monkeypatch)
        elif block.language == "python":
            code = compile(block.text, block.place, "exec")
            if not block.skipped:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    exec(code, namespace)
        else:
            assert block.language or not looks_like_a_command(block.text), (
                f"{block.place}: a command without a language; call it bash, console or python"
            )


def test_names_that_skipped_python_imports_exist():
    """Code that cannot run here must at least import what is there."""
    from importlib import import_module

    for page in PAGES.values():
        for block in blocks(page):
            if block.language != "python" or not block.skipped:
                continue
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adadino"):
                    for alias in node.names:
                        assert hasattr(import_module(node.module or ""), alias.name), block.place


@pytest.mark.parametrize("name", PAGES)
def test_inline_commands_name_verbs_and_options_that_exist(name):
    """`adadino verb --option` in running text is a promise, too."""
    text = PAGES[name].read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for inline in re.findall(r"`adadino ([a-z-]+)([^`]*)`", text):
        verb, rest = inline
        assert verb in VERBS.commands, f"{name}: there is no verb {verb}"
        known = {option for param in VERBS.commands[verb].params for option in param.opts}
        known |= {o for param in VERBS.commands[verb].params for o in param.secondary_opts}
        for option in re.findall(r"(?<!\S)(--[a-z][\w-]*)(?![\w.])", rest):
            assert option in known | {"--help"}, f"{name}: {verb} has no {option}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name):
    """Those between the site's pages are checked when it is built."""
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_guard_sees_a_wrong_page(tmp_path, monkeypatch):
    """The checks of this file fail for pages that are wrong."""
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)

    def page(text: str) -> list[Block]:
        path = Path(tmp_path / "page.md")
        path.write_text(text)
        return list(blocks(path))

    (wrong,) = page(
        "<!-- test: skip needs data -->\n```bash\nadadino predict a b -o c --no-such 1\n```"
    )
    with pytest.raises(Exception, match="no-such"):
        run_shell(wrong, monkeypatch)
    (wrong,) = page("<!-- test: skip x -->\n```bash\nadadino train --train.epoch 3\n```")
    with pytest.raises(Exception, match="unknown setting"):
        run_shell(wrong, monkeypatch)
    (wrong,) = page("```bash\ncurl http://127.0.0.1\n```")
    with pytest.raises(AssertionError, match="say why"):
        run_shell(wrong, monkeypatch)
    (wrong,) = page("```bash\nmake nothing\n```")
    with pytest.raises(AssertionError, match="no make target"):
        run_shell(wrong, monkeypatch)
    with pytest.raises(AssertionError, match="neither"):
        page("<!-- test: skip -->\n```bash\nadadino\n```")
