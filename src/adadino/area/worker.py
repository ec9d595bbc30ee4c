"""One worker: loads the model once, then predicts unit after unit.

A unit's pixels are the scene's, bit for bit, because everything they depend on is: the plan of
tiles, the chunks, the stretch and the shift are settled once for a pair (its survey) or for each of
its blocks, and sums are added in the scene's order. On the CPU all workers must also run the same
number of threads, because a product that is split differently rounds differently.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rasterio.windows import Window

import adadino
from adadino.area.blocks import Blend, Block, parts_of
from adadino.area.gdal import teach_gdal
from adadino.area.ledger import Ledger, Record, dates_facts
from adadino.area.sieve import save_kept
from adadino.area.store import open_store, without_secrets
from adadino.area.units import Dates, Unit
from adadino.errors import (
    AdaDINOError,
    AdaDINOWarning,
    ConfigError,
    InputError,
    RegistrationWarning,
    WeightsError,
)
from adadino.files import write_atomic
from adadino.geo.polygons.seams import save_part, trace_part
from adadino.geo.read.register import Shift
from adadino.geo.read.stretch import BYTES, Stretch
from adadino.geo.write.cog import BLOCK
from adadino.runtime.protocol import Runner
from adadino.scene.facts import scene_tags
from adadino.scene.fit import check_scene
from adadino.scene.options import SceneOptions
from adadino.scene.outputs import Targets, change_flags, write_rasters
from adadino.scene.pair import OpenDates, check_different, open_dates, reopen_dates
from adadino.scene.predict import open_model
from adadino.scene.stream import Rows, SceneStream, Span

ATTEMPTS = 5
"""How many workers may die while they predict a unit before it is given up."""


@dataclass(frozen=True)
class Job:
    """What every worker is told."""

    out: str
    """A folder, or the URL of one in an object store."""
    model: str
    backbone: str | None
    digest: str
    """The model's digest, so that no machine predicts with another model of the same name."""
    options: SceneOptions
    probability: bool
    device: str
    threads: int
    survey_block: int = 0
    """Side of the blocks that have a survey of their own; 0 for one of the whole pair."""
    version: str = adadino.__version__


class Worker:
    """Predicts one unit at each call."""

    def __init__(self, job: Job, forward: Runner | None = None) -> None:
        """Load the model, and see that it is the job's.

        Args:
            job: What to do.
            forward: The job's model, where this process has it open.

        Raises:
            WeightsError: It is not the model the job was begun with.
            ConfigError: Another version of adadino is installed here.
        """
        if job.version != adadino.__version__:
            raise ConfigError(
                f"adadino is {adadino.__version__} here and {job.version} where the job was "
                "started; install one version on all machines."
            )
        teach_gdal(job.out)
        self.job, self.ledger = job, Ledger(open_store(job.out))
        self._stack, self._pair = ExitStack(), ExitStack()
        self._opened: tuple[Dates, Block | None, SceneStream, OpenDates, Record] | None = None
        self._refused: dict[str, AdaDINOError] = {}
        self.forward = forward or self._load()

    def _load(self) -> Runner:
        job = self.job
        opened = open_model(
            job.model, job.device, job.options, backbone=job.backbone, threads=job.threads
        )
        forward = self._stack.enter_context(opened)
        if forward.digest() != job.digest:
            raise WeightsError(
                f"{job.model} is another model here than where the job was started; give a path "
                "that all machines share."
            )
        return forward

    def __call__(self, unit: Unit) -> Record:
        """Predict a unit; returns its record, or one with a `problem` that says why not."""
        finished = self.ledger.record(unit)  # by a worker that died before it could say so
        if finished is not None:
            return finished
        if self.ledger.attempt(unit) > ATTEMPTS:
            return {"problem": f"{ATTEMPTS} workers died while they predicted it; out of memory?"}
        try:
            with self.forward.inference():
                return self._predict(unit)
        except Exception as error:  # whatever is wrong with one unit, the others go on
            self._close_pair()
            known = isinstance(error, AdaDINOError)
            said = str(error) if known else f"{type(error).__name__}: {error}"
            return {"problem": without_secrets(said)}
        finally:
            self.ledger.end_attempts(unit)

    def close(self) -> None:
        """Close files and give the model back."""
        self._close_pair()
        self._stack.close()

    def _predict(self, unit: Unit) -> Record:
        options = self.job.options
        probability, pair, survey = self._probability(unit)
        sieved = options.min_area > 0
        kinds = ["raw" if sieved else "mask", *(["probability"] if self.job.probability else [])]
        paths = {kind: self.ledger.store.path(self.ledger.file(unit, kind)) for kind in kinds}
        changed, valid = write_rasters(
            ((row, probability[row : row + BLOCK]) for row in range(0, unit.height, BLOCK)),
            Targets(mask=paths[kinds[0]], probability=paths.get("probability")),
            pair.reader.grid.part(Window(unit.col, unit.row, unit.width, unit.height)),
            threshold=options.threshold,
            tags=self._tags(pair),
        )
        flags = change_flags(probability, options.threshold)
        if sieved:
            content = save_kept(flags, probability, pair.reader.grid, options.min_area)
        else:
            content = save_part(trace_part(flags, probability, unit.row, unit.col))
        kinds.append("kept" if sieved else "polygons")
        write_atomic(self.ledger.store.path(self.ledger.file(unit, kinds[-1])), content)
        for now, then in zip(dates_facts(unit.dates), survey["files"], strict=True):
            if now != then:
                raise InputError(
                    f"{now[0]} was replaced while it was read; run the same command again."
                )
        least = {"min_area": options.min_area} if sieved else {}
        return self.ledger.finish(unit, kinds, changed=changed, valid=valid, **least)

    def _probability(self, unit: Unit) -> tuple[NDArray[np.float32], OpenDates, Record]:
        """The probabilities of a unit; also the pair that was open last, and its survey."""
        dates, side = unit.dates, self.job.survey_block
        if not side:
            stream, pair, survey = self._open(dates)
            probability = np.empty((unit.height, unit.width), np.float32)
            for row, answer in self._rows(stream, survey, unit.part):
                probability[row : row + len(answer)] = answer
            return probability, pair, survey
        blend = Blend(unit)
        height, width = self._survey(dates)["size"]
        for block, part in parts_of(unit, (height, width), side):
            stream, pair, survey = self._open(dates, block)
            for row, answer in self._rows(stream, survey, part):
                blend.add(block, part, row, answer)
        return blend.probability(), pair, survey

    def _rows(self, stream: SceneStream, survey: Record, part: Span) -> Iterator[Rows]:
        self.forward.resume(**survey["chosen"])
        return stream.rows(part)

    def _tags(self, pair: OpenDates) -> dict[str, object]:
        tags = scene_tags(pair, self.forward, self.job.options, self.job.digest)
        if self.job.survey_block:
            # Shift and stretch are each block's own; the manifest has them.
            tags = {n: v for n, v in tags.items() if n not in ("ADADINO_SHIFT", "ADADINO_STRETCH")}
            tags["ADADINO_SURVEY_BLOCK"] = self.job.survey_block
        return tags

    def _open(
        self, dates: Dates, block: Block | None = None
    ) -> tuple[SceneStream, OpenDates, Record]:
        """The pair, which stays open because its units come in a row, and its survey."""
        if self._opened is None or self._opened[:2] != (dates, block):
            self._close_pair()
            teach_gdal(dates.before, dates.after)
            survey = self._survey(dates) if block is None else self._block_survey(dates, block)
            low_high = survey["stretch"]
            pair = self._pair.enter_context(
                reopen_dates(
                    dates.before,
                    dates.after,
                    self.job.options,
                    stretch=BYTES if low_high is None else Stretch(*map(tuple, low_high)),
                    shift=Shift(**survey["shift"]),
                    registered=survey["registered"],
                    wanted=self.forward.wanted,
                )
            )
            stream = SceneStream(pair.reader, self.forward, self.job.options)
            self._opened = dates, block, stream, pair, survey
        return self._opened[2:]

    def _close_pair(self) -> None:
        self._opened = None
        self._pair.close()

    def _survey(self, dates: Dates) -> Record:
        """The survey of a pair: that of another worker, or one made here for all workers."""
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

    def _block_survey(self, dates: Dates, block: Block) -> Record:
        """The survey of a block; where it has nothing to go on, that of the pair."""
        settled = self.ledger.survey(dates, block.name)
        if settled is not None:
            return settled
        whole = self._survey(dates)
        try:
            found = self._settle_block(dates, block, whole)
        except InputError:  # nothing valid; what is damaged is reported when it is predicted
            found = whole | {"own": False}
        return self.ledger.publish_survey(dates, found, block.name)

    def _settle_block(self, dates: Dates, block: Block, whole: Record) -> Record:
        options, wanted = self.job.options, self.forward.wanted
        files = dates.before, dates.after
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AdaDINOWarning)
            with open_dates(*files, options, extent=block.extent, wanted=wanted) as pair:
                found = whole | self._found(pair) | {"own": True}
        if options.register and not found["registered"]:
            found |= {name: whole[name] for name in ("shift", "registered")}
        return found

    def _settle(self, dates: Dates) -> Record:
        forward = self.forward
        files = dates_facts(dates)
        check_different(dates.before, dates.after)
        with warnings.catch_warnings(record=True) as caught:  # the survey holds them, said once
            warnings.simplefilter("always", AdaDINOWarning)
            opened = open_dates(dates.before, dates.after, self.job.options, wanted=forward.wanted)
            with opened as pair:
                fit = check_scene(pair, forward, self.job.options)
                found = self._found(pair)
                chosen = found.pop("chosen")
                # What is said of the shift holds for no block.
                about_shift = {
                    str(warning.message)
                    for warning in caught
                    if self.job.survey_block and warning.category is RegistrationWarning
                }
                said = [text for text in pair.warnings if text not in about_shift]
                said = [without_secrets(text) for text in (*said, *fit.sentences)]
                notes = {"warnings": said, "domain": fit.remark}
                size = list(pair.reader.grid.shape)
                return {"files": files, "size": size, **found, **notes, "chosen": chosen}

    def _found(self, pair: OpenDates) -> Record:
        """What an open pair, or a block of one, is predicted with."""
        self.forward.resume(chunks=None, batch=1)  # nothing of the pair before
        stretch = pair.reader.stretch
        stream = SceneStream(pair.reader, self.forward, self.job.options)
        return {
            "shift": dataclasses.asdict(pair.shift),
            "registered": pair.registered,
            "stretch": None if stretch is BYTES else [stretch.low, stretch.high],
            "chosen": stream.choose(),
        }
