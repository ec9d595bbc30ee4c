"""The reviews of jobs: a folder `review` in a job's folder, as `adadino.review` keeps it.

A confined worker makes the review of a finished job (`view.change.write_review`). The server takes
three plain files of it and nothing else, and writes the log itself: no worker can. From then on it
reads JSON alone.
"""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadino.errors import AdaDINOError, InputError
from adadino.web.jobs.store import HIDDEN, JobGoneError, JobStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adadino.review import Review
    from adadino.web.view.display import Display

FOLDER = "review"
PARTS = ("polygons.json", "mask.tif", "review.json")
"""What a worker leaves; the last makes it a review."""
PART_BYTES = {"polygons.json": 2**28, "review.json": 2**20}
"""Larger files are not read: no scene has them."""
LOG_BYTES = 16 * 2**20
"""What a log may grow to: some hundred thousand verdicts, or thousands of drawings."""
OPEN = 8
"""Reviews that stay in memory."""
SCREEN = 5000
"""Polygons that are sent to the screen, in the order in which they are proposed."""


@dataclass
class _Opened:
    review: Review
    lock: threading.Lock = field(default_factory=threading.Lock)


class Reviews:
    """Opens reviews, and keeps those in memory that are worked on; safe for threads."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def exists(self, identity: str) -> bool:
        """Whether a job is being judged."""
        return (self._store.path(identity) / FOLDER / PARTS[-1]).is_file()

    def require(self, identity: str) -> None:
        """Refuse a job that nobody judges.

        Raises:
            JobGoneError: It is one.
        """
        self._store.get(identity)
        if not self.exists(identity):
            raise JobGoneError("nobody has begun to review this job; POST begins it.")

    def adopt(self, identity: str, made: Path) -> None:
        """Take the review that a worker left in a folder; one that is there already stays.

        Raises:
            AdaDINOError: A part is missing, or is no plain file.
        """
        parts = [made / name for name in PARTS]
        if any(part.is_symlink() or not part.is_file() for part in parts):
            raise AdaDINOError("the review cannot be read; begin it again.")
        draft = self._store.path(identity) / f"{HIDDEN}{made.name}"
        draft.mkdir(mode=0o700)
        for part in parts:
            part.replace(draft / part.name)
        with self._lock:
            if self.exists(identity):  # somebody else has begun it in the meantime
                shutil.rmtree(draft)
                return
            draft.rename(self._store.path(identity) / FOLDER)
            self._store.change(identity)  # which counts what it takes on the disk

    @contextmanager
    def opened(self, identity: str) -> Iterator[Review]:
        """The review of a job, for one thread at a time.

        Raises:
            JobGoneError: Nobody judges the job.
            AdaDINOError: It cannot be read.
        """
        self.require(identity)
        with self._lock:
            found = self._opened.get(identity)
            if found is None:
                found = self._opened[identity] = _Opened(self._read(identity))
            self._opened.move_to_end(identity)
            while len(self._opened) > OPEN:
                self._opened.popitem(last=False)
        with found.lock:
            yield found.review

    def _read(self, identity: str) -> Review:
        from adadino.review import Review

        folder = self._store.path(identity) / FOLDER
        for name, most in PART_BYTES.items():
            if (folder / name).lstat().st_size > most:
                raise AdaDINOError("the review is larger than any map's; begin another job.")
        try:
            return Review.open(folder)
        except (InputError, RecursionError) as error:
            # What it says names a folder of the server.
            raise AdaDINOError("the review of this job is damaged; begin another job.") from error


def discard(folder: Path) -> None:
    """Remove what a worker left under the name of a review: a folder, a file or a link."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder)


def is_full(review: Review) -> bool:
    """Whether a review has as many actions as the server keeps."""
    return review.log.path.is_file() and review.log.path.stat().st_size > LOG_BYTES


def told(review: Review, display: Display, by: str, *, whole: bool) -> dict[str, Any]:
    """A review as the page has it, outlines in coordinates of the map.

    Args:
        review: It.
        display: How the scene is shown: where that is in pixels, so are the outlines.
        by: Who asks.
        whole: Whether to tell of the polygons as well, which do not change.
    """
    from shapely.geometry import mapping

    state = review.state()
    place: Callable[[Any], Any] = review.to_map if display.native else lambda shape: shape

    def drawn(drawings: dict[int, Any]) -> dict[str, Any]:
        return {
            str(shape): {"geometry": place(mapping(one.geometry)), "by": one.by, "at": one.at}
            for shape, one in drawings.items()
        }

    said: dict[str, Any] = {
        "you": by,
        "undo": state.undo.get(by, 0),
        "redo": state.redo.get(by, 0),
        "verdicts": {str(shape): asdict(one) for shape, one in state.verdicts.items()},
        "notes": {str(shape): text for shape, text in state.notes.items()},
        **{name: drawn(getattr(state, name)) for name in ("reshaped", "missed", "unchanged")},
        "summary": review.summary(),
    }
    if whole:
        proposals = review.proposals[:SCREEN]
        facts = review.facts
        said |= {
            "threshold": facts.threshold,
            "unit": facts.unit,
            "proposals": [proposal._asdict() for proposal in proposals],
            "polygons": [
                _feature(review.polygons[proposal.id], place, facts.unit) for proposal in proposals
            ],
        }
    return said


def _feature(polygon: Any, place: Callable[[Any], Any], unit: str) -> dict[str, Any]:
    from shapely.geometry import mapping

    known = {"prob_mean": polygon.prob_mean, "prob_max": polygon.prob_max}
    return {
        "type": "Feature", "id": polygon.id, "geometry": place(mapping(polygon.outline)),
        "properties": {f"area_{unit}": polygon.area, **known},
    }  # fmt: skip
