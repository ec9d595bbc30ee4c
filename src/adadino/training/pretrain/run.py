"""Pretraining a small backbone on an archive of unlabelled images: `adadino pretrain`.

DINOv3's weights are gated and large. This makes a small backbone of the same architecture from any
folder of images in minutes on one GPU, by masked dense distillation (distill.py). The result is one
safetensors file that `model.backbone.weights` takes like any other, frozen from then on.

    config.yaml  last.pt  history.csv  backbone.safetensors  preprocessor_config.json

Everything random follows from the seed and the step, so a run that was killed goes on as if it had
not been. `backbone.safetensors` appears when the last step is done.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from adadino import schema
from adadino.config import preset
from adadino.data.augment import jitter
from adadino.data.folder import PairFolder
from adadino.errors import ConfigError, TrainingError
from adadino.files import locked, write_atomic
from adadino.model.adadino import AdaDINO
from adadino.model.lite0 import Lite0, load_lite0
from adadino.reporting.tables import csv_text
from adadino.runtime.devices import choose_device
from adadino.training.folder import abandoned
from adadino.training.pretrain.archive import read_tiles
from adadino.training.pretrain.distill import (
    Student,
    distillation_loss,
    drop_chunks,
    hide,
    targets,
)
from adadino.training.pretrain.probe import check_pairs, probe

CONFIG, STATE, HISTORY, RESULT = "config.yaml", "last.pt", "history.csv", "backbone.safetensors"
PREPROCESSING = "preprocessor_config.json"
LEAST_CHUNKS = 4
"""The smallest budget the paper prunes to."""
Report = Callable[[int, int, str], None]


@dataclass(frozen=True)
class PretrainConfig:
    """One pretraining run."""

    images: tuple[str, ...] = ()
    """Folders that are searched for images."""
    output: str = "runs/pretrain"
    preset: str = "tiny"
    teacher: str | None = None
    """EfficientNet-lite0's file; by default the installed package's."""
    probe: tuple[str, ...] = ()
    """Folders of labelled training pairs (A, B, label) on which the frozen features are watched."""
    synthetic: int = 0
    """Scenes of the synthetic world to add."""
    steps: int = 4000
    batch: int = 128
    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup: int = 400
    """Steps over which the learning rate rises."""
    mask: float = 0.3
    """Share of the patches that is hidden from the student."""
    drop: float = 0.5
    """Share of the steps that run on a random part of the FFN's chunks, so that BSCS can prune."""
    size: int = 256
    """Side of a view; views are cut from tiles of twice this side."""
    zoom: tuple[float, float] = (0.4, 1.0)
    """Side of a view's cut-out as a share of the tile's."""
    jitter: float = 0.4
    """Strength of brightness, contrast and saturation changes. The student sees them, the teacher
    does not: what light and season change is not what the features should say."""
    limit: int = 8000
    """Most tiles held in memory; more are sampled evenly."""
    every: int = 500
    """Steps between checkpoints and probes."""
    precision: Literal["32", "bf16"] = "bf16"
    compile: bool = False
    """Compile the blocks: half a minute to start, faster after."""
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "every", "limit", "size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, must be at least 1.")
        if not 0 <= self.mask < 1 or not 0 <= self.drop <= 1:
            raise ConfigError(
                f"mask is {self.mask} and drop {self.drop}; shares must lie in 0..1, mask below 1."
            )
        if not 0 < self.zoom[0] <= self.zoom[1] <= 1:
            raise ConfigError(f"zoom is {self.zoom}, must rise within (0, 1].")
        token = preset(self.preset).stride
        if self.size % token:
            raise ConfigError(
                f"size is {self.size}, must be a multiple of {token}, the side of a token of "
                f"{self.preset}."
            )


class PretrainResult(NamedTuple):
    """How a run ended."""

    weights: Path
    history: list[dict[str, float]]


def pretrain(
    config: PretrainConfig, *, overwrite: bool = False, report: Report | None = None
) -> PretrainResult:
    """Pretrain, or go on pretraining, until the last step.

    Args:
        config: The run.
        overwrite: Start anew where the folder holds another run.
        report: Called with steps done, all steps, and a message.
    """
    folder, device = Path(config.output), choose_device(config.device)
    with locked(folder, "pretraining run"):
        _claim(folder, config, overwrite=overwrite)
        torch.manual_seed(config.seed)
        whole = preset(config.preset)
        backbone = dataclasses.replace(whole.backbone, trainable=True)
        model = AdaDINO(dataclasses.replace(whole, backbone=backbone)).to(device)
        student = Student(model).to(device).train()
        teacher = load_lite0(config.teacher).to(device).requires_grad_(False)
        labelled = None
        if config.probe:
            labelled = PairFolder(config.probe, tile=config.size, cache=True)
            check_pairs(labelled, model.config.stride)  # now, not after `every` steps
        tiles = _tiles(config).to(device)
        history = _learn(config, model, student, teacher, tiles, labelled, folder, report)
        return PretrainResult(_save(student, config, history, folder), history)


def _learn(
    config: PretrainConfig,
    model: AdaDINO,
    student: Student,
    teacher: Lite0,
    tiles: Tensor,
    labelled: PairFolder | None,
    folder: Path,
    report: Report | None,
) -> list[dict[str, float]]:
    device = tiles.device
    cuda = device.type == "cuda"
    optimizer = torch.optim.AdamW(_groups(student, config.weight_decay), lr=config.lr, fused=cuda)
    statistics = _statistics(config, model, teacher, tiles)
    state = _resume(folder, student, optimizer)
    first, history = (state["step"], state["history"]) if state else (0, [])
    if config.compile:
        for block in student.backbone.blocks:
            block.compile(dynamic=False)
    amp = torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")
    running = torch.zeros((), device=device)
    started = time.monotonic() - (history[-1]["seconds"] if history else 0.0)
    for step in range(first, config.steps):
        generator = torch.Generator(device).manual_seed(config.seed * 1_000_003 + step)
        views = _views(tiles, config, generator)
        with amp:
            with torch.no_grad():
                wanted = targets(teacher, _enlarged(model, views), model.config.backbone.patch)
                images = model.prepare(_recolour(views, config.jitter, generator))
            hidden = hide(len(views), wanted[0].shape[1], config.mask, generator)
            gates = drop_chunks(
                model.config.backbone.depth,
                model.config.bscs.chunks,
                least=LEAST_CHUNKS,
                share=config.drop,
                generator=generator,
            )
            loss = distillation_loss(student(images, hidden, gates), wanted, statistics)
        for group in optimizer.param_groups:
            group["lr"] = config.lr * _rate(step, config)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        running += loss.detach()
        done = step + 1
        if done % config.every == 0 or done == config.steps:
            mean = float(running) / ((done - 1) % config.every + 1)
            running.zero_()
            if not math.isfinite(mean):
                raise TrainingError(
                    f"the loss became NaN before step {done}; lower lr, or set precision=32. "
                    f"{folder / STATE} holds the last good state."
                )
            row = {"step": float(done), "loss": mean, "seconds": time.monotonic() - started}
            if labelled is not None:
                student.eval()
                row["probe_ap"] = probe(model, student, labelled)
                student.train()
            history = [*history, row]
            _keep(folder, student, optimizer, done, history)
            if report is not None:
                text = f"loss {mean:.4f}"
                text += f", probe AP {row['probe_ap']:.3f}" if labelled is not None else ""
                report(done, config.steps, text)
    return history


def _rate(step: int, config: PretrainConfig) -> float:
    """Linear warm-up, then a cosine to one per cent."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    position = (step - config.warmup) / max(config.steps - config.warmup, 1)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * position))


def _groups(student: Student, decay: float) -> list[dict[str, Any]]:
    """Vectors (norms, biases, scales, tokens) are not decayed."""
    named = [(n, p) for n, p in student.named_parameters() if p.requires_grad]
    flat = [p for n, p in named if p.ndim < 2 or "token" in n or "registers" in n]
    rest = [p for n, p in named if not (p.ndim < 2 or "token" in n or "registers" in n)]
    return [{"params": rest, "weight_decay": decay}, {"params": flat, "weight_decay": 0.0}]


def _enlarged(model: AdaDINO, views: Tensor) -> Tensor:
    """The views at the encoder's size, not normalised: the teacher scales them itself.

    Not by `enlarge`, whose aligned corners lie up to a quarter of a pixel off: a teacher of
    convolutions was trained on pixels with centres.
    """
    if model.config.scale == 1:
        return views
    factor = float(model.config.scale)
    images = F.interpolate(views, scale_factor=factor, mode="bilinear", align_corners=False)
    return images.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def _statistics(
    config: PretrainConfig, model: AdaDINO, teacher: Lite0, tiles: Tensor, batches: int = 8
) -> list[tuple[Tensor, Tensor]]:
    """Mean and deviation of every target channel, from a few batches of their own seed."""
    generator = torch.Generator(tiles.device).manual_seed(config.seed * 1_000_003 + 999_983)
    rounds = [
        targets(
            teacher,
            _enlarged(model, _views(tiles, config, generator)),
            model.config.backbone.patch,
        )
        for _ in range(batches)
    ]
    levels = [torch.cat(level).flatten(0, 1) for level in zip(*rounds, strict=True)]
    return [(level.mean(0), level.std(0).clamp_min(1e-3)) for level in levels]


def _views(tiles: Tensor, config: PretrainConfig, generator: torch.Generator) -> Tensor:
    """Draw a batch of views: cut out, flipped, turned (B, 3, size, size)."""
    device, n = tiles.device, config.batch

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    chosen = tiles[(draw(n) * len(tiles)).long()].float().div_(255)
    side = config.zoom[0] + (config.zoom[1] - config.zoom[0]) * draw(n)
    sign = torch.where(draw(n, 2) < 0.5, -1.0, 1.0) * side[:, None]
    centre = (2 * draw(n, 2) - 1) * (1 - side[:, None])
    turned = draw(n) < 0.5
    zero = torch.zeros_like(side)
    x = torch.where(turned[:, None], torch.stack((zero, sign[:, 0]), 1), F.pad(sign[:, :1], (0, 1)))
    y = torch.where(turned[:, None], F.pad(sign[:, 1:], (0, 1)), torch.stack((zero, sign[:, 1]), 1))
    theta = torch.cat((torch.stack((x, y), 1), centre[:, :, None]), dim=2)  # (B, 2, 3)
    grid = F.affine_grid(theta, [n, 3, config.size, config.size], align_corners=False)
    return F.grid_sample(chosen, grid, padding_mode="reflection", align_corners=False)


def _recolour(views: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Change brightness, contrast and saturation of every view, in an order of its own."""
    device, n = views.device, len(views)
    factors = 1 + strength * (2 * torch.rand(n, 3, generator=generator, device=device) - 1)
    order = torch.rand(n, 3, generator=generator, device=device).argsort(dim=1)
    return jitter(views.clone()[:, None], factors, order)[:, 0]


def _tiles(config: PretrainConfig) -> Tensor:
    """Tiles of twice a view's side, which is then cut out of them at any zoom."""
    return torch.from_numpy(
        read_tiles(config.images, 2 * config.size, limit=config.limit, synthetic=config.synthetic)
    )


def _claim(folder: Path, config: PretrainConfig, *, overwrite: bool) -> None:
    """Make the folder this run's, or say that it is another's."""
    saved, text = folder / CONFIG, schema.write_yaml(config)
    results = (STATE, HISTORY, RESULT)
    if overwrite:
        for name in (*results, CONFIG):
            (folder / name).unlink(missing_ok=True)
    free = not saved.exists() or abandoned(folder, PretrainConfig, results)
    if not free and saved.read_text(encoding="utf-8") != text:
        raise TrainingError(
            f"{folder} holds a pretraining run with other settings; give another output, or "
            "--overwrite."
        )
    write_atomic(saved, text)


def _keep(
    folder: Path,
    student: Student,
    optimizer: torch.optim.Optimizer,
    step: int,
    history: list[dict[str, float]],
) -> None:
    write_atomic(folder / HISTORY, csv_text(list(history[0]), history))
    state = {
        "student": student.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "history": history,
    }
    write_atomic(folder / STATE, lambda part: torch.save(state, part))


def _resume(
    folder: Path, student: Student, optimizer: torch.optim.Optimizer
) -> dict[str, Any] | None:
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever zip, pickle and torch think of a damaged file
        raise TrainingError(f"cannot read {path}: {error}. Start anew with --overwrite.") from error
    student.load_state_dict(state["student"])
    optimizer.load_state_dict(state["optimizer"])
    return state


def _save(
    student: Student, config: PretrainConfig, history: list[dict[str, float]], folder: Path
) -> Path:
    """The backbone alone, with its recipe in the file's metadata."""
    from safetensors.torch import save as serialise

    tensors = {n: t.detach().cpu().contiguous() for n, t in student.backbone.state_dict().items()}
    said = {"pretraining": schema.to_dict(config), "history": history[-1:]}
    content = serialise(tensors, metadata={"adadino_backbone": json.dumps(said)})
    # The normalisation travels with the weights, under the name that is known for it.
    backbone = student.backbone.config
    known = {"image_mean": backbone.mean, "image_std": backbone.std}
    write_atomic(folder / PREPROCESSING, json.dumps(known, indent=2) + "\n")
    write_atomic(folder / RESULT, content)
    return folder / RESULT
