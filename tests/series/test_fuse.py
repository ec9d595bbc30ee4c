"""The rule of a series: against a plain restatement, and against a world whose dates are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adadino.data.synthetic import make_series
from adadino.series.fuse import CHANGED, FLICKER, LASTING, LATE, NODATA, NONE, REVERTED, fuse
from adadino.series.options import SeriesOptions


def restated(pairs, dates, threshold, stays):
    """One pixel, as the first lines of `fuse` say it, with lists and Python's own floats."""
    states, chances, state, chance = {}, {}, 0, 0.0
    for k in range(1, dates):
        direct, step = pairs.get((0, k), math.nan), pairs.get((k - 1, k), math.nan)
        if not math.isnan(direct):
            states[k], chances[k] = int(direct >= threshold), direct
        elif not math.isnan(step):
            states[k] = 1 - state if step >= threshold else state
            chances[k] = chance * (1 - step) + (1 - chance) * step
        state, chance = states.get(k, state), chances.get(k, chance)
    if not states:
        return (NODATA,) * 5 + (math.nan,)
    runs = []  # [state, the known dates that show it]
    for k, value in states.items():
        if runs and runs[-1][0] == value:
            runs[-1][1].append(k)
        else:
            runs.append([value, [k]])
    now, events, seen, short = 0, [], 0, False
    waiting = None  # what differs from `now` and has not lasted yet
    for value, numbers in runs:
        if value == now:
            short |= waiting is not None
            waiting = None
            seen = numbers[-1] if now else seen
        elif len(numbers) >= stays:
            now = value
            events.append(numbers[0])
            seen = numbers[-1] if now else seen
        else:
            waiting = numbers
    late = waiting is not None and now == 0
    if late:
        events.append(waiting[0])
        seen = waiting[-1]
    kind = LATE if late else LASTING if now else REVERTED if events else FLICKER if short else NONE
    first, last = (events[0], events[-1]) if events else (0, 0)
    seen = seen if events else 0
    said = [p if first and first <= k <= seen else 1 - p for k, p in chances.items()]
    return first, last, seen, len(events), kind, sum(said) / len(said)


@pytest.mark.parametrize("which", ["consecutive", "first", "both"])
@pytest.mark.parametrize("stays", [1, 2, 3])
def test_the_rule_is_what_its_words_say(which, stays):
    draw, dates = np.random.default_rng(stays), 7
    wanted = SeriesOptions(pairs=which).compared(dates)
    pairs = {pair: draw.random((30, 40)).astype(np.float32) for pair in wanted}
    for chance in pairs.values():
        chance[draw.random(chance.shape) < 0.25] = np.nan
        chance[:2] = np.nan
    found = fuse(pairs, dates, threshold=0.4, stays=stays)
    for row, col in np.ndindex(30, 40):
        pixel = {pair: float(chance[row, col]) for pair, chance in pairs.items()}
        expected = restated(pixel, dates, float(np.float32(0.4)), stays)
        assert tuple(layer[row, col] for layer in found[:5]) == expected[:5], (row, col)
        np.testing.assert_allclose(found.confidence[row, col], expected[5], atol=1e-5)
    kinds = {LASTING, REVERTED, NODATA} | ({LATE, FLICKER} if stays > 1 else set())
    assert set(np.unique(found.persistence)) >= kinds


def of_states(*states):
    """The rule's answer for one pixel that was compared with the first date; None is a cloud."""
    chances = [np.nan if s is None else 0.9 if s else 0.1 for s in states]
    pairs = {(0, k): np.full((1, 1), p, np.float32) for k, p in enumerate(chances, 1)}
    found = fuse(pairs, len(states) + 1, threshold=0.5, stays=2)
    return tuple(int(layer[0, 0]) for layer in found[:5])


@pytest.mark.parametrize(
    ("states", "first", "last", "seen", "changes", "kind"),
    [
        ((0, 0, 0, 0), 0, 0, 0, 0, NONE),
        ((0, 1, 1, 1), 2, 2, 4, 1, LASTING),
        ((0, 1, 0, 0), 0, 0, 0, 0, FLICKER),  # a season
        ((0, 1, None, 1), 2, 2, 4, 1, LASTING),  # a cloud is no return
        ((None, None, 1, 1), 3, 3, 4, 1, LASTING),
        ((0, 0, 0, 1), 4, 4, 4, 1, LATE),
        ((1, 1, 0, 0), 1, 3, 2, 2, REVERTED),
        ((0, 1, 1, 0), 2, 2, 3, 1, LASTING),  # one date is not enough for the way back, either
        ((None,) * 4, NODATA, NODATA, NODATA, NODATA, NODATA),
    ],
)
def test_what_lasts_counts(states, first, last, seen, changes, kind):
    assert of_states(*states) == (first, last, seen, changes, kind)


def seen_by_a_perfect_detector(world, which, draw):
    """Pairs of the synthetic world, and seasons: at each date a patch looks as if it had changed.

    A date's clouds hide it in all of its pairs.
    """
    dates = len(world.images)
    odd = np.zeros((dates, *world.first.shape), np.bool_)
    for k in range(1, dates):
        row, col = draw.integers(0, 150, 2)
        odd[k, row : row + 60, col : col + 60] = True
    # Patches of neighbouring dates that meet would last two dates, as a change does.
    for k in range(1, dates):
        odd[k] &= ~odd[:k].any(axis=0)
    pairs = {}
    for before, after in SeriesOptions(pairs=which).compared(dates):
        states = [((world.first > 0) & (world.first <= k)) ^ odd[k] for k in (before, after)]
        chance = np.where(states[0] != states[1], 0.9, 0.1).astype(np.float32)
        chance[world.clouds[before] | world.clouds[after]] = np.nan
        pairs[before, after] = chance
    return pairs, odd


@pytest.mark.parametrize(("which", "lost"), [("first", 0.0), ("both", 0.0), ("consecutive", 0.35)])
def test_seasons_are_passed_over_and_clouds_bridged(which, lost):
    world = make_series(5, 256, 8)
    pairs, odd = seen_by_a_perfect_detector(world, which, np.random.default_rng(0))
    found = fuse(pairs, 8, threshold=0.5, stays=2)
    clear = ~np.any(world.clouds, axis=0) & ~odd.any(axis=0)
    truth = world.first
    assert np.array_equal(found.first_change[clear], truth[clear])
    # The last date's season cannot be told from a change at the end.
    changed = np.isin(found.persistence, CHANGED) & ~odd[-1]
    # Neighbours alone do not tell a season from a change if clouds hide the way back.
    sure = which != "consecutive" or ~np.any(world.clouds, axis=0)
    assert not changed[(truth == 0) & sure].any()
    before_last = (truth > 0) & (truth < 6) & ~odd.any(axis=0)
    assert np.mean(~changed[before_last]) <= lost
    # Under clouds a change is seen later than it was, never earlier.
    dated = changed & (truth > 0) & ~odd.any(axis=0)
    assert dated.any()
    assert (found.first_change[dated] >= truth[dated]).all()
