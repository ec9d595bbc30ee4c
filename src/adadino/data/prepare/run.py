"""A downloaded benchmark in, `DEST/{train,val,test}/{A,B,label}/*.png` and a manifest out.

- Tiles are cut into `DEST/.partial` and moved to their place when the set is whole; the manifest
  comes last. A run that was killed goes on where it stopped; what it left never looks finished.
- Counts are compared with the paper's (`benchmarks.py`) before a tile is cut. A difference is an
  error, unless accepted.
- The paper does not say how WHU-CD was split or LEVIR-CD+ validated; the manifest says how we did.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from adadino import __version__
from adadino.data.classes import Codes, read_table, table_text
from adadino.data.folder import find_pairs, warn_of_leakage
from adadino.data.prepare.archives import Source
from adadino.data.prepare.benchmarks import Benchmark, lookup
from adadino.data.prepare.cutting import (
    Progress,
    SceneTiles,
    cut,
    plan_tiles,
    size_notes,
    tile_paths,
)
from adadino.data.prepare.layouts import find_scenes, refuse_empty_splits, select_whu
from adadino.data.prepare.manifest import Manifest, Settings, summarise
from adadino.data.prepare.splits import draw_missing_splits
from adadino.data.staging import (
    MANIFEST,
    SPLITS,
    STAGING,
    TABLE,
    publish,
    remove,
    settings_left,
    stage,
)
from adadino.errors import AdaDINOWarning, ConfigError, DataError
from adadino.files import sole_writer, write_atomic


def prepare(
    name: str,
    source: Path | str,
    dest: Path | str,
    *,
    tile: int = 256,
    variant: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    strict: bool = True,
    classes: Path | str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Cut a benchmark into tiles, split it, check its counts, and describe it.

    Called again with the same settings, it goes on where an interrupted run stopped, or begins anew
    where the source has changed since. A finished set is only compared with its manifest.

    Args:
        name: `levir-cd`, `levir-cd-plus`, `whu-cd`, `sysu-cd`, `clcd`, `oscd` (whole scenes of
            all bands; the other settings have no meaning for it), or `folder` for any tree;
            `second`, or `from-to` for any tree whose labels are from-to codes.
        source: The downloaded folder or zip; zips in a folder or in a zip are read as well.
        dest: Where the prepared set goes.
        tile: The side of a tile.
        variant: Which version of the benchmark; None is the first that `benchmarks.py` lists.
        seed: Decides splits that the dataset does not come with.
        overwrite: Whether to replace a finished or half-finished set in `dest`.
        strict: Whether counts that differ from the expected ones are an error, or only a note.
        classes: For `from-to`: the `classes.json` that explains the codes.
        progress: Called with the files done, the total and the name of the last tile.

    Raises:
        ConfigError: If there is no such benchmark, variant or tile size.
        DataError: If the source or `dest` is not as it must be, a finished set was damaged, or
            the counts differ.
    """
    if name == "oscd":  # whole scenes of many bands, which are not cut
        from adadino.data.prepare.oscd import prepare_oscd

        return prepare_oscd(source, dest, overwrite=overwrite, progress=progress)
    benchmark, variant = lookup(name, variant)
    if tile < 1:
        raise ConfigError(f"tile = {tile} is not a size. Use a positive number, such as 256.")
    codes = _codes(name, benchmark, classes)
    source, dest = Path(source), Path(dest)
    check_places(source, dest)
    with Source(source, scratch=dest) as opened:
        settings = Settings(name, variant, tile, seed, _digest(opened, codes))
        found = None if overwrite else finished(dest, settings)
        if found is None or _is_remnant(dest, settings):
            plans, notes = _plan(opened, benchmark, settings)
            _check_counts(_planned(plans), benchmark, settings, strict=strict)
            with sole_writer(dest / MANIFEST, "preparation"):
                # Once more: another process may have finished it while this one made its plans.
                found = None if overwrite else finished(dest, settings)
                if found is None:
                    anew = overwrite or _source_changed(dest, settings)
                    staging = stage(dest, _as_text(settings), anew=anew)
                    # A manifest in there: the last run was stopped while it moved the splits.
                    if not (staging / MANIFEST).exists():
                        cut(plans, staging, tile, progress, codes=codes)
                        if codes is not None:
                            write_atomic(staging / TABLE, table_text(codes.classes))
                        _manifest(plans, notes, staging, benchmark, settings, source).save(staging)
                    return publish_set(staging, dest)
                if _is_remnant(dest, settings):
                    remove(dest / STAGING)
        _check_whole(opened, dest, benchmark, settings)
    _check_counts(found.counts, benchmark, settings, strict=strict)
    return found


def _codes(name: str, benchmark: Benchmark, path: Path | str | None) -> Codes | None:
    """The classes of a benchmark, or those that a file explains."""
    if not benchmark.codes:
        if path is not None:
            raise ConfigError(f"--classes is for from-to, not for {name}; leave it out.")
        return None if benchmark.classes is None else Codes(benchmark.classes)
    if path is None:
        raise ConfigError(
            'from-to needs --classes FILE, which names the classes: {"names": ["forest", '
            '"building"], "codes": {"12": ["forest", "building"]}}.'
        )
    return read_table(path)


def _digest(source: Source, codes: Codes | None) -> str:
    """The digest of a source's files; a file that explains codes is one of them."""
    if codes is None or not codes.pairs:
        return source.digest()
    return hashlib.sha256(f"{source.digest()}{codes!r}".encode()).hexdigest()[:16]


def publish_set(staging: Path, dest: Path) -> Manifest:
    """Move a whole set to its place, and say so if a split is a copy of another."""
    made = Manifest.load(staging)
    publish(staging, dest, made.splits)
    warn_of_leakage({split: find_pairs(dest, split) for split in made.splits})
    return made


def check_places(source: Path, dest: Path) -> None:
    """Refuse a destination that is a file, or lies inside the source or around it."""
    if dest.exists() and not dest.is_dir():
        raise DataError(f"the destination {dest} is a file. Choose a folder.")
    here, there = source.resolve(), dest.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise DataError(
            f"the source {source} and the destination {dest} lie inside one another. Choose a "
            "destination elsewhere."
        )


def finished(dest: Path, settings: Settings) -> Manifest | None:
    """The manifest of a set that is already there, or None where there is nothing in the way."""
    if (dest / MANIFEST).exists():
        manifest = Manifest.load(dest)
        if manifest.settings != settings:
            raise DataError(
                f"{dest} already holds a set made with {_spell(manifest.settings)}, not with "
                f"{_spell(settings)}. Choose another destination, or replace it with "
                "overwrite=True (--overwrite)."
            )
        return manifest
    if not (dest / STAGING).exists():
        for split in SPLITS:
            if (dest / split).exists():
                raise DataError(
                    f"{dest / split} exists, but was not made by `adadino prepare`. Choose another "
                    "destination, or replace it with overwrite=True (--overwrite)."
                )
    return None


def _check_whole(source: Source, dest: Path, benchmark: Benchmark, settings: Settings) -> None:
    """Compare a finished set with its manifest; if a tile is missing, name it."""
    try:
        Manifest.verify(dest)
    except DataError as error:
        plans, _ = _plan(source, benchmark, settings)
        semantic = benchmark.codes or benchmark.classes is not None
        missing = [
            path
            for plan in plans
            for path in tile_paths(plan, dest, classes=semantic)
            if not path.exists()
        ]
        if not missing:
            raise
        raise DataError(
            f"{missing[0]} is missing from a finished set (files missing: {len(missing)}). "
            "Restore it, or make the set again with overwrite=True (--overwrite)."
        ) from error


def _is_remnant(dest: Path, settings: Settings) -> bool:
    """Whether a run of the same settings, or of none that are known, has left its folder."""
    return (dest / STAGING).exists() and settings_left(dest) in (None, _as_text(settings))


def _source_changed(dest: Path, settings: Settings) -> bool:
    """Whether an interrupted run differs in the source's content alone; if so, say it."""
    try:
        left = json.loads(settings_left(dest) or "null")
    except (ValueError, RecursionError):
        return False
    wanted = asdict(settings)
    if not isinstance(left, dict) or left.get("source_digest") == settings.source_digest:
        return False
    if left | {"source_digest": settings.source_digest} != wanted:
        return False
    # Someone who mends what an error named runs the same command again: no reason to refuse.
    warnings.warn(
        f"the source of {dest} has changed since the interrupted run; everything is cut again.",
        AdaDINOWarning,
        stacklevel=3,
    )
    return True


def _as_text(settings: Settings) -> str:
    return json.dumps(asdict(settings), indent=2) + "\n"


def _plan(
    source: Source, benchmark: Benchmark, settings: Settings
) -> tuple[list[SceneTiles], list[str]]:
    refuse_empty_splits(source.folders, source.members, str(source.path))
    members = select_whu(source.members) if settings.name == "whu-cd" else source.members
    scenes, notes = find_scenes(
        members, str(source.path), single_name=benchmark.single_name, labels=benchmark.labels
    )
    padded = benchmark.variants[settings.variant].padded
    plans = plan_tiles(scenes, settings.tile, padded=padded)
    notes += size_notes(plans, settings.tile, padded=padded)
    plans, drawn = draw_missing_splits(plans, benchmark, settings.variant, settings.seed)
    return plans, notes + drawn


def _planned(plans: Sequence[SceneTiles]) -> dict[str, int]:
    """Tiles in each split."""
    counts = Counter(str(one.split) for plan in plans for one in plan.tiles)
    return {split: counts[split] for split in SPLITS if counts[split]}


def _manifest(
    plans: Sequence[SceneTiles],
    notes: Sequence[str],
    staging: Path,
    benchmark: Benchmark,
    settings: Settings,
    source: Path,
) -> Manifest:
    counts = _planned(plans)
    splits = {split: summarise(find_pairs(staging, split)) for split in counts}
    expected = _expected(benchmark, settings)
    equals = None if expected is None else counts == expected
    if equals is False:
        notes = [*notes, f"counts differ from the expected {expected}"]
    sizes = Counter(f"{plan.width}x{plan.height}" for plan in plans)
    return Manifest(
        settings=settings,
        source=f"{source.resolve().name} (scenes: {len(plans)})",
        splits=splits,
        scene_sizes=dict(sorted(sizes.items())),
        as_expected=equals,
        version=__version__,
        notes=tuple(notes),
    )


def _check_counts(
    counts: Mapping[str, int], benchmark: Benchmark, settings: Settings, *, strict: bool
) -> None:
    expected = _expected(benchmark, settings)
    if not strict or expected is None or counts == expected:
        return
    rows = [
        f"  {split:<6}{counts.get(split, 0):>8,}{expected.get(split, 0):>10,}" for split in SPLITS
    ]
    others = ", ".join(v for v in benchmark.variants if v != settings.variant)
    raise DataError(
        f"the counts of {settings.name} ({settings.variant}) are not the expected ones:\n"
        + "\n".join(["  split    found  expected", *rows])
        + "\nLook for scenes that are missing from the source"
        + (f", try another variant ({others})" if others else "")
        + ", or accept the difference with strict=False (--no-strict). Nothing was cut."
    )


def _expected(benchmark: Benchmark, settings: Settings) -> dict[str, int] | None:
    expected = benchmark.variants[settings.variant].expected
    return dict(expected) if expected and settings.tile == benchmark.tile else None


def _spell(settings: Settings) -> str:
    return ", ".join(f"{key}={value}" for key, value in asdict(settings).items())
