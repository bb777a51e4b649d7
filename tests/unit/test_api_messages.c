/* test_api_messages.c - requests of Anthropic's Messages API as requests for chat, and what is refused in which words. */
#include "frontend/endpoint.h"
#include "tests/support/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define HI "'max_tokens':5,'messages':[{'role':'user','content':'hi'}]"

static void test_fields(void **state)
{
	static const struct translation_row rows[] = {
		{"{" HI "}", "{" HI "}", NULL, NULL},
		{"{" HI ",'model':'m','temperature':1,'top_p':0.9,'top_k':5,'stream':true,'metadata':{'user_id':'u'},'service_tier':'auto','unknown':1}",
		 "{" HI ",'model':'m','temperature':1,'top_p':0.9,'top_k':5,'stream':true}", NULL, NULL},
		{"{" HI ",'stop_sequences':['a','b']}", "{" HI ",'stop':['a','b']}", NULL, NULL},
		{"{" HI ",'system':null,'stop_sequences':null,'thinking':null,'tools':null,'tool_choice':null,'output_config':null,'mcp_servers':[]}",
		 "{" HI "}", NULL, NULL},
		{"{'max_tokens':5,'system':'s','messages':[{'role':'user','content':'hi'}]}",
		 "{'max_tokens':5,'messages':[{'role':'system','content':'s'},{'role':'user','content':'hi'}]}", NULL, NULL},
		{"{'max_tokens':5,'system':[{'type':'text','text':'s','cache_control':{'type':'ephemeral'}},{'type':'text','text':'t'}],"
		 "'messages':[{'role':'user','content':'hi'}]}",
		 "{'max_tokens':5,'messages':[{'role':'system','content':[{'type':'text','text':'s'},{'type':'text','text':'t'}]},"
		 "{'role':'user','content':'hi'}]}", NULL, NULL},
		{"{" HI ",'system':[]}", "{" HI "}", NULL, NULL},
		{"{" HI ",'thinking':{'type':'enabled','budget_tokens':1024}}",
		 "{" HI ",'chat_template_kwargs':{'enable_thinking':true,'thinking':true}}", NULL, NULL},
		{"{" HI ",'thinking':{'type':'disabled'},'output_config':{'effort':'low'}}",
		 "{" HI ",'reasoning_effort':'low','chat_template_kwargs':{'enable_thinking':false,'thinking':false}}", NULL, NULL},
		{"{" HI ",'output_config':{'effort':'max'}}", "{" HI ",'reasoning_effort':'xhigh'}", NULL, NULL},
		{"{" HI ",'output_config':{'format':{'type':'json_schema','schema':{'type':'object'}}}}",
		 "{" HI ",'response_format':{'type':'json_schema','json_schema':{'name':'output','strict':true,'schema':{'type':'object'}}}}", NULL, NULL},
	};

	translation_check(&ENDPOINT_MESSAGES, rows, ARRAY_LEN(rows));
}

static void test_tools(void **state)
{
#define TOOL "'tools':[{'name':'f','description':'d','input_schema':{'type':'object'},'cache_control':{'type':'ephemeral'}}]"
#define CHAT_TOOL "'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'}}}]"
	static const struct translation_row rows[] = {
		{"{" HI "," TOOL "}", "{" HI "," CHAT_TOOL "}", NULL, NULL},
		{"{" HI "," TOOL ",'tool_choice':{'type':'auto'}}", "{" HI "," CHAT_TOOL ",'tool_choice':'auto'}", NULL, NULL},
		{"{" HI "," TOOL ",'tool_choice':{'type':'any','disable_parallel_tool_use':true}}",
		 "{" HI "," CHAT_TOOL ",'tool_choice':'required','parallel_tool_calls':false}", NULL, NULL},
		{"{" HI "," TOOL ",'tool_choice':{'type':'none'}}", "{" HI "," CHAT_TOOL ",'tool_choice':'none'}", NULL, NULL},
		{"{" HI "," TOOL ",'tool_choice':{'type':'tool','name':'f','disable_parallel_tool_use':false}}",
		 "{" HI "," CHAT_TOOL ",'tool_choice':{'type':'function','function':{'name':'f'}}}", NULL, NULL},
		{"{" HI ",'tools':[{'type':'custom','name':'f','input_schema':{},'strict':true}]}",
		 "{" HI ",'tools':[{'type':'function','function':{'name':'f','parameters':{},'strict':true}}]}", NULL, NULL},
		{"{" HI ",'tools':[{'type':'web_search_20250305','name':'web_search'}]}", NULL, "tools[0]", "`web_search_20250305` is not supported"},
		{"{" HI ",'tools':[{'name':'f'}]}", NULL, "tools[0]", "`tools[0].input_schema` is required"},
		{"{" HI ",'tools':[{'name':'f','input_schema':7}]}", NULL, "tools[0].input_schema", "must be a JSON schema"},
		{"{" HI ",'tools':[{'name':'','input_schema':{}}]}", NULL, "tools[0].name", "of 1 to"},
		{"{" HI ",'tools':[{'input_schema':{}}]}", NULL, "tools[0].name", "must be a string"},
		{"{" HI ",'tools':'f'}", NULL, "tools", "must be a list"},
		{"{" HI "," TOOL ",'tool_choice':'auto'}", NULL, "tool_choice", "must be an object of type `auto`"},
		{"{" HI "," TOOL ",'tool_choice':{'type':'tool'}}", NULL, "tool_choice.name", "must be a string"},
		{"{" HI "," TOOL ",'tool_choice':{'type':'auto','disable_parallel_tool_use':1}}", NULL, "tool_choice.disable_parallel_tool_use",
		 "true or false"},
	};

	translation_check(&ENDPOINT_MESSAGES, rows, ARRAY_LEN(rows));
}

static void test_turns(void **state)
{
#define ASK "{'role':'user','content':'w?'}"
	static const struct translation_row rows[] = {
		/* Calls, their results and a remark behind them. */
		{"{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':[{'type':'thinking','thinking':'hm','signature':''},"
		 "{'type':'text','text':'I look'},{'type':'tool_use','id':'t1','name':'f','input':{'x':[1,'\\u00e4']}},"
		 "{'type':'tool_use','id':'t2','name':'g','input':{}}]},"
		 "{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1','content':'one'},"
		 "{'type':'tool_result','tool_use_id':'t2','content':[{'type':'text','text':'two'}],'is_error':true},{'type':'text','text':'and?'}]}]}",
		 "{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':'I look','reasoning_content':'hm','tool_calls':["
		 "{'id':'t1','type':'function','function':{'name':'f','arguments':{'x':[1,'\\u00e4']}}},"
		 "{'id':'t2','type':'function','function':{'name':'g','arguments':{}}}]},"
		 "{'role':'tool','tool_call_id':'t1','content':'one'},{'role':'tool','tool_call_id':'t2','content':'two'},"
		 "{'role':'user','content':'and?'}]}", NULL, NULL},
		{"{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':[{'type':'redacted_thinking','data':'x'},"
		 "{'type':'tool_use','id':'t1','name':'f','input':{}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1'}]}]}",
		 "{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':null,'tool_calls':["
		 "{'id':'t1','type':'function','function':{'name':'f','arguments':{}}}]},{'role':'tool','tool_call_id':'t1','content':''}]}", NULL, NULL},
		/* The answer's beginning, put into its mouth; a turn of calls is none. */
		{"{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':'It is'}]}",
		 "{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':'It is'}],'continue_final_message':true,'add_generation_prompt':false}",
		 NULL, NULL},
		{"{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':[{'type':'text','text':'a'}]},"
		 "{'role':'assistant','content':[{'type':'text','text':'b'},{'type':'tool_use','id':'t','name':'f','input':{}}]}]}",
		 "{'max_tokens':5,'messages':[" ASK ",{'role':'assistant','content':'a'},{'role':'assistant','content':'b','tool_calls':["
		 "{'id':'t','type':'function','function':{'name':'f','arguments':{}}}]}]}", NULL, NULL},
		{"{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]},"
		 "{'role':'system','content':'now'}]}",
		 "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]},"
		 "{'role':'system','content':'now'}]}", NULL, NULL},
	};

	translation_check(&ENDPOINT_MESSAGES, rows, ARRAY_LEN(rows));
}

static void test_refused(void **state)
{
#define ONE(content) "{'max_tokens':5,'messages':[{'role':'user','content':" content "}]}"
#define OWN(content) "{'max_tokens':5,'messages':[{'role':'assistant','content':" content "}]}"
	static const struct translation_row rows[] = {
		{"{'messages':[{'role':'user','content':'hi'}]}", NULL, "max_tokens", "`max_tokens` is required"},
		{"{'max_tokens':5}", NULL, "messages", "a list of messages, not empty"},
		{"{'max_tokens':5,'messages':[]}", NULL, "messages", "not empty"},
		{"{'max_tokens':5,'messages':['x']}", NULL, "messages[0].role", "`user` or `assistant`"},
		{"{'max_tokens':5,'messages':[{'role':'tool','content':'x'}]}", NULL, "messages[0].role", "`user` or `assistant`"},
		{"{'max_tokens':5,'messages':[{'role':'user'}]}", NULL, "messages[0].content", "a string or a list of blocks"},
		{ONE("[]"), NULL, "messages[0].content", "not empty"},
		{ONE("['x']"), NULL, "messages[0].content[0]", "must be an object with a `type`"},
		{ONE("[{'type':'image','source':{}}]"), NULL, "messages[0].content[0]", "of type `image` is not supported"},
		{ONE("[{'type':'text','text':'a'},{'type':'document','source':{}}]"), NULL, "messages[0].content[1]", "`document` is not supported"},
		{ONE("[{'type':'tool_use','id':'x','name':'f','input':{}}]"), NULL, "messages[0].content[0]", "`tool_use` is not supported here"},
		{ONE("[{'type':'text','text':7}]"), NULL, "messages[0].content[0].text", "must be a string"},
		{ONE("[{'type':'tool_result'}]"), NULL, "messages[0].content[0].tool_use_id", "must be a string"},
		{ONE("[{'type':'tool_result','tool_use_id':'t','content':[{'type':'image'}]}]"), NULL, "messages[0].content[0].content[0]",
		 "of type `image` is not supported"},
		{OWN("[{'type':'tool_result','tool_use_id':'t'}]"), NULL, "messages[0].content[0]", "`tool_result` is not supported here"},
		{OWN("[{'type':'tool_use','name':'f','input':{}}]"), NULL, "messages[0].content[0].id", "must be a string"},
		{OWN("[{'type':'tool_use','id':'t','name':'f','input':'{}'}]"), NULL, "messages[0].content[0].input", "must be an object"},
		{OWN("[{'type':'thinking'}]"), NULL, "messages[0].content[0].thinking", "must be a string"},
		{"{" HI ",'system':{}}", NULL, "system", "`system` must be a string or a list"},
		{"{" HI ",'system':[{'type':'image'}]}", NULL, "system[0]", "`image` is not supported"},
		{"{" HI ",'stop_sequences':'x'}", NULL, "stop_sequences", "a list of strings"},
		{"{" HI ",'thinking':true}", NULL, "thinking", "an object with a `type`"},
		{"{" HI ",'output_config':7}", NULL, "output_config", "must be an object"},
		{"{" HI ",'output_config':{'format':{'type':'json_object'}}}", NULL, "output_config.format", "`json_schema`"},
		{"{" HI ",'mcp_servers':[{'url':'x'}]}", NULL, "mcp_servers", "is not supported"},
		{"{" HI ",'container':'c'}", NULL, "container", "is not supported"},
	};

	translation_check(&ENDPOINT_MESSAGES, rows, ARRAY_LEN(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields), cmocka_unit_test(test_tools), cmocka_unit_test(test_turns), cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
