"""What a few labels buy: F1 after adapting with 4, 8, ... tiles, drawn several times.

    python benchmarks/labels.py BASE data/clcd -o runs/labels

BASE must not have seen the data, nor may the distillation of its backbone: the curve would be that
of a reminder. Every row is one line of rows.jsonl: tiles, draw, what was trained, F1 on the
validation split, seconds. Rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from pathlib import Path

import torch

from adadino.build import new_model
from adadino.checkpoint import load, save
from adadino.data.folder import PairFolder
from adadino.evaluation import evaluate
from adadino.training.adapt.options import AdaptOptions
from adadino.training.adapt.run import adapt

NUMBERS = (4, 8, 16, 32, 64, 128)
DRAWS = 5
PARTS = ("decoder", "adapters", "both", "scratch")
TILE = 256


def write_draw(data: Path, number: int, draw: int, folder: Path) -> None:
    """Write a random draw of training tiles as a folder of tiles."""
    from PIL import Image

    tiles = PairFolder(data, "train", tile=TILE)
    chosen = random.Random(1000 * number + draw).sample(range(len(tiles)), number)
    for index in chosen:
        before, after, label, _ = tiles[index]
        name = tiles.names[index]
        images = {"A": before.permute(1, 2, 0), "B": after.permute(1, 2, 0), "label": label * 255}
        for role, image in images.items():
            (folder / role).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.numpy()).save(folder / role / f"{name}.png")


def scratch(base: str, folder: Path) -> str:
    """The base model, of which everything that an adaptation trains is as before any training."""
    model, torch_state = load(base), torch.random.get_rng_state()
    torch.manual_seed(0)
    fresh = new_model(model.config).state_dict()
    torch.random.set_rng_state(torch_state)
    prefix = f"{model.backbone_path}."
    model.load_state_dict(
        {k: v for k, v in fresh.items() if not k.startswith(prefix)}, strict=False
    )
    return str(save(model, folder))


def main() -> None:
    """Compute the rows that are missing, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--steps", type=int, default=AdaptOptions.steps)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.output.mkdir(parents=True, exist_ok=True)
    rows = given.output / "rows.jsonl"
    known = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    done = {(row["tiles"], row["draw"], row["part"]) for row in known}
    validation = PairFolder(given.data, "val", tile=TILE)
    cases = [(n, d, p) for n in given.numbers for d in range(given.draws) for p in given.parts]
    for number, draw, part in [case for case in cases if case not in done]:
        work = given.output / "work"
        shutil.rmtree(work, ignore_errors=True)
        write_draw(given.data, number, draw, work / "tiles")
        base = scratch(given.base, work / "base") if part == "scratch" else given.base
        options = AdaptOptions(
            part="both" if part == "scratch" else part, seed=draw, anyway=True, steps=given.steps
        )
        began, used = time.monotonic(), time.process_time()
        adapt(base, work / "tiles", work / "new", options)
        row = {"tiles": number, "draw": draw, "part": part}
        row |= {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used}
        row["f1"] = evaluate(load(work / "new"), validation).confusion.f1
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
