"""What an adaptation found, as a sentence, as JSON and as a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adadino.training.adapt.compare import Comparison
from adadino.training.adapt.options import Part


@dataclass(frozen=True)
class Adapted:
    """What an adaptation found."""

    comparison: Comparison
    forgetting: Comparison
    """The same on synthetic pairs that were not trained on."""
    tiles: int
    folds: int
    part: Part
    steps: int
    """Updates of the final training."""
    seconds: float
    cpu_seconds: float
    kept: str
    """Which model to use: new or old."""
    model: Path | None
    """The new model's folder, if it was written."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        said = {k: v for k, v in asdict(self).items() if k not in ("comparison", "forgetting")}
        held = {"held_out": self.comparison.as_dict(), "synthetic": self.forgetting.as_dict()}
        return {**said, "model": None if self.model is None else str(self.model), **held}

    @property
    def sentence(self) -> str:
        """What the figures say."""
        found = self.comparison
        figures = (
            f"F1 {100 * found.old.f1:.1f} before and {100 * found.new.f1:.1f} after on "
            f"{self.tiles} tiles that were held out in turn (difference "
            f"{100 * found.difference:+.1f}, 95 % interval {100 * found.low:+.1f} to "
            f"{100 * found.high:+.1f})"
        )
        if found.better:
            return f"The new model is better: {figures}."
        kept = "It is written all the same." if self.kept == "new" else "The old one is kept."
        return f"The new model is not surely better: {figures}. {kept}"


def as_markdown(source: str, found: Adapted) -> str:
    """The report: both models side by side."""
    rows = [
        ("held-out tiles", found.comparison),
        ("synthetic pairs, not trained on", found.forgetting),
    ]
    lines = [
        f"# Adaptation of {Path(source).name}",
        "",
        found.sentence,
        "",
        "| | F1 before | F1 after | difference, 95 % interval | precision | recall |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in rows:
        lines.append(
            f"| {name} | {100 * one.old.f1:.1f} | {100 * one.new.f1:.1f} | "
            f"{100 * one.difference:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f}) | "
            f"{100 * one.old.precision:.1f} to {100 * one.new.precision:.1f} | "
            f"{100 * one.old.recall:.1f} to {100 * one.new.recall:.1f} |"
        )
    lines += [
        "",
        f"Trained: {found.part}, {found.steps} updates on all {found.tiles} tiles; {found.folds} "
        f"folds. {found.seconds:.0f} s ({found.cpu_seconds:.0f} s of processor time).",
        "",
    ]
    return "\n".join(lines)
