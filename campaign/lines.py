"""Command lines: random ones, and ones in order with a word or two changed.

They run in this process, in a folder of their own, so that a line costs its work and no imports.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from campaign.geotiff import GeoTiff
from campaign.targets import Target


class CommandLine(Target):
    """Whole command lines, one argument a line."""

    name = "cli"
    VERBS = (
        "predict",
        "predict-area",
        "info",
        "prepare",
        "evaluate",
        "export",
        "train",
        "synthesize",
        "benchmark",
        "reproduce",
        "pretrain",
        "serve",
        "demo",
        "doctor",
    )
    SAFE = frozenset(("predict", "predict-area", "info", "prepare", "evaluate", "export", "train"))
    VALUES = (
        "",
        "0",
        "-1",
        "1",
        "64",
        "1e400",
        "nan",
        "inf",
        "1,2,3",
        "1,2",
        "0,0",
        ",",
        "=",
        "a=b",
        "tiny",
        "vits16",
        "auto",
        "cpu",
        "cuda:99",
        "x.tif",
        "x.onnx",
        "good.tif",
        "bad.tif",
        "out.tif",
        "out.png",
        "out.gpkg",
        "out.json",
        "model",
        "set",
        "p.csv",
        ".",
        "/proc",
        "/dev/null",
        "\x00",
        "\udcff",
        "é",
        "a" * 5000,
        "--",
        "-",
        "../x",
        "s3://b/x",
        "folder",
        "levir-cd",
        "9" * 400,
        "null",
        "[",
        "{",
        "model.bscs.k=0",
        "999999999999",
        "1048576",
    )

    LINES = (
        "predict good.tif good-uint8.tif --output out.tif --model model --device cpu --tile 64",
        "predict good.tif good-uint8.tif -o out.png --model model --device cpu --vector out.gpkg",
        "predict-area --pairs p.csv --out area --model model --device cpu --workers 0 --tile 64",
        "predict-area --pairs p.csv --out area --model model --workers 0 --dry-run",
        "info model --k 3",
        "info --preset vits16",
        "prepare folder source made --tile 16",
        "evaluate model --data set --split test --device cpu --output scores",
        "export model --output out.onnx --size 32 --opset 3",
        "train --data set --output run --model.bscs.k 6 --train.epochs 0",
    )
    """Lines in order, or nearly; each ends within a second."""

    def seeds(self) -> Sequence[bytes]:
        """Files for the lines to name."""
        from adadino.checkpoint import save
        from adadino.data.prepare.run import prepare
        from adadino.data.synthetic import write_dataset

        tif = GeoTiff(self.folder)
        (self.folder / "bad.tif").write_bytes(tif.seeds()[0][:900])
        save(tif.model, self.folder / "model", with_backbone=True)
        self._file("p.csv", b"before,after\ngood.tif,good-uint8.tif\n")
        write_dataset(self.folder / "source", {"train": 1, "val": 1, "test": 1}, size=32)
        prepare("folder", self.folder / "source", self.folder / "set", tile=32)
        return [line.replace(" ", "\n").encode() for line in self.LINES]

    def inputs(self, seed: int) -> Any:
        """Half are random options with random values, half lines in order with some changes."""
        self.seeds()
        options = {
            verb: [
                name for p in self.root.commands[verb].params for name in p.opts if name[0] == "-"
            ]
            for verb in self.VERBS
        }
        rng = random.Random(f"{seed} cli")

        def anything() -> list[str]:
            verb = rng.choice(self.VERBS)
            words = [verb]
            if verb not in self.SAFE:  # first, since `--` would make a name of it: never begins
                words.append(rng.choice(("--nope", "--help", "--json=1")))
            for _ in range(rng.randrange(7)):
                if rng.random() < 0.55:
                    words.append(option(verb))
                    if rng.random() < 0.1:
                        words[-1] += "="
                words.append(rng.choice(self.VALUES))
            return [*words, "--workers", "0"] if verb == "predict-area" else words

        def nearly() -> list[str]:
            words = rng.choice(self.LINES).split()
            for _ in range(rng.choice((1, 1, 2))):
                at = rng.randrange(1, len(words))
                if rng.random() < 0.6:
                    words[at:at] = [option(words[0]), rng.choice(self.VALUES)]
                elif words[at] not in ("0", "--workers", "--train.epochs", "--opset", "3"):
                    words[at] = rng.choice(self.VALUES)
            return words

        def option(verb: str) -> str:
            known = options[verb] if rng.random() < 0.9 else ["--nope", "--model.bscs.k"]
            return str(rng.choice(known))

        def line() -> bytes:
            words = anything() if rng.random() < 0.5 else nearly()
            return "\n".join(words).encode("utf-8", "surrogateescape")

        return line

    def take(self, data: bytes) -> None:
        """Run the line in the folder; whatever it makes is taken away."""
        import os

        import typer.testing

        from adadino.cli.app import app

        here = Path.cwd()
        kept = set(self.folder.iterdir())
        os.chdir(self.folder)
        try:
            words = data.decode("utf-8", "surrogateescape").split("\n")
            with warnings.catch_warnings(), self._known(typer.testing):
                warnings.simplefilter("ignore")
                result = typer.testing.CliRunner().invoke(app, words)
        finally:
            os.chdir(here)
            for path in set(self.folder.iterdir()) - kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code not in (0, 1, 2):
            raise AssertionError(f"exit code {result.exit_code}")
        if "Traceback" in result.output:
            raise AssertionError("a traceback was printed")

    @cached_property
    def root(self) -> Any:
        """The command, built once: that takes longer than most lines."""
        import typer

        from adadino.cli.app import app

        return typer.main.get_command(app)

    def _known(self, testing: Any) -> Any:
        """Have typer take the command that is already built."""
        from unittest import mock

        return mock.patch.object(testing, "_get_command", return_value=self.root)
