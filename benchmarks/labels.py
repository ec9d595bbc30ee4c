"""What a few labels buy: F1 on CLCD after adapting a model that never saw it, by number of tiles.

    python benchmarks/labels.py DATA -o OUT --work WORK --device cuda --minutes 9 --jobs 6

DATA has `levir/{A,B,label}` and `clcd/{train,val}/{A,B,label}`. Two calls may have one each. What
is done is kept in OUT, and the same command goes on with the rest:

1. `base/`: a backbone, distilled on LEVIR-CD's scenes 1 to 24 and synthetic places; on it a model,
   trained on the same scenes and a synthetic set. It needs `levir` and EfficientNet-lite0's file.
2. `rows.jsonl`: its F1 on CLCD's validation split as it is (`none`), trained on with all tiles
   (`all`), adapted with so many tiles in so many draws (`decoder`, `adapters`, `both`), and trained
   from the beginning with as many (`scratch`). It needs `clcd` and `base/`.
3. `labels.csv` and `labels.png`, of the rows that there are.

Nothing is chosen by a score: budgets and seeds are those below. `--quick` runs everything on next
to nothing, to see that it works; `--base` takes another model as the base, whose rows say so.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adadino.checkpoint import load, save
from adadino.data.folder import PairFolder
from adadino.data.synthetic import make_pair
from adadino.evaluation import Protocol, evaluate
from adadino.reporting.tables import csv_text
from adadino.training.adapt.options import AdaptOptions
from adadino.training.adapt.run import adapt
from adadino.training.config import load_run
from adadino.training.pretrain.config import PretrainConfig
from adadino.training.pretrain.run import pretrain
from adadino.training.run import train

NUMBERS = (4, 8, 16, 32, 64, 128)
DRAWS = 5
PARTS = ("decoder", "adapters", "both", "scratch")
TILE = 256
SCENES = 24
"""LEVIR-CD's scenes up to this one may be learned from."""
EXPECTED = {"base": 330, "all": 200, "row": 45}
"""Seconds on one H200, estimated from earlier runs: what has no room left before --minutes is not
begun. A row has less alone; six at a time share the processor cores."""


@dataclass(frozen=True)
class Budget:
    """How long everything is trained."""

    pretraining: int = 900
    """Steps of 128 views."""
    synthetic: int = 64
    """Pairs of 512 x 512."""
    base: int = 30
    """Epochs of 384 + 256 tiles: 19,200 pairs."""
    all: int = 20
    """Epochs of 1,440 tiles: 28,800 pairs."""
    scratch: int = 400
    """Updates of up to 16 pairs."""
    validation: int | None = None
    """Only so many tiles of the validation split, evenly; None is all 480."""
    adapt: int = AdaptOptions.steps


QUICK = Budget(pretraining=2, synthetic=2, base=1, all=1, scratch=1, validation=2, adapt=1)


@dataclass(frozen=True)
class Setting:
    """Where everything is."""

    data: Path
    out: Path
    work: Path
    base: str
    lite0: str | None
    device: str
    budget: Budget
    threads: int

    @property
    def recipe(self) -> list[str]:
        """The bundled model's recipe (configs/small/bundled.yaml), as far as a device can."""
        gpu = self.device == "cuda"
        return [
            "train.schedule=step", "train.lr=1e-3", "train.weight_decay=0.05",
            "train.dice=foreground", "train.accumulate=1", "train.validate=false",
            f"train.precision={'bf16' if gpu else '32'}", f"train.cuda_graph={str(gpu).lower()}",
            f"data.tile={TILE}", "data.roam=true", "data.cache=true", "data.workers=0",
        ]  # fmt: skip


def train_on(setting: Setting, name: str, roots: list[Path], *overrides: str) -> Path:
    """A run of the recipe; returns its last checkpoint."""
    folder = setting.work / name
    roots_ = "[" + ",".join(map(str, roots)) + "]"
    given = [*setting.recipe, f"data.root={roots_}", f"output={folder}", *overrides]
    device = "auto" if setting.device == "cuda" else setting.device
    train(load_run(None, given), quiet=True, device=device)
    return folder / "final"


def make_base(setting: Setting) -> None:
    """The model that adapts: nothing of CLCD is in it, nor in its backbone."""
    budget, data = setting.budget, setting.work / "levir"
    quick = budget == QUICK
    if not (data / "train").exists():
        for role in ("A", "B", "label"):
            (data / "train" / role).mkdir(parents=True)
            for path in (setting.data / "levir" / role).iterdir():
                if int(re.findall(r"\d+", path.stem)[-1]) <= (1 if quick else SCENES):
                    shutil.copyfile(path, data / "train" / role / path.name)
    world = setting.work / "world"
    for seed in range(budget.synthetic):
        if not (world / "train" / "label" / f"world-{seed}.png").exists():
            pair = make_pair(40_000_000 + seed, (512, 512))
            write_pair(world / "train", f"world-{seed}", pair.before, pair.after, pair.mask)
    config = PretrainConfig(
        images=(str(data),), output=str(setting.work / "backbone"), teacher=setting.lite0,
        synthetic=min(16, budget.synthetic), steps=budget.pretraining, warmup=2 if quick else 150,
        batch=2 if quick else 128, every=budget.pretraining, device=setting.device,
        precision="bf16" if setting.device == "cuda" else "32", compile=setting.device == "cuda",
    )  # fmt: skip
    weights = pretrain(config).weights
    final = train_on(
        setting, "base", [data, world], "preset=tiny", "model.order_invariant=true",
        f"model.backbone.weights={weights}", "model.stream.name=lite0",
        f"model.stream.weights={setting.lite0 or 'imagenet'}", f"train.epochs={budget.base}",
        f"train.validate_every={budget.base}", f"train.batch={4 if quick else 32}",
    )  # fmt: skip
    save(load(str(final)), setting.out / "base", with_backbone=True, dtype=torch.float16)


def write_pair(folder: Path, name: str, before: Any, after: Any, label: Any) -> None:
    """Write a pair as PNG: images (H, W, 3), label (H, W), where what is not 0 has changed."""
    from PIL import Image

    for role, image in {"A": before, "B": after, "label": (label != 0) * 255}.items():
        (folder / role).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype("uint8")).save(folder / role / f"{name}.png")


def write_draw(data: Path, number: int, draw: int, folder: Path) -> None:
    """Write a random draw of training tiles; for one draw, more tiles include the fewer."""
    tiles = PairFolder(data, "train", tile=TILE)
    order = list(range(len(tiles)))
    random.Random(draw).shuffle(order)
    for index in order[:number]:
        before, after, label, _ = tiles[index]
        images = (before.permute(1, 2, 0).numpy(), after.permute(1, 2, 0).numpy())
        write_pair(folder, tiles.names[index], *images, label.numpy())


def make_row(setting: Setting, part: str, number: int, draw: int) -> dict[str, Any]:
    """One row: train what is asked for, and score it."""
    torch.set_num_threads(setting.threads)
    clcd, work = setting.data / "clcd", setting.work / f"{part}-{number}-{draw}"
    shutil.rmtree(work, ignore_errors=True)
    began, used = time.monotonic(), time.process_time()
    model, budget = setting.base, setting.budget
    if part == "all":
        epochs = (f"train.epochs={budget.all}", f"train.validate_every={budget.all}")
        root = clcd
        if budget == QUICK:
            write_draw(clcd, 4, 0, work / "tiles" / "train")
            root = work / "tiles"
        batch = f"train.batch={4 if budget == QUICK else 32}"
        model = str(train_on(setting, work.name, [root], f"init={model}", *epochs, batch))
    elif part != "none":
        write_draw(clcd, number, draw, work / "tiles" / "train")
        began, used = time.monotonic(), time.process_time()
        model = str(_fit(setting, part, number, draw, work))
    row = {"part": part, "tiles": number, "draw": draw, "base": setting.base}
    row |= {"device": setting.device, "threads": setting.threads}
    row |= {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used}
    row["f1"] = score(setting, model)
    shutil.rmtree(work, ignore_errors=True)
    return row


def _fit(setting: Setting, part: str, number: int, draw: int, work: Path) -> Path:
    if part != "scratch":
        few = {"views": 4, "replay": 1} if setting.budget == QUICK else {}
        options = AdaptOptions(part=part, seed=draw, anyway=True, steps=setting.budget.adapt, **few)
        adapt(setting.base, work / "tiles", work / "new", options, device=setting.device)
        return work / "new"
    batch = min(16, number)
    epochs = max(1, setting.budget.scratch * batch // number)
    return train_on(
        setting, f"{work.name}/run", [work / "tiles"], "preset=tiny", "model.order_invariant=true",
        f"model.backbone.weights={setting.base}", "model.stream.name=lite0",
        f"model.stream.weights={setting.lite0 or 'imagenet'}", f"train.epochs={epochs}",
        f"train.validate_every={epochs}", f"train.batch={batch}", f"train.seed={draw}",
    )  # fmt: skip


def score(setting: Setting, model: str) -> float:
    """F1 over CLCD's validation split: one matrix, threshold 0.5."""
    tiles: Any = PairFolder(setting.data / "clcd", "val", tile=TILE)
    if (most := setting.budget.validation) is not None:
        tiles = tiles.keep(range(0, len(tiles), -(-len(tiles) // most)))
    network = load(model).to(setting.device).eval()
    return evaluate(network, tiles, Protocol(), device=setting.device).confusion.f1


def write_report(out: Path) -> str:
    """labels.csv, labels.png, and the share of the gap that is closed, as a sentence."""
    import matplotlib.pyplot as plt

    rows = read_rows(out)
    groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["part"], row["tiles"]].append(row)
    table = [
        {
            "part": part, "tiles": tiles, "draws": len(group),
            "f1": f"{100 * sum(r['f1'] for r in group) / len(group):.2f}",
            "least": f"{100 * min(r['f1'] for r in group):.2f}",
            "most": f"{100 * max(r['f1'] for r in group):.2f}",
            "seconds": f"{sum(r['seconds'] for r in group) / len(group):.0f}",
            "cpu_seconds": f"{sum(r['cpu_seconds'] for r in group) / len(group):.0f}",
            "device": group[0]["device"], "base": group[0]["base"],
        }
        for (part, tiles), group in sorted(groups.items())
    ]  # fmt: skip
    if not table:
        return "No rows yet."
    (out / "labels.csv").write_text(csv_text(list(table[0]), table), encoding="utf-8")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for part in PARTS:
        line = [row for row in table if row["part"] == part]
        if line:
            f1, low, high = ([float(row[n]) for row in line] for n in ("f1", "least", "most"))
            axes.plot([row["tiles"] for row in line], f1, marker="o", label=part)
            axes.fill_between([row["tiles"] for row in line], low, high, alpha=0.15)
    ends = {row["part"]: float(row["f1"]) for row in table if row["part"] in ("none", "all")}
    for name, style in (("none", ":"), ("all", "--")):
        if name in ends:
            axes.axhline(ends[name], ls=style, color="grey", label=f"{name} of its tiles")
    axes.set(xscale="log", xlabel="labelled tiles of CLCD", ylabel="F1 on CLCD's validation split")
    axes.set_xticks(NUMBERS, [str(number) for number in NUMBERS])
    axes.legend()
    figure.savefig(out / "labels.png", dpi=130)
    if len(ends) < 2:
        return f"{len(rows)} rows."
    gap = ends["all"] - ends["none"]
    closed = [
        f"{row['part']} {row['tiles']}: {100 * (float(row['f1']) - ends['none']) / gap:.0f} %"
        for row in table
        if row["tiles"] in (16, 64)
    ]
    return f"{len(rows)} rows. Of the gap of {gap:.1f} F1 are closed: " + ", ".join(closed)


def read_rows(out: Path) -> list[dict[str, Any]]:
    """The rows that there are."""
    path = out / "rows.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def missing(given: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Rows to compute, the ends and the first draws first."""
    done = {(row["part"], row["tiles"], row["draw"]) for row in read_rows(given.output)}
    cases = [("none", 0, 0), *([] if given.no_all else [("all", 1440, 0)])]
    cases += [(p, n, d) for d in range(given.draws) for n in given.numbers for p in given.parts]
    return [case for case in cases if case not in done]


def main() -> None:
    """Do what is missing, as long as there is time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="for what need not be kept")
    parser.add_argument("--base", help="a model to take instead of OUT/base")
    parser.add_argument("--lite0", help="EfficientNet-lite0's file, if it is not installed")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="begin nothing that takes longer"
    )
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--no-all", action="store_true", help="leave out training on all tiles")
    parser.add_argument("--validation", type=int, help="score on so many tiles only")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    given.output.mkdir(parents=True, exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(given.threads)
    budget = QUICK if given.quick else Budget(validation=given.validation)
    setting = Setting(
        given.data, given.output, given.work, given.base or str(given.output / "base"),
        given.lite0, given.device, budget, given.threads,
    )  # fmt: skip

    def room(name: str) -> bool:
        return given.quick or time.monotonic() - began + EXPECTED[name] < 60 * given.minutes

    if not Path(setting.base).exists() and given.base is None:
        if not (given.data / "levir").is_dir():
            raise SystemExit(f"{setting.base} is not there, and {given.data}/levir neither.")
        if room("base"):
            make_base(setting)
            print(f"base: {time.monotonic() - began:.0f} s", flush=True)
    cases = missing(given)
    if (given.data / "clcd").is_dir() and (given.base or Path(setting.base).exists()):
        with ProcessPoolExecutor(given.jobs, torch.multiprocessing.get_context("spawn")) as pool:
            running = {}
            while cases or running:
                while cases and len(running) < given.jobs:
                    case = cases.pop(0)
                    if room("all" if case[0] == "all" else "row"):
                        running[pool.submit(make_row, setting, *case)] = case
                if not running:
                    break
                future = next(as_completed(running))
                del running[future]
                row = future.result()
                with (given.output / "rows.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{time.monotonic() - began:.0f} s", row, flush=True)
    print(write_report(given.output), f"{len(missing(given))} rows are missing.")


if __name__ == "__main__":
    main()
