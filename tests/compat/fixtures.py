"""What a version wrote, and how a test gets a copy of it that looks as if it had been made there.

Records that say which file they were made from hold its whole path, size and time. Here the path is
a mark, which a copy replaces by its own place, and the time is one that every copy is given.
"""

from __future__ import annotations

import lzma
import os
import shutil
from pathlib import Path
from typing import Any

V0_1_0 = Path(__file__).parent / "v0_1_0"
MARK = "@ROOT@"
TAKEN_NS = 1_767_225_600 * 10**9
"""When every image was written: the start of 2026."""
RECORDS = (".json", ".csv", ".yaml", ".vrt", ".txt")
PACKED = (".ckpt", ".safetensors", ".onnx", ".gpkg", ".f32")
"""What is kept as .xz here: half of it is padding."""


def images(root: Path) -> list[Path]:
    """The images whose time is on record."""
    return sorted((root / "scene").glob("*.tif"))


def date_images(root: Path) -> None:
    for path in images(root):
        os.utime(path, ns=(TAKEN_NS, TAKEN_NS))


def replace_in_records(root: Path, old: str, new: str) -> None:
    for path in root.rglob("*"):
        if path.suffix in RECORDS and old in (text := path.read_text(encoding="utf-8")):
            path.write_text(text.replace(old, new), encoding="utf-8")


def lay_out(source: Path, root: Path) -> Path:
    """Copy a version's files, as if it had written them there."""
    root = root.resolve()
    shutil.copytree(source, root, dirs_exist_ok=True)
    for path in list(root.rglob("*.xz")):
        path.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        path.unlink()
    replace_in_records(root, MARK, str(root))
    date_images(root)
    return root


def shape(value: Any) -> Any:
    """The keys of a JSON value and the types of what they hold.

    An object is an object of shapes; a list is a list of one shape, of what all its items have in
    common, or of none; anything else is the name of its type.
    """
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        shapes = [shape(item) for item in value]
        merged = shapes[:1]
        for one in shapes[1:]:
            merged = [_common(merged[0], one)]
        return merged
    return "null" if value is None else type(value).__name__


def _common(one: Any, two: Any) -> Any:
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _common(one[key], two[key]) for key in one if key in two}
    if isinstance(one, list) and isinstance(two, list):
        return [_common(one[0], two[0])] if one and two else one or two
    return "|".join(sorted(_names(one) | _names(two)))


def _names(found: Any) -> set[str]:
    if isinstance(found, str):
        return set(found.split("|"))
    return {"dict" if isinstance(found, dict) else "list"}


def lost(then: Any, now: Any, path: str = "") -> list[str]:
    """What a shape had and another has not: keys that are gone, and types that are others.

    Null says nothing of a type: what had no value then may have one now, and the other way round.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        gone = [f"{path}.{key} is gone" for key in then if key not in now]
        both = (key for key in then if key in now)
        return gone + [text for key in both for text in lost(then[key], now[key], f"{path}.{key}")]
    if isinstance(then, list) and isinstance(now, list):
        return lost(then[0], now[0], f"{path}[]") if then and now else []
    a, b = _names(then) - {"null"}, _names(now) - {"null"}
    return [] if not a or b <= a else [f"{path} is {'|'.join(sorted(b))}, was {then}"]
