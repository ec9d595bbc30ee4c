"""A prepared folder: pairing by stem, what must be refused, tiles, cache and fingerprint."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from adadino.data.folder import PairFolder, find_pairs, fingerprint, warn_of_leakage
from adadino.errors import DataError, LeakageWarning


def write_pair(
    folder: Path, name: str, size: tuple[int, int] = (8, 8), suffixes: str = ".png .png .png"
) -> None:
    rng = np.random.default_rng(sum(name.encode()))
    arrays = [rng.integers(0, 256, (*size, 3), np.uint8) for _ in range(2)]
    arrays.append(rng.integers(0, 2, size, np.uint8) * 255)
    for role, array, suffix in zip(("A", "B", "label"), arrays, suffixes.split(), strict=True):
        (folder / role).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / role / f"{name}{suffix}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A test split of three pairs, with different suffixes and with files that are not images."""
    folder = tmp_path / "set" / "test"
    write_pair(folder, "b")
    write_pair(folder, "a", suffixes=".TIF .png .tiff")
    write_pair(folder, "c", suffixes=".jpg .jpeg .png")
    (folder / "A" / "Thumbs.db").write_bytes(b"x")
    (folder / "A" / ".b.part.png").write_bytes(b"half")
    return tmp_path / "set"


def test_pairs_are_matched_by_stem_and_sorted(root: Path) -> None:
    pairs = find_pairs(root, "test")
    assert [pair.name for pair in pairs] == ["a", "b", "c"]
    assert {path.stem for path in pairs[2][1:] if path} == {"c"}
    assert pairs == find_pairs(root / "test")


def test_labels_must_be_there(root: Path) -> None:
    shutil.rmtree(root / "test" / "label")
    with pytest.raises(DataError, match=r"no folder .*label"):
        find_pairs(root, "test")


def remove_after(folder: Path) -> None:
    (folder / "B" / "b.png").unlink()


def add_same_stem(folder: Path) -> None:
    shutil.copy(folder / "A" / "b.png", folder / "A" / "b.tif")


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder / "B")


def empty(folder: Path) -> None:
    for path in folder.glob("*/*"):
        path.unlink()


def shrink(folder: Path) -> None:
    Image.new("RGB", (4, 8)).save(folder / "B" / "b.png")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_after, r"A/b\.png has no partner: .*B holds no image called b\. Add it"),
        (add_same_stem, r"b\.png and .*b\.tif have the same stem.*Remove one"),
        (remove_folder, r"there is no folder .*B\..*adadino prepare"),
        (empty, r"test holds no image pairs"),
        (shrink, r"B/b\.png is 4 x 8, but .*A/b\.png is 8 x 8"),
    ],
)
def test_damaged_folder_is_refused_by_name(
    root: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(root / "test")
    with pytest.raises(DataError, match=message):
        PairFolder(root, "test")


def test_items_are_uint8_tensors_with_their_index(root: Path) -> None:
    dataset = PairFolder(root, "test")
    before, after, mask, index = dataset[1]
    assert (len(dataset), index, dataset.names[index]) == (3, 1, "b")
    assert before.dtype == after.dtype == mask.dtype == torch.uint8
    pair = find_pairs(root, "test")[1]
    assert torch.equal(before, torch.tensor(np.array(Image.open(pair.before))).permute(2, 0, 1))
    assert torch.equal(after, torch.tensor(np.array(Image.open(pair.after))).permute(2, 0, 1))
    assert pair.label is not None
    assert torch.equal(mask * 255, torch.tensor(np.array(Image.open(pair.label))))


def test_it_works_with_a_data_loader(root: Path) -> None:
    batches = list(DataLoader(PairFolder(root, "test"), batch_size=2))
    assert [tuple(batch[0].shape) for batch in batches] == [(2, 3, 8, 8), (1, 3, 8, 8)]
    assert torch.cat([batch[3] for batch in batches]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("cache", [False, True])
def test_tiles_are_the_image_cut_in_reading_order(tmp_path: Path, cache: bool) -> None:
    write_pair(tmp_path, "scene", size=(8, 12))
    write_pair(tmp_path, "small", size=(4, 4))
    whole = PairFolder(tmp_path)
    tiles = PairFolder(tmp_path, tile=4, cache=cache)
    assert tiles.names[:4] == ["scene_0_0", "scene_0_1", "scene_0_2", "scene_1_0"]
    assert tiles.names[6:] == ["small"]
    for part in range(3):
        expected = whole[0][part][..., 4:8, 8:12]  # type: ignore[index]
        assert torch.equal(tiles[5][part], expected)  # type: ignore[arg-type]


def test_cache_gives_the_same_items_and_cannot_be_changed_from_outside(root: Path) -> None:
    fresh, cached = PairFolder(root, "test"), PairFolder(root, "test", cache=True)
    cached[0][0].zero_()
    shutil.rmtree(root)
    with pytest.raises(DataError, match="No such file"):
        fresh[0]
    assert cached[0][0].any()


def test_tile_that_does_not_divide_the_image_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match=r"a\.TIF is 8 x 8, which tiles of 3 .*prepare.*tile=None"):
        PairFolder(root, "test", tile=3)


def test_broken_files_are_refused_when_read(root: Path) -> None:
    Image.fromarray(np.full((8, 8), 99, np.uint8)).save(root / "test" / "label" / "b.png")
    with pytest.raises(DataError, match=r"label/b\.png is not binary.*99"):
        PairFolder(root, "test")[1]
    with pytest.raises(DataError, match=r"label/b\.png is not binary"):
        PairFolder(root, "test", cache=True)


def test_fingerprint_follows_content_and_names_but_not_place_or_order(
    root: Path, tmp_path: Path
) -> None:
    pairs = find_pairs(root, "test")
    first = fingerprint(pairs)
    assert first.startswith("sha256:")
    assert len(first) == len("sha256:") + 16
    assert fingerprint(reversed(pairs)) == first

    moved = tmp_path / "elsewhere"
    shutil.copytree(root / "test", moved)
    assert fingerprint(find_pairs(moved)) == first

    for role in ("A", "B", "label"):
        for path in (moved / role).glob("c.*"):
            path.rename(path.with_stem("d"))
    assert fingerprint(find_pairs(moved)) != first

    Image.new("L", (8, 8)).save(root / "test" / "label" / "c.png")
    assert fingerprint(find_pairs(root, "test")) != first


def test_splits_of_the_same_pairs_draw_a_warning(root: Path) -> None:
    shutil.copytree(root / "test", root / "val")
    splits = {split: find_pairs(root, split) for split in ("val", "test")}
    with pytest.warns(LeakageWarning, match="val and test hold the same 3 pairs"):
        warn_of_leakage(splits)


def test_other_pairs_of_the_same_names_draw_none(root: Path) -> None:
    shutil.copytree(root / "test", root / "val")
    (root / "val" / "A" / "b.png").write_bytes((root / "val" / "B" / "b.png").read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_leakage({split: find_pairs(root, split) for split in ("val", "test")})
