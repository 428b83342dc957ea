# Every target sets itself up: Python 3.11 to 3.13 and make are all a machine needs.
# `make PYTHON=/path/to/python3.12 test` chooses the interpreter.

PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3 python; do \
	"$$name" -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		</dev/null >/dev/null 2>&1 && { echo "$$name"; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Programs in Go and JavaScript that tests start.
PROGRAMS := $(VENV)/.programs
BENCHES = wan $(patsubst bench/%.py,%,$(filter-out bench/fit_%,$(shell grep -l '^if __name__' bench/*.py)))
# Of tests, more than there are processors: much of the time is waiting for other processes.
WORKERS ?= 3
# Which tests of emulated machines run.
MACHINES ?= machine
# Folders and files for codespell.
PROSE := src gateway grids tests bench example_dags docs changes Makefile pyproject.toml $(wildcard *.md)
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate

# Behind a proxy that re-signs TLS only the system's certificates are of use.
export UV_SYSTEM_CERTS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images for containers often forbid bytecode files; then each of the hundreds of processes that
# tests start compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-dagster demo-clouds demo-clouds-stores test test-long test-matrix e2e-airflow e2e-dagster live screenshots \
	test-image test-kubernetes boot-test vendor-models check coverage dist release docs bench soak constraints matrix-pins clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)  ## one transfer as an Airflow DAG, on servers embedded in this machine
	@$(BIN)/python example_dags/run_demo.py airflow

demo-dagster: $(INSTALLED)  ## the same as a Dagster asset
	@$(BIN)/python example_dags/run_demo.py dagster

demo-clouds: $(INSTALLED)  ## S3 to Google Cloud Storage through instances of three fake clouds
	@$(BIN)/python example_dags/run_instances_demo.py

demo-clouds-stores: $(INSTALLED)  ## S3 to Google Cloud Storage to Azure Blob Storage, on emulators
	@$(BIN)/python example_dags/run_clouds_demo.py

test: $(PROGRAMS)  ## files run side by side, long ones first
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test-long: $(PROGRAMS)  ## scenarios that take half a minute each: kills, chains of clouds, faults of whole runs
	@$(BIN)/python -m pytest -m "long and not soak" --numprocesses $(WORKERS) --dist loadfile

test-matrix: $(PROGRAMS)  ## the orchestrators' suites with each supported line; LINES="airflow-2.11 --python 3.12"
	@$(BIN)/python -m tests.matrix $(LINES)

e2e-airflow: $(PROGRAMS)  ## a whole Airflow 3 with kills, restarts and cleared tasks
	@$(BIN)/python -m tests.e2e_airflow

e2e-dagster: $(PROGRAMS)  ## `dagster dev` with runs that are terminated at every gap between steps
	@$(BIN)/python -m tests.matrix dagster-1.13 --module tests.e2e_dagster

live: $(INSTALLED)  ## copies within real clouds, for 1 USD at most; tests/live/README.md says what to set
	@$(BIN)/python -m tests.live

screenshots: $(INSTALLED)  ## of Airflow's and Dagster's pages, for the docs; needs Chromium
	@$(BIN)/python -m tests.screenshots.airflow
	@$(BIN)/python -m tests.matrix dagster-1.13 --module tests.screenshots.dagster

check: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet . || { echo 'run: $(BIN)/ruff format .'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --config setup.cfg --no-logo
	@$(BIN)/codespell $(PROSE)

coverage: $(PROGRAMS)  ## the tests of `make test`, with lines and branches that they do not reach
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

dist: $(INSTALLED)  ## wheel and source archive, from a clean checkout
	@rm -rf dist && $(BIN)/python -m build --installer uv --outdir dist

release: $(INSTALLED)  ## VERSION=1.2.3: changelog, version, commit and tag; the tag starts the release workflow
	@printf '%s' "$(VERSION)" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || \
		{ echo 'name it: make release VERSION=1.2.3' >&2; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo 'commit or remove your changes first' >&2; exit 1; }
	@git fetch --quiet --tags origin main && git merge-base --is-ancestor origin/main HEAD || \
		{ echo 'main of origin has commits that are not here' >&2; exit 1; }
	@! git rev-parse --quiet --verify "refs/tags/v$(VERSION)" >/dev/null || \
		{ echo 'v$(VERSION) is released' >&2; exit 1; }
	@$(BIN)/towncrier build --yes --version "$(VERSION)"
	@sed -i 's/^version = ".*"$$/version = "$(VERSION)"/' pyproject.toml
	@git commit --quiet --all --message "Release $(VERSION)"
	@git tag --annotate "v$(VERSION)" --message "Release $(VERSION)"
	@git push --atomic origin HEAD:main "v$(VERSION)"

docs: $(INSTALLED)  ## the site goes to build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: $(PROGRAMS)  ## every program of bench/ prints its figures; fit_* are tools with arguments
	@failed=; for name in $(BENCHES); do \
		echo "== bench.$$name"; $(BIN)/python -m "bench.$$name" || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

test-image: $(INSTALLED)  ## builds the gateway's image and copies between two of its containers
	@$(BIN)/python -m pytest -m image --timeout 900 -v tests/e2e/test_image.py tests/e2e/test_ssh_containers.py

test-kubernetes: $(INSTALLED)  ## the provisioner on a real API server, built once in ten minutes; copies need root
	@$(BIN)/python -m tests.provision.kubernetes.programs
	@$(BIN)/python -m pytest -m kubernetes --timeout 900 tests/provision tests/e2e/test_kubernetes.py

boot-test: $(INSTALLED)  ## the boot script on emulated machines with Debian 12 and 13; MACHINES="machine and not nightly" for the shortest
	@$(BIN)/python -m pytest -m "$(MACHINES)" -v tests/machine

soak: $(PROGRAMS)  ## long repeats; pytest's status 5 says that no test carries the marker
	@$(BIN)/python -m pytest -m soak --timeout 3600 || test $$? -eq 5

constraints: $(INSTALLED)  ## compile the pins again; UPGRADE=--upgrade takes newer ones
	$(COMPILE) $(UPGRADE) pyproject.toml --extra dev -o constraints/development.txt
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		extras = project["optional-dependencies"]; \
		print(*(need for extra in ("gateway", "aws", "azure", "gcs") for need in extras[extra] \
			if not need.startswith("azure-mgmt-")), sep="\n")' \
		| $(COMPILE) --generate-hashes - -c constraints/development.txt \
			-o gateway/skyplane_gateway/requirements.lock

matrix-pins: $(INSTALLED)  ## resolve the lines of the matrix again; LINES names some
	@$(BIN)/python -m tests.matrix --compile $(LINES)

# Where the fakes of clouds have their rules from: discovery documents of Google, classes of Azure.
VENDORS := google-api-python-client azure-mgmt-authorization azure-mgmt-compute azure-mgmt-network azure-mgmt-resource

vendor-models: $(INSTALLED)  ## what the vendors' newest packages say of requests and answers, for the fakes of clouds
	@$(BIN)/uv run --quiet --no-project --python $(BIN)/python --with-editable tests/strict_clouds \
		$(addprefix --with ,$(VENDORS)) python -m strict_clouds.vendor_models

clean:  ## all that is made here but the environment itself
	rm -rf build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf *.egg-info src/*.egg-info tests/strict_clouds/*.egg-info tests/strict_clouds/build .coverage .coverage.*
	find . -name __pycache__ -type d -not -path './$(VENV)*' -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints/development.txt tests/strict_clouds/pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 with the modules venv and" \
		"ensurepip is on the PATH; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints/development.txt uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints/development.txt \
		--build-constraint constraints/development.txt --editable '.[dev]' --editable tests/strict_clouds
	@touch $@

$(PROGRAMS): $(INSTALLED)
	@$(BIN)/python -m tests.faults
	@touch $@
