# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the plugin as the zip that QGIS installs: `python qgis-plugin/pack.py dist`.

The same files give the same bytes: names are sorted, and times and permissions are fixed.
"""

from __future__ import annotations

import configparser
import sys
import zipfile
from pathlib import Path

PLUGIN = Path(__file__).parent / "adadino_change"
KEPT = (".py", ".svg", ".png", ".txt")
TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip knows."""


def version() -> str:
    """Return the version that the metadata states."""
    metadata = configparser.ConfigParser(interpolation=None)
    metadata.read(PLUGIN / "metadata.txt", encoding="utf-8")
    return metadata["general"]["version"]


def members() -> list[Path]:
    """Return the files that belong into the zip, sorted."""
    files = (path for path in PLUGIN.rglob("*") if path.is_file())
    return sorted(path for path in files if path.suffix in KEPT or path.name == "LICENSE")


def pack(folder: Path) -> Path:
    """Write the zip into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{PLUGIN.name}-{version()}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in members():
            name = path.relative_to(PLUGIN.parent).as_posix()
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # as on Linux, whatever writes it
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


if __name__ == "__main__":
    print(pack(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
