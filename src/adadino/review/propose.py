"""What to judge next, and what verdicts say so far.

- The random list comes first: the polygons in an order that depends on the seed and their ids
  alone, as far as the sample goes. Then the uncertain list: the rest, the least certain first.
- The precision is that of the random list alone. Even there it counts only up to the first polygon
  that nobody has judged: whoever leaves difficult ones out would otherwise choose his own sample.
- The interval is Wilson's, 95 %, which also holds for few verdicts and for shares near 0 and 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from adadino.review.state import Judged, State

SAMPLE = 60
"""Polygons of the random list: about 12 points of precision either way where half are right, and
fewer where most are."""
Z95 = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Proposal(NamedTuple):
    """A polygon to judge, and the list it comes from."""

    id: int
    list: Literal["random", "uncertain"]


class Precision(NamedTuple):
    """The share of polygons that are right, of those that were judged right or wrong."""

    value: float
    low: float
    high: float
    judged: int
    """Verdicts that it comes from."""


def order(uncertainty: Mapping[int, float | None], *, seed: int, sample: int) -> list[Proposal]:
    """All polygons in the order in which they are proposed.

    Args:
        uncertainty: For every polygon how far its probability is from the threshold; None if the
            probability is not known. All of them are then proposed at random.
        seed: What the random order depends on.
        sample: How many polygons the random list has.
    """
    shuffled = sorted(uncertainty, key=lambda shape: _digest(seed, shape))
    if None in uncertainty.values():
        sample = len(shuffled)
    rest = sorted(shuffled[sample:], key=lambda shape: (uncertainty[shape] or 0.0, shape))
    chosen = [Proposal(shape, "random") for shape in shuffled[:sample]]
    return chosen + [Proposal(shape, "uncertain") for shape in rest]


def waiting(proposals: Sequence[Proposal], state: State) -> Iterator[Proposal]:
    """The proposals that nobody has judged yet; first of all those that are disputed."""
    yield from (p for p in proposals if p.id in state.verdicts and state.verdicts[p.id].disputed)
    yield from (p for p in proposals if p.id not in state.verdicts)


def summarise(proposals: Sequence[Proposal], state: State) -> dict[str, Any]:
    """Counts, and the precision so far, as JSON has them."""
    judged = [state.verdicts[p.id] for p in proposals if p.id in state.verdicts]
    sample = [p.id for p in proposals if p.list == "random"]
    front = _front(sample, state.verdicts)
    found = _precision(front)
    return {
        "polygons": len(proposals),
        "judged": len(judged),
        **{
            verdict: sum(one.verdict == verdict and not one.disputed for one in judged)
            for verdict in ("right", "wrong", "unsure")
        },
        "disputed": sum(one.disputed for one in judged),
        "missed": len(state.missed),
        "unchanged": len(state.unchanged),
        "reshaped": len(state.reshaped),
        "sample": {
            "size": len(sample),
            "in_order": len(front),
            "skipped": sum(shape in state.verdicts for shape in sample) - len(front),
            "unsure": sum(one.verdict == "unsure" for one in front),
        },
        "precision": None if found is None else found._asdict(),
    }


def _front(sample: Sequence[int], verdicts: Mapping[int, Judged]) -> list[Judged]:
    """The verdicts of the random list up to its first polygon without one."""
    front: list[Judged] = []
    for shape in sample:
        if shape not in verdicts:
            break
        front.append(verdicts[shape])
    return front


def _precision(judged: Sequence[Judged]) -> Precision | None:
    right = sum(one.verdict == "right" for one in judged)
    total = right + sum(one.verdict == "wrong" for one in judged)
    return Precision(right / total, *wilson(right, total), total) if total else None


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score."""
    share, z2 = hits / total, Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def _digest(seed: int, shape: int) -> bytes:
    """A number for a polygon that looks random, the same in every version of Python and numpy."""
    return hashlib.sha256(f"{seed}:{shape}".encode()).digest()
