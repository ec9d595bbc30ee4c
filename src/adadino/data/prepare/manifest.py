"""What a prepared set is: `manifest.json`, written last, so that a set that has it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adadino import schema
from adadino.data.folder import SPLITS, PairFiles, find_pairs, fingerprint
from adadino.data.images import read_mask
from adadino.data.staging import MANIFEST
from adadino.errors import ConfigError, DataError
from adadino.files import write_atomic


@dataclass(frozen=True)
class Settings:
    """All that decides the content of a prepared set; equal settings give equal files."""

    name: str
    variant: str
    tile: int
    seed: int
    source_digest: str
    """Digest of the source's files (`archives.Source.digest`)."""


@dataclass(frozen=True)
class SplitSummary:
    """One split of a prepared set."""

    pairs: int
    changed: float
    """The share of changed pixels."""
    fingerprint: str


@dataclass(frozen=True)
class Manifest:
    """The description of a prepared set, as written beside it."""

    settings: Settings
    source: str
    splits: Mapping[str, SplitSummary]
    scene_sizes: Mapping[str, int]
    """How many scenes of each size, "WIDTHxHEIGHT", the tiles were cut from."""
    as_expected: bool | None
    """Whether the counts are those of the benchmark's variant; None if it has none."""
    version: str
    """The version of adadino that made the set."""
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Pairs in each split."""
        return {split: summary.pairs for split, summary in self.splits.items()}

    def save(self, folder: Path | str) -> None:
        """Write `manifest.json` into a folder."""
        write_atomic(Path(folder) / MANIFEST, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> Manifest:
        """Read a prepared set's manifest.

        Raises:
            DataError: If there is none, or it is not one of ours.
        """
        path = Path(folder) / MANIFEST
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            settings = schema.build(Settings, content.pop("settings"), "settings")
            splits = {
                name: schema.build(SplitSummary, one, f"splits.{name}")
                for name, one in content.pop("splits").items()
            }
            notes = tuple(str(note) for note in content.pop("notes"))
            return cls(settings=settings, splits=splits, notes=notes, **content)
        except FileNotFoundError:
            raise DataError(
                f"{folder} has no {MANIFEST}, so it is not a finished set. Make it, or let it "
                "be finished, with `adadino prepare`."
            ) from None
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            ConfigError,
        ) as error:
            raise DataError(
                f"{path} cannot be understood: {error}. Prepare the set again with overwrite=True "
                "(--overwrite)."
            ) from error

    @classmethod
    def verify(cls, folder: Path | str) -> Manifest:
        """Read the manifest and compare every file with it.

        Raises:
            DataError: If a split was added, removed, or its files changed.
        """
        manifest = cls.load(folder)
        for split in SPLITS:
            recorded = manifest.splits.get(split)
            if recorded is None:
                if (Path(folder) / split).exists():
                    raise DataError(
                        f"{folder} has a {split} folder that its {MANIFEST} does not name. Remove "
                        "it, or prepare the set again."
                    )
                continue
            pairs = find_pairs(folder, split)
            found = fingerprint(pairs)
            if found != recorded.fingerprint:
                raise DataError(
                    f"{Path(folder) / split} is not what was prepared: it has {len(pairs)} pairs, "
                    f"{found}; {MANIFEST} says {recorded.pairs}, {recorded.fingerprint}. Prepare "
                    "the set again with overwrite=True (--overwrite)."
                )
        return manifest


def summarise(pairs: list[PairFiles]) -> SplitSummary:
    """Count a split's pairs and changed pixels, and take its fingerprint."""
    changed = pixels = 0
    for pair in pairs:
        mask = read_mask(pair.label)
        changed, pixels = changed + int(mask.sum()), pixels + mask.size
    return SplitSummary(len(pairs), changed / max(pixels, 1), fingerprint(pairs))
