"""Numbers for a monitor, in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import get_args

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adadino.web.jobs.manager import Manager
from adadino.web.jobs.records import Job, State

STATES = get_args(State)


class Metrics:
    """Counts requests by kind and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, kind: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[kind, status] += 1
            self._seconds[kind] += seconds

    def text(self, manager: Manager, jobs: Iterable[Job]) -> str:
        """The page a monitor reads."""
        states = Counter(job.state for job in jobs)
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
        lines = ["# TYPE adadino_requests_total counter"]
        lines += [
            f'adadino_requests_total{{kind="{kind}",status="{status}"}} {count}'
            for (kind, status), count in sorted(requests.items())
        ]
        lines.append("# TYPE adadino_request_seconds_total counter")
        lines += [
            f'adadino_request_seconds_total{{kind="{kind}"}} {value:.6f}'
            for kind, value in sorted(seconds.items())
        ]
        lines.append("# TYPE adadino_jobs gauge")
        lines += [f'adadino_jobs{{state="{state}"}} {states.get(state, 0)}' for state in STATES]
        lines += [
            "# TYPE adadino_worker_crashes_total counter",
            f"adadino_worker_crashes_total {manager.crashes}",
            "# TYPE adadino_ready gauge",
            f"adadino_ready {int(manager.ready is not None)}",
            "# TYPE adadino_start_time_seconds gauge",
            f"adadino_start_time_seconds {self._started:.3f}",
        ]
        return "\n".join(lines) + "\n"


class Counting:
    """ASGI middleware that counts."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.count(_kind(scope["path"]), status, time.perf_counter() - begun)


def _kind(path: str) -> str:
    """A few kinds only: a label for each path would grow without end."""
    if not path.startswith("/api/"):
        return "page"
    for kind in ("tiles", "polygons"):
        if f"/{kind}" in path:
            return kind
    return "files" if path.endswith((".tif", ".gpkg", ".geojson", ".png")) else "api"
