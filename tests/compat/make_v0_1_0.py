"""Write what `test_v0_1_0.py` reads. It ran once, with version 0.1.0, and is kept to say how.

    python -m tests.compat.make_v0_1_0

It reaches into the package where a run must be stopped at a chosen moment, as 0.1.0 had it. Later
versions neither can nor should run it: what it wrote is the promise, and stays as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import lzma
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import rasterio
import torch

import adadino
from adadino.config import BackboneConfig, BSCSConfig, CGLAConfig, Config, CPGRConfig
from tests.compat.fixtures import MARK, PACKED, V0_1_0, date_images, replace_in_records, shape

CLIENT = {"adadino_client": "compat"}
TINY = Config(
    backbone=BackboneConfig("small", dim=8, depth=4, heads=1, ffn=16, registers=1, patch=8),
    cgla=CGLAConfig(ratio=1.0),
    bscs=BSCSConfig(chunks=4, k=2, hidden=8),
    cpgr=CPGRConfig(width=8),
    scale=1,
)
SETTINGS = {
    "preset": "tiny", "model.backbone.dim": 8, "model.backbone.depth": 4,
    "model.backbone.heads": 1, "model.backbone.ffn": 16, "model.backbone.registers": 1,
    "model.backbone.patch": 8, "model.scale": 1, "model.cpgr.width": 8, "augment.size": 32,
    "data.workers": 0, "train.epochs": 2, "train.batch": 2, "train.accumulate": 1,
    "train.bscs_warmup": 1, "train.lambda_start": 1, "train.lambda_ramp": 1,
}  # fmt: skip
OURS = {
    "model.cgla.ratio": 1.0, "model.bscs.chunks": 4, "model.bscs.k": 2, "model.bscs.hidden": 8,
}  # fmt: skip
SCENE = ["--tile", "32", "--overlap", "8", "--batch", "4", "--device", "cpu"]
MODEL = ["--model", "checkpoints/adadino"]
DATES = ["scene/before.tif", "scene/after.tif"]
REGION = [
    "predict-area", "--pairs", "scene/pairs.csv", *MODEL, "--workers", "0", "--threads", "1",
    "--unit", "512", "--probability", *SCENE,
]  # fmt: skip
PEER = SETTINGS | {"model.backbone.dim": 16, "train.epochs": 1}
PLAIN = {"train.optimizer": "sgd", "train.lr": 0.01}
"""An optimizer without a state keeps a finished run small."""


def dotted(settings: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


COMMANDS = {
    "train-adadino": [
        "train", "--data", "data", "-o", "training/interrupted", *dotted(SETTINGS | OURS),
    ],
    "train-peer": [
        "train", "--model", "tome", "--data", "data", "-o", "training/finished",
        *dotted(PEER | PLAIN),
    ],
    "predict": ["predict", *DATES, "-o", "predicted/change.tif", *MODEL, *SCENE,
                "--probability", "predicted/probability.tif"],
    "predict-area-interrupted": [*REGION, "-o", "area/interrupted"],
    "predict-area-finished": [*REGION, "-o", "area/finished"],
}  # fmt: skip
"""What was interrupted or finished, as it was typed."""

SCORE = ["evaluate", "checkpoints/adadino", "--data", "data", "--device", "cpu"]
PRINTS: dict[str, list[str]] = {
    "info-bundled": ["info", "tiny"],
    "info-checkpoint": ["info", "checkpoints/adadino"],
    "info-peer": ["info", "fc-siam-diff"],
    "demo": ["demo", "-o", "made/demo", "--size", "64", *MODEL, "--device", "cpu"],
    "predict": ["predict", *DATES, "-o", "made/c.tif", *MODEL, *SCENE],
    "predict-area": [*REGION, "-o", "made/area"],
    "predict-area-dry": [*REGION, "-o", "made/dry", "--dry-run"],
    "evaluate": [*SCORE, "--split", "test"],
    "evaluate-files": [*SCORE, "--split", "val", "-o", "made/scores"],
    "evaluate-protocol": [*SCORE, "--split", "test", "--protocol", "batch-size"],
    "train": ["train", "--model", "tome", "--data", "data", "-o", "made/run", *dotted(PEER)],
    "benchmark": ["benchmark", "--preset", "tiny", "--size", "32", "--device", "cpu", "--measured",
                  "1", "--k", "16,6", "--mode", "paper", "--no-reference"],
    "doctor": ["doctor"],
    "prepare": ["prepare", "folder", "data", "made/prepared", "--tile", "16"],
    "synthesize": ["synthesize", "made/world", "--train", "1", "--val", "1", "--test", "1",
                   "--size", "32"],
    "export": ["export", "checkpoints/adadino", "-o", "made/m.pt2", "--size", "32"],
    "export-onnx": ["export", "checkpoints/adadino", "-o", "made/m.onnx", "--size", "32"],
    "pretrain": ["pretrain", "--images", "data/train/A", "-o", "made/pretrained", "--steps=1",
                 "--batch=1", "--size=32", "--warmup=1", "--every=1", "--device=cpu"],
    "reproduce": ["reproduce", "efficiency", "--quick", "-o", "made/tables"],
}  # fmt: skip
"""What is typed, with --json, to see the keys of what is printed."""


def run(*arguments: str) -> str:
    """The command, in this process; what it prints."""
    from adadino.cli.app import main

    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["adadino", *arguments]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main()
    return printed.getvalue()


def stopped_after(count: int, home: object, name: str) -> Any:
    """Patch a method so that it is done a number of times, and then Ctrl-C comes."""
    real, calls = getattr(home, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append(1)
        return real(*arguments, **options)

    return mock.patch.object(home, name, counted)


def make_inputs() -> None:
    from adadino.data.synthetic import World, write_dataset, write_geotiff_pair

    write_dataset(Path("data"), {"train": 4, "val": 2, "test": 2}, size=32)
    # Two units of 512 rows, in many rows of tiles.
    write_geotiff_pair(Path("scene"), 7, (544, 32), World(plan="organic", empty=0.0, nuisance=0.2))
    Path("scene/truth.tif").unlink()
    Path("scene/pairs.csv").write_text("before,after,name\nbefore.tif,after.tif,town\n")
    date_images(Path())


def make_checkpoints() -> None:
    """Random models whose answers are spread over all probabilities, and what they answer."""
    from PIL import Image

    from adadino.model.checkpoint import new_model, save
    from tests.conftest import randomise

    pair = [np.array(Image.open(next(Path("data/val", date).iterdir()))) for date in "AB"]
    for name, peer in (("adadino", None), ("peer", "peftcd")):
        torch.manual_seed(0)
        config = dataclasses.replace(TINY, peer=peer)
        model = randomise(new_model(config), 0.35).eval()
        spread(model)
        half = torch.float16  # a smaller file
        folder = save(model, f"checkpoints/{name}", with_backbone=True, dtype=half)
        answer = adadino.predict(*pair, model=folder)
        print(f"{name}: {np.quantile(answer, (0, 0.25, 0.5, 0.75, 1))}", file=sys.stderr)
        np.savez_compressed(
            f"checkpoints/{name}.npz", before=pair[0], after=pair[1], probability=answer
        )


def spread(model: Any) -> None:
    """Move the head of a random model so that it finds some change, at some thresholds more."""
    before, after = (
        torch.from_numpy(rasterio.open(path).read()[None, :, 128:416]).float() / 255
        for path in DATES
    )
    with torch.inference_mode():
        logits = model(before, after).logits
        odds = (logits[:, 1] - logits[:, 0])[:, 16:-16]
    head = model.decoder.stages[-1].head
    with torch.no_grad():
        stretch = 1.5 / odds.std()
        head.weight *= stretch
        head.bias *= stretch
        head.bias[1] -= stretch * odds.mean() + 0.5


def make_runs() -> None:
    from adadino.training.callbacks import Keeper

    whole = [*COMMANDS["train-adadino"], "-q"]
    whole[whole.index("training/interrupted")] = "whole"
    run(*whole)
    with stopped_after(1, Keeper, "on_train_epoch_end"):
        run(*COMMANDS["train-adadino"], "-q")
    run(*COMMANDS["train-peer"], "-q")
    shutil.rmtree("training/finished/final")  # of one epoch: best/ once more
    for name in ("interrupted", "finished"):  # nothing reads the pictures
        (Path("training") / name / "curves.png").unlink()
        shutil.rmtree(Path("training") / name / "pictures")
    Path("whole/history.csv").rename("training/whole-history.csv")
    shutil.rmtree("whole")


def make_scenes() -> None:
    from adadino.scene.journal import Journal

    # What it would have come to is in the finished region: the same scene, model and tiles.
    with stopped_after(8, Journal, "append"):
        run(*COMMANDS["predict"], "-q")


def make_regions() -> None:
    from adadino.area.worker import Worker

    with stopped_after(1, Worker, "__call__"):
        run(*COMMANDS["predict-area-interrupted"], "-q")
    run(*COMMANDS["predict-area-finished"], "-q")


def make_exported() -> None:
    run("export", "checkpoints/adadino", "-o", "exported/adadino.onnx", "--size", "32", "--half")
    run("predict", *DATES, "-o", "exported/change.tif", "--model", "exported/adadino.onnx", *SCENE,
        "--probability", "exported/probability.tif", "-q")  # fmt: skip
    with rasterio.open("exported/probability.tif") as raster:
        answer = raster.read(1)
    np.savez_compressed("exported/expected.npz", probability=answer.astype(np.float16))
    for name in ("change.tif", "change.qml", "probability.tif", "probability.qml"):
        Path("exported", name).unlink()


def make_jobs() -> None:
    from fastapi.testclient import TestClient

    from adadino.data.synthetic import World, write_geotiff_pair
    from adadino.web.app import create_app
    from adadino.web.settings import ModelChoice, Settings
    from tests.web.conftest import start

    before, after, _ = write_geotiff_pair(Path("upload"), 9, 96, World(plan="organic", empty=0.0))
    files = {"before": ("b.tif", before.read_bytes()), "after": ("a.tif", after.read_bytes())}
    server = start(Path("checkpoints/adadino"), Path("jobs"), "--no-demo")
    with server.client(cookies=CLIENT) as client:
        assert client.get("/api/info").json()["version"] == "0.1.0"
        made = client.post("/api/jobs", files=files, data={"name": "finished"}).json()
        server.wait(made["id"], "done", "failed")
    server.stop()
    models = (ModelChoice("adadino", "checkpoints/adadino"),)
    small = write_geotiff_pair(Path("upload"), 9, 48, World(plan="organic", empty=0.0))
    files = {date: (f"{date}.tif", small[i].read_bytes()) for i, date in enumerate(files)}
    app = create_app(Settings(jobs=Path("jobs"), models=models, demo=False))
    client = TestClient(app, base_url="http://127.0.0.1:8000", cookies=CLIENT)
    for name in ("queued", "running"):
        made = client.post("/api/jobs", files=files, data={"name": name}).json()
    # As the queue does, and as a killed server leaves it.
    changes = {"state": "running", "started": time.time(), "attempts": 1}
    app.state.service.store.change(made["id"], **changes)
    shutil.rmtree("upload")


def make_shapes(root: Path) -> dict[str, Any]:
    """The shape of what each verb prints; in a copy, because most of them write something."""
    said = {}
    for name, arguments in PRINTS.items():
        began = time.monotonic()
        printed = run(*arguments, "--json")
        took = time.monotonic() - began
        print(f"{name}: {took:.1f} s", file=sys.stderr)
        # More than ten seconds, as everywhere in the tests, is slow; these count on busy cores.
        said[name] = {
            "arguments": arguments, "slow": took > 6, "shape": shape(json.loads(printed)),
        }  # fmt: skip
    shutil.rmtree(root / "made")
    return said


def main() -> None:
    assert adadino.__version__ == "0.1.0"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        os.chdir(root)
        for make in (make_inputs, make_checkpoints, make_runs, make_scenes, make_regions,
                     make_exported, make_jobs):  # fmt: skip
            began = time.monotonic()
            make()
            print(f"{make.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        Path("commands.json").write_text(json.dumps(COMMANDS, indent=1) + "\n")
        Path("printed.json").write_text(json.dumps(make_shapes(root), indent=1) + "\n")
        for lock in root.rglob(".lock"):
            lock.unlink()
        replace_in_records(root, str(root), MARK)
        shutil.rmtree(V0_1_0, ignore_errors=True)
        shutil.copytree(root, V0_1_0)
        for path in [path for path in V0_1_0.rglob("*") if path.suffix in PACKED]:
            packed = lzma.compress(path.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
            path.with_name(f"{path.name}.xz").write_bytes(packed)
            path.unlink()


if __name__ == "__main__":
    main()
