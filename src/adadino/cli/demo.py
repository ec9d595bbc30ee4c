"""`adadino demo`: an offline pair to look at, written where one can open it.

No trained model is bundled yet, so the demo shows a synthetic pair with its exact change mask, and
what the `tiny` model is made of. It scores nothing, because there is nothing to score.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adadino.cli.output import Json, print_json

SEED = 20_261_115
"""Outside the seeds that `write_dataset` gives to training splits."""


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where they go.")] = Path("demo"),
    size: Annotated[int, typer.Option(min=32, max=4096, help="Side of the pair in pixels.")] = 512,
    seed: Annotated[int, typer.Option(help="Another seed is another place.")] = SEED,
    json: Json = False,
) -> None:
    """Write a synthetic pair, its exact mask and one picture of all three; nothing is fetched."""
    import numpy as np
    from PIL import Image

    from adadino.data.synthetic import World, make_pair
    from adadino.files import write_atomic
    from adadino.pictures import contact_sheet

    pair = make_pair(seed, size, World(plan="organic", empty=0.0))
    mask = pair.mask.astype(np.uint8) * 255
    images = {"before.png": pair.before, "after.png": pair.after, "truth.png": mask}
    for name, image in images.items():
        write_atomic(output / name, lambda part, image=image: Image.fromarray(image).save(part))  # type: ignore[misc]
    white = np.repeat(mask[..., None], 3, axis=2)
    contact_sheet([[pair.before, pair.after, white]], output / "demo.png")
    outputs = [output / name for name in (*images, "demo.png")]
    share = float(pair.mask.mean())
    if json:
        print_json(
            {"f1": None, "iou": None, "outputs": outputs, "change_fraction": share, "model": None}
        )
        return
    typer.echo(f"A synthetic place at two dates: {100 * share:.1f} % of it changed.")
    typer.echo(f"Look at {output / 'demo.png'}: before, after, and what changed.")
    typer.echo("No trained model is bundled yet, so nothing is predicted here. What there is:\n")
    from adadino.cli.info import describe, show

    show(describe(None, "tiny", None, 256))
    typer.echo("\nTo train it on such pairs:")
    typer.echo("  adadino synthesize data/synthetic --train 200 --val 40 --test 40")
    typer.echo("  adadino train --preset tiny --data data/synthetic -o runs/synthetic")
