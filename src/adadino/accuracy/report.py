"""What an assessment says in words."""

from __future__ import annotations

from adadino.accuracy.estimate import Estimate
from adadino.accuracy.sample import Judged


def percent(found: Estimate | None) -> str:
    """An accuracy with half its interval."""
    if found is None:
        return "not known"
    return f"{100 * found.value:.1f} ± {100 * found.margin:.1f} %"


def area(found: Estimate, unit: str) -> str:
    """An area with half its interval, in a unit that people read."""
    if unit == "px":
        return f"{found.value:,.0f} ± {found.margin:,.0f} pixels"
    name, factor = ("ha", 1e-4) if found.value >= 1e4 else ("m²", 1.0)
    digits = 1 if factor < 1 and found.value < 1e7 else 0
    return f"{found.value * factor:,.{digits}f} ± {found.margin * factor:,.{digits}f} {name}"


def sentence(judged: Judged) -> str:
    """The sentence that a reviewer of the map wants to read."""
    found, strata, unit = judged.assessment, judged.design.strata, judged.unit
    total = sum(stratum.pixels for stratum in strata) * judged.pixel_area
    numbers = judged.counts.sum(axis=1)
    names = ", ".join(f"{s.name} {int(n)}" for s, n in zip(strata, numbers, strict=True))
    unsure = f" {judged.unsure} pixels were unsure and are left out." if judged.unsure else ""
    return (
        f"The area of change is {area(found.shares[1].scaled(total), unit)} (95 % interval), "
        f"estimated from a stratified random sample of {int(numbers.sum())} pixels ({names}) and "
        f"not counted from the map, which shows {area_only(found.mapped[1] * total, unit)}. "
        f"The map's overall accuracy is {percent(found.overall)}; for change the user's accuracy "
        f"is {percent(found.users[1])} and the producer's accuracy {percent(found.producers[1])} "
        f"(estimators of Olofsson et al. 2014).{unsure}"
    )


def area_only(value: float, unit: str) -> str:
    """An area without an interval."""
    return area(Estimate(value, 0.0), unit).replace(" ± 0.0 ", " ").replace(" ± 0 ", " ")
