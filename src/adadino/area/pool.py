"""Workers: one in this process, or many on Ray.

Ray Data keeps the pool: it starts a worker for each GPU (or share of the processors), sends each
the next unit when it is free, starts another one where one dies, and gives that one the unit again.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from typing import Any

from adadino.area.ledger import Record
from adadino.area.units import Dates, Unit
from adadino.area.worker import Job, Worker
from adadino.errors import AdaDINOError, ConfigError
from adadino.runtime.protocol import Runner

MOST_BLOCKS = 20_000
"""Tasks that Ray's scheduler keeps track of. With more units a task holds several, and does not
repeat those that are finished."""

RETRIES = 20
"""How often Ray repeats a piece of joining whose worker died."""

Outcomes = Generator[tuple[Unit, Record], None, None]


def run_here(job: Job, units: Sequence[Unit], forward: Runner) -> Outcomes:
    """Predict units one after the other in this process, with a model that is open."""
    worker = Worker(job, forward)
    try:
        for unit in units:
            yield unit, worker(unit)
    finally:
        worker.close()


class RayPool:
    """A Ray cluster, joined or started, and what it has."""

    def __init__(self, address: str | None) -> None:
        """Join the cluster at an address; without one, that of the environment or a local one.

        Raises:
            ConfigError: Ray is not installed, or there is no cluster at the address.
        """
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise ConfigError(
                "several workers need Ray: pip install 'adadino[ray]', or give --workers 0 to "
                "predict the same units in this process."
            ) from error
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            # Ray remarks on every worker that dies; it is here because workers die.
            os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise ConfigError(
                    f"cannot join a Ray cluster at {address or 'this machine'}: {error}; start one "
                    "with `ray start --head`, or leave --ray-address out."
                ) from error
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self.cpus, self.gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))

    def run(self, job: Job, units: Sequence[Unit], *, workers: int | None) -> Outcomes:
        """Predict units on a number of workers, in whatever order they get finished.

        Args:
            job: What every worker is told.
            units: What to predict.
            workers: How many; None takes one for each GPU, or for so many processors as it has
                threads. No more than there are units.
        """
        gpu = job.device == "cuda"
        if workers is None:
            workers = self.gpus if gpu else max(1, self.cpus // job.threads)
        workers = min(workers, len(units))
        data = self._ray.data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.enable_operator_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        asked = {_key(unit): unit for unit in units}
        items = [{"unit": json.dumps(asdict(unit))} for unit in units]
        results = data.from_items(
            items, override_num_blocks=min(len(items), MOST_BLOCKS)
        ).map_batches(
            RayWorker,
            batch_size=1,
            fn_constructor_kwargs={"job": job},
            # No unit waits at a busy worker: if that died, the unit would be blamed, too.
            compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            num_gpus=1 if gpu else None,
            # What is reserved, not what is used: more workers than processors must start, too.
            num_cpus=None if gpu else min(job.threads, self.cpus / workers),
        )
        try:
            for row in results.iter_rows():
                record = json.loads(row["outcome"])
                yield asked.pop(record.pop("unit")), record
        except self._ray.exceptions.RayError as error:
            raise AdaDINOError(
                f"the workers cannot start or go on: {_last_line(error)}. Finished units are "
                "kept: the same command goes on."
            ) from error

    def spread(
        self, function: Callable[[Any], Any], items: Sequence[Any]
    ) -> Generator[Any, None, None]:
        """Call a function for each item on the cluster's processors; answers in their order."""
        call = self._ray.remote(max_retries=RETRIES)(_call)
        ahead, waiting = 4 * max(self.cpus, 1), deque[Any]()
        shared = self._ray.put(function)
        try:
            for item in items:
                if len(waiting) >= ahead:
                    yield self._ray.get(waiting.popleft())
                waiting.append(call.remote(shared, item))
            while waiting:
                yield self._ray.get(waiting.popleft())
        except self._ray.exceptions.RayError as error:
            raise AdaDINOError(
                f"polygons cannot be joined: {_last_line(error)}. Finished units are kept: the "
                "same command goes on."
            ) from error

    def close(self) -> None:
        """Leave the cluster if it was joined here; one that was started here ends."""
        if self._started:
            self._ray.shutdown()


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


class RayWorker:
    """A worker as Ray Data calls it: with a batch of rows, of which each is a unit."""

    def __init__(self, job: Job) -> None:
        self.worker = Worker(job)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Predict the units of a batch."""
        outcomes = []
        for text in batch["unit"]:
            fields = json.loads(text)
            unit = Unit(**{**fields, "dates": Dates(**fields["dates"])})
            outcomes.append(json.dumps({**self.worker(unit), "unit": _key(unit)}))
        return {"outcome": outcomes}


def _key(unit: Unit) -> str:
    return f"{unit.dates.name}/{unit.name}"


def _last_line(error: Exception) -> str:
    """What went wrong, without the stack of the machine where it did."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else type(error).__name__
    return said.removeprefix("adadino.errors.").rstrip(".")
