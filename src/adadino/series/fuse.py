"""The rule of a series: from the probabilities of its pairs to dates of change, pixel by pixel.

Each date after the first gets a state: the place differs from the first date, or not, or nobody
knows (clouds, gaps). Where the first date was compared with it, that comparison says so. Elsewhere
each change between neighbouring dates turns the state around: what changes twice is back.

A state counts once as many known dates in a row as `stays` show it. One that ends sooner is noise
or season and is passed over. At the end of the series fewer dates must do: what they show is a
change, but not yet a lasting one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Pair = tuple[int, int]
"""The numbers of two dates, from 0."""

NODATA = 255
NONE, LASTING, REVERTED, FLICKER, LATE = range(5)
"""Persistence: no change; a change that stays to the end; one that stayed and went back; one that
was too short to count; one that only the end of the series shows."""
CHANGED = (LASTING, REVERTED, LATE)
"""What becomes a polygon."""


class Fused(NamedTuple):
    """What a series says of each pixel: (H, W), 255 (NaN) where no date could be compared."""

    first_change: Bytes
    """The number of the date that shows the first change, from 1; 0 for none."""
    last_change: Bytes
    """The same of the last change: another one, or the way back."""
    last_seen: Bytes
    """The last date that still differs from the first date; 0 without a change."""
    changes: Bytes
    """How many changes."""
    persistence: Bytes
    """`NONE` to `LATE`."""
    confidence: Float
    """How well the comparisons agree with this, 0 to 1."""


def fuse(pairs: Mapping[Pair, Float], dates: int, *, threshold: float, stays: int) -> Fused:
    """Apply the rule to windows of all pairs.

    Args:
        pairs: The probability of change (H, W) between two dates, NaN where it is not known: of
            neighbours, of the first date and another, or of both kinds.
        dates: The number of dates.
        threshold: The probability from which a pair changed.
        stays: The known dates in a row that a state must last.
    """
    states, chances = _states(pairs, dates, threshold)
    shape = states.shape[1:]
    first, last, seen, changes = (np.zeros(shape, np.uint8) for _ in range(4))
    state, short = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    start, length = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    for number in range(1, dates):
        known = states[number] >= 0
        differs = known & (states[number] != state)
        short |= known & ~differs & (length > 0)
        start[differs & (length == 0)] = number
        length[differs] += 1
        length[known & ~differs] = 0
        settled = length >= stays
        first[settled & (first == 0)] = start[settled & (first == 0)]
        last[settled] = start[settled]
        changes += settled
        state ^= settled
        length[settled] = 0
        seen[known & state & (states[number] == 1)] = number
    late = (length > 0) & ~state
    first[late & (first == 0)] = start[late & (first == 0)]
    last[late] = start[late]
    changes += late
    for number in range(1, dates):
        seen[late & (states[number] == 1)] = number

    persistence = np.full(shape, NONE, np.uint8)
    persistence[short & (changes == 0)] = FLICKER
    persistence[(changes > 0) & ~state] = REVERTED
    persistence[state] = LASTING
    persistence[late] = LATE
    seen[changes == 0] = 0
    confidence = _agreement(chances, first, seen)
    unknown = ~(states[1:] >= 0).any(axis=0)
    for layer in (first, last, seen, changes, persistence):
        layer[unknown] = NODATA
    return Fused(first, last, seen, changes, persistence, confidence)


def _states(
    pairs: Mapping[Pair, Float], dates: int, threshold: float
) -> tuple[NDArray[np.int8], Float]:
    """Each date's state (-1 unknown) and its probability of differing from the first date."""
    shape = next(iter(pairs.values())).shape
    states = np.full((dates, *shape), -1, np.int8)
    chances = np.full((dates, *shape), np.nan, np.float32)
    state, chance = np.zeros(shape, np.int8), np.zeros(shape, np.float32)
    nothing = np.full(shape, np.nan, np.float32)
    for number in range(1, dates):
        step, direct = pairs.get((number - 1, number), nothing), pairs.get((0, number), nothing)
        by_step = state ^ (step >= threshold)
        now = np.where(np.isnan(direct), by_step, direct >= threshold).astype(np.int8)
        # Two independent steps: it differs if exactly one of them is a change.
        through = chance * (1 - step) + (1 - chance) * step
        likely = np.where(np.isnan(direct), through, direct)
        known = ~np.isnan(likely)
        states[number][known], chances[number][known] = now[known], likely[known]
        state, chance = np.where(known, now, state), np.where(known, likely, chance)
    return states, chances


def _agreement(chances: Float, first: Bytes, seen: Bytes) -> Float:
    """The mean probability of what the rule says: changed from `first` to `seen`, else not."""
    total, count = np.zeros(first.shape, np.float32), np.zeros(first.shape, np.float32)
    for number in range(1, len(chances)):
        chance = chances[number]
        inside = (first > 0) & (first <= number) & (number <= seen)
        known = ~np.isnan(chance)
        total[known] += np.where(inside, chance, 1 - chance)[known]
        count += known
    nan = np.float32(np.nan)
    mean: Float = np.where(count > 0, total / np.maximum(count, 1), nan)
    return mean
