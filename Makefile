# What people do with Moorage. Each target first sets up all that it needs, on a fresh machine too: Python 3.11 or newer
# with venv, and a way to PyPI (and to a Go module proxy for the real control plane; see CONTRIBUTING.md).

# The first Python that will do. Another one: make PYTHON=python3.13 VENV=.venv-3.13 test
WILL_DO := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	if $$python -c '$(WILL_DO)' 2>/dev/null; then echo $$python; break; fi; done)
endif

VENV ?= .venv
RUN_VENV ?= .venv-run
DOCS_VENV ?= .venv-docs
# How many processes share the tests.
WORKERS ?= auto
# Passed on: make test ARGS='-k quantity', make demo ARGS=..., make bench ARGS='core'
ARGS ?=

BIN := $(VENV)/bin
# Bytecode is kept in one folder, also where the environment asks for none beside the sources, as many containers do.
# Compiling all that a component imports takes three times as long as its start, and tests start hundreds of components.
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/bytecode
unexport PYTHONDONTWRITEBYTECODE
# Which of their rights the components used while the tests of the real control plane ran (tools/rights.py).
RIGHTS := $(CURDIR)/.pytest_cache/moorage-rights
# An environment is ready when the mark is there that names the Python and the pins it was made of.
mark = $(shell { $(PYTHON) --version; cat requirements/bootstrap.txt $(1); } 2>/dev/null | cksum | cut -d ' ' -f 1)
READY := $(VENV)/.ready-$(call mark,requirements/dev.txt)
RUN_READY := $(RUN_VENV)/.ready-$(call mark,requirements/run.txt)
DOCS_READY := $(DOCS_VENV)/.ready-$(call mark,requirements/docs.txt)

# $(1) folder, $(2) pins. Hashes are required of everything, of the installer as well.
define environment
	@$(or $(PYTHON),false) -c '$(WILL_DO)' 2>/dev/null || { echo 'No Python 3.11 or newer with venv: $(or $(PYTHON),none \
	on PATH). Install one (on Debian and Ubuntu the packages python3 and python3-venv), or name one: \
	make PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'environment: $(1) from $(2)'
	@test "$$($(1)/bin/python --version 2>/dev/null)" = "$$($(PYTHON) --version)" || $(PYTHON) -m venv --clear $(1)
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(1)/bin/uv pip sync --quiet --python $(1)/bin/python --require-hashes requirements/bootstrap.txt $(2)
	@rm -f $(1)/.ready-*
	@touch $@
endef

# Builds the site anew, with nothing of before: what another page links to may be gone.
SITE = rm -rf build/site build/doctrees && $(DOCS_VENV)/bin/python -m sphinx --quiet --fail-on-warning --nitpicky --doctree-dir build/doctrees -c docs . build/site

.PHONY: help demo ui test test-all node-test node-install browser-install screenshots simulate-soak simulate-record simulate-suggestions enumerate chaos mutants nightly lint format docs pins chart settings metrics reference images cluster cluster-status cluster-down bench clean

help:
	@echo 'make demo          the scheduler at work on simulated GPUs, no cluster needed'
	@echo 'make ui            the web page of a simulated cluster at work; ARGS="--nodes 500x8x80GiB"'
	@echo 'make test          tests that need Python and PyPI only; no real control plane, no long searches'
	@echo 'make test-all      all tests, with a real control plane (built once from Go modules, 7 to 12 minutes) and controllers'
	@echo '                   of other projects (built likewise: JobSet, LeaderWorkerSet, Kueue; 17 minutes of CPU time)'
	@echo 'make node-test     tests on a real kubelet with containerd, runc and emulated GPUs: part of make test-all where'
	@echo '                   root, containerd and runc are; make node-install gets them from Debian'
	@echo 'make browser-install  Chromium from Debian and axe-core from npm: without them tests of the page are left out'
	@echo 'make screenshots   renew the pictures in docs/page, which are those of a simulated cluster'
	@echo 'make simulate-soak random hostile runs on all processors; SEEDS=1-10000 FAULTS=kind,kind MINUTES=60'
	@echo 'make simulate-record one of them for moorage ui --open; SEED=7 FAULTS=kind,kind, or SCRIPT=soak-failures/S3-7.json'
	@echo 'make simulate-suggestions  do what explain suggests in random clusters; SEEDS=1-2000 MINUTES=60'
	@echo 'make enumerate     every write of every kind of commit, struck in every way, on all processors'
	@echo 'make chaos         everything killed and restarted at random on a real control plane; MINUTES=10 SEED=1'
	@echo 'make mutants       random small defects that the tests have to find; COUNT=300 MUTANTS_SEED=1'
	@echo 'make nightly       the long searches, on seeds of the day: mutants, hostile runs, struck writes, the model,'
	@echo '                   chaos, simulate against a cluster; DATE=20260101 repeats the searches of that day'
	@echo 'make lint          formatting, lint rules, types, import layers, dependencies, Containerfiles, documentation'
	@echo 'make format        put the code into form, and apply what the lint rules can fix'
	@echo 'make cluster       a real control plane with Moorage and simulated GPU nodes, in the background;'
	@echo '                   NODES=4x8x80GiB; cluster-status, cluster-down'
	@echo 'make model-check   explores the sharing protocol with larger bounds than the tests; LIMIT=2000000'
	@echo 'make bench         measurements; ARGS names some of them'
	@echo 'make pins          renew requirements/*.txt from pyproject.toml'
	@echo 'make images        our images as OCI archives in build/images; needs Debian, but no engine, registry or root'
	@echo 'make chart         renew what of helm/moorage is made from the code'
	@echo 'make docs          the documentation as a site, in build/site'
	@echo 'make settings      renew the tables of docs/reference/settings.md, which are made from the code'
	@echo 'make metrics       renew the tables of docs/reference/metrics.md'
	@echo 'make reference     renew those of docs/reference: custom resources, names, events, workloads, XIDs'
	@echo 'make clean         remove environments and caches (not the programs of the control plane)'

demo: $(RUN_READY)
	$(RUN_VENV)/bin/python -m cli.main demo $(ARGS)

ui: $(RUN_READY)
	$(RUN_VENV)/bin/python -m cli.main ui --simulate $(ARGS)

# So many processes for tests that mostly wait: $(1) more than there are processors, if nobody has said how many.
waiting = $(if $(filter auto,$(WORKERS)),$(shell $(PYTHON) -c 'import os; print(os.cpu_count() + $(1))'),$(WORKERS))

# How API servers, etcd, kubelet, Helm and the like run beside tests. With a processor each they don't search for work in vain, and
# they look for garbage a quarter as often: a control plane starts in 2.4 to 2.9 s of CPU time, and without that in 4.3 to 5.
# kube-scheduler's plug-ins answer (tests/oracle) for three quarters of what they cost without it.
GO_PROGRAMS = GOMAXPROCS=1 GOGC=400 GOMEMLIMIT=1GiB

# Each process has a control plane and a node of its own, and mostly waits for kubelet.
NODE_TESTS = $(GO_PROGRAMS) $(BIN)/pytest -n $(call waiting,2) --maxprocesses 4 --dist worksteal -m node -o cache_dir=.pytest_cache/node $(ARGS)

# Each process has control planes of its own; the tests of a file share one, in their order. They wait half of the time.
CLUSTER_TESTS = MOORAGE_RIGHTS=$(RIGHTS) $(GO_PROGRAMS) $(BIN)/pytest -n $(call waiting,1) --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m 'cluster and not nightly' \
	-o cache_dir=.pytest_cache/cluster $(ARGS)

# $(1) once more with what failed, one after the other. What passes then failed beside other tests, or by chance: it is a fault still,
# which the first run's output shows, and does not hold up everything else.
once_more = || { test $$? = 1 && echo 'ONCE MORE, alone: what failed above, which is a fault also if it passes now' && \
	$(1) -n 0 --last-failed --last-failed-no-failures none -x; }

test-all: $(READY)
	$(BIN)/python -m tools.controlplane
	$(BIN)/python -m tools.goprogram helm alerttest etcdutl
	$(BIN)/python -m tools.controllers
	$(BIN)/python -m tools.kubeoracle.program
	$(BIN)/python -m tools.kubeoracle.harvest.making
	@$(BIN)/python -m tools.browser check
	@$(MAKE) --no-print-directory --jobs 2 test-plain test-real

# Tests of the real control plane and of real nodes wait part of the time, and the others compute meanwhile. Where both
# could run, those with deadlines come first. If one of the two fails, the other goes on to its end.
.PHONY: test-plain test-real
PLAIN_LOG = build/test-plain.log
test-plain: $(READY)
	@mkdir -p build
	@echo 'test-plain: $(PLAIN_LOG) has the output of tests without a control plane; it is printed when they have ended'
	@$(GO_PROGRAMS) nice -n 3 $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal -m 'not cluster and not node' $(ARGS) \
	>$(PLAIN_LOG) 2>&1; status=$$?; cat $(PLAIN_LOG); exit $$status

test-real: $(READY)
	@rm -rf $(RIGHTS)
	@$(CLUSTER_TESTS) $(call once_more,$(CLUSTER_TESTS))
	$(if $(ARGS),@echo 'rights are not compared with their use: ARGS may have left tests out',\
	$(BIN)/python -m tools.rights $(RIGHTS))
	@$(BIN)/python -m tools.node ready; case $$? in 0) $(NODE_TESTS) $(call once_more,$(NODE_TESTS)) ;; 3) ;; *) exit 1 ;; esac

test: $(READY)
	$(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal \
	-m 'not cluster and not node and not thorough and not helm and not browser and not oracle' $(ARGS)

# Needs root, containerd, runc and CNI plug-ins.
node-test: $(READY)
	$(BIN)/python -m tools.node check
	$(BIN)/python -m tools.node make
	$(NODE_TESTS)

# Gets what they need from Debian, where root may.
node-install: $(READY)
	$(BIN)/python -m tools.node install

# Gets Chromium from Debian, where root may, and axe-core from npm.
browser-install: $(READY)
	$(BIN)/python -m tools.browser install

# docs/page/*.png.
screenshots: $(READY)
	$(BIN)/python -m tools.browser screenshots

# Failing runs are made smaller and written into soak-failures/; the exit code says whether there were any.
SEEDS ?= 1-10000
FAULTS ?=
MINUTES ?= 0
CLAIMS ?=
DRIVERS ?=
MIG ?=
EXTENDED ?=
TENANT ?=
simulate-soak: $(READY)
	$(BIN)/python -m verification.hostile.soak --seeds $(SEEDS) --minutes $(MINUTES) $(if $(FAULTS),--faults $(FAULTS)) $(if $(CLAIMS),--claims) $(if $(DRIVERS),--drivers) $(if $(MIG),--mig) $(if $(EXTENDED),--extended) $(if $(TENANT),--tenant)

# Into soak-failures/seed-7.run, or beside the script. The exit code says whether something did not hold.
simulate-record: $(READY)
	$(BIN)/python -m verification.hostilerun $(if $(SCRIPT),--script $(SCRIPT),--seed $(SEED) $(if $(FAULTS),--faults $(FAULTS)))

# Clusters as in verification/what_if; the exit code says whether a suggestion was wrong or one was missing.
simulate-suggestions: $(READY)
	$(BIN)/python -m verification.what_if --seeds $(SEEDS) --minutes $(MINUTES)

enumerate: $(READY)
	MOORAGE_ENUMERATE=1 $(BIN)/pytest -n $(WORKERS) tests/simulation/test_every_write.py tests/scheduler/preemption/test_struck.py $(ARGS)

# The exit code says whether everything held.
SEED ?= 1
chaos: $(READY)
	$(BIN)/python -m tools.controlplane
	$(BIN)/python -m verification.chaos --seed $(SEED) $(if $(filter-out 0,$(MINUTES)),--minutes $(MINUTES)) $(ARGS)

# The exit code says whether 95 % were found; tools/mutants/equivalent.toml names those that nothing can find.
COUNT ?= 300
MUTANTS_SEED ?= 1
mutants: $(READY)
	$(BIN)/python -m tools.mutants --count $(COUNT) --seed $(MUTANTS_SEED) $(ARGS)

# Each day has 100,000 seeds of its own. All searches run, also after one that failed.
DATE ?= $(shell date -u +%Y%m%d)
NIGHTLY = $(MAKE) --keep-going --jobs 1 nightly-mutants nightly-soak nightly-enumerate nightly-model nightly-chaos nightly-whole nightly-properties nightly-oracle nightly-controllers nightly-same
nightly: $(READY)
	@echo 'nightly: DATE=$(DATE)'
	$(NIGHTLY) DATE=$(DATE)

.PHONY: nightly-mutants nightly-soak nightly-enumerate nightly-model nightly-chaos nightly-whole nightly-properties nightly-oracle nightly-controllers nightly-same
nightly-mutants:
	$(MAKE) mutants MUTANTS_SEED=$(DATE)
nightly-soak:
	$(MAKE) simulate-soak SEEDS=$(DATE)00000-$(DATE)99999 MINUTES=60
nightly-enumerate:
	$(MAKE) enumerate
nightly-model:
	$(MAKE) model-check
nightly-chaos:
	$(MAKE) chaos MINUTES=10 SEED=$(DATE)
# Snapshots of the day, where kube-scheduler's plug-ins and Moorage have to agree. One that was stopped goes on.
SNAPSHOTS ?= 1000000
nightly-oracle:
	$(BIN)/python -m tools.kubeoracle --snapshots $(SNAPSHOTS) --seed $(DATE) --parts build/oracle-parts.jsonl
# Those of which make test-all runs a slice (tests/test_whole.py).
nightly-whole:
	MOORAGE_WHOLE=1 $(GO_PROGRAMS) $(BIN)/pytest -n 2 --dist loadfile tests/e2e/test_bulk.py tests/e2e/test_numbers.py tests/e2e/test_beside_kube_scheduler.py \
	tests/e2e/test_leaders.py tests/e2e/test_placing_stories.py tests/e2e/test_restarts.py
	MOORAGE_WHOLE=1 $(BIN)/pytest -n 2 --dist loadfile -m 'not cluster and not node' tests/verification tests/simulation tests/simulator \
	tests/oracle tests/admission/test_every_cost.py tests/ui/page tests/scheduler/test_leaders.py tests/scheduler/what_if tests/tools/test_installed.py \
	tests/browser/test_axe.py tests/helm/test_rendering.py
# With those whose tests make test-all leaves out.
nightly-controllers:
	$(BIN)/python -m tools.controllers --all
	$(GO_PROGRAMS) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m controllers tests/controllers
# What simulate says of the examples, and of random manifests of the day, against a real control plane.
nightly-same:
	$(GO_PROGRAMS) $(BIN)/python -m tools.samecheck examples --made 100 --seed $(DATE)000
# Twenty times the examples of make test-all and more, other ones each time, and all seeds.
nightly-properties:
	MOORAGE_WHOLE=1 $(BIN)/pytest -n 2 --dist worksteal -m 'not cluster and not node' tests/admission tests/cli tests/runtime tests/ui tests/gpu tests/kube tests/sharing \
	tests/scheduler/core tests/nodeagent/core tests/wire

# Beside each other, as each takes one processor, and mypy about as long as all else.
lint: $(READY) $(DOCS_READY)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint-types lint-rest

.PHONY: lint-types lint-rest
lint-types: $(READY)
	$(BIN)/mypy

lint-rest: $(READY) $(DOCS_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/hadolint images/Containerfile*
	$(BIN)/python -m tools.mirrored
	$(BIN)/python -m tools.words
	$(BIN)/python -m tools.chart check
	$(BIN)/python -m tools.settingsdoc check
	$(BIN)/python -m tools.referencedoc check
	$(SITE)
	$(BIN)/python -m tools.sitecheck build/site

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/design/documentation.md
docs: $(DOCS_READY)
	$(SITE)
	@echo 'build/site/index.html'

# No address of an index gets into the files, so everybody's own index serves.
COMPILE := uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links
pins: $(READY)
	$(BIN)/$(COMPILE) pyproject.toml -o requirements/run.txt
	$(BIN)/$(COMPILE) pyproject.toml --group dev -c requirements/run.txt -o requirements/dev.txt
	$(BIN)/$(COMPILE) --group bootstrap -o requirements/bootstrap.txt
	$(BIN)/$(COMPILE) --group docs -o requirements/docs.txt
	$(BIN)/$(COMPILE) --group build -c requirements/dev.txt -o requirements/build.txt

# What of the chart is made from the code (docs/design/installing.md).
chart: $(READY)
	$(BIN)/python -m tools.chart write

# The tables of docs/reference/settings.md.
settings: $(READY)
	$(BIN)/python -m tools.settingsdoc write

# The tables of docs/reference/metrics.md.
metrics: $(READY)
	$(BIN)/python -m tools.metricspage

# The tables of docs/reference that are made from the code.
reference: $(READY)
	$(BIN)/python -m tools.referencedoc write

# docs/images.md. ARGS: which ones, and --out DIR
images: $(READY)
	$(BIN)/python -m tools.images build $(ARGS)

# make cluster NODES='2x8x80GiB 1x4x24GiB'; with NODES= it is a bare control plane.
NODES ?= 4x8x80GiB
cluster: $(READY)
	$(BIN)/python -m tools.controlplane
	$(BIN)/python -m tools.cluster up $(foreach shape,$(NODES),--nodes $(shape))

cluster-status: $(READY)
	@$(BIN)/python -m tools.cluster status

cluster-down: $(READY)
	$(BIN)/python -m tools.cluster down

# The sharing protocol's states (docs/design/model.md); LIMIT: states after which a configuration is given up.
LIMIT ?= 2000000
model-check: $(READY)
	$(BIN)/python -m verification.model --limit $(LIMIT) $(ARGS)

bench: $(READY)
	$(BIN)/python -m tools.controlplane
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) $(RUN_VENV) $(DOCS_VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY):
	$(call environment,$(VENV),requirements/dev.txt)

$(RUN_READY):
	$(call environment,$(RUN_VENV),requirements/run.txt)

$(DOCS_READY):
	$(call environment,$(DOCS_VENV),requirements/docs.txt)
