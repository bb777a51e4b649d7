/* openapi_schemas.c - see openapi.h. Requests are described as far as a schema can: what else is refused has a 400 that says why. Answers
 * are described by what clients may rely on. */
#include "frontend/openapi.h"

#include "frontend/params.h"

#include <string.h>

#define NULLABLE(type) "{'type':['" type "','null']}"
#define ID "{'type':'integer','minimum':0,'maximum':~}"
#define IDS "{'type':'array','items':" ID "}"
#define SOME_IDS "{'type':'array','minItems':1,'items':" ID "}"
#define REF(name) "{'$ref':'#/components/schemas/" name "'}"

/* ---- parameters with code of their own ---- */

static const struct openapi_schema parameters[] = {
	{"model", "@", PARAMS_CHAT | PARAMS_TEXT},
	{"max_tokens", "{'type':['integer','null'],'minimum':1}", PARAMS_CHAT},
	{"max_tokens", "{'type':['integer','null'],'minimum':0,'description':'0 only with echo.'}", PARAMS_TEXT},
	{"max_completion_tokens", "{'type':['integer','null'],'minimum':1}", PARAMS_CHAT | PARAMS_TEXT},
	{"top_p", "{'type':['number','null'],'exclusiveMinimum':0,'maximum':1}", PARAMS_CHAT | PARAMS_TEXT},
	{"top_k", "{'type':['integer','null'],'minimum':-1,'maximum':9223372036854775807}", PARAMS_CHAT | PARAMS_TEXT},
	{"seed", "{'type':['integer','null'],'format':'int64','minimum':-9223372036854775808,'maximum':9223372036854775807}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"cache_salt", "{'type':['string','null'],'minLength':1,'maxLength':256}", PARAMS_CHAT | PARAMS_TEXT},
	{"stop", "{'anyOf':[{'type':'string','minLength':1,'maxLength':1024},"
		 "{'type':'array','maxItems':64,'items':{'type':'string','minLength':1,'maxLength':1024}},{'type':'null'}]}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"stop_token_ids", "{'type':['array','null'],'maxItems':112,'items':" ID "}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"stream_options", "{'type':['object','null'],'properties':{'include_usage':{'type':['boolean','null']},"
			   "'continuous_usage_stats':{'type':['boolean','null']}}}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"logprobs", NULLABLE("boolean"), PARAMS_CHAT},
	{"top_logprobs", "{'type':['integer','null'],'minimum':0,'maximum':20}", PARAMS_CHAT},
	{"prompt_logprobs", "{'type':['integer','null'],'minimum':0,'maximum':20}", PARAMS_CHAT | PARAMS_TEXT},
	{"truncate_prompt_tokens", "{'type':['integer','null'],'minimum':-1,'maximum':4194304,'not':{'const':0}}", PARAMS_CHAT | PARAMS_TEXT},
	{"logit_bias", "{'type':['object','null'],'maxProperties':4096,'propertyNames':{'pattern':'^[0-9]+$'},"
		       "'additionalProperties':{'type':'number','minimum':-100,'maximum':100}}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"allowed_token_ids", "{'type':['array','null'],'minItems':1,'maxItems':262144,'items':" ID "}",
	 PARAMS_CHAT | PARAMS_TEXT},
	{"reasoning_effort", "{'enum':['none','minimal','low','medium','high','xhigh',null]}", PARAMS_CHAT},
	{"documents", "{'type':['array','null'],'items':{'type':'object'}}", PARAMS_CHAT},
	{"chat_template_kwargs", NULLABLE("object"), PARAMS_CHAT},
	{"chat_template", NULLABLE("string"), PARAMS_CHAT},
	{"modalities", "{'enum':[['text'],null]}", PARAMS_CHAT},
};

const char *openapi_parameter(const char *name, int where)
{
	for (size_t i = 0; i < ARRAY_LEN(parameters); i++)
		if ((parameters[i].where & where) && strcmp(parameters[i].name, name) == 0) return parameters[i].text;
	return NULL;
}

/* ---- what constrains the output: params_format.c ---- */

#define CONSTRAINTS                                                                                                                    \
	"'response_format':{'type':['object','null'],'required':['type'],'properties':{'type':{'enum':['text','json_object','json_schema']}," \
	"'json_schema':{'type':'object','required':['schema'],'properties':{'name':{'type':'string'},'schema':{'type':['object','boolean']}," \
	"'strict':{'type':['boolean','null']}}}}},"                                                                                     \
	"'structured_outputs':{'type':['object','null'],'description':'One of json, regex, choice, grammar, json_object.'},"            \
	"'guided_json':{'type':['object','string','boolean','null']},'guided_regex':" NULLABLE("string") ","                            \
	"'guided_choice':{'type':['array','null'],'minItems':1,'items':{'type':'string'}},'guided_grammar':" NULLABLE("string")

#define TOOLS                                                                                                                          \
	"'tools':{'type':['array','null'],'items':{'type':'object','required':['type','function'],'properties':{'type':{'const':'function'}," \
	"'function':{'type':'object','required':['name'],'properties':{" FUNCTION ","  \
	"'parameters':" NULLABLE("object") "}}}}},"                                                                                     \
	"'tool_choice':{'anyOf':[{'enum':['none','auto','required',null]},{'type':'object','required':['type','function']}]},"          \
	"'parallel_tool_calls':" NULLABLE("boolean")

#define CONTENT                                                                                                                        \
	"{'anyOf':[{'type':'string'},{'type':'array','minItems':1,'items':{'type':'object','required':['type','text'],"                 \
	"'properties':{'type':{'const':'text'},'text':{'type':'string'}}}}]}"

#define MESSAGES                                                                                                                       \
	"'messages':{'type':'array','minItems':1,'items':{'anyOf':["                                                                    \
	"{'type':'object','required':['role','content'],'properties':{'role':{'enum':['system','developer','user','tool']},'content':"  \
	CONTENT ",'tool_call_id':" NULLABLE("string") "}},"                                                                             \
	"{'type':'object','required':['role','content'],'properties':{'role':{'const':'assistant'},'content':" CONTENT ","              \
	"'tool_calls':{'type':['array','null'],'items':{'type':'object','required':['function'],'properties':{'id':{'type':'string'},"  \
	"'type':{'const':'function'},'function':{'type':'object','required':['name','arguments'],'properties':{'name':{'type':'string'}," \
	"'arguments':{'type':'string'}}}}}}}}]}}"

/* ---- requests ---- */

#define PROMPT                                                                                                                         \
	"{'anyOf':[{'type':'string','minLength':1},{'type':'array','minItems':1,'items':{'type':'string','minLength':1}}," SOME_IDS "," \
	"{'type':'array','minItems':1,'items':" SOME_IDS "}]}"

#define CHAT_REQUEST "{'type':'object','required':['messages'],'properties':{" MESSAGES "," TOOLS "," CONSTRAINTS ",$}}"
#define TEXT_REQUEST "{'type':'object','required':['prompt'],'properties':{'prompt':" PROMPT "," CONSTRAINTS ",$}}"

/* An item of the Responses API: a message, or a call of a tool and its result. */
#define RESPONSES_ITEM                                                                                                                  \
	"{'anyOf':[{'type':'object','required':['role','content'],'properties':{'type':{'const':'message'},"                            \
	"'role':{'enum':['user','assistant','system','developer']},'content':{'anyOf':[{'type':'string'},{'type':'array','minItems':1," \
	"'items':{'type':'object','required':['type','text'],'properties':{'type':{'enum':['input_text','output_text']},'text':{'type':'string'}}}}]}}}," \
	"{'type':'object','required':['type','call_id','name','arguments'],'properties':{'type':{'const':'function_call'},'call_id':{'type':'string'}," \
	"'name':{'type':'string','minLength':1,'maxLength':64},'arguments':{'type':'string'}}},"                                        \
	"{'type':'object','required':['type','call_id','output'],'properties':{'type':{'const':'function_call_output'},'call_id':{'type':'string'}," \
	"'output':{'type':'string'}}}]}"

#define FUNCTION                                                                                                                        \
	"'name':{'type':'string','minLength':1,'maxLength':64},'description':" NULLABLE("string")

#define RESPONSES_REQUEST                                                                                                               \
	"{'type':'object','required':['input'],'properties':{'model':@,"                                                                \
	"'input':{'anyOf':[{'type':'string','minLength':1},{'type':'array','minItems':1,'items':" RESPONSES_ITEM "}]},"                 \
	"'instructions':" NULLABLE("string") ",'max_output_tokens':{'type':['integer','null'],'minimum':1},"                            \
	"'temperature':{'type':['number','null'],'minimum':0,'maximum':100},"                                                           \
	"'top_p':{'type':['number','null'],'exclusiveMinimum':0,'maximum':1},'stream':" NULLABLE("boolean") ","                         \
	"'store':" NULLABLE("boolean") ",'metadata':{'type':['object','null'],'maxProperties':16,"                                      \
	"'additionalProperties':{'type':'string','maxLength':512}},'tools':{'type':['array','null'],'items':{'type':'object','required':['type','name']," \
	"'properties':{'type':{'const':'function'}," FUNCTION ",'parameters':" NULLABLE("object") "}}},"                                \
	"'tool_choice':{'anyOf':[{'enum':['none','auto','required',null]},{'type':'object','required':['type','name'],"                 \
	"'properties':{'type':{'const':'function'},'name':{'type':'string'}}}]},'parallel_tool_calls':" NULLABLE("boolean") ","         \
	"'text':{'type':['object','null'],'properties':{'format':{'type':'object','required':['type'],"                                 \
	"'properties':{'type':{'enum':['text','json_object','json_schema']}}}}},"                                                       \
	"'reasoning':{'type':['object','null'],'properties':{'effort':{'enum':['none','minimal','low','medium','high','xhigh',null]}}}," \
	"'top_logprobs':{'type':['integer','null'],'minimum':0,'maximum':20},'include':{'type':['array','null'],'items':{'type':'string'}}}}"

#define ANTHROPIC_BLOCK                                                                                                                 \
	"{'anyOf':[{'type':'object','required':['type','text'],'properties':{'type':{'const':'text'},'text':{'type':'string'}}},"       \
	"{'type':'object','required':['type','id','name','input'],'properties':{'type':{'const':'tool_use'},'id':{'type':'string'},"    \
	"'name':{'type':'string','minLength':1,'maxLength':64},'input':{'type':'object'}}},"                                            \
	"{'type':'object','required':['type','tool_use_id'],'properties':{'type':{'const':'tool_result'},'tool_use_id':{'type':'string'}," \
	"'content':{'type':'string'}}}]}"

#define ANTHROPIC_PROPERTIES                                                                                                            \
	"'model':@,'messages':{'type':'array','minItems':1,'items':{'type':'object','required':['role','content'],"                     \
	"'properties':{'role':{'enum':['user','assistant']},'content':{'anyOf':[{'type':'string'},{'type':'array','minItems':1,"        \
	"'items':" ANTHROPIC_BLOCK "}]}}}},"                                                                                            \
	"'system':{'anyOf':[{'type':'string'},{'type':'array','items':{'type':'object','required':['type','text'],"                     \
	"'properties':{'type':{'const':'text'},'text':{'type':'string'}}}},{'type':'null'}]},"                                          \
	"'stop_sequences':{'type':['array','null'],'items':{'type':'string','minLength':1,'maxLength':1024},'maxItems':64},"            \
	"'stream':" NULLABLE("boolean") ",'temperature':{'type':['number','null'],'minimum':0,'maximum':100},"                          \
	"'top_p':{'type':['number','null'],'exclusiveMinimum':0,'maximum':1},'top_k':{'type':['integer','null'],'minimum':-1},"         \
	"'tools':{'type':['array','null'],'items':{'type':'object','required':['name','input_schema'],"                                 \
	"'properties':{" FUNCTION ",'input_schema':{'type':'object'}}}},"                                                               \
	"'tool_choice':{'anyOf':[{'type':'null'},{'type':'object','required':['type'],'properties':{'type':{'enum':['auto','any','none']}}}," \
	"{'type':'object','required':['type','name'],'properties':{'type':{'const':'tool'},'name':{'type':'string'}}}]},"               \
	"'thinking':{'anyOf':[{'type':'null'},{'type':'object','required':['type'],'properties':{'type':{'enum':['enabled','disabled','adaptive']}}}]}," \
	"'metadata':{}"

/* ---- answers ---- */

#define USAGE                                                                                                                          \
	"'usage':{'anyOf':[{'type':'null'},{'type':'object','required':['prompt_tokens','total_tokens'],"                               \
	"'properties':{'prompt_tokens':{'type':'integer'},'completion_tokens':{'type':'integer'},'total_tokens':{'type':'integer'}}}]}"

#define COMPLETION(object, choice)                                                                                                     \
	"{'type':'object','required':['id','object','created','model','choices'],'properties':{'id':{'type':'string'},"                 \
	"'object':{'const':'" object "'},'created':{'type':'integer'},'model':{'type':'string'}," USAGE ","                             \
	"'choices':{'type':'array','items':{'type':'object','required':['index','finish_reason'," choice "],"                           \
	"'properties':{'index':{'type':'integer'},'finish_reason':" NULLABLE("string") "}}}}}"

#define MODEL                                                                                                                          \
	"{'type':'object','required':['id','object','created','owned_by'],'properties':{'id':{'type':'string'},'object':{'const':'model'}," \
	"'created':{'type':'integer'},'owned_by':{'type':'string'},'root':{'type':'string'},'max_model_len':" NULLABLE("integer") "}}"

static const struct openapi_schema schemas[] = {
	{"ChatRequest", CHAT_REQUEST, PARAMS_CHAT},
	{"CompletionRequest", TEXT_REQUEST, PARAMS_TEXT},
	{"ResponsesRequest", RESPONSES_REQUEST, 0},
	{"MessagesRequest", "{'type':'object','required':['messages','max_tokens'],'properties':{'max_tokens':{'type':'integer','minimum':1},"
			    ANTHROPIC_PROPERTIES "}}", 0},
	{"CountTokensRequest", "{'type':'object','required':['messages'],'properties':{" ANTHROPIC_PROPERTIES "}}", 0},
	{"EmbeddingsRequest", "{'type':'object','required':['input'],'properties':{'model':@,'input':" PROMPT ","
			      "'encoding_format':{'enum':['float','base64',null]},'dimensions':{'type':['integer','null'],'minimum':1}}}", 0},
	{"TokenizeRequest", "{'anyOf':[{'type':'object','required':['prompt'],'properties':{'prompt':{'type':'string'},"
			    "'add_special_tokens':" NULLABLE("boolean") ",'return_token_strs':" NULLABLE("boolean") ",'model':@}},"
			    REF("ChatRequest") "]}", 0},
	{"DetokenizeRequest", "{'type':'object','required':['tokens'],'properties':{'tokens':" IDS ",'model':@}}", 0},
	{"ChatCompletion", COMPLETION("chat.completion", "'message'"), 0},
	{"Completion", COMPLETION("text_completion", "'text'"), 0},
	{"Response", "{'type':'object','required':['id','object','created_at','status','model','output'],'properties':{'id':{'type':'string'},"
		     "'object':{'const':'response'},'status':{'enum':['completed','incomplete','failed']},'output':{'type':'array'}}}", 0},
	{"InputTokens", "{'type':'object','required':['input_tokens'],'properties':{'input_tokens':{'type':'integer'}}}", 0},
	{"Message", "{'type':'object','required':['id','type','role','content','model','stop_reason','usage'],'properties':{'id':{'type':'string'},"
		    "'type':{'const':'message'},'role':{'const':'assistant'},'content':{'type':'array'},'stop_reason':" NULLABLE("string") "}}", 0},
	{"Embeddings", "{'type':'object','required':['object','data','model','usage'],'properties':{'object':{'const':'list'},'data':{'type':'array',"
		       "'items':{'type':'object','required':['object','index','embedding']}}}}", 0},
	{"Model", MODEL, 0},
	{"Models", "{'type':'object','required':['object','data'],'properties':{'object':{'const':'list'},'data':{'type':'array','items':"
		   REF("Model") "}}}", 0},
	{"Rendered", "{'type':'object','required':['token_ids','sampling_params'],'properties':{'token_ids':" IDS ",'sampling_params':{'type':'object'}}}", 0},
	{"RenderedList", "{'type':'array','items':" REF("Rendered") "}", 0},
	{"Tokens", "{'type':'object','required':['count','max_model_len','tokens'],'properties':{'count':{'type':'integer'},"
		   "'max_model_len':{'type':'integer'},'tokens':" IDS "}}", 0},
	{"Text", "{'type':'object','required':['prompt'],'properties':{'prompt':{'type':'string'}}}", 0},
	{"Health", "{'type':'object','required':['status'],'properties':{'status':{'enum':['ok','unavailable']},'phase':{'type':'string'},"
		   "'progress':{'type':'number'},'detail':" NULLABLE("string") "}}", 0},
	{"Empty", "{'type':'object'}", 0},
	{"Version", "{'type':'object','required':['version'],'properties':{'version':{'type':'string'}}}", 0},
	{"Load", "{'type':'object','required':['server_load'],'properties':{'server_load':{'type':'integer'}}}", 0},
	{"Error", "{'type':'object','required':['error'],'properties':{'error':{'type':'object','required':['message','type','param','code'],"
		  "'properties':{'message':{'type':'string'},'type':{'type':'string'},'param':" NULLABLE("string") ",'code':{'type':'integer'}}}}}", 0},
	{"MessagesError", "{'type':'object','required':['type','error'],'properties':{'type':{'const':'error'},'error':{'type':'object',"
			  "'required':['type','message'],'properties':{'type':{'type':'string'},'message':{'type':'string'}}}}}", 0},
};

const struct openapi_schema *openapi_schemas(size_t *n)
{
	*n = ARRAY_LEN(schemas);
	return schemas;
}
