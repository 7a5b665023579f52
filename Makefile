## dietlab: tune a tensor operator for all shapes at once, and ship it as one library.
##
##   make quickstart   Set up, then tune, build and evaluate one dense layer on this machine;
##                     the result is runs/quickstart/report.html
##   make test         Set up, then run the test suite, with the same examples every time
##   make test-thorough
##                     Run what `make test` leaves out: long sweeps, and tests that take minutes
##   make test-newest  Run the tests that packages touch with the newest versions that pip finds, without
##                     constraints.txt: an environment of its own, build/newest, of gigabytes where pip
##                     finds the CUDA build of PyTorch
##   make test-explore Run the property tests with new random examples, and more of them; to keep the
##                     one that fails, write it above the test as @example(...)
##   make lab          Set up, then open JupyterLab on notebooks/
##   make install      Set up only: .venv with dietlab and the extras in EXTRAS
##   make notebooks    Run all notebooks and keep their text, tables and pictures
##   make docs         Set up, then build the documentation as a site, build/site; any warning or broken link
##                     is an error
##   make links        Open every link out of the documentation, which needs a network; the tests check
##                     their form only
##   make lint         Style, types and layers
##   make clean        Remove .venv and caches; runs/, which holds measurements, stays
##
## Settings, as in `make quickstart THREADS=2`:
##
##   THREADS=n         Cores that the operator uses (default 1); the study is then runs/quickstart-n
##   EXTRAS=lab,torch  What to install besides (default lab,mkl; EXTRAS=none for nothing), out of
##                       lab          figures, HTML reports, widgets, JupyterLab
##                       mkl          contenders of Intel's MKL
##                       torch        contenders of PyTorch: small where pip finds a CPU build, gigabytes
##                                    where it finds the CUDA build only
##                       zendnn       contenders of AMD's ZenDNN: PyTorch and 27 MB
##                       onnxruntime  the contender of ONNX Runtime, 20 MB
##                       openvino     the contender of OpenVINO, 59 MB
##                       xnnpack      the contender of XNNPACK, by Google's LiteRT, 22 MB
##                       cuda         NVIDIA's compiler, 280 MB
##                       heuristics   NVIDIA's choices of tiles, 11 MB
##                       parquet      records as Parquet, 50 MB
##                       rpc          dietlab serve, 2 MB
##                       optuna       the search strategy tpe, 10 MB
##                       docs         what `make docs` needs, and installs by itself, 20 MB
##                     `make test` installs test,lab,mkl,onnxruntime,openvino,xnnpack,torch,models,zendnn,
##                     heuristics,parquet,rpc,optuna,docs and, where no nvcc is on the PATH, cuda.
##   PYTEST_ARGS=...   Passed to pytest, as in PYTEST_ARGS="-x tests/test_space.py"
##   PORT=n            JupyterLab's port (default 8888)
##   PYTHON=path       Which Python makes .venv (default: the first of 3.10 to 3.13 found);
##                     `make clean` first to change it
##
## The set-up needs only pip's package index; `make test` also installs Chromium for the browser tests,
## as root on Debian, and says so elsewhere. It happens once, and again when pyproject.toml or
## constraints.txt change.

SHELL := /bin/bash
comma := ,
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?=
EXTRAS ?= lab,mkl
THREADS ?=
PYTEST_ARGS ?=
PORT ?= 8888

VENV := .venv
BIN := $(VENV)/bin
# Tests compile CUDA for GPUs that are not here: by the machine's own nvcc if it has one.
TEST_EXTRAS := test,lab,mkl,onnxruntime,openvino,xnnpack,torch,models,zendnn,heuristics,parquet,rpc,optuna,docs$(if $(shell command -v nvcc 2>/dev/null),,$(comma)cuda)
TEST_STAMP := $(VENV)/.installed-$(TEST_EXTRAS)
STAMP := $(VENV)/.installed-$(or $(EXTRAS),none)
STUDY := runs/quickstart$(if $(THREADS),-$(THREADS))

.PHONY: help quickstart test test-thorough test-newest test-explore chromium notebooks docs links lab install lint clean

help:
	@sed -n 's/^## \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

quickstart: $(STAMP)
	$(BIN)/dietlab quickstart --out $(STUDY) $(if $(THREADS),--threads $(THREADS))

# A file at a time to each process, in their order: the browser's tests, the longest of all, come first. One
# process more than cores, up to four: a fifth of the time a test waits for a process that it started.
SHARED_OUT := -n $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 4))) --dist loadfile --no-loadscope-reorder

test: $(TEST_STAMP) chromium
	$(BIN)/python -m pytest -m "not thorough" $(SHARED_OUT) $(PYTEST_ARGS)

test-thorough: $(TEST_STAMP) chromium
	$(BIN)/python -m pytest -m thorough $(SHARED_OUT) $(PYTEST_ARGS)

# AMD's library stays as pinned: it fits one release of PyTorch.
NEWEST := build/newest
NEWEST_EXTRAS := test,lab,mkl,onnxruntime,openvino,xnnpack,torch,models,heuristics,parquet,rpc,optuna
NEWEST_TESTS := $(addprefix tests/test_,$(addsuffix .py,arrays cards cost cost_models dispatch evaluate explore \
	explorers_results files libraries measure models panel record_files results_page rpc saving search shapes strategies \
	study_cli torch torch_attention torch_chains torch_doors torch_experts torch_found torch_packed torch_situations \
	vendors view))

test-newest: $(BIN)/python
	rm -rf $(NEWEST)
	$(BIN)/python -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(NEWEST_EXTRAS)]'
	$(NEWEST)/bin/python -m pip list --format freeze --disable-pip-version-check > $(NEWEST)/versions.txt
	$(NEWEST)/bin/python -m pytest -m "not thorough and not browser" $(SHARED_OUT) $(PYTEST_ARGS) \
		$(wildcard $(NEWEST_TESTS))

# Hypothesis marks the tests that it gives examples to.
test-explore: $(TEST_STAMP)
	$(BIN)/python -m pytest -n logical --maxprocesses 4 -m hypothesis --hypothesis-profile=explore $(PYTEST_ARGS)

# The browser of tests/browser. Without it those tests are skipped, by name; nothing fails.
chromium:
	@found() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; \
	if ! found && [ "$$(id -u)" = 0 ] && grep -qs '^ID=debian' /etc/os-release; then \
		echo "Installing Chromium with apt-get, for the browser tests"; \
		{ apt-get -qq -o Acquire::http::Timeout=20 update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
			--no-install-recommends chromium; } >/dev/null || true; \
	fi; \
	found || echo "The browser tests will not run: they need Chromium (Debian: apt-get install chromium)."

notebooks: $(TEST_STAMP)
	$(BIN)/python tests/render_notebooks.py

lab: $(STAMP)
	$(BIN)/dietlab lab --port $(PORT)

install: $(STAMP)

# The theme's maker announces on every build that MkDocs 2 will not do; pyproject.toml keeps it below.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/site/index.html (with its search: $(BIN)/python -m http.server --bind 127.0.0.1 -d build/site)"

links: $(BIN)/python
	$(BIN)/python docs/links.py --reach

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find dietlab tests notebooks -name __pycache__ -prune -exec rm -rf {} +

# The stem of the stamp is the list of extras.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing dietlab$(if $(filter none,$*),, with $*) into $(VENV): once, a few minutes"
	@[ -t 1 ] || quiet=--quiet; \
	$(BIN)/python -m pip install $$quiet --disable-pip-version-check -c constraints.txt \
		-e '.$(if $(filter none,$*),,[$*])'
	@touch '$@'

$(BIN)/python:
	@usable='import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $(if $(PYTHON),99,13)))'; \
	for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10); do \
		if "$$python" -c "$$usable" 2>/dev/null; then \
			echo "Making $(VENV) with $$("$$python" --version)"; \
			exec "$$python" -m venv $(VENV); \
		fi; \
	done; \
	echo "dietlab needs Python 3.10 or later (3.10 to 3.13 have all packages ready-built) with its venv" >&2; \
	echo "module; found none of: $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10)." >&2; \
	echo "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name one: make PYTHON=path" >&2; \
	exit 1
