/* test_answer_messages.c - the bytes of answers in Anthropic's shape: events, documents, how they end. */
#include "frontend/answer.h"
#include "tests/support/shapetest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define EVENT(type, more) "event: " type "\ndata: {'type':'" type "'" more "}\n\n"
#define USAGE(in, cached, n, thought)                                                                                                    \
	",'usage':{'input_tokens':" in ",'cache_creation_input_tokens':0,'cache_read_input_tokens':" cached ",'output_tokens':" n       \
	",'output_tokens_details':{'thinking_tokens':" thought "}}"
#define START                                                                                                                           \
	EVENT("message_start", ",'message':{'id':'msg_abc','type':'message','role':'assistant','model':'m','content':[],"               \
			       "'stop_reason':null,'stop_sequence':null" USAGE("10", "0", "0", "0") "}")
#define BLOCK(ix, block) EVENT("content_block_start", ",'index':" ix ",'content_block':{" block "}")
#define DELTA(ix, delta) EVENT("content_block_delta", ",'index':" ix ",'delta':{" delta "}")
#define STOP(ix) EVENT("content_block_stop", ",'index':" ix)
#define END(reason, sequence)                                                                                                     \
	EVENT("message_delta", ",'delta':{'stop_reason':'" reason "','stop_sequence':" sequence "}" USAGE("6", "4", "3", "2"))     \
	EVENT("message_stop", "")

static void test_stream_of_text(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_MESSAGES, true, -1, NULL);
	shapetest_expect(&t, START);
	shapetest_say(&t, 'T', "Hi\n");
	shapetest_expect(&t, BLOCK("0", "'type':'text','text':''") DELTA("0", "'type':'text_delta','text':'Hi\\n'"));
	shapetest_say(&t, 'T', "you");
	shapetest_expect(&t, DELTA("0", "'type':'text_delta','text':'you'"));
	shapetest_end(&t, "stop");
	shapetest_expect(&t, STOP("0") END("end_turn", "null"));
	shapetest_release(&t);
}

static void test_stream_of_everything(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_MESSAGES, true, -1, NULL);
	shapetest_say(&t, 'R', "hm");
	shapetest_say(&t, 'T', "I look");
	shapetest_say(&t, 'C', "f");
	shapetest_say(&t, 'A', "{\"x\":");
	shapetest_say(&t, 'A', "1}");
	shapetest_say(&t, 'C', "g");
	shapetest_end(&t, "tool_calls");
	shapetest_expect(&t, START
		BLOCK("0", "'type':'thinking','thinking':'','signature':''") DELTA("0", "'type':'thinking_delta','thinking':'hm'") STOP("0")
		BLOCK("1", "'type':'text','text':''") DELTA("1", "'type':'text_delta','text':'I look'") STOP("1")
		BLOCK("2", "'type':'tool_use','id':'toolu_ID','name':'f','input':{}")
		DELTA("2", "'type':'input_json_delta','partial_json':'{\\'x\\':'") DELTA("2", "'type':'input_json_delta','partial_json':'1}'") STOP("2")
		BLOCK("3", "'type':'tool_use','id':'toolu_ID','name':'g','input':{}") STOP("3") END("tool_use", "null"));
	shapetest_release(&t);
}

/* What was held back comes in one go; an answer without a word has a block all the same. */
static void test_streams_that_end_at_once(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_MESSAGES, true, -1, NULL);
	pieces_text(&t.answer.choices[0].said, "late", 4);
	shapetest_end(&t, "length");
	shapetest_expect(&t, START BLOCK("0", "'type':'text','text':''") DELTA("0", "'type':'text_delta','text':'late'") STOP("0")
				 END("max_tokens", "null"));
	shapetest_release(&t);

	shapetest_init(&t, &ANSWER_MESSAGES, true, -1, NULL);
	shapetest_end(&t, "stop!");
	shapetest_expect(&t, START BLOCK("0", "'type':'text','text':''") STOP("0") END("stop_sequence", "'E\\'D'"));
	shapetest_release(&t);
}

static void test_error(void **state)
{
	struct apierr e = {0};
	struct shapetest t;

	(void)apierr_set(&e, 500, NULL, "broken");
	shapetest_init(&t, &ANSWER_MESSAGES, true, -1, NULL);
	shapetest_say(&t, 'T', "Hi");
	strbuf_reset(&t.out);
	ANSWER_MESSAGES.error(&t.answer, &e, &t.out);
	shapetest_expect(&t, EVENT("error", ",'error':{'type':'api_error','message':'broken'}"));
	shapetest_release(&t);
}

#define DOCUMENT(content, reason, sequence)                                                                                             \
	"{'id':'msg_abc','type':'message','role':'assistant','model':'m','content':[" content "],'stop_reason':'" reason "','stop_sequence':" \
	sequence USAGE("6", "4", "3", "2") "}"

static void test_documents(void **state)
{
	static const struct {
		const char *said[6]; /* the first letter is the kind */
		const char *finish, *want;
	} rows[] = {
		{{"THi \"you\""}, "stop", DOCUMENT("{'type':'text','text':'Hi \\'you\\''}", "end_turn", "null")},
		{{NULL}, "stop", DOCUMENT("{'type':'text','text':''}", "end_turn", "null")},
		{{"Tx"}, "stop!", DOCUMENT("{'type':'text','text':'x'}", "stop_sequence", "'E\\'D'")},
		{{"Rhm", "Tx"}, "length",
		 DOCUMENT("{'type':'thinking','thinking':'hm','signature':''},{'type':'text','text':'x'}", "max_tokens", "null")},
		{{"Cf", "A{\"x\": 1}", "Cg", "A{}"}, "tool_calls",
		 DOCUMENT("{'type':'tool_use','id':'toolu_ID','name':'f','input':{'x': 1}},{'type':'tool_use','id':'toolu_ID','name':'g','input':{}}",
			  "tool_use", "null")},
		/* cut, not an object, nothing at all */
		{{"Cf", "A{\"x\": 1"}, "length", DOCUMENT("{'type':'tool_use','id':'toolu_ID','name':'f','input':{}}", "max_tokens", "null")},
		{{"Cf", "A{\"x\": 1"}, "stop!", DOCUMENT("{'type':'tool_use','id':'toolu_ID','name':'f','input':{}}", "stop_sequence", "'E\\'D'")},
		{{"Cf", "A[1]"}, "stop", DOCUMENT("{'type':'tool_use','id':'toolu_ID','name':'f','input':{}}", "tool_use", "null")},
		{{"Cf"}, "tool_calls", DOCUMENT("{'type':'tool_use','id':'toolu_ID','name':'f','input':{}}", "tool_use", "null")},
	};
	struct shapetest t;
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		shapetest_init(&t, &ANSWER_MESSAGES, false, -1, NULL);
		for (k = 0; rows[i].said[k]; k++) shapetest_say(&t, rows[i].said[k][0], rows[i].said[k] + 1);
		shapetest_end(&t, rows[i].finish);
		shapetest_expect(&t, rows[i].want);
		shapetest_release(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream_of_text), cmocka_unit_test(test_stream_of_everything), cmocka_unit_test(test_streams_that_end_at_once),
		cmocka_unit_test(test_error), cmocka_unit_test(test_documents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
