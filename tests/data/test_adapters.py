"""Other libraries' samples, in the forms in which torchgeo and Hugging Face hand them out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from adadino.data.adapters import Columns, OtherPairs, write_folder
from adadino.data.folder import PairFolder
from adadino.errors import DataError

PIXELS = np.arange(2 * 3 * 8 * 6, dtype=np.uint8).reshape(2, 3, 8, 6)
MASK = (np.arange(48).reshape(8, 6) % 5 == 0).astype(np.uint8)


def torchgeo_sample(mask: np.ndarray = MASK) -> dict:
    """As torchgeo 0.6 gives it: float32 images in 0..255, an int64 mask."""
    images = torch.from_numpy(PIXELS).float()
    return {"image1": images[0], "image2": images[1], "mask": torch.from_numpy(mask).long()}


def stacked_sample() -> dict:
    """As torchgeo 0.7 gives it: both dates in one tensor (2, C, H, W), the mask (1, H, W)."""
    sample = torchgeo_sample()
    both = torch.stack([sample["image1"], sample["image2"]])
    return {"image": both, "mask": sample["mask"][None], "bounds": None}


def hub_sample() -> dict:
    """As `datasets` gives it: Pillow's images, the mask with 0 and 255."""
    before, after = (Image.fromarray(np.moveaxis(image, 0, -1)) for image in PIXELS)
    return {"imageA": before, "imageB": after, "label": Image.fromarray(255 * MASK)}


@pytest.mark.parametrize("sample", [torchgeo_sample, stacked_sample, hub_sample])
def test_an_item_is_what_a_folder_gives(sample):
    before, after, mask, index = OtherPairs([sample(), sample()])[1]
    assert (before.dtype, mask.dtype, index) == (torch.uint8, torch.uint8, 1)
    assert torch.equal(before, torch.from_numpy(PIXELS[0]))
    assert torch.equal(after, torch.from_numpy(PIXELS[1]))
    assert torch.equal(mask, torch.from_numpy(MASK))


def test_a_written_folder_holds_the_same_pairs(tmp_path):
    pairs = OtherPairs([hub_sample(), hub_sample()])
    assert write_folder(pairs, tmp_path / "train", prefix="levir-") == 2
    folder = PairFolder(tmp_path, "train")
    assert folder.names == ["levir-000000", "levir-000001"]
    for index in range(2):
        assert all(
            torch.equal(a, b) for a, b in zip(folder[index][:3], pairs[index][:3], strict=True)
        )
    (tmp_path / "train" / "A" / "levir-000000.png").unlink()
    write_folder(pairs, tmp_path / "train", prefix="levir-")  # what is missing is written again
    assert (tmp_path / "train" / "A" / "levir-000000.png").exists()


def test_names_of_ones_own_are_given():
    sample = {"t0": PIXELS[0], "t1": PIXELS[1], "truth": MASK}
    with pytest.raises(DataError, match="a sample holds t0, t1, truth, and no pair"):
        OtherPairs([sample])
    assert len(OtherPairs([sample], Columns("t0", "t1", "truth"))) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mask": torch.full((8, 6), 7)}, r"mask \(8, 6\) with the values \[7\]"),
        ({"mask": torch.zeros(4, 6)}, "different sizes"),
        ({"image1": torch.rand(3, 8, 6)}, "values from 0 to 255"),
        ({"image1": 300 * torch.ones(3, 8, 6)}, "values from 0 to 255"),
        ({"image2": torch.zeros(2, 8, 6)}, "pairs are RGB"),
    ],
)
def test_what_is_no_pair_of_8_bit_images_is_refused(change, said):
    with pytest.raises(DataError, match=said):
        OtherPairs([torchgeo_sample() | change])[0]
