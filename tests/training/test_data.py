"""Orders of the data: they follow from seed and epoch, and ranks share without overlap."""

from __future__ import annotations

import pytest
import torch

from adadino.data.folder import PairFolder
from adadino.data.synthetic import write_dataset
from adadino.errors import ConfigError, DataError, TrainingError
from adadino.training.data import EpochSampler, ShareSampler
from tests.training.runs import dataset, run

pytestmark = pytest.mark.filterwarnings("ignore:the frozen backbone is random")


def order(epoch: int, *, seed: int = 0, rank: int = 0, world: int = 1) -> list[int]:
    sampler = EpochSampler(23, batch=2, seed=seed, rank=rank, world=world)
    sampler.set_epoch(epoch)
    assert len(sampler) == len(list(sampler))
    return list(sampler)


def test_an_epoch_s_order_follows_from_seed_and_epoch():
    assert order(3) == order(3)
    assert order(3) != order(4)
    assert order(3) != order(3, seed=1)
    assert len(set(order(3))) == 22  # whole batches, no pair twice


def test_ranks_share_an_epoch_without_overlap():
    shares = [order(1, rank=rank, world=3) for rank in range(3)]
    assert [len(share) for share in shares] == [6, 6, 6]  # as many batches on every rank
    assert len({index for share in shares for index in share}) == 18


@pytest.mark.parametrize(("length", "world"), [(5, 2), (7, 3), (8, 4), (1, 1)])
def test_validation_is_shared_in_the_batches_of_a_single_process(length, world):
    alone, together = [], []
    for rank in range(world):
        share = list(ShareSampler(length, batch=2, rank=rank, world=world))
        together += [share[i : i + 2] for i in range(0, len(share), 2)]
    alone = [list(range(i, min(i + 2, length))) for i in range(0, length, 2)]
    assert sorted(together) == alone


def test_too_few_tiles_for_a_batch_say_what_to_lower(data, tmp_path):
    with pytest.raises(TrainingError, match=r"9 training tiles do not fill .* lower train.batch"):
        run(data, tmp_path / "run", "train.batch=16")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.root=", "data.root is not set; name the prepared dataset with --data"),
        ("augment.size=36", "augment.size is 36, must be a multiple of the model.s stride, 8"),
        ("augment.size=16", r"images of 32 x 32 are larger than augment.size 16; set data.tile=16"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_the_folder_is_made(
    data, tmp_path, override, message
):
    with pytest.raises(ConfigError, match=message):
        run(data, tmp_path / "run", override)
    assert not (tmp_path / "run").exists()


def test_images_of_several_sizes_are_refused_by_split(tmp_path):
    data = dataset(tmp_path / "data", train=2, val=1)
    write_dataset(data / "more", {"val": 1}, seed=1, size=64)
    for role in ("A", "B", "label"):
        for path in (data / "more" / "val" / role).iterdir():
            path.rename(data / "val" / role / path.name)
    with pytest.raises(ConfigError, match="val holds images of 2 sizes, from 32 x 32 to 64 x 64"):
        run(data, tmp_path / "run", "augment.size=64")
    # Cut on the fly, they are of one size.
    assert run(data, tmp_path / "run", "data.tile=32", "train.epochs=1").epochs == 1


def test_a_corrupt_image_is_named_in_one_line_also_from_a_reading_process(tmp_path):
    data = dataset(tmp_path / "data", train=4, val=1)
    broken = sorted((data / "train" / "A").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:-200])
    with pytest.raises(DataError) as caught:
        run(data, tmp_path / "run", "data.workers=1")
    assert broken.name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_roaming_tiles_move_every_epoch_and_stay_inside(data, tmp_path):
    plain = EpochSampler(9, batch=2, seed=0, rank=0, world=1)
    roaming = EpochSampler(9, batch=2, seed=0, rank=0, world=1, roam=True)
    first = list(roaming)
    assert [place[0] for place in first] == list(plain)  # the same order
    assert all(-0.5 <= move <= 0.5 for place in first for move in place[1:])
    assert list(roaming) == first  # by seed and epoch alone
    roaming.set_epoch(1)
    assert list(roaming) != first
    tiles = PairFolder(data, "train", tile=16)
    whole = PairFolder(data, "train")
    before, after, mask, index = tiles[(3, 0.5, -0.25)]  # lower right of four: rows 16, columns 16
    assert index == 3
    assert torch.equal(before, whole[0][0][:, 16:32, 12:28])  # down is clipped, left is not
    assert torch.equal(after, whole[0][1][:, 16:32, 12:28])
    assert torch.equal(mask, whole[0][2][16:32, 12:28])


def test_several_folders_are_one_dataset(data, tmp_path):
    both = PairFolder([data, data], "val")
    one = PairFolder(data, "val")
    assert len(both) == 2 * len(one)
    assert both.names == [f"{data.name}/{name}" for name in one.names] * 2
    assert torch.equal(both[len(one)][0], one[0][0])
