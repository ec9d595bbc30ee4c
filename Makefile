# make demo, make test: each sets itself up on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tools that look at the dependencies live apart from them, so that they are not among what they find.
SUPPLY := .venv-supply
EXTRAS := train geo hub web ray pretrain export

.PHONY: setup demo test test-all lint check docs qgis-plugin lock sbom audit clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "adadino needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/adadino demo

# What a change breaks shows here within minutes; test-all has the slow rest: killed runs, clusters,
# exports, several processes.
test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(PYTEST)

test-all: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

# The site in site/, strictly: a broken link is an error. Nothing in it comes from elsewhere.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# The plugin for QGIS as a zip in dist/: in QGIS, Plugins > Install from ZIP.
qgis-plugin:
	$(PYTHON) qgis-plugin/pack.py dist

$(SUPPLY)/.installed: constraints.txt
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet -c constraints.txt uv cyclonedx-bom pip-audit
	@touch $@

# requirements.lock: the core and every extra for users, on every platform, each file by its digest.
# Always from PyPI itself, whatever index this machine is set to: the lock is for strangers.
lock: $(SUPPLY)/.installed
	$(SUPPLY)/bin/uv pip compile pyproject.toml --no-config --universal --python-version 3.11 \
	  $(addprefix --extra ,$(EXTRAS)) -c constraints.txt --generate-hashes --no-annotate \
	  --default-index https://pypi.org/simple --no-emit-index-url --quiet \
	  --custom-compile-command 'make lock' -o requirements.lock

# A CycloneDX bill of materials of what the lock installs, with the same digests.
sbom: $(SUPPLY)/.installed
	$(SUPPLY)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o sbom.cdx.json
	@echo "wrote sbom.cdx.json"

# Known vulnerabilities of what the lock installs; needs the network.
audit: $(SUPPLY)/.installed
	$(SUPPLY)/bin/pip-audit -r requirements.lock --require-hashes --disable-pip

clean:
	rm -rf $(VENV) $(SUPPLY) demo site
