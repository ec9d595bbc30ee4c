"""The process that computes: takes jobs as lines on standard input, tells of them on its output.

It is apart from the server, so that a crash, a full memory or a kill costs one job and no more.
It dies with the server: when nobody holds the other end of its input, it exits.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from adadino.errors import ConfigError
from adadino.runtime.exported import ExportedModel, is_exported

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult

RESULT = "result.json"
"""What was found; when it is there, the job is done."""
TILE, OVERLAP = 256, 64
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when a disk, a quota or a limit is full."""


def main() -> None:
    """Serve jobs until the server is gone."""
    said = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    with suppress(OSError, AttributeError):
        os.nice(5)  # the page goes first
    lines: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    setup = lines.get()
    try:
        worker = Worker(setup, said)
    except Exception as error:
        _tell(said, event="unusable", error=_sentence(error))
        return
    while True:
        worker.run(lines.get())


def _listen(lines: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        lines.put(json.loads(line))
    os._exit(0)  # in the middle of a job too: its rows are on disk, the next server goes on


def _tell(said: TextIO, **event: object) -> None:
    said.write(json.dumps(event, allow_nan=False) + "\n")


def _sentence(error: BaseException) -> str:
    from adadino.errors import AdaDINOError

    if isinstance(error, AdaDINOError):
        return str(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return f"the server's disk is full ({error.strerror}); remove jobs and start it again."
    traceback.print_exception(error)
    return f"an unexpected {type(error).__name__} ended the job; the server's log tells more."


class Worker:
    """Holds the models and runs one job after the other."""

    def __init__(self, setup: dict[str, Any], said: TextIO) -> None:
        """Load every model once, so that a wrong one is known at the start."""
        from adadino.runtime.devices import choose_device

        self.sources: dict[str, str] = dict(setup["models"])
        self.backbone: str | None = setup["backbone"]
        self.device = choose_device(setup["device"])
        self.engine: Any = setup["engine"]
        self._said = said
        self._held: tuple[str, Any] | None = None
        speeds = {name: self._measure(self._model(name)) for name in reversed(self.sources)}
        self.tell(event="ready", device=str(self.device.type), device_name=self._device_name(),
                  speeds=speeds)  # fmt: skip

    def tell(self, **event: object) -> None:
        """Send an event to the server."""
        _tell(self._said, **event)

    def run(self, task: dict[str, Any]) -> None:
        """Do a job and say how it went."""
        names = {task["before"]: task["before_name"], task["after"]: task["after_name"]}
        names[f"{task['folder']}/"] = ""  # last: the inputs may lie there
        try:
            self._predict(task, names)
        except Exception as error:
            self.tell(event="failed", job=task["job"], error=_named(_sentence(error), names))
        else:
            self.tell(event="done", job=task["job"])

    def _predict(self, task: dict[str, Any], names: dict[str, str]) -> None:
        import rasterio

        from adadino.files import sweep, write_atomic
        from adadino.scene import SceneOptions, predict_scene
        from adadino.scene.pair import check_different, open_dates
        from adadino.web.view.display import lay_out
        from adadino.web.view.views import view_path, write_views

        folder, started = Path(task["folder"]), time.time()
        options = SceneOptions(
            register=task["register"],
            bands=None if task["bands"] is None else tuple(task["bands"]),
            scale=None if task["scale"] is None else tuple(task["scale"]),
            tile=TILE,
            overlap=OVERLAP,
            engine=self.engine,
        )
        for path in (folder / RESULT, *(view_path(folder, n) for n in ("before", "after"))):
            sweep(path)  # what a worker left that was killed while it wrote
        check_different(task["before"], task["after"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the result has them all
            with open_dates(task["before"], task["after"], options) as pair:
                display = lay_out(pair.reader.grid)
                if not all(view_path(folder, layer).exists() for layer in ("before", "after")):
                    write_views(pair.reader, display, folder)
            self.tell(event="view", job=task["job"], view=display.as_dict())
            pace = _Pace(self, task["job"], display.width * display.height / 1e6)
            with rasterio.Env():
                result = predict_scene(
                    task["before"],
                    task["after"],
                    self._model(task["model"]),
                    output=folder / "change.tif",
                    probability=folder / "probability.tif",
                    options=options,
                    device=str(self.device),
                    overwrite=True,
                    resume=True,
                    progress=pace,
                )
        # The mask is cut from the probability, at any threshold.
        for path in (folder / "change.tif", folder / "change.qml", folder / "probability.qml"):
            path.unlink(missing_ok=True)
        facts = facts_of(result) | {
            "warnings": [_named(text, names) for text in result.warnings],
            "device": self._device_name(),
            "seconds": round(time.time() - started, 2),
        }
        write_atomic(folder / RESULT, json.dumps(facts))

    def _model(self, name: str) -> Any:
        """A model by name, or the engine in its place; the one used last stays in memory.

        An exported one by its path: every scene opens it, which takes less than a tile does.
        """
        from adadino.checkpoint import load
        from adadino.engine import for_inference

        if is_exported(self.sources[name]):
            return self.sources[name]
        if self._held is None or self._held[0] != name:
            self._held = None  # before the next one is loaded: two may not fit
            model = load(self.sources[name], backbone=self.backbone, device=self.device)
            self._held = (name, for_inference(model.eval(), self.engine))
        return self._held[1]

    def _measure(self, network: Any) -> float:
        """Megapixels of scene per second, from a few tiles."""
        import torch

        blank = torch.rand(1, 3, TILE, TILE, device=self.device)
        if isinstance(network, str):
            exported, image = self._open(network), blank.cpu().numpy()
            run: Callable[[], object] = lambda: exported.predict(image, image)  # noqa: E731
        else:
            run = lambda: network(blank, blank).logits.sum().item()  # noqa: E731
        with torch.inference_mode():
            run()  # the first pass also loads kernels
            started, passes = time.perf_counter(), 0
            while passes < 1 or time.perf_counter() - started < 0.2:
                run()
                passes += 1
        new = (TILE - OVERLAP) ** 2 / 1e6  # what a tile adds to the scene
        return round(new * passes / (time.perf_counter() - started), 4)

    def _open(self, path: str) -> ExportedModel:
        """An exported model that the page can use."""
        if self.backbone is not None:
            raise ConfigError(f"{path} holds its backbone; leave --backbone out.")
        exported = ExportedModel(path, device=self.device.type)
        if exported.size not in (None, TILE):
            raise ConfigError(
                f"{path} takes tiles of {exported.size} pixels only, the page has {TILE}: export "
                f"it for any size, or with --size {TILE}."
            )
        return exported

    def _device_name(self) -> str:
        import torch

        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        threads = torch.get_num_threads()
        plural = "" if threads == 1 else "s"
        return f"{threads} thread{plural}" if self.device.type == "cpu" else self.device.type


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
    }  # fmt: skip


class _Pace:
    """Turns the tiles of `predict_scene` into events, a few each second."""

    def __init__(self, worker: Worker, job: str, megapixels: float) -> None:
        self._worker, self._job, self._megapixels = worker, job, megapixels
        self._started = time.monotonic()
        self._first: int | None = None
        self._told = 0.0

    def __call__(self, done: int, total: int, message: str) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = max(0, done - 1)  # a resumed run begins with the tiles it has
        if done < total and now - self._told < 0.25:
            return
        self._told = now
        rate = (done - self._first) / max(now - self._started, 1e-6)
        self._worker.tell(
            event="progress",
            job=self._job,
            done=done,
            total=total,
            tiles_per_s=round(rate, 3),
            mp_per_s=round(rate * self._megapixels / max(total, 1), 4),
            eta_s=round((total - done) / max(rate, 1e-9), 1),
        )


def _named(text: str, names: dict[str, str]) -> str:
    """A sentence in the user's names: paths of the server are nobody's business."""
    for path, name in names.items():
        text = text.replace(path, name)
    return re.sub(r"--(bands|scale|register)\b", r"\1", text)  # the page has them as fields


if __name__ == "__main__":
    main()
