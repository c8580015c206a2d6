# Two commands matter: `make demo` and `make test`. `make` alone lists the rest.
SHELL := bash
.DEFAULT_GOAL := help
TESTBED := testbed/tidegate-testbed

help: ## List these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Make .venv and fetch the model (the demo and the tests do it themselves)
	@scripts/setup.sh

demo: setup ## One model on a real Kubernetes, under load, from one replica to three and back
	@.venv/bin/tidegate demo

down: ## Remove the testbed; PURGE=1 also the images it has loaded
	@$(TESTBED) down $(if $(PURGE),--purge)

status: ## Say what runs of the testbed, and how the services do
	@$(TESTBED) status && .venv/bin/tidegate status

check: setup ## Lint, types, the laws of the architecture, and the quick tests
	@scripts/test.sh check

test: setup ## Everything that CI runs; starts and removes a testbed of its own where none is up
	@scripts/test.sh all

test-cluster: setup ## Only the tests on a real Kubernetes; the testbed stays up for the next run
	@scripts/test.sh cluster

images: setup ## Build both images and load them into the testbed that is up
	@.venv/bin/tidegate images

bench-engine: setup ## Our engine and its peers, in turns, on this machine; ONLY=decode_8,decode_32 some of the figures
	@PYTHONPATH="$$PWD/bench:$$PWD/engine_image" .venv/bin/python -m tidegate_bench $(if $(ONLY),--only $(ONLY)) $(FLAGS)

bench-scaling: setup ## Our scaling and the rivals', simulated on eight traces; ONLY=on-off,keda-queue some traces or policies
	@PYTHONPATH="$$PWD/lab:$$PWD/operator:$$PWD/engine_image" .venv/bin/python -m tidegate_lab.scaling_bench $(if $(ONLY),--only $(ONLY)) $(FLAGS)

bench-real: setup ## Real pods on the testbed and the simulator, side by side; ONLY=azure-conv,step-up some traces
	@PYTHONPATH="$$PWD/lab:$$PWD/operator:$$PWD/engine_image:$$PWD/testbed" .venv/bin/python -m tidegate_lab.real_bench $(if $(ONLY),--only $(ONLY)) $(FLAGS)

bench-operator: setup ## Replicas that one operator process reads on one core; FLAGS="--minutes 30" watches its memory
	@PYTHONPATH="$$PWD/bench:$$PWD/operator" .venv/bin/python -m tidegate_bench_operator $(FLAGS)

lock: setup ## Pin requirements/*.txt anew from pyproject.toml; UPGRADE=1 takes newer versions
	@scripts/lock.sh

.PHONY: help setup demo down status check test test-cluster images bench-engine bench-scaling bench-real bench-operator lock
