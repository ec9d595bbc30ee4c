"""Requests that take seconds: a queue of their own, beside which everything else goes on.

- Each runs in a worker process (`jobs.process`), so few threads wait and nothing else does.
- The queue is short. Who finds it full is told when to come back, and does not wait in vain.
- When the client has gone, its worker is killed: nobody would read the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request

from adadino.web.http.problems import RefusedError
from adadino.web.jobs.worker import Worker

Answer = TypeVar("Answer")

RETRY_S = 2
"""When to ask again."""
EACH = 0.5
"""The share of the queue that one client may take."""


class HeavyQueue:
    """Runs workers for requests, a few at a time."""

    def __init__(self, *, at_once: int, waiting: int, name: str) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._each = max(1, int(EACH * self._most))
        self._inside: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)

    async def run(
        self,
        request: Request,
        start: Callable[[], Worker],
        finish: Callable[[Worker], Answer],
        *,
        watch: bool = True,
    ) -> Answer:
        """Wait for a turn, start a worker and return what came of it.

        Args:
            request: Who asks; when it is gone, so is the work.
            start: Starts the worker.
            finish: Waits for it and reads its answer.
            watch: Whether to look out for the client's end. Not while its body is still coming:
                looking would take a piece of it.

        Raises:
            RefusedError: The queue is full, or the client has gone.
        """
        payer = request.state.identity.payer
        if self._inside.total() >= self._most or self._inside[payer] >= self._each:
            raise RefusedError(
                503, "the server is busy with other requests; try again in a moment.",
                retry_s=RETRY_S,
            )  # fmt: skip
        self._inside[payer] += 1
        gone = asyncio.ensure_future(_gone(request) if watch else asyncio.Event().wait())
        try:
            await _first(self._slots.acquire(), gone)
            try:
                return await self._work(start, finish, gone)
            finally:
                self._slots.release()
        finally:
            gone.cancel()
            self._inside[payer] -= 1
            self._inside += Counter()  # forgets who has none left

    async def _work(
        self,
        start: Callable[[], Worker],
        finish: Callable[[Worker], Answer],
        gone: asyncio.Future[Any],
    ) -> Answer:
        loop = asyncio.get_running_loop()
        worker = await loop.run_in_executor(self._threads, start)
        answer = loop.run_in_executor(self._threads, finish, worker)
        try:
            return await _first(answer, gone)
        finally:
            if not answer.done():
                worker.kill()
                with suppress(Exception):  # it says that it was killed
                    await answer

    def close(self) -> None:
        """Take no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _gone(request: Request) -> None:
    """Wait until the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _first(wanted: asyncio.Future[Answer] | object, gone: asyncio.Future[Any]) -> Answer:
    """What is awaited, unless the client goes first."""
    task: asyncio.Future[Answer] = asyncio.ensure_future(wanted)  # type: ignore[arg-type]
    await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task.result()
    if not isinstance(wanted, asyncio.Future):
        task.cancel()
    raise RefusedError(499, "the client has gone.")
