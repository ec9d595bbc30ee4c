"""How the dates of a scene are shown: which bands pictures take, and QGIS styles of them."""

from __future__ import annotations

from pathlib import Path

from adadino.files import write_atomic
from adadino.geo.read.reader import PairReader
from adadino.geo.write.qml import colours_qml
from adadino.scene.options import SceneOptions


def shown_bands(reader: PairReader, options: SceneOptions) -> tuple[int, ...] | None:
    """The numbers of red, green and blue, where a model reads other bands, too."""
    first, second = (tuple(bands.indexes[p] for p in bands.rgb) for bands in reader.bands)
    if len(reader.bands[0].indexes) == 3 and not reader.bands[0].names:
        return options.bands
    return first if first == second and all(first) else None


def write_colours(reader: PairReader, mask: Path) -> list[Path]:
    """QGIS styles of the dates in true and false colour, where a model reads bands by name."""
    bands, other = reader.bands
    if not bands.names or mask.suffix.lower() == ".png":
        return []
    views = {"true": bands.rgb}
    if bands.nir in bands.indexes:
        views["false"] = (bands.indexes.index(bands.nir), *bands.rgb[:2])
    written = []
    for name, places in views.items():
        numbers = [bands.indexes[place] for place in places]
        if not all(numbers) or bands.indexes != other.indexes:
            continue
        low, high = (
            [values[p] for p in places] for values in (reader.stretch.low, reader.stretch.high)
        )
        path = mask.with_name(f"{mask.stem}-{name}-colour.qml")
        write_atomic(path, colours_qml(numbers, low, high))
        written.append(path)
    return written
