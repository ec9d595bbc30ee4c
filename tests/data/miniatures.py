"""Miniatures of the original datasets, written in the layouts they are published in."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from adadino.data.prepare import benchmarks
from adadino.data.prepare.benchmarks import BENCHMARKS

TILE = 8
LEVIR = ("A", "B", "label")
SYSU = ("time1", "time2", "label")
EXPECTED = {"train": 8, "val": 4, "test": 4}


def scene(name: str, height: int, width: int) -> tuple[NDArray[np.uint8], ...]:
    rng = np.random.default_rng(sum(name.encode()))
    images = [rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(2)]
    mask = np.zeros((height, width), np.uint8)
    mask[: height // 2, : width // 4] = 255  # an eighth
    return (*images, mask)


def write_scene(
    folder: Path, name: str, size: tuple[int, int] = (16, 16), roles: tuple[str, ...] = LEVIR
) -> None:
    for role, array in zip(roles, scene(name, *size), strict=True):
        (folder / role).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / role / f"{name}.png")


def write_splits(
    root: Path, counts: Mapping[str, int], size: tuple[int, int], roles: tuple[str, ...] = LEVIR
) -> Path:
    for split, count in counts.items():
        for index in range(count):
            write_scene(root / split, f"{split}_{index}", size, roles)
    return root


def zip_folder(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return target


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def expect(
    monkeypatch: pytest.MonkeyPatch, name: str, variant: str, counts: Mapping[str, int]
) -> None:
    """Scale a benchmark down to the miniature: its own code, other numbers."""
    original = BENCHMARKS[name]
    changed = dataclasses.replace(original.variants[variant], expected=counts)
    small = dataclasses.replace(
        original, variants={**original.variants, variant: changed}, tile=TILE
    )
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {**BENCHMARKS, name: small})
