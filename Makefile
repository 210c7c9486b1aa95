# Everything runs in virtualenvs inside the checkout (.tools, .nox); nothing else is needed than
# Python 3.11, git and make.
PYTHON ?= python3
NOX := .tools/bin/nox
# make bench BENCH=--resume goes on after an interruption, BENCH=--quick tries it out.
BENCH ?=

.PHONY: help demo gym faults pictures test lint docs bench browser clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(NOX)  ## train two deep networks, save what happens inside, show why one does not learn
	@$(NOX) --session demo

gym: $(NOX)  ## plant faults in real trainings, and see which rule finds which
	@$(NOX) --session gym

faults: $(NOX)  ## break everything that can break, and print what survived (about an hour)
	@$(NOX) --session faults

pictures: $(NOX)  ## make the pictures of docs/rules.md anew, from real trainings
	@$(NOX) --session pictures

test: $(NOX)  ## run every check: lint, all test suites, each in its own environment
	@$(NOX)

lint: $(NOX)  ## ruff and mypy only
	@$(NOX) --session lint

docs: $(NOX)  ## make a site of the documentation, in .site
	@$(NOX) --session docs

bench: $(NOX)  ## measure everything and write docs/performance.md (installs its peers; 35 minutes)
	@$(NOX) --session bench bench_mxnet -- $(BENCH)

browser: $(NOX)  ## look at pages (TensorBoard, notebooks) with chromium; pictures go to .nox/pictures
	@$(NOX) --session browser

clean:  ## remove the environments and caches
	rm -rf .tools .nox .bench .site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(NOX):
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet --upgrade nox
