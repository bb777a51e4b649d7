# The two commands of the README, and what they stand on.

MODEL ?=
ARGS ?=

deps: ## install the Debian packages to build, run and test
	@deploy/deps.sh test

model: ## fetch the default model into models/
	@deploy/model.sh >/dev/null

# A make of its own after the packages are there: what pkg-config says is read when a Makefile is parsed.
run: ## install, fetch, build, serve: make run [MODEL=path.gguf] [ARGS="--port 8080"]
	@deploy/deps.sh build
	@+$(MAKE) --no-print-directory -j$$(nproc) all
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(deploy/model.sh) || exit 1; \
	name="$(MODEL)"; [ -n "$$name" ] || name="--served-model-name smollm2"; [ -z "$(MODEL)" ] || name=""; \
	exec deploy/run.sh "$$model" $$name $(ARGS)

.PHONY: deps model run
