# Sluice. `make help` lists the targets. Everything that is built lies in build/ (build/$(FLAVOUR) for sanitizers).
#
#   make SAN=1        ASan + UBSan build in build/san
#   make SAN=thread   TSan build in build/tsan
#   make SAN=fuzz     clang with libFuzzer's coverage, ASan and UBSan in build/fuzz
#   make CC=clang     another compiler (its own folder: build/clang)

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

SAN ?=
CC := $(if $(filter default,$(origin CC)),$(if $(filter fuzz,$(SAN)),clang,gcc),$(CC))
FLAVOUR := $(if $(filter 1,$(SAN)),san,$(if $(filter thread,$(SAN)),tsan,$(if $(filter fuzz,$(SAN)),fuzz,release)))
ifneq ($(filter clang%,$(notdir $(CC))),)
FLAVOUR := $(patsubst release-clang,clang,$(patsubst fuzz-clang,fuzz,$(FLAVOUR)-clang))
endif
# The plain gcc build is the one people use: its programs lie in build/bin.
B := $(if $(filter release,$(FLAVOUR)),build,build/$(FLAVOUR))

VERSION := $(shell cat VERSION 2>/dev/null || echo 0.0.0)

MSGPACK := $(shell pkg-config --exists msgpack-c 2>/dev/null && echo msgpack-c || echo msgpack)
PKGS := libuv $(MSGPACK) jansson libpcre2-8 libutf8proc libsodium libxxhash libcurl libssl libcrypto
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

# llhttp: Debian ships the generated C in node-llhttp; Ubuntu 24.04 and newer Debian a library.
LLHTTP_DIR := $(firstword $(wildcard /usr/share/llhttp))
ifneq ($(LLHTTP_DIR),)
# Strict: without it, what ends a chunk is not checked, and bytes can be smuggled past a proxy that does check.
LLHTTP_CFLAGS := -isystem /usr/share/include/llhttp -DLLHTTP_STRICT_MODE=1
LLHTTP_OBJS = $(B)/obj/llhttp/api.o $(B)/obj/llhttp/http.o $(B)/obj/llhttp/llhttp.o
else
LLHTTP_LIBS := -lllhttp
endif

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wno-unused-parameter
OPT := -O2 -g
CPPFLAGS := -I. -D_GNU_SOURCE -DSLUICE_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(LLHTTP_CFLAGS)
CFLAGS_BASE := -std=c17 $(WARN) $(OPT) -fno-strict-aliasing -ffp-contract=off -fno-omit-frame-pointer -fstack-protector-strong -pthread
# as-needed: one list of libraries for all programs, each links only what it uses
LDFLAGS := -pthread -Wl,--as-needed
ifeq ($(SAN),1)
CFLAGS_BASE += -fsanitize=address,undefined -fno-sanitize-recover=all -DSLUICE_SAN=1
LDFLAGS += -fsanitize=address,undefined
endif
ifeq ($(SAN),thread)
CFLAGS_BASE += -fsanitize=thread -DSLUICE_SAN=1
LDFLAGS += -fsanitize=thread
endif
ifeq ($(SAN),fuzz)
CFLAGS_BASE += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DSLUICE_SAN=1
LDFLAGS += -fsanitize=address,undefined
endif
LIBS := $(PKG_LIBS) $(LLHTTP_LIBS) -lm
# What allocates for each request does it with mimalloc; sanitizers bring their own.
ifeq ($(SAN),)
MALLOC := -Wl,--no-as-needed -lmimalloc -Wl,--as-needed
LIBS_main_sluice-frontend := $(MALLOC)
LIBS_main_sluice-executor := $(MALLOC)
LIBS_main_sluice-worker-null := $(MALLOC)
endif

# One archive a folder; a program is its folder's main_*.c linked with the archives.
FOLDERS := common model proto kernels frontend executor worker sluice
SRC_ALL := $(sort $(foreach d,$(FOLDERS),$(wildcard $(d)/*.c $(d)/*/*.c)))
MAINS := $(foreach d,$(FOLDERS),$(wildcard $(d)/main_*.c))
LIB_SRC := $(filter-out $(MAINS),$(SRC_ALL))
LIB := $(B)/lib/libsluice.a
LIB_OBJS := $(LIB_SRC:%.c=$(B)/obj/%.o)

PROGRAMS := $(foreach m,$(MAINS),$(B)/bin/$(patsubst main_%,%,$(basename $(notdir $(m)))))

# Per-file flags: one file an instruction set (kernels/), nothing else knows about processors.
AVX2_CFLAGS := -O3 -mavx2 -mfma -mf16c
AVX512_CFLAGS := $(AVX2_CFLAGS) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$(B)/obj/kernels/avx2.o $(B)/obj/kernels/avx2%.o: FILE_CFLAGS := $(AVX2_CFLAGS)
$(B)/obj/kernels/avx512.o $(B)/obj/kernels/avx512%.o: FILE_CFLAGS := $(AVX512_CFLAGS)
$(B)/obj/kernels/ref%.o: FILE_CFLAGS := -O2
# Instrumented intrinsics at -O3 take minutes to compile; no fuzz target reaches the kernels.
ifneq ($(SAN),)
$(B)/obj/kernels/avx%.o: CFLAGS += -O1
endif
# gcc 12's frames for use after return are aligned to 32 bytes, less than these vectors (gcc bug 110027).
ifeq ($(SAN),1)
$(B)/obj/kernels/avx512%.o: CFLAGS += --param asan-use-after-return=0
endif
ifeq ($(SAN),fuzz)
$(B)/obj/kernels/%.o: CFLAGS += -O1 -fno-sanitize=fuzzer-no-link,address,undefined
endif

all: $(PROGRAMS) ## build everything (the programs lie in build/bin)

$(LIB): $(LIB_OBJS) $(LLHTTP_OBJS)
	@mkdir -p $(@D)
	@rm -f $@
	@$(AR) rcs $@ $^

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS_BASE) $(FILE_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/obj/llhttp/%.o: $(LLHTTP_DIR)/%.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPPFLAGS) $(OPT) -w -c -o $@ $<

define PROGRAM_RULE
$(B)/bin/$(patsubst main_%,%,$(basename $(notdir $(1)))): $(B)/obj/$(1:.c=.o) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD $$@"
	@$(CC) $(LDFLAGS) -o $$@ $$^ $$(LIBS_$(notdir $(basename $(1)))) $(LIBS)
endef
$(foreach m,$(MAINS),$(eval $(call PROGRAM_RULE,$(m))))

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)

include tests/tests.mk
include tests/bench/bench.mk
include deploy/deps.mk

clean: ## remove build/
	rm -rf build

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | sort | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: all clean help
