# Every target sets up what it needs: a virtual environment in .venv with the workspace's distributions in it.
# `make demo` and `make test` are all that a fresh machine with Python 3.11 and make has to know.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
MEMBERS := core toolkits/data toolkits/torch toolkits/search toolkits/trees toolkits/testing plugins/local_backend plugins/parquet_cache plugins/hdf5_cache plugins/tfrecord_cache plugins/tabular_model plugins/html_report plugins/dask_processor plugins/ray_backend plugins/horovod_backend plugins/modin_processor plugins/optuna_executor plugins/lightgbm_trainer plugins/xgboost_trainer .
PROJECTS := $(MEMBERS:%=%/pyproject.toml)
# In the order of the folders: the long files of tests/ first. By itself xdist begins with the files of many short tests.
# A worker that dies, as one does at a timeout, ends the run: in its place xdist would start another and give it no tests, and wait for ever.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# What `pip install distcore` brings.
PLAIN := core toolkits/data toolkits/torch toolkits/search plugins/local_backend plugins/parquet_cache plugins/tabular_model plugins/html_report .
OTHERS := $(filter-out $(PLAIN),$(MEMBERS))

# Where it is set, each of the thousand commands that tests start would compile all that we wrote anew.
unexport PYTHONDONTWRITEBYTECODE

NEW_ENOUGH := 'import sys; sys.exit("distcore needs Python 3.11 or newer, and $(PYTHON) is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'

.PHONY: help demo picture contrib horovod clusters test system gpu mutants faults hostile lint types bench quality bench-ludwig bench-tensorflow docs wheels wheels-test wheels-test-ray pythons core-alone clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.plain: constraints.txt $(PLAIN:%=%/pyproject.toml)
	@$(PYTHON) -c $(NEW_ENOUGH)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) $(PLAIN:%=--editable %)
	@touch $@

$(VENV)/.installed: $(VENV)/.plain $(PROJECTS)
	$(PIP) $(OTHERS:%=--editable %)
	@touch $@

$(VENV)/.developer: $(VENV)/.installed requirements-dev.txt
	$(PIP) --requirement requirements-dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.developer requirements-bench.txt
	$(PIP) --requirement requirements-bench.txt
	@touch $@

$(VENV)/.quality: $(VENV)/.installed requirements-quality.txt
	$(PIP) --requirement requirements-quality.txt
	@touch $@

demo: $(VENV)/.plain  ## set up, then train, evaluate and report on real data with the local backend
	$(BIN)/distcore experiment --config examples/penguins/config.yaml --dataset examples/penguins/penguins.csv \
	  --output_directory results --experiment_name penguins

# The packages in contrib stand for third parties': beside the environment, where only their own tests see them.
CONTRIB := contrib/plugin_template contrib/avro_cache contrib/fixed_width contrib/weights_command contrib/angle_feature contrib/weight_callbacks contrib/spawn_backend contrib/ridge_trainer
build/contrib/.installed: $(VENV)/.developer $(CONTRIB:%=%/pyproject.toml) $(shell find $(CONTRIB:%=%/src) -name '*.py')
	@rm -rf build/contrib
	$(PIP) --no-deps --no-build-isolation --target build/contrib $(CONTRIB:%=./%)
	@rm -rf $(CONTRIB:%=%/build)
	@touch $@

contrib: build/contrib/.installed  ## install the packages of contrib beside the environment, for their tests

# Horovod's last release, built for the torch that is here: some minutes once, then kept in ~/.cache/distcore-horovod.
$(VENV)/.horovod: $(VENV)/.developer plugins/horovod_backend/src/distcore_horovod/build.py
	@command -v cmake >/dev/null || $(PIP) cmake
	@command -v mpicxx >/dev/null || echo "No MPI here: tests with mpirun are left out (Debian: apt-get install openmpi-bin libopenmpi-dev)"
	$(BIN)/distcore-horovod build --install
	@touch $@

horovod: $(VENV)/.horovod  ## build Horovod (or take the wheel that was built), and install it

# A process for each file that starts a cluster, one after another: Ray does not forget the clusters that a process knew,
# and two at once on two cores only wait for each other.
CLUSTERS := $(shell grep -lr "mark.cluster" --include="test_*.py" tests toolkits plugins)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# A test that hangs says where each of its threads stands, and is ended. Not by a signal: loading a plugin uses that one.
BOUNDED := -o faulthandler_timeout=300 --timeout 600 --timeout-method thread

clusters: $(CLUSTERS:%=cluster/%)  ## set up, then run the tests on real Dask, Horovod and Ray clusters
$(CLUSTERS:%=cluster/%): cluster/%: $(VENV)/.developer $(VENV)/.horovod
	$(PYTEST) $(BOUNDED) -q -m "cluster and not slow" $* || [ $$? = 5 ]

test: build/contrib/.installed  ## set up, then run the tests of some minutes, which need no cluster
	$(PYTEST) $(BOUNDED) -m "not (slow or cluster or system or hostile)" $(PYTEST_ARGS)

system: build/contrib/.installed  ## kills, trainings of several processes, what documents show, a few of each attack and fault (PART=1/8: an eighth)
	$(PYTEST) $(BOUNDED) -m "(system or hostile) and not (slow or cluster)" $(PART:%=--part %) $(PYTEST_ARGS)

gpu: $(VENV)/.developer  ## the tests that need a GPU of NVIDIA's, where torch sees one (a CUDA build of it)
	$(PYTEST) $(BOUNDED) -q tests/test_gpu.py

mutants: $(VENV)/.developer  ## every fault that was seeded into a plugin, and its sound twin, before the conformance suites
	$(PYTEST) -q tests/test_mutants.py $(MUTANTS_ARGS)

faults: build/contrib/.installed $(VENV)/.horovod  ## the whole fault sweeps: kills at every rename and fsync, full disks, bit flips; new examples of properties
	@set -e; for each in $(CLUSTERS); do $(PYTEST) -m "cluster and slow" $$each || [ $$? = 5 ]; done
	$(PYTEST) -m "slow and not cluster"
	$(PYTEST) -m "hypothesis and not slow and not cluster" --hypothesis-profile new-examples $(PYTEST_ARGS)

hostile: $(VENV)/.developer $(VENV)/.horovod  ## every attack and fault as often as docs/reliability.md says; writes its table
	rm -f build/hostile.jsonl
	@set -e; for each in tests/hostile/test_*.py; do DISTCORE_HOSTILE=1 $(PYTEST) -q -m hostile $$each || [ $$? = 5 ]; done
	$(BIN)/python -m tests.hostile.record

lint: $(VENV)/.developer  ## style and the direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --config pyproject.toml
	$(BIN)/python -m tools.house

types: $(VENV)/.developer  ## static types
	$(BIN)/mypy $(MEMBERS:%=%/src) $(CONTRIB:%=%/src)

ENVIRONMENT = $(if $(wildcard .venv-$(1)/bin/python),--$(1) .venv-$(1)/bin/python)
bench: $(VENV)/.bench  ## every stage beside its peers and floors; writes bench/results.json and bench/results.md
	$(BIN)/python bench/run.py $(call ENVIRONMENT,ludwig) $(call ENVIRONMENT,plain) $(call ENVIRONMENT,tensorflow) $(BENCH_ARGS)

quality: $(VENV)/.quality  ## untuned configs on real datasets beside LightGBM and scikit-learn; writes docs/quality.md
	$(BIN)/python -m bench.quality.run $(QUALITY_ARGS)

bench-ludwig: constraints.txt  ## environments of their own for Ludwig 0.17.10 (about 140 packages) and distcore, for bench
	bench/ludwig.sh .venv-ludwig $(PYTHON)
	@test -x .venv-plain/bin/python || $(PYTHON) -m venv .venv-plain
	.venv-plain/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt $(PLAIN:%=--editable %)

bench-tensorflow: constraints.txt  ## an environment of its own for TensorFlow (1.3 GB), the peer of tfrecord, for bench
	@test -x .venv-tensorflow/bin/python || $(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt tensorflow-cpu==2.21.0 pyarrow pyyaml

docs: $(VENV)/.installed  ## write the references from the code, and what works with what from a trial
	$(BIN)/python docs/generate.py
	$(BIN)/python -m tools.compatibility

picture: $(VENV)/.installed  ## run a session and draw it for the README
	$(BIN)/python docs/picture.py

wheels: $(VENV)/.installed  ## build a wheel of every distribution into dist/
	@rm -rf dist && mkdir dist
	@trap '$(BIN)/python -m tools.manifests remove' EXIT; $(BIN)/python -m tools.manifests write && \
	  $(foreach member,$(MEMBERS),$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist ./$(member) &&) true

WHEELS := build/wheels-venv/bin
FROM_WHEELS := $(WHEELS)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --find-links dist
PENGUINS := $(CURDIR)/$(WHEELS)/distcore experiment --config ../examples/penguins/config.yaml --dataset ../examples/penguins/penguins.csv
wheels-test: wheels  ## install the wheels in an environment of their own and train there
	rm -rf build/wheels-venv build/wheels-results && $(PYTHON) -m venv build/wheels-venv
	$(FROM_WHEELS) distcore
	$(BIN)/python -m tools.manifests check $(WHEELS)/python
	cd build && $(PENGUINS) --output_directory wheels-results

PYTHONS ?= python3.12 python3.13
pythons: wheels-test  ## the same with each of PYTHONS, whose predictions must have the same bytes
	@set -e; for each in $(PYTHONS); do \
	  at=$(CURDIR)/build/pythons/$$(basename $$each); rm -rf $$at && $$each -m venv $$at; \
	  $$at/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --find-links dist distcore; \
	  (cd build && $$at/bin/distcore experiment --config ../examples/penguins/config.yaml \
	    --dataset ../examples/penguins/penguins.csv --output_directory $$at/results); \
	  cmp build/wheels-results/experiment_run/predictions.parquet $$at/results/experiment_run/predictions.parquet; done

wheels-test-ray: wheels-test  ## put distcore-ray's wheel beside it, and train the same on Ray
	cd build && ! $(PENGUINS) --output_directory wheels-results --experiment_name early --backend ray 2> early.txt
	grep -q "pip install distcore-ray" build/early.txt
	$(FROM_WHEELS) distcore-ray
	$(WHEELS)/distcore plugins
	cd build && $(PENGUINS) --output_directory wheels-results --experiment_name ray --backend ray
	cmp build/wheels-results/experiment_run/predictions.parquet build/wheels-results/ray_run/predictions.parquet

ALONE := build/alone-venv/bin/python
INTO_ALONE := $(ALONE) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt --find-links dist
ABSENT := $(ALONE) -c 'import sys, importlib.util as u; sys.exit([each for each in sys.argv[1:] if u.find_spec(each)] or 0)'
# No conftest.py: the workspace's imports hypothesis, contrib's is for packages that lie beside an environment.
KIT_ALONE := --noconftest contrib/avro_cache/tests/test_conformance.py contrib/plugin_template/tests/test_conformance.py
core-alone: wheels  ## core's wheel in an environment of its own: its tests, then the kit on a cache format and an extension
	rm -rf build/alone-venv && $(PYTHON) -m venv build/alone-venv
	$(INTO_ALONE) distcore-core pytest
	$(ABSENT) numpy pyarrow torch hypothesis distcore distcore_data distcore_torch distcore_search
	$(ALONE) -m pytest -q --noconftest core/tests
	$(INTO_ALONE) distcore-testing[caches] ./contrib/avro_cache ./contrib/plugin_template
	@rm -rf contrib/*/build
	$(ABSENT) torch distcore distcore_data distcore_torch distcore_search
	$(ALONE) -m pytest -q $(KIT_ALONE)

clean:  ## remove the environment, and what was built and measured with it
	rm -rf $(VENV) build dist results .pytest_cache .mypy_cache .ruff_cache
