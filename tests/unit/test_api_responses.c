/* test_api_responses.c - requests of the Responses API as requests for chat, and what is refused in which words. */
#include "frontend/endpoint.h"
#include "tests/support/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define USER "'messages':[{'role':'user','content':'hi'}]"

static void test_fields(void **state)
{
	static const struct translation_row rows[] = {
		{"{'input':'hi'}", "{" USER "}", NULL, NULL},
		{"{'input':'hi','instructions':'be short'}", "{'messages':[{'role':'system','content':'be short'},{'role':'user','content':'hi'}]}", NULL, NULL},
		{"{'model':'m','input':'hi','max_output_tokens':7,'temperature':0.5,'top_p':0.9,'stream':true,'top_k':3,'seed':1,'unknown':1}",
		 "{'model':'m'," USER ",'max_completion_tokens':7,'temperature':0.5,'top_p':0.9,'stream':true,'top_k':3,'seed':1}", NULL, NULL},
		/* asks for nothing */
		{"{'input':'hi','previous_response_id':null,'conversation':null,'background':false,'prompt':null,'truncation':'disabled','store':true,"
		 "'metadata':{'a':'b'},'include':[],'context_management':[],'instructions':null,'text':null,'reasoning':null,'tools':null,'tool_choice':null,"
		 "'user':'u','service_tier':'auto','prompt_cache_key':'k','max_output_tokens':null,'stream_options':{'include_obfuscation':true},'n':3}",
		 "{" USER "}", NULL, NULL},
		{"{'input':'hi','include':['reasoning.encrypted_content','message.output_text.logprobs'],'top_logprobs':2}",
		 "{" USER ",'logprobs':true,'top_logprobs':2}", NULL, NULL},
		{"{'input':'hi','top_logprobs':0}", "{" USER ",'top_logprobs':0}", NULL, NULL},
		{"{'input':'hi','top_logprobs':1}", "{" USER ",'top_logprobs':1,'logprobs':true}", NULL, NULL},
		{"{'input':'hi','text':{'format':{'type':'text'},'verbosity':'medium'}}", "{" USER ",'response_format':{'type':'text'}}", NULL, NULL},
		{"{'input':'hi','text':{'format':{'type':'json_object'}}}", "{" USER ",'response_format':{'type':'json_object'}}", NULL, NULL},
		{"{'input':'hi','text':{'format':{'type':'json_schema','name':'n','strict':true,'schema':{'type':'object'},'description':null}}}",
		 "{" USER ",'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,'schema':{'type':'object'}}}}", NULL, NULL},
		{"{'input':'hi','reasoning':{'effort':'low','summary':'auto'}}",
		 "{" USER ",'reasoning_effort':'low','chat_template_kwargs':{'enable_thinking':true,'thinking':true}}", NULL, NULL},
		{"{'input':'hi','reasoning':{'effort':'none'},'chat_template_kwargs':{'thinking':true,'x':1}}",
		 "{" USER ",'reasoning_effort':'none','chat_template_kwargs':{'enable_thinking':false,'thinking':true,'x':1}}", NULL, NULL},
	};

	translation_check(&ENDPOINT_RESPONSES, rows, ARRAY_LEN(rows));
}

static void test_tools(void **state)
{
#define TOOL(name) "{'type':'function','name':'" name "','description':'d','parameters':{'type':'object'},'strict':true}"
#define CHAT_TOOL(name) "{'type':'function','function':{'name':'" name "','description':'d','parameters':{'type':'object'},'strict':true}}"
	static const struct translation_row rows[] = {
		{"{'input':'hi','tools':[" TOOL("f") "],'tool_choice':'required','parallel_tool_calls':false}",
		 "{" USER ",'tools':[" CHAT_TOOL("f") "],'tool_choice':'required','parallel_tool_calls':false}", NULL, NULL},
		{"{'input':'hi','tools':[{'type':'function','name':'f','description':null,'parameters':null,'strict':null}]}",
		 "{" USER ",'tools':[{'type':'function','function':{'name':'f'}}]}", NULL, NULL},
		{"{'input':'hi','tools':[" TOOL("f") "],'tool_choice':{'type':'function','name':'f'}}",
		 "{" USER ",'tools':[" CHAT_TOOL("f") "],'tool_choice':{'type':'function','function':{'name':'f'}}}", NULL, NULL},
		{"{'input':'hi','tools':[" TOOL("f") "," TOOL("g") "," TOOL("h") "],'tool_choice':{'type':'allowed_tools','mode':'required','tools':["
		 "{'type':'function','name':'h'},{'type':'function','name':'f'}]}}",
		 "{" USER ",'tools':[" CHAT_TOOL("f") "," CHAT_TOOL("h") "],'tool_choice':'required'}", NULL, NULL},
		{"{'input':'hi','tools':[]}", "{" USER ",'tools':[]}", NULL, NULL},
		{"{'input':'hi','tools':[" TOOL("f") ",{'type':'web_search'}]}", NULL, "tools[1]", "tools that run on the server are not supported"},
		{"{'input':'hi','tools':[{'type':'function','function':{'name':'f'}}]}", NULL, "tools[0].name", "`tools[0].name` must be a string"},
		{"{'input':'hi','tools':[{'type':'function','name':'f','parameters':[]}]}", NULL, "tools[0].parameters", "must be a JSON schema"},
		{"{'input':'hi','tools':[{'type':'function','name':'f','description':1}]}", NULL, "tools[0].description", "must be a string"},
		{"{'input':'hi','tools':{}}", NULL, "tools", "must be a list"},
		{"{'input':'hi','tool_choice':{'type':'file_search'}}", NULL, "tool_choice", "`required`"},
		{"{'input':'hi','tool_choice':{'type':'function'}}", NULL, "tool_choice.name", "must be a string"},
		{"{'input':'hi','tool_choice':{'type':'allowed_tools','mode':'auto'}}", NULL, "tool_choice.tools", "must be a list"},
	};

	translation_check(&ENDPOINT_RESPONSES, rows, ARRAY_LEN(rows));
}

static void test_items(void **state)
{
	static const struct translation_row rows[] = {
		{"{'input':[{'role':'developer','content':'d'},{'type':'message','role':'user','content':[{'type':'input_text','text':'a'}]}]}",
		 "{'messages':[{'role':'developer','content':'d'},{'role':'user','content':'a'}]}", NULL, NULL},
		{"{'input':[{'role':'user','content':[{'type':'input_text','text':'a'},{'type':'text','text':'b'}]}]}",
		 "{'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]}]}", NULL, NULL},
		/* A turn as it came in `output`: thoughts, text and two calls are one message; their results are two. */
		{"{'input':[{'role':'user','content':'w?'},"
		 "{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':'reasoning_text','text':'hm'},{'type':'reasoning_text','text':'!'}]},"
		 "{'type':'message','id':'msg_1','role':'assistant','status':'completed','content':[{'type':'output_text','text':'I look','annotations':[]}]},"
		 "{'type':'function_call','id':'fc_1','call_id':'c1','name':'f','arguments':'{}','status':'completed'},"
		 "{'type':'function_call','call_id':'c2','name':'g','arguments':'{\\u0022x\\u0022:1}'},"
		 "{'type':'function_call_output','call_id':'c1','output':'one'},"
		 "{'type':'function_call_output','call_id':'c2','output':[{'type':'input_text','text':'two'}]}]}",
		 "{'messages':[{'role':'user','content':'w?'},"
		 "{'role':'assistant','content':'I look','reasoning_content':'hm!','tool_calls':["
		 "{'id':'c1','type':'function','function':{'name':'f','arguments':'{}'}},"
		 "{'id':'c2','type':'function','function':{'name':'g','arguments':'{\\u0022x\\u0022:1}'}}]},"
		 "{'role':'tool','tool_call_id':'c1','content':'one'},{'role':'tool','tool_call_id':'c2','content':'two'}]}", NULL, NULL},
		/* One call after the other: two turns. */
		{"{'input':[{'type':'function_call','call_id':'a','name':'f','arguments':''},{'type':'function_call_output','call_id':'a','output':'1'},"
		 "{'type':'function_call','call_id':'b','name':'f','arguments':''},{'type':'function_call_output','call_id':'b','output':'2'}]}",
		 "{'messages':[{'role':'assistant','content':null,'tool_calls':[{'id':'a','type':'function','function':{'name':'f','arguments':''}}]},"
		 "{'role':'tool','tool_call_id':'a','content':'1'},"
		 "{'role':'assistant','content':null,'tool_calls':[{'id':'b','type':'function','function':{'name':'f','arguments':''}}]},"
		 "{'role':'tool','tool_call_id':'b','content':'2'}]}", NULL, NULL},
		/* Two messages stay two; thoughts without an answer, and those that cannot be read, are left out. */
		{"{'input':[{'role':'assistant','content':'a'},{'role':'assistant','content':'b'},{'type':'reasoning','content':[{'text':'lost'}]},"
		 "{'role':'user','content':'c'},{'type':'reasoning','encrypted_content':'xx','summary':[{'type':'summary_text','text':'s'}]},"
		 "{'role':'assistant','content':'d'}]}",
		 "{'messages':[{'role':'assistant','content':'a'},{'role':'assistant','content':'b'},{'role':'user','content':'c'},"
		 "{'role':'assistant','content':'d'}]}", NULL, NULL},
		{"{}", NULL, "input", "`input` must be a text or a list of items, not empty"},
		{"{'input':[]}", NULL, "input", "not empty"},
		{"{'input':7}", NULL, "input", "not empty"},
		{"{'input':[{'type':'reasoning','id':'r'}]}", NULL, "input", "must hold a message"},
		{"{'input':['x']}", NULL, "input[0]", "`input[0]` must be an object"},
		{"{'input':[{'role':'robot','content':'x'}]}", NULL, "input[0].role", "`developer`"},
		{"{'input':[{'role':'user','content':'x'},{'role':'user'}]}", NULL, "input[1].content", "`input[1].content` must be a string or a list"},
		{"{'input':[{'role':'user','content':[]}]}", NULL, "input[0].content", "not empty"},
		{"{'input':[{'role':'user','content':['x']}]}", NULL, "input[0].content[0]", "must be an object with a `type`"},
		{"{'input':[{'role':'user','content':[{'type':'input_image','image_url':'http://x/'}]}]}", NULL, "input[0].content[0]",
		 "of type `input_image` is not supported here: `type` must be `input_text`"},
		{"{'input':[{'role':'user','content':[{'type':'input_text'}]}]}", NULL, "input[0].content[0].text", "must be a string"},
		{"{'input':[{'type':'item_reference','id':'x'}]}", NULL, "input[0]", "of type `item_reference` is not supported"},
		{"{'input':[{'type':7}]}", NULL, "input[0]", "is not supported"},
		{"{'input':[{'type':'function_call','name':'f','arguments':''}]}", NULL, "input[0].call_id", "must be a string"},
		{"{'input':[{'type':'function_call','call_id':'c','arguments':''}]}", NULL, "input[0].name", "must be a string"},
		{"{'input':[{'type':'function_call','call_id':'c','name':'f','arguments':{}}]}", NULL, "input[0].arguments", "must be a string"},
		{"{'input':[{'type':'function_call_output','output':''}]}", NULL, "input[0].call_id", "must be a string"},
		{"{'input':[{'type':'function_call_output','call_id':'c'}]}", NULL, "input[0].output", "must be a string"},
	};

	translation_check(&ENDPOINT_RESPONSES, rows, ARRAY_LEN(rows));
}

static void test_refused(void **state)
{
	static const struct translation_row rows[] = {
		{"{'input':'hi','previous_response_id':'resp_1'}", NULL, "previous_response_id", "not stored"},
		{"{'input':'hi','conversation':{'id':'c'}}", NULL, "conversation", "not stored"},
		{"{'input':'hi','background':true}", NULL, "background", "not stored"},
		{"{'input':'hi','prompt':{'id':'p'}}", NULL, "prompt", "not stored"},
		{"{'input':'hi','truncation':'auto'}", NULL, "truncation", "`disabled`"},
		{"{'input':'hi','truncation':1}", NULL, "truncation", "`disabled`"},
		{"{'input':'hi','context_management':[{'type':'compaction'}]}", NULL, "context_management", "is not supported"},
		{"{'input':'hi','moderation':{'model':'m'}}", NULL, "moderation", "is not supported"},
		{"{'input':'hi','store':'yes'}", NULL, "store", "true or false"},
		{"{'input':'hi','metadata':[]}", NULL, "metadata", "an object of at most 16"},
		{"{'input':'hi','metadata':{'a':1}}", NULL, "metadata", "texts of at most 512"},
		{"{'input':'hi','include':'x'}", NULL, "include", "a list of strings"},
		{"{'input':'hi','include':[1]}", NULL, "include", "a list of strings"},
		{"{'input':'hi','instructions':['x']}", NULL, "instructions", "must be a string"},
		{"{'input':'hi','text':'x'}", NULL, "text", "must be an object"},
		{"{'input':'hi','text':{'format':'json'}}", NULL, "text.format", "`json_schema`"},
		{"{'input':'hi','text':{'format':{'type':'grammar'}}}", NULL, "text.format", "`json_schema`"},
		{"{'input':'hi','reasoning':'x'}", NULL, "reasoning", "must be an object"},
	};

	translation_check(&ENDPOINT_RESPONSES, rows, ARRAY_LEN(rows));
}

/* What chat finds wrong is said in this API's words. */
static void test_names(void **state)
{
	static const struct {
		const char *param, *message, *own_param, *own_message;
	} rows[] = {
		{"max_completion_tokens", "`max_completion_tokens` must be a whole number", "max_output_tokens", "`max_output_tokens` must be a whole number"},
		{"messages", "`messages` become a text", "input", "`input` become a text"},
		{"messages[3].content", "`messages[3].content` is bad", "input[3].content", "`input[3].content` is bad"},
		{"response_format.json_schema.schema", "`response_format` cannot", "text.format.schema", "`text.format` cannot"},
		{"top_logprobs", "`top_logprobs` needs `logprobs`", "top_logprobs", "`top_logprobs` needs `include`"},
		{"reasoning_effort", "`reasoning_effort` must be", "reasoning.effort", "`reasoning.effort` must be"},
		{"", "no names", "", "no names"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {0};

		(void)apierr_set(&e, 400, rows[i].param, "%s", rows[i].message);
		apierr_rename(&e, ENDPOINT_RESPONSES.names);
		assert_string_equal(e.param, rows[i].own_param);
		assert_string_equal(e.message, rows[i].own_message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields), cmocka_unit_test(test_tools), cmocka_unit_test(test_items),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
