"""Training on scenes of many bands, from a model without them and from nothing."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
from PIL import Image
from typer.testing import CliRunner

from adadino.checkpoint import load
from adadino.cli.app import app
from adadino.errors import ConfigError, DataError
from adadino.training.config import load_run
from adadino.training.run import train
from tests.training.runs import dataset, run

NAMES = ("B02", "B03", "B04", "B08")
BANDS = (
    f"model.bands.names=[{','.join(NAMES)}]",
    "model.bands.width=8",
    "data.tile=32",
    "data.roam=true",
    "augment.band_dropout=0.3",
    "train.epochs=2",
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.filterwarnings("ignore::adadino.errors.BackboneWarning"),
]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    root = tmp_path_factory.mktemp("scenes")
    rng = np.random.default_rng(0)
    for split, shapes in {"train": [(50, 70), (40, 64)], "val": [(33, 45)]}.items():
        for number, shape in enumerate(shapes):
            mask = np.zeros(shape, np.uint8)
            mask[8:20, 10:30] = 255
            before = rng.integers(500, 2500, (4, *shape))
            after = before + rng.integers(0, 200, before.shape) + 4 * mask
            for role, image in (("A", before), ("B", after)):
                path = root / split / role / f"{number}.tif"
                path.parent.mkdir(parents=True, exist_ok=True)
                kind = {"driver": "GTiff", "dtype": "uint16", "count": 4}
                with rasterio.open(path, "w", height=shape[0], width=shape[1], **kind) as file:
                    file.write(image.astype(np.uint16))
                    file.descriptions = NAMES
            (root / split / "label").mkdir(exist_ok=True)
            Image.fromarray(mask).save(root / split / "label" / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def trained(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "bands"
    return folder, run(scenes, folder, *BANDS)


def test_a_run_finds_the_scaling_and_its_checkpoint_remembers_it(trained) -> None:
    folder, result = trained
    assert result.epochs == 2
    bands = load(folder / "final").config.bands
    assert bands.names == NAMES
    assert all(400 < low < 700 for low in bands.low)
    assert all(2300 < high < 4000 for high in bands.high)
    assert (folder / "pictures").is_dir()
    assert "Takes the bands B02 (" in (folder / "card.md").read_text()


def test_the_stream_has_learnt(trained) -> None:
    model = load(trained[0] / "final")
    assert model.band_stream.head.weight.abs().sum() > 0


def test_the_same_command_finds_the_run_finished(scenes, trained) -> None:
    again = run(scenes, trained[0], *BANDS)
    assert again.resumed
    assert again.history == trained[1].history


def test_it_is_scored_beside_peers_without_training(scenes, trained) -> None:
    command = ["evaluate", str(trained[0] / "final"), "cva", "irmad", "--data", str(scenes)]
    done = CliRunner().invoke(app, [*command, "--split", "val", "--tile", "32", "--json", "-q"])
    assert done.exit_code == 0, done.output
    assert done.stdout.count('"f1"') >= 3


def test_a_run_may_start_from_a_model_without_bands(scenes, tmp_path) -> None:
    plain = tmp_path / "plain"
    run(dataset(tmp_path / "rgb"), plain, "train.epochs=1")
    own = ("augment.size=32", "data.workers=0", "train.batch=2", "train.validate_every=1")
    given = (f"init={plain / 'final'}", f"data.root={scenes}", f"output={tmp_path / 'five'}")
    found = train(load_run(None, [*own, *given, *BANDS, "train.epochs=1"]), quiet=True)
    assert found.epochs == 1
    assert load(tmp_path / "five" / "final").ancestors[-1]["model"] == str(plain / "final")


def test_a_band_that_the_scenes_lack_stops_the_run_before_it_begins(scenes, tmp_path) -> None:
    with pytest.raises(DataError, match="lacks B11"):
        run(scenes, tmp_path / "no", *BANDS, "model.bands.names=[B02,B03,B04,B11]")
    assert not (tmp_path / "no").exists()
    with pytest.raises(ConfigError, match="b08 twice"):
        run(scenes, tmp_path / "no", *BANDS, "model.bands.names=[B02,B03,B08,B08]")
