"""Every error of ours, read from the source as a set: what is wrong, where, and the way out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import adadino
from adadino import errors

SOURCE = Path(adadino.__file__).parent
OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.AdaDINOError)
}
HOLE = "\N{HORIZONTAL ELLIPSIS}"
"""Stands for a value that is filled in."""

SELF_EVIDENT = {
    "give a model or --preset, not both.",  # it is the way out
    "{} {}",  # another error's text, and what was saved
    "{}. {}",
}


def text_of(node: ast.expr) -> str:
    """A message as it is written, its values as holes; "" for one that is made elsewhere."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(v) if isinstance(v, ast.Constant) else HOLE for v in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (text_of(left) or HOLE) + (text_of(right) or HOLE)
    return ""


def messages() -> Iterator[tuple[str, str]]:
    """Where each message stands, and its text."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=[message, *_])) if (
                    name in OURS
                ):
                    pass
                case ast.Call(func=ast.Name(id="_check"), args=[_, message]) if path.name == (
                    "config.py"
                ):
                    pass
                case _:
                    continue
            if text := text_of(message):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


FOUND = list(messages())


def test_they_are_all_read():
    assert len(FOUND) > 200


@pytest.mark.parametrize("where", sorted({where.partition(":")[0] for where, _ in FOUND}))
def test_each_has_a_second_half(where):
    """One clause says what is wrong; the way out is another, or a `must` with what is right."""
    lacking = [
        f"{place}: {text}"
        for place, text in FOUND
        if place.startswith(f"{where}:")
        and not re.search(r"[;:.?] ?\S|\bmust\b", text.rstrip(".").replace(HOLE, "x"))
        and text.replace(HOLE, "{}") not in SELF_EVIDENT
    ]
    assert not lacking, "\n".join(lacking)


def test_each_starts_like_the_middle_of_a_sentence():
    """It stands behind `adadino: `: names keep their capitals, nothing else has one."""
    names = ("EfficientNet", "Deepness", "GeoTIFFs", "ONNX")
    odd = [
        f"{at}: {text}" for at, text in FOUND if text[0].isupper() and not text.startswith(names)
    ]
    assert not odd, "\n".join(odd)
