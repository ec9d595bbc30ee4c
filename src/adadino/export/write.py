"""`export`: write a model as one file, or raise an error and leave no file.

The file is compared with the model it came from, on random images, before it gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram

from adadino.errors import AdaDINOError, ConfigError
from adadino.export.freeze import Pairs, choose_chunks, freeze_chunks
from adadino.export.metadata import as_text, deepness, metadata_of
from adadino.export.options import ExportOptions
from adadino.export.portable import PairGraph, SixBandGraph, portable
from adadino.export.trace import to_onnx, trace
from adadino.files import atomic, sole_writer
from adadino.model.adadino import AdaDINO
from adadino.model.detector import Detector
from adadino.scene.options import SceneOptions

Float = NDArray[np.float32]
Run = Callable[[Float, Float], Float]
"""Two batches of images (B, 3, H, W) in, the probability of change (B, H, W) out."""

TOLERANCE = {"fp32": 5e-4, "fp16": 2e-2}
"""How far a probability may be from the model's. AdaDINO's are 1e-6 off; TinyCD normalises maps
that hardly vary, and is itself 1e-4 away from what it would compute in float64."""
SHAPES = ((1, 64, 64), (3, 77, 109), (2, 128, 96))
"""Batches, heights and widths to compare; one is no multiple of the stride."""
LARGEST_ONNX = 2**31 - 2**20
"""Bytes of the largest ONNX file; it is one protocol buffer."""


@dataclass(frozen=True)
class Exported:
    """A written file and how near it is to the model."""

    path: Path
    bytes: int
    tolerance: float
    worst_difference: float
    shapes: tuple[tuple[int, int, int], ...]
    """Batch, height and width of what was compared."""
    metadata: dict[str, Any]


def export(
    model: Detector,
    path: str | PathLike[str],
    options: ExportOptions | None = None,
    *,
    samples: Pairs = (),
    overwrite: bool = False,
) -> Exported:
    """Write a model as one file that runs without this package.

    The file takes RGB in [0, 1], (B, 3, H, W) twice, `before` and `after`, of any size, and gives
    the `probability` of change (B, H, W); enlarging, normalising, padding and cropping are inside.

    Args:
        model: The model; it is copied, not changed.
        path: Ends in `.onnx`, or in `.pt2` for torch.export.load.
        options: Selection, precision, sizes.
        samples: For `selection="static"`: pairs (1, 3, H, W) from which the policy chooses.
        overwrite: Replace the file if it is there.

    Raises:
        ConfigError: The options contradict the model or each other.
        WriteError: The file is there already or cannot be written.
        AdaDINOError: The file does not compute what the model computes; it is not written.
    """
    path, options = Path(path), options or ExportOptions()
    _check(model, path, options, overwrite=overwrite)
    model = _on_cpu(model)
    copy = portable(model)
    k, chunks = _selected(model, options, samples)
    if chunks is not None and isinstance(copy, AdaDINO):
        freeze_chunks(copy, chunks)
    # A frozen copy executes all that is left, and its k is the same.
    pair = PairGraph(copy.half() if options.half else copy, k=k).eval()

    tolerance = TOLERANCE[options.precision]
    size = options.size or (SceneOptions.tile if options.deepness else None)
    metadata = metadata_of(
        model,
        k=k,
        chunks=None if k is None else model.config.bscs.chunks,
        selection=None if k is None else options.selection,
        precision=options.precision,
        size=size,
        tolerance=tolerance,
        kept_chunks=None if chunks is None else chunks.tolist(),
    )
    if options.deepness:
        metadata |= deepness(tile=size or SceneOptions.tile, resolution=options.resolution)
    shapes = SHAPES if size is None else ((1, size, size),) * 2
    write = _write_onnx if path.suffix == ".onnx" else _write_pt2

    with sole_writer(path, "export"), atomic(path) as part:

        def compared(run: Run) -> dict[str, Any]:
            worst = _worst_difference(run, model, k=k, chunks=chunks, shapes=shapes)
            _refuse(path, worst, tolerance, hint=_hint(options))
            return metadata | {"worst_difference": worst}

        said = write(part, pair, options, size, compared)
        written = part.stat().st_size
    return Exported(path, written, tolerance, said["worst_difference"], shapes, said)


def _check(model: Detector, path: Path, options: ExportOptions, *, overwrite: bool) -> None:
    if model.fits:
        raise ConfigError(f"{model.config.peer} has no weights to export; predict with it by name.")
    if model.config.bands.names or model.config.enlarge != 1:
        raise ConfigError(
            f"this model takes {model.config.bands.text}, enlarged {model.config.enlarge} times; "
            "only models of red, green and blue at their own size are exported. Predict with the "
            "checkpoint."
        )
    if model.bscs is None and (options.k is not None or options.selection == "static"):
        raise ConfigError(
            f"{model.config.peer} has no FFN chunks to choose: leave k and selection out."
        )
    if model.config.classes.names:
        raise ConfigError(
            f"the model tells classes ({', '.join(model.config.classes.names)}), which an exported "
            "file has no place for; predict with its checkpoint."
        )
    options.check_target(path, overwrite=overwrite)
    chunks = model.config.bscs.chunks
    if options.k is not None and not 1 <= options.k <= chunks:
        raise ConfigError(f"k is {options.k}, must be between 1 and {chunks}.")


def _selected(
    model: Detector, options: ExportOptions, samples: Pairs
) -> tuple[int | None, Tensor | None]:
    """The budget k, and the chunks to fix if any; a peer has no chunks to choose from."""
    if not isinstance(model, AdaDINO):
        return None, None
    k = model.bscs.k if options.k is None else options.k
    return k, choose_chunks(model, k, samples) if options.selection == "static" else None


def _on_cpu(model: Detector) -> Detector:
    """The model in float32 on the CPU, in eval mode: itself if it is that already, else a copy."""
    weight = next(model.parameters())
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and not model.training:
        return model
    from copy import deepcopy

    return deepcopy(model).cpu().float().eval()


def _hint(options: ExportOptions) -> str:
    if options.half and options.selection == "batch":
        return (
            "In half precision the policy may choose other chunks; export without --half, or with "
            "--selection static."
        )
    return "Export without --half." if options.half else "Please report this."


def _example(module: nn.Module, size: int | None, channels: int = 3) -> Tensor:
    """An input to trace with; where sizes are free, they have no common factor."""
    if size is not None:
        return torch.rand(1, channels, size, size)
    stride = int(getattr(module, "stride"))  # noqa: B009  # nn.Module's attributes are untyped
    return torch.rand(2, channels, 17 * stride - 3, 13 * stride - 5)


Compare = Callable[[Run], dict[str, Any]]


def _write_pt2(
    part: Path, pair: PairGraph, _: ExportOptions, size: int | None, compared: Compare
) -> dict[str, Any]:
    program = trace(pair, ("before", "after"), _example(pair, size), fixed=size is not None)
    torch.export.save(program, part)
    loaded = torch.export.load(part)

    def run(before: Float, after: Float) -> Float:
        with torch.inference_mode():
            answer: Tensor = loaded.module()(*map(torch.from_numpy, (before, after)))
        return answer.numpy()

    said = compared(run)
    torch.export.save(program, part, extra_files=as_text(said))
    return said


def _write_onnx(
    part: Path, pair: PairGraph, options: ExportOptions, size: int | None, compared: Compare
) -> dict[str, Any]:
    from adadino.runtime.exported import open_session, run_pair

    names: tuple[str, ...] = ("before", "after")
    module: nn.Module = pair
    output = "probability"
    if options.deepness:
        names, module, output = ("image",), SixBandGraph(pair), "classes"
    example = _example(pair, size, 6 if options.deepness else 3)
    program: ExportedProgram = trace(module, names, example, fixed=size is not None)
    proto = to_onnx(program, names=names, output=output, opset=options.opset)
    if proto.ByteSize() > LARGEST_ONNX:
        raise AdaDINOError(
            f"the model takes {proto.ByteSize() / 1e9:.1f} GB, more than one ONNX file holds; "
            "export with --half, with --selection static, or to .pt2."
        )
    part.write_bytes(proto.SerializeToString())
    session = open_session(part, "cpu")
    said = compared(lambda before, after: run_pair(session, before, after))
    for name, text in as_text(said).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, text
    part.write_bytes(proto.SerializeToString())
    return said


def _worst_difference(
    run: Run,
    model: Detector,
    *,
    k: int | None,
    chunks: Tensor | None,
    shapes: Iterable[tuple[int, int, int]],
) -> float:
    """The largest difference of a probability over random images of all the shapes."""
    # The same images every time: the file records the difference, and exporting twice must give the
    # same file.
    draw, worst = np.random.default_rng(0), 0.0
    for batch, height, width in shapes:
        before, after = draw.random((2, batch, 3, height, width), np.float32)
        with torch.inference_mode():
            images = map(torch.from_numpy, (before, after))
            expected = model.probability(*images, k=k, chunks=chunks).numpy()
        got = run(before, after)
        if got.shape != expected.shape or not np.isfinite(got).all():
            return float("inf")
        worst = max(worst, float(np.abs(got - expected).max()))
    return worst


def _refuse(path: Path, worst: float, tolerance: float, *, hint: str) -> None:
    """Refuse a file that disagrees with its model.

    Raises:
        AdaDINOError: The difference is above the tolerance.
    """
    if not worst <= tolerance:
        raise AdaDINOError(
            f"{path} was not written: its probabilities differ from the model's by up to "
            f"{worst:.2g}, more than {tolerance:g}. {hint}"
        )
