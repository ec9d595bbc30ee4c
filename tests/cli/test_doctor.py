"""`adadino doctor`: an answer on every machine, and an exit code that means something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest

from adadino import extras
from adadino.cli.app import main
from adadino.cli.doctor import machine, packages

GEO = ("rasterio", "pyogrio", "shapely", "geopandas", "skimage", "pyproj")


def by_name(report: dict) -> dict[str, dict]:
    return {check["name"]: check for check in report["checks"]}


def test_a_usable_machine_is_exit_code_0_and_every_line_says_what_it_means(adadino):
    code, out, err = adadino("doctor", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    checks = by_name(report)
    assert report["usable"] is True
    assert {"Python", "torch", "GPU", "memory", "GDAL", "bundled model", "cache folder"} <= set(
        checks
    )
    assert {f"[{extra}]" for extra in extras.EXTRAS} <= set(checks)
    assert all(check["found"] and check["meaning"] for check in checks.values())
    assert "and it ran" in checks["bundled model"]["found"]
    # The digest a user can compare: sha256sum on the file.
    assert len(checks["bundled model"]["found"].split("sha256 ")[1].split(",")[0]) == 64


@pytest.mark.slow
def test_the_core_alone_is_usable_and_is_told_the_pip_command():
    code = f"""
import sys
from importlib import metadata
for name in {GEO!r}:
    sys.modules[name] = None
version = metadata.version
def without(name):
    if name in {(*GEO, "scikit-image")!r}:
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without
sys.argv = ["adadino", "doctor", "--json"]
from adadino.cli.app import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    checks = by_name(json.loads(done.stdout))
    assert checks["GDAL"]["state"] == "note"
    assert checks["GDAL"]["remedy"] == "pip install 'adadino[geo]'"
    assert "rasterio" in checks["[geo]"]["found"]
    assert checks["[geo]"]["remedy"] == "pip install 'adadino[geo]'"
    assert checks["[web]"]["state"] == "note"  # it stands on geo
    assert "and it ran" in checks["bundled model"]["found"]


def test_a_broken_torch_is_reported_not_raised(adadino, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = adadino("doctor")
    assert (code, err) == (1, "")
    assert "problem torch: cannot be used" in out
    assert "-> pip install --force-reinstall 'torch>=2.11'" in out
    assert "[geo]" in out  # the rest of the report is there
    assert out.rstrip().endswith("not usable: torch")


def test_a_damaged_installation_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(packages.bundled, "__file__", str(tmp_path / "__init__.py"))
    check = packages.check_bundled(run=False)
    assert check.state == "problem"
    assert "No such file" in check.found
    assert "force-reinstall" in check.remedy


def test_a_model_that_does_not_run_is_found(monkeypatch):
    def broken(source):
        raise RuntimeError("first line\nsecond")

    monkeypatch.setattr("adadino.checkpoint.load", broken)
    check = packages.check_bundled()
    assert check.state == "problem"
    assert check.found.endswith("it does not run: first line")


def test_a_package_that_is_too_old_counts_as_missing(monkeypatch):
    installed = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "1.3.9" if name == "rasterio" else installed(name)
    )
    checks = {check.name: check for check in packages.check_extras()}
    assert checks["[geo]"].found == "missing: rasterio 1.3.9 is older than 1.4"
    assert checks["[hub]"].state == "ok"


def test_an_extra_that_names_another_has_its_packages():
    wanted = extras.requirements("adadino")
    assert ("rasterio", (1, 4)) in wanted["geo"]
    assert set(wanted["geo"]) < set(wanted["web"])
    assert set(wanted["train"]) < set(wanted["pretrain"])


def test_every_extra_for_users_is_explained():
    developers = {"dev", "test", "docs", "supply"}
    assert set(extras.EXTRAS) == set(extras.requirements("adadino")) - developers


def test_weights_are_found_where_the_hub_and_torch_keep_them(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.chdir(tmp_path)
    assert "none in" in packages.check_dinov3().found
    cached = tmp_path / "hf" / "hub" / "models--facebook--dinov3-vitl16-pretrain-sat493m"
    cached.mkdir(parents=True)
    (tmp_path / "dinov3_vitb16.pth").touch()
    found = packages.check_dinov3()
    assert str(cached) in found.found
    assert "dinov3_vitb16.pth" in found.found
    assert "--model.backbone.weights" in found.meaning


def test_a_cache_folder_that_cannot_be_written_is_a_note_with_the_variable(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ADADINO_CACHE", str(tmp_path / "file" / "below"))
    check = next(machine.check_folders())
    assert check.state == "note"
    assert "cannot be written" in check.found
    assert "ADADINO_CACHE" in check.remedy


def test_looking_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("ADADINO_CACHE", str(tmp_path / "not" / "yet"))
    assert next(machine.check_folders()).state == "ok"
    assert not list(tmp_path.iterdir())


def test_another_programs_proj_is_named(monkeypatch):
    from rasterio.errors import CRSError

    class Lost:
        @staticmethod
        def from_epsg(code):
            raise CRSError("PROJ: internal_proj_create_from_database: Cannot find proj.db")

    monkeypatch.setattr("rasterio.crs.CRS", Lost)
    monkeypatch.setenv("PROJ_LIB", "/usr/share/proj")
    check = packages.check_gdal()
    assert (check.state, check.remedy) == ("note", "unset PROJ_LIB")
    assert "proj.db" in check.found


@pytest.mark.parametrize(
    ("limit", "state"), [(None, "note"), (2 * 2**30, "note"), (16 * 2**30, "ok")]
)
def test_little_memory_is_said(monkeypatch, limit, state):
    monkeypatch.setattr(machine, "_memory", lambda: limit)
    assert machine.check_memory().state == state


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("rasterio.windows", "geo"),
        ("affine", "geo"),
        ("skimage", "geo"),
        ("pytorch_lightning", "train"),
        ("fastapi", "web"),
        ("onnxruntime", "export"),
        ("ray", "ray"),
        ("numpy", None),  # the core's: no extra brings it
        ("nonsense", None),
    ],
)
def test_a_missing_module_leads_to_its_extra(module, extra):
    assert extras.extra_with(module) == extra


def test_a_command_whose_extra_is_missing_says_so_in_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("a.tif", "b.tif"):
        (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, "rasterio", None)
    for name in [
        name for name in sys.modules if name.startswith(("adadino.scene", "adadino.runtime"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["adadino", "predict", "a.tif", "b.tif", "-o", "c.tif"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("adadino: this needs rasterio")
    assert "pip install 'adadino[geo]'" in said
