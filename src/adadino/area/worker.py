"""One worker: loads the model once, then predicts unit after unit.

A unit's pixels are the scene's, bit for bit, because everything they depend on is: the plan of
tiles, the chunks, the stretch and the shift are settled once for a pair (its survey), and sums are
added in the scene's order. On the CPU that takes one more thing: every worker runs as many threads
as the others, because a product that is split another way rounds another way.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adadino
from adadino.area.ledger import Ledger, Record, dates_facts
from adadino.area.units import Dates, Unit
from adadino.errors import AdaDINOError, AdaDINOWarning, ConfigError, InputError, WeightsError
from adadino.files import write_atomic
from adadino.geo.polygons.seams import save_part, trace_part
from adadino.geo.read.register import Shift
from adadino.geo.read.stretch import BYTES, Stretch
from adadino.geo.write.cog import BLOCK
from adadino.runtime.exported import is_exported
from adadino.runtime.runner import Runner, open_runner
from adadino.scene import SceneOptions
from adadino.scene.facts import scene_tags
from adadino.scene.outputs import Targets, change_flags, write_rasters
from adadino.scene.pair import Pair, check_different, check_size, open_dates, reopen_dates
from adadino.scene.stream import choose, plan_tiles, predict_rows

ATTEMPTS = 5
"""How many workers may die of one unit before it is given up."""


@dataclass(frozen=True)
class Job:
    """What every worker is told."""

    out: str
    model: str
    backbone: str | None
    digest: str
    """The model's, so that no machine predicts with another one of the same name."""
    options: SceneOptions
    probability: bool
    device: str
    threads: int
    version: str = adadino.__version__


def model_facts(model: str, backbone: str | None, options: SceneOptions) -> str:
    """Load a model on the CPU, once, and return its digest.

    Raises:
        ConfigError: It does not take tiles of the size asked for.
    """
    with open_runner(model, "cpu", options, backbone=backbone) as forward:
        if options.tile % forward.stride:
            raise ConfigError(
                f"tile is {options.tile}, must be a multiple of {forward.stride} pixels."
            )
        return forward.digest()


class Worker:
    """Predicts units; call it with one."""

    def __init__(self, job: Job) -> None:
        """Load the model.

        Raises:
            WeightsError: It is not the model the job was begun with.
            ConfigError: Another version of adadino is installed here.
        """
        if job.version != adadino.__version__:
            raise ConfigError(
                f"adadino is {adadino.__version__} here and {job.version} where the job was "
                "started; install one version on all machines."
            )
        self.job, self.ledger = job, Ledger(Path(job.out))
        self._stack, self._pair = ExitStack(), ExitStack()
        self._opened: tuple[Dates, Pair, Record] | None = None
        self._refused: dict[str, AdaDINOError] = {}
        if not is_exported(job.model):
            import torch

            torch.set_num_threads(job.threads)
        self.forward: Runner = self._stack.enter_context(
            open_runner(job.model, job.device, job.options, backbone=job.backbone)
        )
        if self.forward.digest() != job.digest:
            raise WeightsError(
                f"{job.model} is another model here than where the job was started; give a path "
                "that all machines share."
            )

    def __call__(self, unit: Unit) -> Record:
        """Predict a unit; returns its record, or one with a `problem` that says why not."""
        finished = self.ledger.record(unit)  # by a worker that died before it could say so
        if finished is not None:
            return finished
        if self.ledger.attempt(unit) > ATTEMPTS:
            return {"problem": f"{ATTEMPTS} workers have died of it; out of memory?"}
        try:
            with _inference(self.job):
                return self._predict(unit)
        except Exception as error:  # whatever is wrong with one unit, the others go on
            self._close_pair()
            known = isinstance(error, AdaDINOError)
            return {"problem": str(error) if known else f"{type(error).__name__}: {error}"}
        finally:
            self.ledger.end_attempts(unit)

    def close(self) -> None:
        """Close files and give the model back."""
        self._close_pair()
        self._stack.close()

    def _predict(self, unit: Unit) -> Record:
        pair, survey = self._open(unit.dates)
        forward, options = self.forward, self.job.options
        forward.resume(**survey["chosen"])
        grid = pair.reader.grid
        tiles = plan_tiles((grid.height, grid.width), forward)
        probability = np.empty((unit.height, unit.width), np.float32)
        for row, block in predict_rows(pair.reader, forward, tiles, unit.part):
            probability[row : row + len(block)] = block

        part_grid = grid.part(_window(unit))
        kinds = ["mask", *(["probability"] if self.job.probability else []), "polygons"]
        chance = self.ledger.file(unit, "probability") if self.job.probability else None
        changed, valid = write_rasters(
            ((row, probability[row : row + BLOCK]) for row in range(0, unit.height, BLOCK)),
            Targets(mask=self.ledger.file(unit, "mask"), probability=chance),
            part_grid,
            threshold=options.threshold,
            tags=scene_tags(forward, pair, self.job.digest),
        )
        flags = change_flags(probability, options.threshold)
        traced = save_part(trace_part(flags, probability, unit.row, unit.col))
        write_atomic(self.ledger.file(unit, "polygons"), traced)
        return self.ledger.finish(unit, kinds, changed=changed, valid=valid)

    def _open(self, dates: Dates) -> tuple[Pair, Record]:
        """The pair, which stays open because its units come in a row, and its survey."""
        if self._opened is None or self._opened[0] != dates:
            self._close_pair()
            survey = self._survey(dates)
            low_high = survey["stretch"]
            pair = self._pair.enter_context(
                reopen_dates(
                    dates.before,
                    dates.after,
                    self.job.options,
                    stretch=BYTES if low_high is None else Stretch(*map(_three, low_high)),
                    shift=Shift(**survey["shift"]),
                    registered=survey["registered"],
                )
            )
            self._opened = dates, pair, survey
        return self._opened[1], self._opened[2]

    def _close_pair(self) -> None:
        self._opened = None
        self._pair.close()

    def _survey(self, dates: Dates) -> Record:
        """What is settled once for a pair: by another worker, or here and for all."""
        if dates.name in self._refused:
            raise self._refused[dates.name]
        settled = self.ledger.survey(dates)
        if settled is not None:
            return settled
        try:
            return self.ledger.publish_survey(dates, self._settle(dates))
        except InputError as error:
            self._refused[dates.name] = error
            raise

    def _settle(self, dates: Dates) -> Record:
        forward = self.forward
        files = dates_facts(dates)
        check_different(dates.before, dates.after)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaDINOWarning)  # the survey holds them, said once
            with open_dates(dates.before, dates.after, self.job.options) as pair:
                check_size(pair.reader, forward.stride)
                forward.resume(chunks=None, batch=1)  # nothing of the pair before
                grid, stretch = pair.reader.grid, pair.reader.stretch
                tiles = plan_tiles((grid.height, grid.width), forward)
                return {
                    "files": files,
                    "size": [grid.height, grid.width],
                    "shift": dataclasses.asdict(pair.shift),
                    "registered": pair.registered,
                    "stretch": None if stretch is BYTES else [stretch.low, stretch.high],
                    "warnings": pair.warnings,
                    "chosen": choose(pair.reader, forward, tiles),
                }


@contextmanager
def _inference(job: Job) -> Iterator[None]:
    """No gradients in this thread, which need not be the one that loaded the model."""
    if is_exported(job.model):
        yield
        return
    import torch

    with torch.inference_mode():
        yield


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue


def _window(unit: Unit) -> Any:
    from rasterio.windows import Window

    return Window(unit.col, unit.row, unit.width, unit.height)
