"""The code blocks of the documentation, and what it means to run one.

A fenced block of `bash`, `console` or `python` is run as it stands, in a folder that holds the
files the pages speak of. A comment on the line before it may say otherwise:

    <!-- test: skip REASON -->   not run; its adadino commands must still parse, option by option
    <!-- test: small -->         run with what `SMALL` changes, for the sake of time

Every other kind of fence (`text`, `json`, ...) is no command; one without a language that looks
like a command is an error.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SHELL = ("bash", "console", "sh")
SMALL: dict[str, tuple[str, ...]] = {
    "prepare": ("--no-strict", "--tile", "32"),
    "demo": ("--size", "64"),
}
"""Arguments that `small` adds to a verb. It also has a random model of the smallest size stand in
for `tiny`, where that is named."""
STAND_IN = {"tiny": "runs/levir/best"}
DIRECTIVE = re.compile(r"<!-- test: (skip \S.*|small) -->")
PROGRAMS = ("adadino", "make", "pip", "python", "docker", "curl", "torchrun", "git")


class Block(NamedTuple):
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    directive: str
    """Empty, `small`, or `skip` with the reason."""

    @property
    def skipped(self) -> bool:
        return self.directive.startswith("skip")

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    index, directive = 0, ""
    while index < len(lines):
        line = lines[index]
        if fence := re.match(r"\s*```(\w*)", line):
            end = next(i for i in range(index + 1, len(lines)) if lines[i].strip() == "```")
            text = "\n".join(lines[index + 1 : end])
            yield Block(page, index + 1, fence[1], text, directive)
            index, directive = end, ""
        elif found := re.match(r"<!-- test:.*", line):
            correct = DIRECTIVE.fullmatch(found[0])
            assert correct, f"{page}:{index + 1}: neither `skip REASON` nor `small`: {line}"
            directive = correct[1]
        elif line.strip():
            assert not directive, f"{page}:{index + 1}: `{directive}` belongs to no block"
        index += 1


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a shell block as words; comments and a console's output are left out."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line[2:]
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield words[:end]
            words = words[end + 1 :]


def looks_like_a_command(text: str) -> bool:
    """Whether a fence without a language holds something to type."""
    return any(line.lstrip("$ ").startswith(PROGRAMS) for line in text.splitlines())
