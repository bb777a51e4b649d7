/* test_answer_responses.c - the bytes of answers in the shape of the Responses API: events in order, items, the response object. */
#include "common/mem.h"
#include "common/status.h"
#include "frontend/answer.h"
#include "frontend/jsonread.h"
#include "frontend/gendefaults.h"
#include "frontend/respobject.h"
#include "tests/support/shapetest.h"
#include "tests/support/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EVENT(type, n, more) "event: response." type "\ndata: {'type':'response." type "','sequence_number':" n more "}\n\n"
#define ECHO                                                                                                                         \
	"'instructions':null,'max_output_tokens':null,'max_tool_calls':null,'metadata':{},'parallel_tool_calls':true,"               \
	"'prompt_cache_key':null,'reasoning':{'effort':null,'summary':null},'safety_identifier':null,'temperature':1.0,"             \
	"'text':{'format':{'type':'text'}},'tool_choice':'auto','tools':[],'top_logprobs':0,'top_p':1.0,'user':null"
#define OBJECT(status, error, details, output, usage)                                                                                 \
	"{'id':'resp_abc','object':'response','created_at':17,'status':'" status "','background':false,'error':" error                \
	",'incomplete_details':" details ",'model':'m','output':[" output "],'previous_response_id':null,'service_tier':'default',"   \
	"'store':false,'truncation':'disabled'," ECHO ",'usage':" usage "}"
#define USAGE                                                                                                                            \
	"{'input_tokens':10,'input_tokens_details':{'cached_tokens':4,'cache_write_tokens':0},'output_tokens':3,"                        \
	"'output_tokens_details':{'reasoning_tokens':2},'total_tokens':13}"
#define BEGUN OBJECT("in_progress", "null", "null", "", "null")
#define START EVENT("created", "0", ",'response':" BEGUN) EVENT("in_progress", "1", ",'response':" BEGUN)
#define CUT "{'reason':'max_output_tokens'}"

#define MESSAGE(id, status, content) "{'id':'" id "','type':'message','status':'" status "','role':'assistant','content':[" content "]}"
#define THOUGHT(id, status, content) "{'id':'" id "','type':'reasoning','status':'" status "','summary':[],'content':[" content "]}"
#define CALL(id, status, name, args) "{'id':'" id "','type':'function_call','status':'" status "','call_id':'call_ID','name':'" name "','arguments':'" args "'}"
#define TEXT_PART(logprobs, text) "{'type':'output_text','annotations':[],'logprobs':[" logprobs "],'text':'" text "'}"
#define THOUGHT_PART(text) "{'type':'reasoning_text','text':'" text "'}"
#define AT(id, ix) ",'item_id':'" id "','output_index':" ix ",'content_index':0"

static void test_stream_of_text(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_RESPONSES, true, -1, NULL);
	shapetest_expect(&t, START);
	shapetest_say(&t, 'T', "Hi\n");
	shapetest_expect(&t, EVENT("output_item.added", "2", ",'output_index':0,'item':" MESSAGE("msg_abc00", "in_progress", ""))
		EVENT("content_part.added", "3", AT("msg_abc00", "0") ",'part':" TEXT_PART("", ""))
		EVENT("output_text.delta", "4", AT("msg_abc00", "0") ",'delta':'Hi\\n','logprobs':[]"));
	shapetest_say(&t, 'T', "you");
	shapetest_expect(&t, EVENT("output_text.delta", "5", AT("msg_abc00", "0") ",'delta':'you','logprobs':[]"));
	shapetest_end(&t, "stop");
	shapetest_expect(&t, EVENT("output_text.done", "6", AT("msg_abc00", "0") ",'text':'Hi\\nyou','logprobs':[]")
		EVENT("content_part.done", "7", AT("msg_abc00", "0") ",'part':" TEXT_PART("", "Hi\\nyou"))
		EVENT("output_item.done", "8", ",'output_index':0,'item':" MESSAGE("msg_abc00", "completed", TEXT_PART("", "Hi\\nyou")))
		EVENT("completed", "9", ",'response':" OBJECT("completed", "null", "null", MESSAGE("msg_abc00", "completed", TEXT_PART("", "Hi\\nyou")), USAGE)));
	shapetest_release(&t);
}

static void test_stream_of_thoughts_and_calls(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_RESPONSES, true, -1, NULL);
	shapetest_say(&t, 'R', "hm");
	shapetest_say(&t, 'C', "f");
	shapetest_say(&t, 'A', "{\"x\":");
	shapetest_say(&t, 'A', "1}");
	shapetest_say(&t, 'C', "g");
	shapetest_end(&t, "tool_calls");
	shapetest_expect(&t, START
		EVENT("output_item.added", "2", ",'output_index':0,'item':" THOUGHT("rs_abc00", "in_progress", ""))
		EVENT("content_part.added", "3", AT("rs_abc00", "0") ",'part':" THOUGHT_PART(""))
		EVENT("reasoning_text.delta", "4", AT("rs_abc00", "0") ",'delta':'hm'")
		EVENT("reasoning_text.done", "5", AT("rs_abc00", "0") ",'text':'hm'")
		EVENT("content_part.done", "6", AT("rs_abc00", "0") ",'part':" THOUGHT_PART("hm"))
		EVENT("output_item.done", "7", ",'output_index':0,'item':" THOUGHT("rs_abc00", "completed", THOUGHT_PART("hm")))
		EVENT("output_item.added", "8", ",'output_index':1,'item':" CALL("fc_abc01", "in_progress", "f", ""))
		EVENT("function_call_arguments.delta", "9", ",'item_id':'fc_abc01','output_index':1,'delta':'{\\'x\\':'")
		EVENT("function_call_arguments.delta", "10", ",'item_id':'fc_abc01','output_index':1,'delta':'1}'")
		EVENT("function_call_arguments.done", "11", ",'item_id':'fc_abc01','output_index':1,'call_id':'call_ID','name':'f','arguments':'{\\'x\\':1}'")
		EVENT("output_item.done", "12", ",'output_index':1,'item':" CALL("fc_abc01", "completed", "f", "{\\'x\\':1}"))
		EVENT("output_item.added", "13", ",'output_index':2,'item':" CALL("fc_abc02", "in_progress", "g", ""))
		EVENT("function_call_arguments.done", "14", ",'item_id':'fc_abc02','output_index':2,'call_id':'call_ID','name':'g','arguments':''")
		EVENT("output_item.done", "15", ",'output_index':2,'item':" CALL("fc_abc02", "completed", "g", ""))
		EVENT("completed", "16", ",'response':" OBJECT("completed", "null", "null", THOUGHT("rs_abc00", "completed", THOUGHT_PART("hm"))
			"," CALL("fc_abc01", "completed", "f", "{\\'x\\':1}") "," CALL("fc_abc02", "completed", "g", ""), USAGE)));
	shapetest_release(&t);
}

static void test_cut_stream(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_RESPONSES, true, -1, NULL);
	pieces_text(&t.answer.choices[0].said, "la", 2);
	shapetest_end(&t, "length");
	shapetest_expect(&t, START EVENT("output_item.added", "2", ",'output_index':0,'item':" MESSAGE("msg_abc00", "in_progress", ""))
		EVENT("content_part.added", "3", AT("msg_abc00", "0") ",'part':" TEXT_PART("", ""))
		EVENT("output_text.delta", "4", AT("msg_abc00", "0") ",'delta':'la','logprobs':[]")
		EVENT("output_text.done", "5", AT("msg_abc00", "0") ",'text':'la','logprobs':[]")
		EVENT("content_part.done", "6", AT("msg_abc00", "0") ",'part':" TEXT_PART("", "la"))
		EVENT("output_item.done", "7", ",'output_index':0,'item':" MESSAGE("msg_abc00", "incomplete", TEXT_PART("", "la")))
		EVENT("incomplete", "8", ",'response':" OBJECT("incomplete", "null", CUT, MESSAGE("msg_abc00", "incomplete", TEXT_PART("", "la")), USAGE)));
	shapetest_release(&t);
}

static void test_failed_stream(void **state)
{
	static const struct {
		int status;
		const char *error;
	} rows[] = {
		{500, "{'code':'server_error','message':'broken'}"},
		{503, "{'code':'server_error','message':'broken'}"},
		{429, "{'code':'rate_limit_exceeded','message':'broken'}"},
		{400, "{'code':'invalid_prompt','message':'broken'}"},
	};
	struct shapetest t;
	char want[2048];
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {0};

		(void)apierr_set(&e, rows[i].status, NULL, "broken");
		shapetest_init(&t, &ANSWER_RESPONSES, true, -1, NULL);
		shapetest_expect(&t, START);
		ANSWER_RESPONSES.error(&t.answer, &e, &t.out);
		snprintf(want, sizeof(want), EVENT("failed", "2", ",'response':" OBJECT("failed", "%s", "null", "", "null")), rows[i].error);
		shapetest_expect(&t, want);
		shapetest_release(&t);
	}
}

#define LP(token, bytes) "{'token':'" token "','logprob':-0.5,'bytes':[" bytes "],'top_logprobs':[{'token':'Hi','logprob':-0.25,'bytes':[72,105]}]}"
#define LP_HI LP("Hi", "72,105")
#define LP_YOU LP(" you", "32,121,111,117")
#define LP_END LP("!", "33")

/* They come with the text, also those of the thoughts before it; of a token without text, at the end. */
static void test_logprobs(void **state)
{
	struct shapetest t;

	shapetest_init(&t, &ANSWER_RESPONSES, true, 1, NULL);
	shapetest_token(&t, 2);
	shapetest_say(&t, 'R', "!");
	strbuf_reset(&t.out);
	shapetest_token(&t, 0);
	shapetest_token(&t, 1);
	shapetest_say(&t, 'T', "Hi you");
	shapetest_token(&t, 2);
	shapetest_end(&t, "stop");
	shapetest_expect(&t, EVENT("reasoning_text.done", "5", AT("rs_abc00", "0") ",'text':'!'")
		EVENT("content_part.done", "6", AT("rs_abc00", "0") ",'part':" THOUGHT_PART("!"))
		EVENT("output_item.done", "7", ",'output_index':0,'item':" THOUGHT("rs_abc00", "completed", THOUGHT_PART("!")))
		EVENT("output_item.added", "8", ",'output_index':1,'item':" MESSAGE("msg_abc01", "in_progress", ""))
		EVENT("content_part.added", "9", AT("msg_abc01", "1") ",'part':" TEXT_PART("", ""))
		EVENT("output_text.delta", "10", AT("msg_abc01", "1") ",'delta':'Hi you','logprobs':[" LP_END "," LP_HI "," LP_YOU "]")
		EVENT("output_text.done", "11", AT("msg_abc01", "1") ",'text':'Hi you','logprobs':[" LP_END "," LP_HI "," LP_YOU "," LP_END "]")
		EVENT("content_part.done", "12", AT("msg_abc01", "1") ",'part':" TEXT_PART(LP_END "," LP_HI "," LP_YOU "," LP_END, "Hi you"))
		EVENT("output_item.done", "13", ",'output_index':1,'item':" MESSAGE("msg_abc01", "completed", TEXT_PART(LP_END "," LP_HI "," LP_YOU "," LP_END, "Hi you")))
		EVENT("completed", "14", ",'response':" OBJECT("completed", "null", "null", THOUGHT("rs_abc00", "completed", THOUGHT_PART("!")) ","
			MESSAGE("msg_abc01", "completed", TEXT_PART(LP_END "," LP_HI "," LP_YOU "," LP_END, "Hi you")), USAGE)));
	shapetest_release(&t);
}

static void test_documents(void **state)
{
	static const struct {
		const char *said[6]; /* the first letter is the kind */
		const char *finish, *want;
	} rows[] = {
		{{"THi"}, "stop", OBJECT("completed", "null", "null", MESSAGE("msg_abc00", "completed", TEXT_PART("", "Hi")), USAGE)},
		{{NULL}, "stop", OBJECT("completed", "null", "null", MESSAGE("msg_abc00", "completed", TEXT_PART("", "")), USAGE)},
		{{"Rhm", "Tx", "Cf", "A{}"}, "tool_calls",
		 OBJECT("completed", "null", "null", THOUGHT("rs_abc00", "completed", THOUGHT_PART("hm")) ","
			MESSAGE("msg_abc01", "completed", TEXT_PART("", "x")) "," CALL("fc_abc02", "completed", "f", "{}"), USAGE)},
		{{"Cf", "A{"}, "length", OBJECT("incomplete", "null", CUT, CALL("fc_abc00", "incomplete", "f", "{"), USAGE)},
	};
	struct shapetest t;
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		shapetest_init(&t, &ANSWER_RESPONSES, false, -1, NULL);
		for (k = 0; rows[i].said[k]; k++) shapetest_say(&t, rows[i].said[k][0], rows[i].said[k] + 1);
		shapetest_end(&t, rows[i].finish);
		shapetest_expect(&t, rows[i].want);
		shapetest_release(&t);
	}
}

/* The object repeats the request; what is too long for that is left out. */
static void test_echo(void **state)
{
	static const char request[] = "{'instructions':'be short','max_output_tokens':9,'metadata':{'a':'b'},'parallel_tool_calls':false,'temperature':0,"
				      "'tool_choice':'none','tools':[{'type':'function','name':'f'}],'top_p':0.5,'text':{'format':{'type':'json_object'}},"
				      "'user':'u','reasoning':{'effort':'low'},'top_logprobs':null}";
	json_t *want = translation_json(request), *got, *value;
	struct shapetest t;
	const char *key;

	shapetest_init(&t, &ANSWER_RESPONSES, false, -1, request);
	shapetest_end(&t, "stop");
	got = shapetest_document(&t);
	json_object_foreach(want, key, value)
		if (!json_is_null(value)) assert_true(json_equal(value, json_object_get(got, key)));
	assert_int_equal(json_integer_value(json_object_get(got, "top_logprobs")), 0);
	shapetest_release(&t);
	json_decref(got);
	json_decref(want);
}

/* What jansson cannot hold comes out as it went in; a text that only looks like it stays a text. */
static void test_echo_of_large_numbers(void **state)
{
	static const char request[] = "{\"tools\":[{\"a\":123456789012345678901234567890,\"b\":[-99999999999999999999,true,null,1.5,\"\\\"x\"]}],"
				      "\"user\":\"\\u0000int:1,2\",\"safety_identifier\":\"\\u0000int:12\"}";
	struct errbuf err = {{0}};
	struct shapetest t;
	json_t *body;

	assert_int_equal(jsonread(&body, request, strlen(request), &err), ST_OK);
	shapetest_init(&t, &ANSWER_RESPONSES, false, -1, NULL);
	strbuf_reset(&t.out);
	respobject_echo(body, &(struct gendefaults){.temperature = 0.6, .top_p = 0.95}, &t.out);
	assert_non_null(strstr(t.out.data, "\"temperature\":0.6,")); /* the model's own */
	assert_non_null(strstr(t.out.data, "\"top_p\":0.95,"));
	if (!strstr(t.out.data, "\"tools\":[{\"a\":123456789012345678901234567890,\"b\":[-99999999999999999999,true,null,1.5,\"\\\"x\"]}]") ||
	    !strstr(t.out.data, "\"user\":\"\\u0000int:1,2\"") || !strstr(t.out.data, "\"safety_identifier\":\"\\u0000int:12\""))
		fail_msg("%s", t.out.data);
	json_decref(body);
	shapetest_release(&t);
}

static void test_long_echo(void **state)
{
	static char request[300 * 1024];
	struct shapetest t;
	json_t *got;

	snprintf(request, sizeof(request), "{'instructions':'%0*d','user':'u'}", 280 * 1024, 0);
	shapetest_init(&t, &ANSWER_RESPONSES, false, -1, request);
	shapetest_end(&t, "stop");
	got = shapetest_document(&t);
	assert_true(json_is_null(json_object_get(got, "instructions")));
	assert_string_equal(json_string_value(json_object_get(got, "user")), "u");
	shapetest_release(&t);
	json_decref(got);
}

static void say_much(struct shapetest *t, char c, size_t n)
{
	char *text = mem_zalloc(n + 1, 1);

	memset(text, c, n);
	shapetest_say(t, 'T', text);
	free(text);
}

/* A stream repeats no more than fits at its end, and stays JSON; a plain answer that does not fit is none. */
static void test_very_long_answers(void **state)
{
	struct shapetest t;
	json_t *got;
	char *last;
	int i;

	shapetest_init(&t, &ANSWER_RESPONSES, true, -1, NULL);
	t.out.len_max = 64 * MIB;
	for (i = 0; i < 7; i++) {
		say_much(&t, 'x', MIB);
		strbuf_reset(&t.out);
	}
	shapetest_end(&t, "stop");
	assert_true(t.out.len < 64 * KIB);
	last = strstr(t.out.data, "event: response.completed");
	assert_non_null(last);
	got = json_loads(strchr(last, '{'), JSON_DISABLE_EOF_CHECK, NULL);
	assert_non_null(got);
	json_decref(got);
	shapetest_release(&t);

	shapetest_init(&t, &ANSWER_RESPONSES, false, -1, NULL);
	t.out.len_max = 64 * MIB;
	for (i = 0; i < 9; i++) say_much(&t, 'x', MIB);
	shapetest_end(&t, "stop");
	assert_false(t.out.overflow);
	shapetest_release(&t);

	shapetest_init(&t, &ANSWER_RESPONSES, false, -1, NULL);
	t.out.len_max = 64 * MIB;
	say_much(&t, 1, 9 * MIB); /* six bytes each, escaped */
	shapetest_end(&t, "stop");
	assert_true(t.out.overflow);
	shapetest_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream_of_text), cmocka_unit_test(test_stream_of_thoughts_and_calls), cmocka_unit_test(test_cut_stream),
		cmocka_unit_test(test_failed_stream), cmocka_unit_test(test_logprobs), cmocka_unit_test(test_documents),
		cmocka_unit_test(test_echo), cmocka_unit_test(test_echo_of_large_numbers), cmocka_unit_test(test_long_echo), cmocka_unit_test(test_very_long_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
