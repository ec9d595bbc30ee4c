"""The commands that are killed, on inputs that take a second, and what must hold of each.

Each command knows how to run into a folder, which of its files change while it runs, what of its
work is finished at any moment, and what it would be to lose or to repeat some of that.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch

from adadino.area import predict_area, units
from adadino.area.units import Dates
from adadino.checkpoint import load, save
from adadino.config import BackboneConfig, BSCSConfig, CGLAConfig, Config, CPGRConfig
from adadino.data.prepare.run import prepare
from adadino.data.synthetic import write_dataset, write_geotiff_pair
from adadino.export import ExportOptions, export, write
from adadino.model.adadino import AdaDINO
from adadino.scene import SceneOptions, predict_scene
from adadino.training.config import load_run
from adadino.training.run import train

SMALL = Config(
    backbone=BackboneConfig("small", dim=32, depth=4, heads=2, ffn=64, registers=2),
    bscs=BSCSConfig(chunks=8, k=3, hidden=16),
    cpgr=CPGRConfig(width=16),
)
"""A model that runs in milliseconds and has every part of the large one."""

TRACED = Config(
    backbone=BackboneConfig("small", dim=32, depth=4, heads=2, ffn=64, registers=2),
    cgla=CGLAConfig(mode="off"),
    bscs=BSCSConfig(chunks=8, k=3, hidden=16),
    cpgr=CPGRConfig(width=16, prior=(), refiner=False),
)
"""One for export, where the time goes by the number of operators."""

Inputs = Mapping[str, Path]
Work = dict[str, object]
"""What is finished, by name; the value changes when it is done again."""


def random_model(config: Config) -> AdaDINO:
    """A model whose answers vary from pixel to pixel, the same every time."""
    generator = torch.Generator().manual_seed(1)
    model = AdaDINO(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.35)
    return model


def make_inputs(folder: Path, *, traced: bool = True) -> dict[str, Path]:
    """Write what the commands read; the graph of `export` takes longer than all else."""
    warnings.simplefilter("ignore")
    before, after, _ = write_geotiff_pair(folder / "scene", 7, (150, 210))
    write_dataset(folder / "source", {"train": 3, "val": 2, "test": 2}, size=64)
    write_dataset(folder / "set", {"train": 5, "val": 3}, size=32)
    inputs = {
        "before": before,
        "after": after,
        "source": folder / "source",
        "set": folder / "set",
        "model": save(random_model(SMALL), folder / "model", with_backbone=True),
    }
    if traced:
        inputs["traced"] = save(random_model(TRACED), folder / "traced", with_backbone=True)
        inputs["graph"] = folder / "graph.onnx"
        export(load(inputs["traced"]), inputs["graph"], ExportOptions(size=32))
        untold = onnx.load(inputs["graph"])
        del untold.metadata_props[:]
        onnx.save(untold, inputs["graph"])
    return inputs


def files(folder: Path) -> dict[str, Path]:
    """Every file below a folder by its name there, but locks."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path for path in found if path.name != ".lock"}


def is_final(name: str) -> bool:
    """Whether a file is under the name that a reader would look for."""
    return not any(part.startswith(".") for part in Path(name).parts)


def identity(path: Path) -> tuple[int, int]:
    """Which file has this name: another one if it was written again."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns


def quick_pictures() -> None:
    """Have this process write pictures in milliseconds; there is one under the same name.

    Most of a small run's time would go into drawing axes and packing pixels, and hundreds of runs
    are what finds something. What a curve shows is written into its file instead of drawn.
    """
    from matplotlib.figure import Figure
    from PIL import Image, PngImagePlugin

    pack = Image.Image.save

    def save(self: Any, file: Any, *arguments: Any, **options: Any) -> None:
        pack(self, file, *arguments, **options | {"compress_level": 1, "optimize": False})

    def draw(self: Any, file: Any, **_: Any) -> None:
        said = PngImagePlugin.PngInfo()
        lines = [line.get_xydata().tolist() for axes in self.axes for line in axes.lines]
        said.add_text("lines", repr(lines))
        Image.new("L", (1, 1)).save(file, "PNG", pnginfo=said)

    Image.Image.save = save  # type: ignore[method-assign]
    Figure.savefig = draw


class Command(ABC):
    """One command."""

    name: str
    changing: tuple[str, ...] = ()
    """Beginnings of the names of files that are replaced while the command runs."""

    @abstractmethod
    def run(self, inputs: Inputs, folder: Path) -> None:
        """Begin, or go on."""

    def settled(self, name: str) -> bool:
        """Whether a file, once there, must have the bytes of an undisturbed run."""
        return is_final(name) and not name.startswith(self.changing)

    def compared(self, folder: Path) -> dict[str, object]:
        """All that must be equal in the end."""
        return {name: path.read_bytes() for name, path in files(folder).items()}

    def finished(self, folder: Path) -> Work:
        """The work that a restart may neither lose nor repeat."""
        return {}

    def is_answer(self, error: Exception, folder: Path) -> bool:
        """Whether an error at a restart only says that all is done."""
        return False


class Prepare(Command):
    """A dataset into tiles."""

    name = "prepare"

    def run(self, inputs: Inputs, folder: Path) -> None:
        """Cut 64 pixels into 32."""
        prepare("folder", inputs["source"], folder / "set", tile=32)

    def finished(self, folder: Path) -> Work:
        """Every tile, wherever it lies: renaming a folder keeps the files."""
        tiles = (path for path in files(folder).values() if not path.name.startswith("."))
        return {
            "/".join(path.parts[-3:]): identity(path) for path in tiles if path.suffix == ".png"
        }


class Train(Command):
    """A run of two epochs."""

    name = "train"
    changing = ("set/best", "set/history.csv", "set/curves.png", "set/last.ckpt", "set/card.md")

    def run(self, inputs: Inputs, folder: Path) -> None:
        """Train, or go on."""
        quick_pictures()
        small = SMALL.backbone
        given = [
            "preset=tiny",
            *(f"model.backbone.{n}={getattr(small, n)}" for n in ("dim", "depth", "heads", "ffn")),
            "model.backbone.registers=2",
            "model.bscs.chunks=8",
            "model.bscs.k=3",
            "model.bscs.hidden=16",
            "model.cpgr.width=16",
            "augment.size=32",
            "data.workers=0",
            "train.epochs=2",
            "train.batch=2",
            "train.lr=5e-3",
            "train.bscs_warmup=1",
            "train.lambda_start=1",
            "train.lambda_ramp=2",
            f"data.root={inputs['set']}",
            f"output={folder / 'set'}",
        ]
        train(load_run(None, given), quiet=True)

    def compared(self, folder: Path) -> dict[str, object]:
        """The card and the checkpoint say how long it took; of the latter the tensors count."""
        found = super().compared(folder)
        state = self._state(folder)
        tensors = (state or {}).get("state_dict", {})
        found["set/last.ckpt"] = {name: t.numpy().tobytes() for name, t in tensors.items()}
        for name in ("set/config.yaml", "set/card.md"):  # these name the folder, or the seconds
            found[name] = name in found
        return found

    def settled(self, name: str) -> bool:
        """The configuration names its folder, which another run does not share."""
        return super().settled(name) and name != "set/config.yaml"

    def finished(self, folder: Path) -> Work:
        """The epochs that the checkpoint has, by the pictures they left."""
        state = self._state(folder)
        if state is None:
            return {}
        epochs = [int(row["epoch"]) for row in state["history"]]
        pictures = folder / "set" / "pictures"
        return {f"epoch {e}": identity(pictures / f"epoch-{e:03d}.png") for e in epochs}

    @staticmethod
    def _state(folder: Path) -> dict[str, Any] | None:
        path = folder / "set" / "last.ckpt"
        if not path.exists():
            return None
        state: dict[str, Any] = torch.load(path, weights_only=True)
        return state


class Predict(Command):
    """A scene of fifteen tiles with all its outputs."""

    name = "predict"
    tiles_in_a_row = 5
    bottoms = (64, 112, 150)
    """Where the rows of tiles end."""

    def run(self, inputs: Inputs, folder: Path) -> None:
        """Predict with --resume, noting every pass through the model outside the folder."""
        quick_pictures()
        model = load(inputs["model"])
        forward, passes = model.forward, folder.with_suffix(".passes")
        passes.write_text("")

        def noted(*arguments: Any, **options: Any) -> Any:
            with passes.open("a") as lines:
                lines.write(".")
            return forward(*arguments, **options)

        model.forward = noted  # type: ignore[method-assign]
        predict_scene(
            inputs["before"],
            inputs["after"],
            model,
            output=folder / "c.tif",
            probability=folder / "p.tif",
            vector=folder / "v.gpkg",
            overview=folder / "o.png",
            stac=folder / "s.json",
            options=SceneOptions(tile=64, overlap=16, batch=1, threshold=0.32, readers=1),
            device="cpu",
            resume=True,
        )

    def finished(self, folder: Path) -> Work:
        """Nothing by name: see `most`."""
        return {}

    def most(self, folder: Path) -> int:
        """The most passes through the model that a restart may need."""
        try:
            lines = (folder / ".c.tif.work" / "rows.txt").read_text().split("\n")[:-1]
            rows = int(lines[-1])
        except (OSError, IndexError, ValueError):
            rows = 0
        due = sum(bottom > rows for bottom in self.bottoms)
        return self.tiles_in_a_row * due + (0 if rows else 1)

    def is_answer(self, error: Exception, folder: Path) -> bool:
        """Killed while it cleared up: its outputs are there, and it says so."""
        return "exists; choose another name" in str(error)


class PredictArea(Command):
    """A scene of six units, in this process."""

    name = "predict-area"

    def run(self, inputs: Inputs, folder: Path) -> None:
        """Predict what is missing."""
        units.BLOCK = 64  # smaller units than a region has, so that there are several
        dates = Dates("town", str(inputs["before"]), str(inputs["after"]))
        options = SceneOptions(tile=64, overlap=16, sample=2, threshold=0.32, readers=1)
        predict_area(
            [dates],
            folder / "set",
            str(inputs["model"]),
            options=options,
            probability=True,
            unit=128,
            workers=0,
            device="cpu",
            threads=1,
        )

    def finished(self, folder: Path) -> Work:
        """The units with a record, by their files."""
        pair = folder / "set" / "pairs" / "town"
        records = (path.stem for path in sorted((pair / "done").glob("[!.]*.json")))
        return {name: identity(pair / "mask" / f"{name}.tif") for name in records}


class Export(Command):
    """A small model as ONNX."""

    name = "export"

    def run(self, inputs: Inputs, folder: Path) -> None:
        """Export, unless the file is there; the graph was traced once, with the inputs."""
        graph = onnx.load(inputs["graph"])
        write.trace = lambda *_, **__: None  # type: ignore[assignment]
        write.to_onnx = lambda *_, **__: graph
        target = folder / "model.onnx"
        if not target.exists():
            export(load(inputs["traced"]), target, ExportOptions(size=32))


COMMANDS: dict[str, Command] = {
    command.name: command for command in (Prepare(), Train(), Predict(), PredictArea(), Export())
}
