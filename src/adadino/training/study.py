"""Several runs that answer one question: folds of the data, or F1 against the number of labels.

A figure is the F1 of a run's last epoch, which nothing chose: the best epoch of a validation part
would flatter it. Every run has a folder of its own and goes on after an interruption, so the same
call finishes a study.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.metrics import Confusion
from adadino.reporting import pictures
from adadino.reporting.tables import csv_text
from adadino.training.config import RunConfig
from adadino.training.run import train

Say = Callable[[str], None]
COUNTS = ("tp", "fp", "fn", "tn")


def cross_validate(
    config: RunConfig, folds: int, *, say: Say = lambda _: None, device: str = "auto"
) -> dict[str, Any]:
    """Train on all folds but one, in turn; every scene of train/ and val/ is scored once.

    Args:
        config: The runs' settings; `output` is the study's folder.
        folds: How many parts.
        say: Called with a line before each run.
        device: As for `train`.

    Returns:
        A row for each fold, and the scores over all pixels of all folds together (`pooled`).
    """
    rows = []
    for part in range(1, folds + 1):
        say(f"fold {part} of {folds}")
        data = dataclasses.replace(config.data, fold=f"{part}/{folds}")
        rows.append({"fold": part, **_last(config, f"fold{part}of{folds}", data, device=device)})
    pooled = Confusion(*(sum(int(row[name]) for row in rows) for name in COUNTS))
    f1 = [row["f1"] for row in rows]
    said = {"rows": rows, "pooled": pooled.as_dict(), "f1": statistics.fmean(f1)}
    said["f1_deviation"] = statistics.stdev(f1)
    _write(Path(config.output), said)
    return said


def label_curve(
    config: RunConfig,
    counts: Sequence[int],
    seeds: Sequence[int],
    *,
    say: Say = lambda _: None,
    device: str = "auto",
) -> dict[str, Any]:
    """Train on more and more tiles; a seed draws the tiles, and more of them include the fewer.

    Args:
        config: The runs' settings; `output` is the study's folder.
        counts: Numbers of training tiles.
        seeds: Runs at each number.
        say: Called with a line before each run.
        device: As for `train`.

    Returns:
        A row for each number and seed, and the mean F1 of each number (`curve`).
    """
    if not config.train.validate:
        raise ConfigError("a study scores the validation split; leave train.validate as it is.")
    rows = []
    for count in counts:
        for seed in seeds:
            say(f"{count} tiles, seed {seed}")
            seeded = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
            data = dataclasses.replace(config.data, take=count)
            scores = _last(seeded, f"take{count}-seed{seed}", data, device=device)
            rows.append({"tiles": count, "seed": seed, **scores})
    curve = [
        {"tiles": count, "f1": statistics.fmean(r["f1"] for r in rows if r["tiles"] == count)}
        for count in counts
    ]
    said = {"rows": rows, "curve": curve}
    _write(Path(config.output), said)
    pictures.label_curve(rows, Path(config.output) / "study.png")
    return said


def _last(config: RunConfig, name: str, data: Any, *, device: str) -> dict[str, float]:
    """The scores of a run's last epoch; a finished run is not trained again."""
    output = str(Path(config.output) / name)
    run = dataclasses.replace(config, data=data, output=output)
    return train(run, quiet=True, device=device).history[-1]


def _write(folder: Path, said: dict[str, Any]) -> None:
    rows = said["rows"]
    write_atomic(folder / "study.csv", csv_text(list(rows[0]), rows))
    write_atomic(folder / "study.json", json.dumps(said, indent=2) + "\n")
