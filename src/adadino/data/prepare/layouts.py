"""From the files of a source to scenes: which three images belong together, and to which split.

Every benchmark is laid out as folders of before-images, after-images and masks under one of a few
names, with split folders above or below them, or with `list/{train,val,test}.txt` beside them. The
name of a file's last such folder gives its role; the rest of its path gives its group; the last
split name in that gives its split.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from adadino.data.folder import CLASS_ROLES
from adadino.data.images import is_image, readable
from adadino.data.prepare.archives import Member
from adadino.errors import DataError

ROLES = {
    **dict.fromkeys(("a", "time1", "t1", "im1", "before"), "A"),
    **dict.fromkeys(("b", "time2", "t2", "im2", "after"), "B"),
    **dict.fromkeys(("label", "gt", "mask", "change", "change_label", "change label"), "label"),
    "label1": "label1",
    "label2": "label2",
}
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training", "second_train_set"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing", "second_total_test"), "test"),
}

# WHU-CD as its authors ship it: 2012/whole_image/train/image/2012_train.tif beside building masks
# and tiles that are not wanted here, and change_label/train/change_label.tif.
_WHU_IMAGE = re.compile(r"(?:^|/)(2012|2016)/whole_image/(train|test)/image/[^/]+$", re.I)
_WHU_LABEL = re.compile(r"(?:^|/)change[ _]label/(train|test)/[^/]+$", re.I)
_WHU_ROLES = {"2012": "before", "2016": "after"}

_Group = dict[str, dict[str, Member]]


class SceneFiles(NamedTuple):
    """Two images of one place and the mask of what changed between them."""

    name: str
    split: str | None
    before: Member
    after: Member
    label: Member
    """The change; of a source of classes, from-to codes, or the classes of the first date."""
    label2: Member | None = None
    """The classes of the second date, if they have an image of their own."""

    def by_role(self, *, classes: bool = False) -> dict[str, tuple[Member, ...]]:
        """The members that each folder is written from, by its name.

        Args:
            classes: Whether the classes of both dates are written as well.
        """
        labels = (self.label,) if self.label2 is None else (self.label, self.label2)
        roles = ("label", *CLASS_ROLES) if classes else ("label",)
        return {"A": (self.before,), "B": (self.after,), **dict.fromkeys(roles, labels)}


def find_scenes(
    members: Sequence[Member],
    source: str,
    *,
    single_name: str | None = None,
    labels: Sequence[str] = ("label",),
) -> tuple[list[SceneFiles], list[str]]:
    """Find the scenes among the members of a source.

    Args:
        members: What the source holds.
        source: What errors call it.
        single_name: Name of a scene whose before, after and label folders hold one file each:
            these files are paired whatever they are called. None pairs by equal stems only.
        labels: The folders of the labels: `label`, or `label1` and `label2`.

    Returns:
        The scenes, sorted by split and name, and notes for the manifest.

    Raises:
        DataError: If there are none, a file has no partner, or names or splits contradict.
    """
    groups: dict[PurePosixPath, _Group] = defaultdict(lambda: defaultdict(dict))
    for member in members:
        if is_image(member.path.name):
            _add(groups, member)
    if not groups:
        names = (
            "im1, im2, label1, label2"
            if len(labels) > 1
            else "A, B, label (or time1, time2, label; T1, T2, GT; im1, im2, label; before, after, "
            "mask)"
        )
        raise DataError(
            f"{source} holds no pair folders. Expected {names} at any depth, in folders or zips."
        )
    scenes: list[SceneFiles] = []
    notes: list[str] = []
    for base, group in sorted(groups.items()):
        found = _pair(base, group, source, single_name, labels)
        lists = _lists(base, members)
        if lists:
            found, note = _apply_lists(found, lists)
            notes.extend(note)
        scenes.extend(found)
    scenes.sort(key=lambda scene: (scene.split or "", scene.name))
    _refuse_clashes(scenes, source)
    return scenes, notes


def refuse_empty_splits(
    folders: Iterable[PurePosixPath], members: Iterable[Member], source: str
) -> None:
    """Refuse split folders without an image: the set would silently lack that split.

    Args:
        folders: All folders of the source.
        members: What the source holds.
        source: What errors call it.

    Raises:
        DataError: If there is such a folder.
    """
    filled = {folder for m in members if is_image(m.path.name) for folder in m.path.parents}
    for folder in folders:
        if folder.name.lower() in SPLIT_NAMES and folder not in filled:
            raise DataError(
                f"{source} has a split folder without an image: {folder}. Put its pairs there, or "
                "remove it."
            )


def select_whu(members: Sequence[Member]) -> list[Member]:
    """Reduce WHU-CD's original tree to its mosaics, under plain names; leave other trees alone."""
    chosen = []
    for member in members:
        path = str(member.path)
        if match := _WHU_IMAGE.search(path):
            folder = PurePosixPath(match[2].lower(), _WHU_ROLES[match[1]])
        elif match := _WHU_LABEL.search(path):
            folder = PurePosixPath(match[1].lower(), "change_label")
        else:
            continue
        virtual = folder / member.path.name
        chosen.append(dataclasses.replace(member, path=virtual))
    has_images = any(_WHU_IMAGE.search(str(member.path)) for member in members)
    return chosen if has_images else list(members)


def _add(groups: dict[PurePosixPath, _Group], member: Member) -> None:
    folders = member.path.parent.parts
    for depth in reversed(range(len(folders))):
        role = ROLES.get(folders[depth].lower())
        if role:
            base = PurePosixPath(*folders[:depth], *folders[depth + 1 :])
            files = groups[base][role]
            if member.path.stem in files:
                raise DataError(
                    f"{files[member.path.stem].origin} and {member.origin} are both the {role} "
                    f"image of {member.path.stem}. Remove one of them."
                )
            files[member.path.stem] = member
            return


def _pair(
    base: PurePosixPath,
    group: _Group,
    source: str,
    single_name: str | None,
    labels: Sequence[str],
) -> list[SceneFiles]:
    split = next(
        (SPLIT_NAMES[p.lower()] for p in reversed(base.parts) if p.lower() in SPLIT_NAMES), None
    )
    roles = {role: group.get(role, {}) for role in ("A", "B", *labels)}
    if single_name and all(len(files) == 1 for files in roles.values()):
        return [SceneFiles(single_name, split, *(next(iter(f.values())) for f in roles.values()))]
    names = sorted(set().union(*roles.values()))
    for name in names:
        for role, files in roles.items():
            if name not in files:
                present = next(each[name] for each in roles.values() if name in each).origin
                raise DataError(
                    f"{present} has no partner: {source} holds no {role} image called {name} "
                    f"under {base}. Add it, or remove the files that it belongs to."
                )
    return [SceneFiles(n, split, *(files[n] for files in roles.values())) for n in names]


def _lists(base: PurePosixPath, members: Iterable[Member]) -> dict[str, list[str]]:
    """Read `list/{train,val,test}.txt` beside the pair folders: one file name on each line."""
    lists: dict[str, list[str]] = {}
    for member in members:
        split = SPLIT_NAMES.get(member.path.stem.lower())
        folder = member.path.parent
        is_list = member.path.suffix.lower() == ".txt" and folder.name.lower() == "list"
        if split and is_list and folder.parent == base:
            with readable(member.origin), member.open() as file:
                text = file.read().decode("utf-8-sig", errors="replace")
            names = (line.strip() for line in text.splitlines())
            lists[split] = [PurePosixPath(name).stem for name in names if name]
            if not lists[split]:
                raise DataError(f"{member.origin} names no image. Fill it, or remove it.")
    return lists


def _apply_lists(
    scenes: list[SceneFiles], lists: dict[str, list[str]]
) -> tuple[list[SceneFiles], list[str]]:
    by_name = {scene.name: scene for scene in scenes}
    listed: dict[str, str] = {}
    for split, names in lists.items():
        for name in names:
            if name not in by_name:
                raise DataError(
                    f"list/{split}.txt names {name}, but there is no such image. Add it, or "
                    "remove the line."
                )
            if listed.setdefault(name, split) != split:
                raise DataError(
                    f"{name} is in list/{listed[name]}.txt and in list/{split}.txt: the test "
                    "would be on training data. Remove one of the lines."
                )
    left_out = len(by_name) - len(listed)
    notes = [f"{left_out} images that no list names were left out"] if left_out else []
    return [by_name[name]._replace(split=split) for name, split in listed.items()], notes


def _refuse_clashes(scenes: Sequence[SceneFiles], source: str) -> None:
    unsplit = [scene for scene in scenes if scene.split is None]
    if unsplit and len(unsplit) < len(scenes):
        raise DataError(
            f"{source} holds pairs inside split folders and outside, such as "
            f"{unsplit[0].before.origin}. Give the folder that holds only the wanted ones."
        )
    seen: dict[tuple[str | None, str], SceneFiles] = {}
    for scene in scenes:
        other = seen.setdefault((scene.split, scene.name), scene)
        if other is not scene:
            raise DataError(
                f"{other.before.origin} and {scene.before.origin} have the same name in the same "
                "split. Give the folder that holds only one of them."
            )
