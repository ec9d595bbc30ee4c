"""What a benchmark measures: the settings of `adadino benchmark` and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from adadino.errors import ConfigError
from adadino.schema import Bounds

Mode = Literal["paper", "fp32", "fast", "fp8", "int8"]
MODES: tuple[Mode, ...] = ("paper", "fp32", "fast", "fp8", "int8")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
SIZES = (256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Timing:
    """How many batches run."""

    warmup: int = 5
    measured: int = 20


@dataclass(frozen=True)
class BenchmarkOptions:
    """Models, shapes and batches; what is None has one value on a GPU and another on a CPU."""

    preset: Annotated[str, "A preset: tiny, vits16, vitb16, vitl16, ..."] = "vitl16"
    k: Annotated[str, "FFN chunks to execute; 16 is the base of speed-ups."] = "16,10,8,6,4"
    batch: Annotated[int | None, "Pairs per batch; 16 on a GPU, 1 on a CPU.", Bounds(1)] = None
    size: Annotated[int, "Side of the input in pixels.", Bounds(1, 16_384)] = 256
    mode: Annotated[
        str | None,
        "paper, fp32 (the engine in it), fast, fp8 (GPU), int8 (CPU); by default paper, fast and, "
        "on a GPU, fp8.",
    ] = None
    sweep: Annotated[
        Literal["batch", "size"] | None, "Grow the batch (1 to 64) or the input (256 to 4096 px)."
    ] = None
    limit: Annotated[int | None, "Where a sweep ends.", Bounds(1)] = None
    warmup: Annotated[int | None, "Batches off the clock; 5 on a GPU, 1 on a CPU.", Bounds(1)] = (
        None
    )
    measured: Annotated[int | None, "Batches on the clock; 20 on a GPU, 5 on a CPU.", Bounds(1)] = (
        None
    )
    reference: Annotated[bool, "Measure transformers' encoder in the same run."] = True
    threads: Annotated[int | None, "CPU threads.", Bounds(1)] = None

    def budgets(self, most: int) -> list[int]:
        """The values of k.

        Args:
            most: The model's chunks.
        """
        try:
            numbers = [int(part) for part in self.k.split(",")]
        except ValueError as error:
            raise ConfigError(f"--k is {self.k!r}, must be numbers: 16,6.") from error
        if wrong := [n for n in numbers if not 1 <= n <= most]:
            raise ConfigError(f"--k has {wrong[0]}, must be between 1 and {most}.")
        return numbers

    def modes(self, *, cpu: bool) -> list[Mode]:
        """The modes, in the order of `MODES`."""
        usual = "paper,fast" if cpu else "paper,fast,fp8"
        asked = (usual if self.mode is None else self.mode).split(",")
        if wrong := [one for one in asked if one not in MODES]:
            raise ConfigError(f"--mode has {wrong[0]!r}; there are {', '.join(MODES)}.")
        return [one for one in MODES if one in asked]

    def shapes(self, *, cpu: bool) -> list[tuple[int, int]]:
        """(batch, side) of every measurement."""
        batch = self.batch or (1 if cpu else 16)
        if self.sweep is None:
            if self.limit is not None:
                raise ConfigError("--limit is where a --sweep ends; there is none.")
            return [(batch, self.size)]
        swept = BATCHES if self.sweep == "batch" else SIZES
        some = [one for one in swept if one <= (self.limit or swept[-1])]
        if not some:
            raise ConfigError(
                f"--limit is {self.limit}, must be at least {swept[0]} for --sweep {self.sweep}."
            )
        if self.sweep == "size":  # as many pixels each time, down to one pair
            return [(max(1, batch * self.size**2 // side**2), side) for side in some]
        if self.batch is not None:
            raise ConfigError("--sweep batch grows it itself; leave --batch out, or use --limit.")
        return [(one, self.size) for one in some]

    def timing(self, *, cpu: bool) -> Timing:
        """How many batches run."""
        return Timing(self.warmup or (1 if cpu else 5), self.measured or (5 if cpu else 20))
