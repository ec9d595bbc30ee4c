"""The folder a reader of the documentation would stand in, in miniature."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adadino.checkpoint import save
from adadino.data.synthetic import write_dataset, write_geotiff_pair
from adadino.model.adadino import AdaDINO
from tests.conftest import SMALL
from tests.data.miniatures import LEVIR, SYSU, write_scene, write_splits, zip_folder
from tests.docs.blocks import ROOT

COUNTS = {"train": 3, "val": 2, "test": 2}


def _datasets(folder: Path) -> None:
    """What the five benchmarks' pages say was downloaded."""
    for name, roles in (("LEVIR-CD", LEVIR), ("SYSU-CD", SYSU)):
        for split, count in COUNTS.items():
            source = write_splits(
                folder / "unpacked" / name / split, {split: count}, (32, 32), roles
            )
            (folder / name).mkdir(exist_ok=True)
            zip_folder(source, folder / name / f"{split}.zip")
    both = {"train": 20, "test": 2}  # a twentieth of the training scenes is held out
    zip_folder(
        write_splits(folder / "unpacked" / "plus", both, (32, 32), LEVIR), folder / "LEVIR-CD+.zip"
    )
    zip_folder(
        write_splits(folder / "unpacked" / "clcd", COUNTS, (32, 32), SYSU), folder / "CLCD.zip"
    )
    write_scene(folder / "WHU-CD", "whole", (128, 96))
    for index in range(10):
        write_scene(folder / "mine", f"place_{index}", (64, 64))
    shutil.rmtree(folder / "unpacked")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files every page may speak of; a page works on a copy."""
    folder = tmp_path_factory.mktemp("reader")
    before, after, _ = write_geotiff_pair(folder, 3, 64)
    for year, path in (("2019", before), ("2024", after)):
        shutil.copy(path, folder / f"{year}.tif")
    (folder / "pairs.csv").write_text("before,after,name\n2019.tif,2024.tif,town\n")
    write_dataset(folder / "data" / "synthetic", {"train": 4, "val": 2, "test": 2}, seed=1, size=64)
    checkpoint = save(AdaDINO(SMALL), folder / "runs" / "levir" / "best", with_backbone=True)
    for name in ("levir-cd", "levir-cd-plus", "whu-cd", "sysu-cd", "clcd"):
        shutil.copytree(checkpoint, folder / "runs" / name / "best")
    _datasets(folder)
    for name in ("configs", "benchmarks", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture
def reader(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a fresh copy of the folder."""
    here = tmp_path / "here"
    shutil.copytree(original, here, symlinks=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("ADADINO_CACHE", str(tmp_path / "cache"))
    return here
