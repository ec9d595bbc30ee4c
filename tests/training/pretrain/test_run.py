"""Pretraining with a random teacher, end to end: it resumes, refuses, and makes a backbone."""

from __future__ import annotations

import csv
import math

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from adadino.build import build
from adadino.config import preset
from adadino.data.folder import PairFolder
from adadino.data.synthetic import make_pair, write_dataset
from adadino.errors import AdaDINOError, ConfigError, DataError, TrainingError
from adadino.files import locked
from adadino.model.adadino import AdaDINO
from adadino.model.lite0 import Lite0, _their_name
from adadino.training.pretrain import views
from adadino.training.pretrain.config import PretrainConfig
from adadino.training.pretrain.distill import Student
from adadino.training.pretrain.probe import average_precision, probe
from adadino.training.pretrain.run import pretrain
from adadino.training.pretrain.views import read_tiles


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    """A teacher in the released file's names, with random weights: nothing has to be installed."""
    path = tmp_path_factory.mktemp("teacher") / "lite0.pth"
    torch.manual_seed(3)
    torch.save({_their_name(n): t for n, t in Lite0().state_dict().items()}, path)
    return str(path)


def settings(output, teacher, **changes) -> PretrainConfig:
    base = {
        "output": str(output), "teacher": teacher, "synthetic": 2, "size": 32, "batch": 2,
        "steps": 4, "every": 2, "warmup": 1, "device": "cpu", "precision": "32",
    }  # fmt: skip
    return PretrainConfig(**{**base, **changes})


def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path, teacher):
    whole = pretrain(settings(tmp_path / "whole", teacher))

    def stop(done: int, total: int, message: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    part = settings(tmp_path / "part", teacher)
    with pytest.raises(KeyboardInterrupt):
        pretrain(part, report=stop)
    assert not (tmp_path / "part" / "backbone.safetensors").exists()
    again = pretrain(part)
    ours, theirs = load_file(whole.weights), load_file(again.weights)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [row["step"] for row in again.history] == [2, 4]
    with (tmp_path / "part" / "history.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == [
            row["loss"] for row in whole.history
        ]


def test_the_result_is_a_backbone_with_its_normalisation(tmp_path, teacher, recwarn):
    result = pretrain(settings(tmp_path, teacher))
    model = build(preset("tiny"), result.weights)
    assert not any(p.requires_grad for p in model.encoder.backbone.parameters())
    assert model.config.backbone.mean == preset("tiny").backbone.mean
    assert not [w for w in recwarn if "normalised" in str(w.message)]


@pytest.fixture
def updates(monkeypatch):
    """For every update, the rate and the decay of each parameter, by its address."""
    seen = []
    original = torch.optim.AdamW.step

    def step(self, *args, **rest):
        seen.append(
            {
                id(parameter): (group["lr"], group["weight_decay"])
                for group in self.param_groups
                for parameter in group["params"]
            }
        )
        return original(self, *args, **rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    return seen


def test_the_rate_warms_up_and_falls_and_vectors_are_not_decayed(
    tmp_path, teacher, updates, monkeypatch
):
    students = []
    original = Student.__init__

    def remember(self, *args, **given):
        original(self, *args, **given)
        students.append(self)

    monkeypatch.setattr(Student, "__init__", remember)
    pretrain(settings(tmp_path, teacher, steps=6, warmup=2, lr=1e-3, weight_decay=0.3))
    rates = [{rate for rate, _ in update.values()} for update in updates]
    assert [len(rate) for rate in rates] == [1] * 6
    # Half and all of it while warming up, then a cosine whose last, seventh, value is a hundredth.
    share = [0.5, 1.0] + [0.01 + 0.99 * math.cos(math.pi * i / 8) ** 2 for i in range(4)]
    assert [rate.pop() for rate in rates] == pytest.approx([1e-3 * s for s in share])
    (student,) = students
    decays = {
        name: updates[0][id(parameter)][1]
        for name, parameter in student.named_parameters()
        if parameter.requires_grad
    }
    linear = (torch.nn.Linear, torch.nn.Conv2d)
    kernels = {f"{n}.weight" for n, m in student.named_modules() if isinstance(m, linear)}
    norms = [n for n, m in student.named_modules() if isinstance(m, torch.nn.LayerNorm)]
    assert kernels
    assert norms
    for name, decay in decays.items():
        if name in kernels:
            assert decay == 0.3, name
        if name.endswith("bias") or name.rpartition(".")[0] in norms or "token" in name:
            assert decay == 0, name


def test_dropping_chunks_changes_what_is_learned(tmp_path, teacher):
    """All other draws are the same: only the chunks that the student's FFNs execute differ."""
    losses = [
        pretrain(settings(tmp_path / str(drop), teacher, drop=drop, steps=2)).history[0]["loss"]
        for drop in (0.0, 1.0)
    ]
    assert losses[0] != losses[1]


def test_a_size_between_tokens_is_refused(tmp_path, teacher):
    with pytest.raises(ConfigError, match=r"size is 100, must be a multiple of 8.* tiny"):
        settings(tmp_path, teacher, size=100)


def test_the_seconds_of_a_run_go_on(tmp_path, teacher):
    def stop(done: int, total: int, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(settings(tmp_path, teacher), report=stop)
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    state["history"][-1]["seconds"] = 5000.0
    torch.save(state, tmp_path / "last.pt")
    assert pretrain(settings(tmp_path, teacher)).history[-1]["seconds"] > 5000


def test_a_folder_of_another_run_is_refused(tmp_path, teacher):
    pretrain(settings(tmp_path, teacher))
    with pytest.raises(TrainingError, match="pretraining run with other settings"):
        pretrain(settings(tmp_path, teacher, lr=1e-4))
    assert pretrain(settings(tmp_path, teacher, lr=1e-4), overwrite=True)


def test_a_run_that_failed_before_its_first_checkpoint_claims_nothing(tmp_path, teacher):
    with pytest.raises(DataError, match=r"no images in .*nope"):
        pretrain(settings(tmp_path, teacher, images=("nope",), synthetic=0))
    claim = (tmp_path / "config.yaml").read_text()
    held = locked(tmp_path, "pretraining run")  # as by a run that is going on
    with held, pytest.raises(AdaDINOError, match="another process holds"):
        pretrain(settings(tmp_path, teacher))
    assert (tmp_path / "config.yaml").read_text() == claim
    assert pretrain(settings(tmp_path, teacher)).history[-1]["step"] == 4
    (tmp_path / "last.pt").unlink()  # what it made is there
    with pytest.raises(TrainingError, match="pretraining run with other settings"):
        pretrain(settings(tmp_path, teacher, lr=1e-4))


@pytest.mark.parametrize(
    "text", ["steps: 9  # mine\n", "a song: la\n", "preset: tiny\nmodel: {}\n"]
)
def test_a_file_of_somebody_is_not_written_over(tmp_path, teacher, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(TrainingError, match="other settings; give another output"):
        pretrain(settings(tmp_path, teacher))
    assert (tmp_path / "config.yaml").read_text() == text


def test_tiles_cover_images_of_any_size_and_never_labels(tmp_path, teacher):
    for folder, size in (("A", (100, 70)), ("B", (64, 64)), ("sub/A", (20, 200)), ("label", 64)):
        (tmp_path / folder).mkdir(parents=True)
        shape = (size, size) if isinstance(size, int) else size
        Image.new("RGB", shape, (200, 10, 10)).save(tmp_path / folder / "x.png")
    config = settings(tmp_path / "run", teacher, images=(str(tmp_path),), synthetic=0)
    assert read_tiles(config).shape == (4 + 1 + 4, 3, 64, 64)  # 2 x 2, 1, 1 x 4 tiles of twice 32
    assert len(read_tiles(settings(tmp_path, teacher, images=(str(tmp_path),), limit=3))) == 3
    with pytest.raises(DataError, match=r"no images in .*empty"):
        read_tiles(settings(tmp_path, teacher, images=(str(tmp_path / "empty"),), synthetic=0))


def test_only_images_of_kept_tiles_are_decoded(tmp_path, teacher, monkeypatch):
    """An archive may be larger than memory: its headers say how many tiles there are."""
    (tmp_path / "A").mkdir()
    shades = range(0, 250, 10)
    for shade in shades:
        Image.new("RGB", (64, 64), (shade, 0, 0)).save(tmp_path / "A" / f"{shade:03d}.png")
    decoded = []
    read = views.read_image
    monkeypatch.setattr(views, "read_image", lambda path: [read(path), decoded.append(path)][0])
    given = {"images": (str(tmp_path),), "synthetic": 1}
    every = read_tiles(settings(tmp_path / "run", teacher, **given))
    assert every[:, 0, 0, 0].tolist()[: len(shades)] == list(shades)
    assert len(every) == len(shades) + 2 == len(decoded) + 2
    decoded.clear()
    some = read_tiles(settings(tmp_path / "run", teacher, **given, limit=3))
    assert [path.name for path in decoded] == ["000.png", "130.png"]
    assert torch.equal(some, every[[0, 13, 26]])


def test_its_synthetic_scenes_are_nobody_else_s():
    used = make_pair(770_000_000, 64)
    assert all((make_pair(seed, 64).before != used.before).any() for seed in (0, 1, 7))


def test_average_precision_by_hand():
    scores = torch.tensor([0.9, 0.8, 0.7, 0.1])
    truth = torch.tensor([True, False, True, False])
    assert average_precision(scores, truth) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores, torch.zeros(4, dtype=torch.bool)) == 0


def test_pairs_that_cannot_be_probed_are_refused_before_the_first_step(tmp_path, teacher):
    write_dataset(tmp_path / "one", {"train": 1}, size=32)
    labelled = (str(tmp_path / "one" / "train"),)
    with pytest.raises(DataError, match=r"the probe has 1 labelled pair.*give 2 or more"):
        pretrain(settings(tmp_path / "run", teacher, probe=labelled))
    assert not (tmp_path / "run" / "last.pt").exists()
    write_dataset(tmp_path / "odd", {"train": 2}, size=36)
    model = AdaDINO(preset("tiny")).eval()
    with pytest.raises(DataError, match=r"pairs are 36 x 36, .* tokens of 8 pixels"):
        probe(model, Student(model), PairFolder(tmp_path / "odd", "train"))


def test_the_probe_sees_change_in_features_that_show_it(tmp_path):
    write_dataset(tmp_path, {"train": 6}, size=64)
    pairs = PairFolder(tmp_path, "train")
    torch.manual_seed(0)
    model = AdaDINO(preset("tiny")).eval()
    student = Student(model).eval()
    share = sum(float(pairs[i][2].float().mean()) for i in range(1, 6, 2)) / 3
    assert probe(model, student, pairs) > 1.5 * share  # better than chance
