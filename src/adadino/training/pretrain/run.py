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
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adadino import schema
from adadino.data.folder import PairFolder
from adadino.errors import ConfigError, TrainingError
from adadino.files import locked, write_atomic
from adadino.model.adadino import AdaDINO
from adadino.model.lite0 import Lite0, load_lite0
from adadino.model.weights import make_backbone, read_backbone
from adadino.reporting.tables import csv_text
from adadino.runtime.devices import choose_device
from adadino.training.folder import abandoned, read_state
from adadino.training.pretrain.config import PretrainConfig
from adadino.training.pretrain.distill import (
    Student,
    distillation_loss,
    drop_chunks,
    hide,
    targets,
)
from adadino.training.pretrain.probe import check_pairs, probe
from adadino.training.pretrain.views import cut_views, enlarge, read_tiles, recolour
from adadino.training.schedule import pretraining_rate

CONFIG, STATE, HISTORY, RESULT = "config.yaml", "last.pt", "history.csv", "backbone.safetensors"
PREPROCESSING = "preprocessor_config.json"
MOMENTUM = 0.999
"""How slowly a student's own teacher follows it."""
LEAST_CHUNKS = 4
"""The smallest budget the paper prunes to."""
Progress = Callable[[int, int, str], None]


class PretrainResult(NamedTuple):
    """How a run ended."""

    weights: Path
    history: list[dict[str, float]]


class _Parts(NamedTuple):
    """What a run works with, on its device."""

    model: AdaDINO
    """Gives the preparation of images; its backbone is the student's."""
    student: Student
    teacher: Lite0 | None
    """EfficientNet-lite0; None where the student has a teacher of its own."""
    tiles: Tensor
    """(N, 3, 2 size, 2 size) uint8, from which views are cut."""
    labelled: PairFolder | None


def pretrain(
    config: PretrainConfig, *, overwrite: bool = False, report: Progress | None = None
) -> PretrainResult:
    """Pretrain, or go on pretraining, until the last step.

    Args:
        config: The run.
        overwrite: Start anew where the folder holds another run.
        report: Called with steps done, all steps, and a message.
    """
    folder = Path(config.output)
    with locked(folder, "pretraining run"):
        _claim(folder, config, overwrite=overwrite)
        parts = _make_parts(config)
        history = _learn(config, parts, folder, report)
        return PretrainResult(_save(parts.student, config, history, folder), history)


def _make_parts(config: PretrainConfig) -> _Parts:
    device = choose_device(config.device)
    torch.manual_seed(config.seed)
    whole, own = config.model, config.init is not None
    backbone = None
    if config.init is not None:
        weights = read_backbone(config.init, whole.backbone)
        whole = dataclasses.replace(whole, backbone=weights.config)
        backbone = make_backbone(weights)
    model = AdaDINO(whole, backbone=backbone).to(device)
    student = Student(model, own_teacher=own).to(device).train()
    teacher = None if own else load_lite0(config.teacher).to(device).requires_grad_(False)
    labelled = None
    if config.probe:
        labelled = PairFolder(config.probe, tile=config.size, cache=True)
        check_pairs(labelled, model.config.stride)  # now, not after `every` steps
    return _Parts(model, student, teacher, read_tiles(config).to(device), labelled)


def _learn(
    config: PretrainConfig, parts: _Parts, folder: Path, report: Progress | None
) -> list[dict[str, float]]:
    """Step after step, with a checkpoint every `every` of them; returns the history."""
    student, device = parts.student, parts.tiles.device
    cuda = device.type == "cuda"
    optimizer = torch.optim.AdamW(_groups(student, config.weight_decay), lr=config.lr, fused=cuda)
    statistics = _statistics(config, parts)
    state = _resume(folder, student, optimizer)
    first, history = (state["step"], state["history"]) if state else (0, [])
    if config.compile:
        for block in student.backbone.blocks:
            block.compile(dynamic=False)
    running = torch.zeros((), device=device)
    started = time.monotonic() - (history[-1]["seconds"] if history else 0.0)
    for step in range(first, config.steps):
        loss = _loss(config, parts, statistics, step)
        rate = pretraining_rate(step, warmup=config.warmup, steps=config.steps)
        for group in optimizer.param_groups:
            group["lr"] = config.lr * rate
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        student.follow(MOMENTUM)
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
            row |= _probed(parts)
            history = [*history, row]
            _keep(folder, student, optimizer, done, history)
            if report is not None:
                watched = f", probe AP {row['probe_ap']:.3f}" if "probe_ap" in row else ""
                report(done, config.steps, f"loss {mean:.4f}{watched}")
    return history


def _loss(
    config: PretrainConfig, parts: _Parts, statistics: list[tuple[Tensor, Tensor]], step: int
) -> Tensor:
    """The loss of one step, whose draws follow from the seed and the step alone."""
    model, tiles = parts.model, parts.tiles
    generator = torch.Generator(tiles.device).manual_seed(config.seed * 1_000_003 + step)
    views = cut_views(tiles, config, generator)
    with torch.autocast(tiles.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
        with torch.no_grad():
            wanted = _wanted(parts, views)
            images = model.prepare(recolour(views, config.jitter, generator))
        hidden = hide(len(views), wanted[0].shape[1], config.mask, generator)
        gates = drop_chunks(
            model.config.backbone.depth,
            model.config.bscs.chunks,
            least=LEAST_CHUNKS,
            share=config.drop,
            generator=generator,
        )
        return distillation_loss(parts.student(images, hidden, gates), wanted, statistics)


def _wanted(parts: _Parts, views: Tensor) -> list[Tensor]:
    """What the teacher sees in views (B, 3, H, W), per level (B, hw, C)."""
    config = parts.model.config
    if parts.teacher is None:
        return parts.student.targets(parts.model.prepare(views))
    return targets(parts.teacher, enlarge(views, config.scale), config.backbone.patch)


def _probed(parts: _Parts) -> dict[str, float]:
    """How much change the features show now, where there are labelled pairs."""
    if parts.labelled is None:
        return {}
    parts.student.eval()
    found = probe(parts.model, parts.student, parts.labelled)
    parts.student.train()
    return {"probe_ap": found}


def _groups(student: Student, decay: float) -> list[dict[str, Any]]:
    """Vectors (norms, biases, scales, tokens) are not decayed."""
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for name, weight in student.named_parameters():
        if weight.requires_grad:
            flat = weight.ndim < 2 or "token" in name or "registers" in name
            groups[not flat].append(weight)
    return [{"params": groups[d], "weight_decay": decay * d} for d in (True, False)]


@torch.no_grad()
def _statistics(config: PretrainConfig, parts: _Parts) -> list[tuple[Tensor, Tensor]]:
    """Mean and deviation of every target channel, from a few batches of their own seed."""
    tiles = parts.tiles
    generator = torch.Generator(tiles.device).manual_seed(config.seed * 1_000_003 + 999_983)
    rounds = []
    for _ in range(8):
        views = cut_views(tiles, config, generator)
        rounds.append(_wanted(parts, views))
    levels = [torch.cat(level).flatten(0, 1) for level in zip(*rounds, strict=True)]
    return [(level.mean(0), level.std(0).clamp_min(1e-3)) for level in levels]


def _claim(folder: Path, config: PretrainConfig, *, overwrite: bool) -> None:
    """Make the folder this run's, or say that it is another's."""
    saved, text = folder / CONFIG, schema.write_yaml(config)
    results = (STATE, HISTORY, RESULT)
    if overwrite:
        for name in (*results, CONFIG):
            (folder / name).unlink(missing_ok=True)
    free = not saved.exists() or abandoned(folder, PretrainConfig, results)
    if not free and not _is_of(saved, config):
        raise TrainingError(
            f"{folder} holds a pretraining run with other settings; give another output, or "
            "--overwrite."
        )
    write_atomic(saved, text)


def _is_of(saved: Path, config: PretrainConfig) -> bool:
    """Whether a settings file is this run's; one of 0.1.0 lacks what was added since."""
    try:
        return schema.build(PretrainConfig, schema.read_yaml(saved)) == config
    except ConfigError:
        return False


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
    if not (folder / STATE).exists():
        return None
    state = read_state(folder / STATE)
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
    known: dict[str, Any] = {"image_mean": backbone.mean, "image_std": backbone.std}
    if backbone.grid:
        known["grid_offset"] = backbone.grid_offset
    write_atomic(folder / PREPROCESSING, json.dumps(known, indent=2) + "\n")
    write_atomic(folder / RESULT, content)
    return folder / RESULT
