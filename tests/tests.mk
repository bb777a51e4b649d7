# The tests' rules. A unit test is tests/unit/test_<stem>.c or tests/kernels/test_<stem>.c: one cmocka program each; a fuzz target
# is tests/fuzz/fuzz_<name>.c with its seeds in tests/fuzz/corpus/<name>.
#
#   make test                                             everything that ends within ten minutes
#   make build/tests/test_map && build/tests/test_map     one test program
#   make unit                                             all of them
#   make e2e E2E="-k crash"                               some of the tests with real processes
#   make SAN=1 unit                                       with ASan and UBSan

TEST_SRC := $(sort $(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/sim/test_*.c))
TEST_BINS := $(foreach t,$(TEST_SRC),$(B)/tests/$(basename $(notdir $(t))))
UNIT_BINS := $(filter-out $(B)/tests/test_sim,$(TEST_BINS))
TEST_LIB_SRC := $(sort $(wildcard tests/support/*.c tests/sim/sim*.c))
TEST_LIB_OBJS := $(TEST_LIB_SRC:%.c=$(B)/obj/%.o)
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_NAMES := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)
REPLAY_BINS := $(FUZZ_NAMES:%=$(B)/tests/replay_%)

VENV := build/venv
PYTHON := $(VENV)/bin/python
# Each line a result; `make test` begins a new file, .ci/run gives one of its own to collect many commands.
RESULTS ?= build/results.tsv
RUN_TESTS := python3 tests/run_tests.py --results $(RESULTS)
E2E ?=
SEEDS ?= 200
FUZZ_SECONDS ?= 60
MUTATE_AT_LEAST ?= 85

# A note about passing 64-byte vectors of the emulation; gcc gives it for its own clones of functions, where no pragma reaches.
$(B)/obj/tests/kernels/test_kernel_avx512.o: FILE_CFLAGS := -Wno-psabi

# libzmq is the other side there; the programs do without it.
$(B)/tests/test_zmqpeer: PEER_LIBS := -lzmq

define TEST_RULE
$(B)/tests/$(basename $(notdir $(1))): $(B)/obj/$(1:.c=.o) $(TEST_LIB_OBJS) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD $$@"
	@$(CC) $(LDFLAGS) -o $$@ $$^ $(LIBS) $$(PEER_LIBS) -lcmocka
endef
$(foreach t,$(TEST_SRC),$(eval $(call TEST_RULE,$(t))))

define FUZZ_RULE
$(B)/tests/replay_$(1): $(B)/obj/tests/fuzz/fuzz_$(1).o $(B)/obj/tests/fuzz/replay.o $(TEST_LIB_OBJS) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD $$@"
	@$(CC) $(LDFLAGS) -o $$@ $$^ $(LIBS) -lcmocka
$(B)/tests/fuzz_$(1): $(B)/obj/tests/fuzz/fuzz_$(1).o $(TEST_LIB_OBJS) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD $$@"
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $$@ $$^ $(LIBS) -lcmocka
endef
$(foreach f,$(FUZZ_NAMES),$(eval $(call FUZZ_RULE,$(f))))

build/tests/tinymodel: build/obj/tests/e2e/tinymodel.o $(TEST_LIB_OBJS:$(B)/%=build/%) build/lib/libsluice.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

build/tests/gramtool: build/obj/tests/e2e/gramtool.o $(TEST_LIB_OBJS:$(B)/%=build/%) build/lib/libsluice.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

build/tests/poison/sluice-worker-cpu: build/obj/tests/e2e/poisonworker.o build/lib/libsluice.a
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -Wl,--wrap=batch_take -o $@ $^ $(LIBS)

$(VENV)/.done: tests/e2e/requirements.txt
	@echo "  PY $(VENV)"
	@rm -rf $(VENV)
	@python3 -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

# Only the packages are asked for here; the make inside parses anew, with what pkg-config then knows.
test: ## install what is missing, build, and run all tests that end within ten minutes
	@deploy/deps.sh test
	@deploy/model.sh >/dev/null
	@-tests/vocabularies.py
	@rm -f $(RESULTS)
	@+$(MAKE) --no-print-directory -j$$(nproc) test-build
	@-$(RUN_TESTS) command layers -- tests/layers.sh
	@+-$(MAKE) --no-print-directory -k unit sim-run schema-run e2e-run
	@$(RUN_TESTS) sum

test-build: all $(TEST_BINS) $(REPLAY_BINS) build/tests/tinymodel build/tests/gramtool build/tests/poison/sluice-worker-cpu $(VENV)/.done

unit: $(UNIT_BINS) $(REPLAY_BINS) ## unit and kernel tests (cmocka), and the fuzz targets over their corpus
	@$(RUN_TESTS) programs $(UNIT_BINS) $(REPLAY_BINS)

sim-run: $(B)/tests/test_sim
	@-$(RUN_TESTS) command "sim, $(SEEDS) seeds" -- $(B)/tests/test_sim --seeds $(SEEDS)

sim: $(B)/tests/test_sim ## the whole mesh simulated: make sim SEEDS=2000
	@$(RUN_TESTS) command "sim, $(SEEDS) seeds" -- $(B)/tests/test_sim --seeds $(SEEDS)

# The official suite of JSON Schema, and outputs made at random.
SCHEMA_SAMPLES ?= 2000
schema-run: build/tests/gramtool $(VENV)/.done
	@-$(RUN_TESTS) command "JSON Schema's test suite, $(SCHEMA_SAMPLES) outputs" -- $(PYTHON) tests/e2e/schema_suite.py --samples $(SCHEMA_SAMPLES)

e2e-run: all build/tests/tinymodel build/tests/poison/sluice-worker-cpu $(VENV)/.done
	@SLUICE_BIN_DIR=$(B)/bin $(RUN_TESTS) pytest $(PYTHON) tests/e2e $(E2E)

e2e: e2e-run ## real processes, real clients

# The sanitizers' builds lie in folders of their own, so each is a make of its own.
san: ## unit and end-to-end tests under ASan and UBSan
	@+$(MAKE) --no-print-directory -j$$(nproc) test-build
	@+$(MAKE) --no-print-directory -j$$(nproc) SAN=1 all build/san-tests
	@+$(MAKE) --no-print-directory -k SAN=1 RESULTS=$(RESULTS) unit e2e-run E2E="-m san"

ifneq ($(SAN),)
build/san-tests: $(TEST_BINS) $(REPLAY_BINS)
.PHONY: build/san-tests
endif

TSAN_TESTS ?= test_ring test_cpu_stream test_engine test_prep test_offload test_tokthreads test_weights test_trace
tsan: ## rings, and threads that work or write, under TSan
	@+$(MAKE) --no-print-directory -j$$(nproc) SAN=thread $(TSAN_TESTS:%=build/tsan/tests/%)
	@$(RUN_TESTS) programs $(TSAN_TESTS:%=build/tsan/tests/%)

fuzz: ## each fuzz target for FUZZ_SECONDS (60), two at a time
	@+$(MAKE) --no-print-directory -j$$(nproc) SAN=fuzz $(FUZZ_NAMES:%=build/fuzz/tests/fuzz_%)
	@$(RUN_TESTS) fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_NAMES:%=build/fuzz/tests/fuzz_%)

clang: ## build everything with clang
	@+$(MAKE) --no-print-directory -j$$(nproc) CC=clang all clang-tests

clang-tests: $(if $(filter clang%,$(notdir $(CC))),$(TEST_BINS))

mutate: ## change lines of the pure cores one at a time; the tests must notice (long)
	@+$(MAKE) --no-print-directory -j$$(nproc) $(B)/tests/test_sim $(UNIT_BINS)
	tests/mutate.py --at-least $(MUTATE_AT_LEAST) $(MUTATE)

# Seconds of each target, so that all of them together run for an hour.
FUZZ_HOUR = $(shell expr 3600 / $(words $(FUZZ_NAMES)) + 1)

check-long: test-build ## what takes longer: crashes under load, 20,000 seeds, an hour of fuzzing, all HTTP probes and bad files
	@rm -f $(RESULTS)
	@+-$(MAKE) --no-print-directory sim SEEDS=20000
	@-tests/vocabularies.py --large
	@-$(RUN_TESTS) programs $(B)/tests/test_families
	@-$(RUN_TESTS) command "golden models, all of them" -- $(B)/tests/test_golden_model --all
	@-$(RUN_TESTS) command "same logits every way, default model" -- $(B)/tests/test_engine --all
	@-SLUICE_BIN_DIR=build/bin $(RUN_TESTS) pytest $(PYTHON) tests/e2e/long_crash.py tests/e2e/long_openapi.py
	@+-$(MAKE) --no-print-directory schema-run SCHEMA_SAMPLES=20000
	@-tests/e2e/shared_checks.sh --long $(RESULTS)
	@+-$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(FUZZ_HOUR)
	@$(RUN_TESTS) sum

FORMAT_SRC = $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format-check: ## names the files that clang-format would change
	@clang-format --dry-run $(FORMAT_SRC) 2>&1 | sed -nE 's/^([^:]+):.*/\1/p' | sort | uniq -c | sort -rn

tidy: ## clang-tidy over the sources
	@$(RUN_TESTS) tidy --flags '$(CPPFLAGS) -std=c17' $(SRC_ALL)

.PHONY: test test-build unit sim sim-run schema-run e2e e2e-run san tsan fuzz clang clang-tests mutate check-long format-check tidy
