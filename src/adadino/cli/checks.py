"""What is refused at once: inputs that are not there, outputs that are, models that do not exist.

torch and GDAL take seconds to load on a busy machine. These checks need neither, so every verb
calls them first. They refuse only what is certainly wrong; the functions behind the verbs check
everything, with the same words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from adadino.errors import DataError, InputError, WriteError


def check_images(*names: str | Path) -> None:
    """Refuse images that are plain names of files and do not exist."""
    for name in names:
        text = str(name)
        # Addresses, /vsicurl/..., and NETCDF:"file":band are GDAL's to find.
        is_gdal = text.startswith("/vsi") or ":" in text.removeprefix(Path(text).drive)
        if not is_gdal and not os.path.exists(text):  # noqa: PTH110, names may be too long
            raise InputError(f"there is no file {name}; check the name.")


def check_targets(
    paths: Iterable[Path | None], *, inputs: Iterable[str] = (), overwrite: bool
) -> None:
    """Refuse to write where an input or a folder is, or a file that may not be replaced."""
    taken = {os.path.realpath(name) for name in inputs}
    for path in paths:
        if path is None:
            continue
        if os.path.realpath(path) in taken:
            raise WriteError(f"{path} is an input; choose another name for the output.")
        if path.is_dir():
            raise WriteError(f"{path} is a folder; give the name of a file.")
        if path.exists() and not overwrite:
            raise WriteError(
                f"{path} exists; choose another name, or replace it (--overwrite, overwrite=True)."
            )


def check_model(model: str, *, exported: bool = False) -> None:
    """Refuse a model that is not there; one on the hub is looked for later.

    Args:
        model: What the user gave.
        exported: Whether an ONNX file will do; `runtime.exported` opens it, without torch.
    """
    if exported and model.lower().endswith(".onnx"):
        return
    from adadino.hub import is_hub_id
    from adadino.source import read_settings

    if not is_hub_id(model):
        read_settings(model)


def check_pairs(source: Path | str) -> None:
    """Refuse a list or folder of pairs that does not exist."""
    if ":/" not in str(source) and not os.path.exists(source):  # noqa: PTH110, as above
        raise InputError(f"there is no file or folder {source}; check --pairs.")


def check_source(source: Path) -> None:
    """Refuse an archive or folder that does not exist."""
    if not os.path.exists(source):  # noqa: PTH110, as above
        raise DataError(f"{source} does not exist. Give the folder or zip you downloaded.")


def check_dataset(folder: Path, split: str | None) -> None:
    """Refuse a dataset whose folder does not exist."""
    if not os.path.isdir(folder):  # noqa: PTH112, names may be too long
        raise DataError(
            f"there is no folder {folder / (split or '') / 'A'}. A prepared set has "
            f"{folder}/SPLIT/{{A,B,label}} or {folder}/{{A,B,label}}; `adadino prepare` makes one."
        )
