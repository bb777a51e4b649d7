# The tests' rules. A unit test is tests/unit/test_<stem>.c or tests/kernels/test_<stem>.c: one cmocka program each.
#
#   make build/tests/test_map && build/tests/test_map     one test program
#   make unit                                             all of them

TEST_SRC := $(sort $(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/sim/test_*.c))
TEST_BINS := $(foreach t,$(TEST_SRC),$(B)/tests/$(basename $(notdir $(t))))
TEST_LIB_SRC := $(sort $(wildcard tests/support/*.c tests/sim/sim*.c))
TEST_LIB_OBJS := $(TEST_LIB_SRC:%.c=$(B)/obj/%.o)

define TEST_RULE
$(B)/tests/$(basename $(notdir $(1))): $(B)/obj/$(1:.c=.o) $(TEST_LIB_OBJS) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD $$@"
	@$(CC) $(LDFLAGS) -o $$@ $$^ $(LIBS) -lcmocka
endef
$(foreach t,$(TEST_SRC),$(eval $(call TEST_RULE,$(t))))

unit: $(TEST_BINS) ## unit and kernel tests (cmocka)
	@fail=0; for t in $(TEST_BINS); do echo "== $$t"; $$t || fail=1; done; exit $$fail

.PHONY: unit
