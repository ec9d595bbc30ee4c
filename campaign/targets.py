"""The parsers: each takes bytes that somebody gave us, and either takes them or says why not."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from adadino.errors import AdaDINOError
from campaign.commands import SMALL, random_model
from campaign.mutate import Mutator

FIGURES = "figures"
"""The file in a target's folder with what it wants told of its inputs; most have none."""


class Target(ABC):
    """One parser. `prepare` once, then `take` many inputs.

    Attributes:
        name: What the command line calls it.
        head: See `Mutator`.
        modules: Where a fuzzer that follows branches should look.
    """

    name: ClassVar[str]
    head: ClassVar[int | None] = None
    modules: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def seeds(self) -> Sequence[bytes]:
        """Good inputs."""

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Parse.

        Raises:
            AdaDINOError: The only way to refuse.
        """

    def close(self) -> None:  # noqa: B027, most have nothing to end
        """End what it started."""

    def inputs(self, seed: int) -> Any:
        """A callable that gives the next input."""
        return Mutator(self.seeds(), f"{seed} {self.name}", self.head)

    def _file(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


class Settings(Target):
    """A training run's YAML."""

    name = "yaml"
    modules = ("adadino.schema", "adadino.config", "adadino.training.config")

    def seeds(self) -> Sequence[bytes]:
        """The configurations that come with the project's kind of runs."""
        from adadino import schema
        from adadino.config import PRESETS
        from adadino.training.config import RunConfig

        whole = schema.write_yaml(RunConfig()).encode()
        return [
            whole,
            b"preset: tiny\nmodel:\n  bscs: {k: 6, chunks: 16}\ntrain:\n  lr: 5e-4\n",
            b"base: &a {k: 6}\nmodel:\n  bscs:\n    <<: *a\n",
            b"a: &a [x, x]\nb: &b [*a, *a]\nmodel: {cgla: {depths: *b}}\n",
            b"model: " + json.dumps(schema.to_dict(PRESETS["tiny"])).encode(),
        ]

    def take(self, data: bytes) -> None:
        """As `adadino train --config FILE` reads it."""
        from adadino.training.config import load_run

        load_run(self._file("c.yaml", data), [])


class Overrides(Target):
    """`--model.bscs.k 6` and its kin."""

    name = "overrides"
    modules = ("adadino.schema",)

    def seeds(self) -> Sequence[bytes]:
        """One override a line."""
        return [
            b"model.bscs.k=6\ntrain.lr=1e-4\ndata.root=a,b\nmodel.cpgr.prior=spatial,delta",
            b"preset=tiny\nmodel.cgla.depths=[0, 1, 2, 3]\ntrain.precision=32\nmodel.bscs=off",
        ]

    def take(self, data: bytes) -> None:
        """As they come from a shell."""
        from adadino.training.config import load_run

        lines = data.decode("utf-8", "replace").split("\n")
        load_run(None, [line for line in lines if line])


class Checkpoint(Target):
    """A safetensors file: its header, its configuration."""

    name = "checkpoint"
    modules = ("adadino.checkpoint", "adadino.schema", "adadino.config")

    def seeds(self) -> Sequence[bytes]:
        """A small model's."""
        from adadino.checkpoint import save

        save(random_model(SMALL), self.folder / "model", with_backbone=True)
        whole = (self.folder / "model" / "model.safetensors").read_bytes()
        type(self).head = 8 + int.from_bytes(whole[:8], "little")
        (self.folder / "model" / "config.json").unlink()
        return [whole]

    def take(self, data: bytes) -> None:
        """As `adadino.load` does."""
        from adadino.checkpoint import load

        (self.folder / "model" / "model.safetensors").write_bytes(data)
        load(self.folder / "model")


class Configuration(Checkpoint):
    """What a checkpoint says of itself, without its tensors."""

    name = "configuration"

    def seeds(self) -> Sequence[bytes]:
        """A small model's."""
        from adadino.checkpoint import save

        save(random_model(SMALL), self.folder / "model", with_backbone=True)
        self.whole = (self.folder / "model" / "model.safetensors").read_bytes()
        said = (self.folder / "model" / "config.json").read_bytes()
        (self.folder / "model" / "config.json").unlink()
        type(self).head = None
        return [said]

    def take(self, data: bytes) -> None:
        """The configuration goes into a header that is otherwise in order."""
        size = int.from_bytes(self.whole[:8], "little")
        header = json.loads(self.whole[8 : 8 + size])
        header["__metadata__"] = {"adadino": data.decode("utf-8", "replace")}
        text = json.dumps(header).encode()
        super().take(len(text).to_bytes(8, "little") + text + self.whole[8 + size :])


class Manifests(Target):
    """A prepared set's manifest."""

    name = "manifest"
    modules = ("adadino.data.prepare.manifest",)

    def seeds(self) -> Sequence[bytes]:
        """A real one."""
        from adadino.data.prepare.run import prepare
        from adadino.data.synthetic import write_dataset

        write_dataset(self.folder / "source", {"train": 1, "val": 1, "test": 1}, size=16)
        prepare("folder", self.folder / "source", self.folder / "set", tile=16)
        return [(self.folder / "set" / "manifest.json").read_bytes()]

    def take(self, data: bytes) -> None:
        """As `prepare` and `evaluate` read it."""
        from adadino.data.prepare.manifest import Manifest
        from adadino.data.prepare.run import prepare

        (self.folder / "set" / "manifest.json").write_bytes(data)
        Manifest.verify(self.folder / "set")
        prepare("folder", self.folder / "source", self.folder / "set", tile=16)


class Archive(Target):
    """A downloaded zip."""

    name = "zip"
    modules = ("adadino.data.prepare.archives", "adadino.data.prepare.layouts")

    def seeds(self) -> Sequence[bytes]:
        """Stored and compressed, and one in another."""
        from adadino.data.synthetic import write_dataset

        write_dataset(self.folder / "source", {"train": 1, "val": 1, "test": 1}, size=8)
        found = []
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", method) as archive:
                for path in sorted((self.folder / "source").rglob("*.png")):
                    archive.write(path, path.relative_to(self.folder / "source"))
            found.append(buffer.getvalue())
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("inner.zip", found[0])
        return [*found, buffer.getvalue()]

    def take(self, data: bytes) -> None:
        """Prepare it; what is refused leaves nothing that looks finished."""
        from adadino.data.prepare.run import prepare

        out = self.folder / "out"
        try:
            prepare("folder", self._file("x.zip", data), out, tile=8, overwrite=True)
        except AdaDINOError:
            if (out / "manifest.json").exists():
                raise AssertionError("a refused archive left a manifest") from None
            raise
        finally:
            shutil.rmtree(out, ignore_errors=True)


class Table(Target):
    """`predict-area --pairs FILE.csv`."""

    name = "csv"
    modules = ("adadino.area.pairs",)

    def seeds(self) -> Sequence[bytes]:
        """With and without names."""
        return [
            b"before,after,name\na/2019.tif,a/2024.tif,town\ns3://b/1.tif,/vsicurl/x/2.tif,\n",
            b'\xef\xbb\xbfbefore,after\r\n"x, y.tif",z.tif\r\n',
        ]

    def take(self, data: bytes) -> None:
        """Read the list; nothing is opened."""
        from adadino.area.pairs import read_pairs

        read_pairs(self._file("p.csv", data))


class Stac(Target):
    """`predict-area --pairs FILE.json`."""

    name = "stac"
    modules = ("adadino.area.pairs",)

    def seeds(self) -> Sequence[bytes]:
        """An item, a collection of items, and one that links."""

        def item(name: str, when: str, **assets: str) -> dict[str, Any]:
            named = {k: {"href": v, "type": "image/tiff"} for k, v in assets.items()}
            return {
                "type": "Feature", "id": name, "bbox": [0, 0, 1, 1],
                "properties": {"datetime": when, "grid:code": None}, "assets": named, "links": [],
            }  # fmt: skip

        two = [
            item("a", "2019-01-01T00:00:00Z", visual="a.tif"),
            item("b", "2024-01-01T00:00:00Z", image="b.tif"),
        ]
        documents = [
            item("town", "2024-01-01T00:00:00Z", before="a.tif", after="b.tif"),
            {"type": "FeatureCollection", "features": two},
            {"type": "Collection", "links": [{"rel": "item", "href": "s.json"}]},
        ]
        return [json.dumps(document).encode() for document in documents]

    def take(self, data: bytes) -> None:
        """Read the document and what it links to."""
        from adadino.area.pairs import read_pairs

        read_pairs(self._file("s.json", data))


class Said(Target):
    """The metadata of an exported ONNX file."""

    name = "onnx"
    modules = ("adadino.runtime.exported",)

    def seeds(self) -> Sequence[bytes]:
        """A name and a value a line."""
        return [b'adadino_format\t1\nstride\t8\nsize\t64\ntile\t256\nclasses\t["a", "b"]']

    def take(self, data: bytes) -> None:
        """Put it into the smallest graph there is, and open that."""
        import onnx
        from onnx import TensorProto, helper

        from adadino.runtime.exported import ExportedModel

        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
        same = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "g", [value], [same]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        for line in data.decode("utf-8", "replace").replace("\x00", "").split("\n"):
            entry = model.metadata_props.add()
            entry.key, _, entry.value = line.partition("\t")
        path = self.folder / "m.onnx"
        onnx.save(model, path)
        ExportedModel(path, device="cpu")


class Graph(Target):
    """The bytes of an exported ONNX file."""

    name = "onnx-file"

    def seeds(self) -> Sequence[bytes]:
        """The smallest file that is ours."""
        Said(self.folder).take(b"adadino_format\t1\nstride\t8\nsize\t64")
        return [(self.folder / "m.onnx").read_bytes()]

    def take(self, data: bytes) -> None:
        """Open it."""
        from adadino.runtime.exported import ExportedModel

        ExportedModel(self._file("n.onnx", data), device="cpu")


class Rows(Target):
    """What an interrupted prediction left: run.json and rows.txt."""

    name = "journal"
    modules = ("adadino.scene.journal",)

    def seeds(self) -> Sequence[bytes]:
        """The one, a zero byte, the other."""
        return [b'{"model": "m", "tile": 64, "outputs": ["c.tif"], "chosen": null}\x0048\n96\n']

    def take(self, data: bytes) -> None:
        """Go on from it."""
        from adadino.files import work_folder
        from adadino.scene.journal import open_journal, outputs_begun

        run, _, lines = data.partition(b"\x00")
        output = self.folder / "c.tif"
        work = work_folder(output)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / "run.json").write_bytes(run)
        (work / "rows.txt").write_bytes(lines)
        (work / "rows.f32").write_bytes(bytes(4 * 10 * 96))
        outputs_begun(work)
        facts = {"model": "m", "tile": 64}
        with (
            open_journal(
                output, (100, 10), facts, outputs=[str(output)], resume=True, overwrite=False
            ) as journal,
            journal.open(),
        ):
            journal.append(journal.done, np.zeros((100 - journal.done, 10), np.float32))


class Records(Target):
    """What a region's workers left: the records of its units and pairs."""

    name = "ledger"
    modules = ("adadino.area.ledger",)

    def seeds(self) -> Sequence[bytes]:
        """Facts, a survey and a record, zero bytes between."""
        return [
            b'{"model": "m", "unit": 512}\x00{"files": [["a"], ["b"]], "warnings": []}\x00'
            b'{"files": {"pairs/town/mask/x.tif": {"bytes": 3, "sha256": "ab"}}, "changed": 1, '
            b'"valid": 9}'
        ]

    def take(self, data: bytes) -> None:
        """Look at what is finished."""
        from adadino.area.ledger import Ledger
        from adadino.area.store import Folder
        from adadino.area.units import Dates, Unit

        out = self.folder / "area"
        shutil.rmtree(out, ignore_errors=True)
        dates = Dates("town", "a", "b")
        unit = Unit(dates, 0, 0, 512, 512)
        done = out / "pairs" / "town" / "done"
        done.mkdir(parents=True)
        facts, survey, record = [*data.split(b"\x00", 2), b"", b""][:3]
        (out / "area.json").write_bytes(facts)
        (out / "pairs" / "town" / "survey.json").write_bytes(survey)
        (done / f"{unit.name}.json").write_bytes(record)
        ledger = Ledger(Folder(out))
        ledger.begin({"model": "m", "unit": 512}, overwrite=False)
        list(ledger.records(dates, [unit], verify=True))
        ledger.forget_changed(dates)


TARGETS: dict[str, type[Target]] = {
    kind.name: kind
    for kind in (
        Settings, Overrides, Checkpoint, Configuration, Manifests, Archive, Table, Stac, Said,
        Graph, Rows, Records,
    )
}  # fmt: skip
