"""How large the house is: files that a command passes, lines and files of every package.

    python benchmarks/walks.py                    # this tree
    python benchmarks/walks.py --tree ../older    # another checkout

A file is passed if one of its functions is called; importing it is not enough. The walks are those
of docs/architecture.md, on the bundled model and small synthetic data, in processes of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
RECORDER = """
import os, sys, threading
from inspect import CO_NEWLOCALS
_file = os.open({record!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_seen, _mark = set(), os.sep + "adadino" + os.sep
def _see(frame, event, _):
    code = frame.f_code
    # Modules and the bodies of classes have no locals of their own: they run when imported.
    if event == "call" and code.co_filename not in _seen and code.co_flags & CO_NEWLOCALS:
        _seen.add(code.co_filename)
        if _mark in code.co_filename:
            os.write(_file, (code.co_filename + chr(10)).encode())
threading.setprofile(_see)
sys.setprofile(_see)
"""
"""A sitecustomize.py, which workers with a clean environment find too. It writes the name of each
file of the package at its first call."""

QUICK = (
    *("--train.epochs", "1", "--train.batch", "2", "--augment.size", "64", "--data.workers", "0"),
    *("--train.precision", "32", "--train.validate_every", "1", "--train.bscs_warmup", "1"),
)


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=HERE, help="a checkout")
    parser.add_argument("--lines-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    package = options.tree.resolve() / "src" / "adadino"
    lines, files = count(package)
    print("| package | files | lines |\n|---|---|---|")
    for name in sorted(lines):
        print(f"| `{name}` | {files[name]} | {lines[name]:,} |")
    print(f"| all | {files.total()} | {lines.total():,} |")
    if options.lines_only:
        return
    print("\n| walk | files |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, passed in walks(package, Path(folder)).items():
            print(f"| {name} | {len(passed)} |", flush=True)


def count(package: Path) -> tuple[Counter[str], Counter[str]]:
    """Lines and files of Python by package; the single files are one."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).parts
        name = parts[0] if len(parts) > 1 else "single files"
        lines[name] += len(path.read_text(encoding="utf-8").splitlines())
        files[name] += 1
    return lines, files


def walks(package: Path, folder: Path) -> dict[str, set[str]]:
    """The files that each walk passes."""
    (folder / "site").mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'site'}:{package.parent}"}
    environment |= {"OMP_NUM_THREADS": "1", "ADADINO_CACHE": str(folder / "cache")}

    def run(name: str, *arguments: object) -> set[str]:
        record = watch(folder, name)
        command = [sys.executable, "-m", "adadino", *map(str, arguments)]
        subprocess.run(
            command, cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return passed(record, package)

    run("demo", "demo", "-o", "pair", "-q")
    sizes = "--train", 4, "--val", 2, "--test", 2, "--size", 64
    run("synthesize", "synthesize", "data", *sizes, "-q")
    run("synthesize", "synthesize", "area", *sizes, "--geotiff", "-q")
    for date, name in (("A", "before"), ("B", "after")):
        (folder / "area" / "train" / date).rename(folder / "area" / name)
    dates = "pair/before.tif", "pair/after.tif"
    tiny = "--preset", "tiny", "--model.backbone.weights", "tiny"
    return {
        "predict": run("predict", "predict", *dates, "-o", "c.tif", "--vector", "c.gpkg", "-q"),
        "train": run("train", "train", *tiny, "--data", "data", "-o", "run", *QUICK, "-q"),
        "a table's row": run("row", "reproduce", "ablation", "--row", "+ CGLA", "--quick", "-q"),
        "a job of the page": page(package, folder, environment),
        "a unit of a region": run(
            "area", "predict-area", "--pairs", "area", "-o", "out", "--workers", 0, "-q"
        ),
    }


def watch(folder: Path, name: str) -> Path:
    """Have the next processes write down what they pass; returns the file they write to."""
    record = folder / f"{name}.txt"
    (folder / "site" / "sitecustomize.py").write_text(
        RECORDER.replace("{record!r}", repr(str(record)))
    )
    return record


def page(package: Path, folder: Path, environment: dict[str, str]) -> set[str]:
    """The files that one job of the page passes, from its upload to its polygons."""
    record = watch(folder, "page")
    command = [sys.executable, "-m", "adadino", "serve", "--port", "0", "--no-demo"]
    command += ["--jobs", str(folder / "jobs"), "--data", str(folder / "pair")]
    server = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        address = next(
            word for line in server.stdout for word in line.split() if word.startswith("http")
        ).rstrip("/.,")
        asked = json.dumps({"before": "before.tif", "after": "after.tif"}).encode()
        job = ask(f"{address}/api/jobs", asked)["id"]
        while (state := ask(f"{address}/api/jobs/{job}")["state"]) not in ("done", "failed"):
            time.sleep(1)
        assert state == "done", state
        ask(f"{address}/api/jobs/{job}/polygons?threshold=0.6")
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        server.kill()
    return passed(record, package)


def ask(address: str, body: bytes | None = None) -> dict:
    """One request to the page's API."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def passed(record: Path, package: Path) -> set[str]:
    """The files of the package that a process and its children wrote down."""
    return {line for line in record.read_text().splitlines() if line.startswith(str(package))}


if __name__ == "__main__":
    main()
