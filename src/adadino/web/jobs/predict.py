"""A job's computation: the model over a pair, in a process that sees nothing but that pair."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adadino.checkpoint import load
from adadino.engine import for_inference
from adadino.errors import ConfigError
from adadino.files import sweep, write_atomic
from adadino.runtime.devices import choose_device
from adadino.runtime.exported import ExportedModel, is_exported
from adadino.scene import SceneOptions, predict_scene
from adadino.web.door import open_foreign
from adadino.web.jobs.records import RESULT
from adadino.web.jobs.tasks import Held, Tell, named
from adadino.web.view.display import lay_out
from adadino.web.view.views import FALSE, shows_infrared, view_path, write_views

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult

OPTIONS = SceneOptions()
"""The page tiles as `adadino predict` does."""
IO_S = 0.6
"""Seconds per megapixel for reading, warping, blending and writing, beside the model."""


def load_models(setup: dict[str, Any]) -> Held:
    """Load every model once, so that a wrong one is known at the start.

    They stay on the CPU: a process that has begun to use a GPU cannot be forked. One thread loads
    them, because the threads of a pool would not be there in a forked process.

    Raises:
        AdaDINOError: One cannot be loaded, or is not for this page.
    """
    held = Held(setup, threads=torch.get_num_threads())
    torch.set_num_threads(1)
    for name, source in setup["models"]:
        if is_exported(source):
            _open_exported(source, setup)
            held.models[name] = source
        else:
            held.models[name] = load(source, backbone=setup["backbone"]).eval()
    return held


def measure(name: str, held: Held) -> dict[str, Any]:
    """How fast a model is here: megapixels of a scene per second, seconds a job takes besides."""
    device, network = _ready(name, held)
    side = OPTIONS.tile
    count = 3 if isinstance(network, str) else network.config.bands.count
    blank = torch.rand(1, count, side, side, device=device)
    if isinstance(network, str):
        exported, image = _open_exported(network, held.setup), blank.cpu().numpy()
        run: Callable[[], object] = lambda: exported.predict(image, image)  # noqa: E731
    else:
        run = lambda: network(blank, blank).logits.sum().item()  # noqa: E731
    with torch.inference_mode():
        run()  # the first pass also loads kernels
        started, passes = time.perf_counter(), 0
        while passes < 1 or time.perf_counter() - started < 0.2:
            run()
            passes += 1
    tile_s = (time.perf_counter() - started) / passes
    new = (side - OPTIONS.overlap) ** 2 / 1e6  # what a tile adds to the scene
    return {
        "mp_per_s": round(1 / (tile_s / new + IO_S), 4),
        "overhead_s": round(1.0 + OPTIONS.sample * tile_s, 2),
        "device": device.type,
        "device_name": _device_name(device),
    }


def predict_job(
    task: dict[str, Any], held: Held, tell: Tell, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Do a job; what was found is in its folder, whole or not at all, with `more` beside it."""
    folder, started = Path(task["folder"]), time.time()
    device, network = _ready(task["model"], held, task.get("weights"))
    options = SceneOptions(
        register=task["register"],
        any_resolution=task.get("any_resolution", False),
        bands=None if task["bands"] is None else tuple(task["bands"]),
        scale=None if task["scale"] is None else tuple(task["scale"]),
        engine=held.setup["engine"],
    )
    for path in (folder / RESULT, *(view_path(folder, n) for n in ("before", "after", *FALSE))):
        sweep(path)  # what a worker left that was killed while it wrote

    def show(reader: Any) -> None:
        infrared = shows_infrared(reader)
        display = dataclasses.replace(lay_out(reader.grid), infrared=infrared)
        if not all(view_path(folder, layer).exists() for layer in ("before", "after")):
            write_views(reader, display, folder)
        if infrared and not all(view_path(folder, layer).exists() for layer in FALSE):
            write_views(reader, display, folder, false_colour=True)
        tell(event="view", view=display.as_dict())
        pace.megapixels = display.width * display.height / 1e6

    pace = Pace(tell)
    result = predict_scene(
        task["before"],
        task["after"],
        network,
        output=folder / "change.tif",
        probability=folder / "probability.tif",
        options=options,
        device=str(device),
        overwrite=True,
        resume=True,
        progress=pace,
        opened=show,
        names=(task["before_name"], task["after_name"]),
        open_file=open_foreign,
    )
    # The mask is cut from the probability, at any threshold.
    for path in (folder / "change.tif", folder / "change.qml", folder / "probability.qml"):
        path.unlink(missing_ok=True)
    names = {task["before"]: task["before_name"], task["after"]: task["after_name"]}
    facts = facts_of(result) | {
        "warnings": [named(text, names) for text in result.warnings],
        "device": _device_name(device),
        "seconds": round(time.time() - started, 2),
        **(more or {}),
    }
    write_atomic(folder / RESULT, json.dumps(facts))
    return {}


def facts_of(result: SceneResult) -> dict[str, Any]:
    """What the page tells of a result."""
    shift = result.shift
    return {
        "change_fraction": result.change_fraction,
        "warnings": list(result.warnings),
        "shift": {
            "dy": shift.dy, "dx": shift.dx, "confidence": shift.confidence,
            "problem": shift.problem,
        },
        "registered": result.registered,
        "domain": result.fit.remark,
    }  # fmt: skip


class Pace:
    """Turns the progress of `predict_scene` or `adapt` into events, a few each second."""

    def __init__(self, tell: Tell, counted: str = "predicting") -> None:
        self.megapixels = 0.0
        self._tell, self._counted = tell, counted
        self._phase = ""
        self._begun = self._told = 0.0
        self._first: int | None = None

    def __call__(self, done: int, total: int, message: str) -> None:
        """Tell how far the job is; speed and time left come from the tiles alone."""
        now = time.monotonic()
        phase = message if total == 0 else self._counted
        if phase != self._phase:
            self._phase, self._begun, self._first, self._told = phase, now, done, 0.0
        if done < total and now - self._told < 0.25:
            return
        self._told = now
        made, spent = done - (self._first or 0), now - self._begun
        rate = made / spent if made > 0 and spent > 0 else None
        self._tell(
            event="progress",
            phase=phase,
            done=done,
            total=total,
            tiles_per_s=None if rate is None else round(rate, 3),
            mp_per_s=None if rate is None else round(rate * self.megapixels / max(total, 1), 4),
            eta_s=None if rate is None else round((total - done) / rate, 1),
        )


def _ready(name: str, held: Held, weights: str | None = None) -> tuple[torch.device, Any]:
    """A model on its device, or the engine in its place; the path of an exported one.

    Args:
        name: One of the models that are held.
        held: They.
        weights: The folder of a model that a job made, instead. It comes from strangers' images, so
            that only the process that uses it opens it.
    """
    torch.set_num_threads(held.threads)
    device = choose_device(held.setup["device"])
    backbone = held.setup["backbone"]
    network = load(weights, backbone=backbone).eval() if weights else held.models[name]
    if isinstance(network, str):
        return device, network
    return device, for_inference(network.to(device), held.setup["engine"])


def _open_exported(path: str, setup: dict[str, Any]) -> ExportedModel:
    """An exported model that the page can use."""
    if setup["backbone"] is not None:
        raise ConfigError(f"{path} holds its backbone; leave --backbone out.")
    exported = ExportedModel(path, device=choose_device(setup["device"]).type)
    if exported.size not in (None, OPTIONS.tile):
        raise ConfigError(
            f"{path} takes tiles of {exported.size} pixels only, the page has {OPTIONS.tile}: "
            f"export it for any size, or with --size {OPTIONS.tile}."
        )
    return exported


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    plural = "" if threads == 1 else "s"
    return f"{threads} thread{plural}" if device.type == "cpu" else device.type
