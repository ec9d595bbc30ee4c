"""`adadino export`: a model as one ONNX or .pt2 file, checked against the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadino.cli.checks import check_model
from adadino.cli.options import Backbone, Json, Overwrite, Quiet, takes_dataclasses
from adadino.cli.output import print_json
from adadino.export.options import ExportOptions

if TYPE_CHECKING:
    from adadino.export.freeze import Pairs

SAMPLES = 8
"""Pairs from which chunks are chosen; as many as `predict` takes of a scene."""


@takes_dataclasses()
def command(
    *,
    model: Annotated[str, typer.Argument(help="A checkpoint folder, or a bundled model's name.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file: .onnx, or .pt2.")],
    backbone: Backbone = None,
    options: ExportOptions,
    samples: Annotated[
        Path | None, typer.Option(help="For static: pairs to choose from; folders A and B.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a model as one file that runs without adadino; it takes any size of image."""
    options.check_target(output, overwrite=overwrite)
    check_model(model)
    from adadino.checkpoint import load
    from adadino.export import export

    pairs = [] if samples is None else _read(samples)
    loaded = load(model, backbone=backbone)
    if not quiet and not json:
        typer.echo(
            "exporting and comparing; tiny takes one to two minutes, larger ones more", err=True
        )
    done = export(loaded, output, options, samples=pairs, overwrite=overwrite)
    if json:
        print_json({"output": done.path} | {name: getattr(done, name) for name in FACTS})
        return
    shapes = ", ".join("x".join(map(str, shape)) for shape in dict.fromkeys(done.shapes))
    typer.echo(
        f"probabilities differ from the model's by at most {done.worst_difference:.2g} "
        f"(allowed {done.tolerance:g}; batch x height x width {shapes})"
    )
    typer.echo(f"wrote {done.path}, {done.bytes / 1e6:.1f} MB")


FACTS = ("bytes", "tolerance", "worst_difference", "shapes", "metadata")
"""What --json prints of an export, beside the file's name."""


def _read(folder: Path) -> Pairs:
    """The first pairs of a folder with A and B, as `adadino train` takes it."""
    from adadino.errors import DataError
    from adadino.model.inputs import to_tensor

    names = sorted(path.name for path in (folder / "A").glob("*") if path.is_file())[:SAMPLES]
    if not names:
        raise DataError(f"there are no images in {folder / 'A'}; give a folder with A and B.")
    return [
        (
            to_tensor(folder / "A" / name, "before")[None],
            to_tensor(folder / "B" / name, "after")[None],
        )
        for name in names
    ]
