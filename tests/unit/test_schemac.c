/* test_schemac.c - JSON schemas keyword by keyword: what their grammars take and refuse, and which schemas are refused. The official
 * test suite is run by tests/e2e/schema_suite.py.
 *
 * In the tables ' stands for ", and the texts of a row are divided by newlines. */
#include "frontend/gramc.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "tests/support/gramtry.h"
#include "tests/support/gramwalk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define D3 "'$schema':'http://json-schema.org/draft-03/schema#',"
#define D4 "'$schema':'http://json-schema.org/draft-04/schema#',"
#define D6 "'$schema':'http://json-schema.org/draft-06/schema#',"
#define D7 "'$schema':'http://json-schema.org/draft-07/schema#',"
#define D2019 "'$schema':'https://json-schema.org/draft/2019-09/schema',"
#define D2020 "'$schema':'https://json-schema.org/draft/2020-12/schema',"

static const struct row {
	const char *schema, *yes, *no;
} rows[] = {
	/* any, nothing in particular */
	{"true", "1\nnull\n'a'\n[]\n{}\n-1.5e3\n[1,{'a':[]}]", "\nx\n01\n[1,]\n{'a'}"},
	{"{}", "1\nnull\ntrue\n'\\u00e9'\n{'a':{'b':[null]}}", "1 2\n'\n.5"},
	{"{'title':'t','description':'d','default':1,'examples':[2],'$comment':'c','unknown':{'type':5}}", "1\n'x'", "x"},

	/* type */
	{"{'type':'null'}", "null", "0\n'null'"},
	{"{'type':'boolean'}", "true\nfalse", "0\nTrue\n'true'"},
	{"{'type':'integer'}", "0\n-7\n123456789012345678", "1.0\n1e3\n-0.5\n00\n1234567890123456789\n'1'"},
	{"{'type':'number'}", "0\n-7\n1.5\n-0.25e-10\n1E5", ".5\n1.\n1e\n'1'\nNaN\n1e999"},
	{"{'type':'string'}", "''\n'a b'\n'\\n\\u0041\\\"'\n'\\ud83d\\ude00'\n'\xf0\x9f\x98\x80'", "a\n'\\x'\n'\\ud83d'\n'\\ude00'\n'a"},
	{"{'type':'array'}", "[]\n[1,'a']\n[ 1 , 2 ]\n[\n  1\n]", "{}\n[1 2]\n[  1]"},
	{"{'type':'object'}", "{}\n{'a':1,'a b':[]}\n{ 'a' : 1 }", "[]\n{a:1}"},
	{"{'type':['string','null']}", "'a'\nnull", "1\n[]"},
	{"{'type':['integer','array']}", "1\n[1.5]", "1.5"},
	{"{'type':['integer','number']}", "1\n1.5", "null"},
	{"{'type':'any'}", "1\n[]", "x"},

	/* enum and const */
	{"{'enum':['red','green',1,null,true]}", "'red'\n'green'\n1\nnull\ntrue", "'blue'\n0\nfalse\n're'\n'redd'"},
	{"{'enum':['a\\\"b','\\u00e9','\\n']}", "'a\\\"b'\n'\xc3\xa9'\n'\\n'", "'a'"},
	{"{'enum':[[1,2],{'a':1,'b':[]},[]]}", "[1,2]\n[]\n{'a':1,'b':[]}", "[1]\n[1,2,3]\n{'a':1}\n{'a':1,'b':[],'c':1}\n{'a':2,'b':[]}"},
	{"{'enum':[1.5,-2,100]}", "1.5\n-2\n100", "1.50\n2\n1\n10"},
	{"{'enum':['a','b'],'type':'string'}", "'a'", "'c'\n1"},
	{"{'enum':['a',1,2.5],'type':'number'}", "1\n2.5", "'a'"},
	{"{'enum':['a',1,2.5],'type':'integer'}", "1", "2.5\n'a'"},
	{"{'enum':[5,15,25],'minimum':10}", "15\n25", "5"},
	{"{'enum':['a','abc'],'maxLength':2}", "'a'", "'abc'"},
	{"{'const':'x'}", "'x'", "'y'\n'xx'"},
	{"{'const':1}", "1", "2\ntrue\n'1'"},
	{"{'const':false}", "false", "0\nnull"},
	{"{'const':{'a':[1,{'b':null}]}}", "{'a':[1,{'b':null}]}", "{'a':[1,{'b':0}]}\n{}"},
	{"{'const':1e300}", "", "1"},
	{"{'const':''}", "''", "' '"},
	{"{'const':'\\u0000'}", "'\\u0000'", "''"},
	{"{'type':'string'}", "'\\u0001'", "'\\u0000'"},

	/* numbers */
	{"{'type':'integer','minimum':0}", "0\n1\n99", "-1\n-0"},
	{"{'type':'integer','minimum':5,'maximum':10}", "5\n7\n10", "4\n11\n50\n-5\n100"},
	{"{'type':'integer','minimum':-5,'maximum':5}", "-5\n0\n5\n-1", "-6\n6\n-10"},
	{"{'type':'integer','minimum':-20,'maximum':-10}", "-20\n-15\n-10", "-9\n-21\n0\n-100\n-1"},
	{"{'type':'integer','exclusiveMinimum':0,'exclusiveMaximum':3}", "1\n2", "0\n3"},
	{"{'type':'integer','minimum':100,'maximum':1000}", "100\n999\n1000", "99\n1001\n10"},
	{"{'type':'integer','minimum':1.5,'maximum':3.5}", "2\n3", "1\n4"},
	{"{'type':'integer','maximum':-1}", "-1\n-100", "0\n1"},
	{"{'type':'number','minimum':0.5,'maximum':2.25}", "0.5\n1\n2.25\n2.2\n1.999", "0.4\n0.49\n2.26\n3\n0\n-1"},
	{"{'type':'number','exclusiveMinimum':0}", "0.1\n0.001\n5", "0\n0.0\n-1"},
	{"{'type':'number','exclusiveMaximum':1}", "0\n0.99\n-5\n0.0", "1\n1.0\n1.5"},
	{"{'type':'number','minimum':-1.5}", "-1.5\n-1\n0\n-1.25\n7", "-1.6\n-2\n-1.51"},
	{"{'type':'number','maximum':0}", "0\n-0.5\n-3", "0.1\n1"},
	{"{'minimum':3}", "3\n'a'\n[]\nnull", "2"},
	{"{" D4 "'type':'integer','minimum':3,'exclusiveMinimum':true}", "4", "3"},
	{"{'type':'integer','maximum':3,'exclusiveMaximum':true}", "2", "3"},
	{"{'type':'integer','maximum':3,'exclusiveMaximum':false}", "3", "4"},
	{"{'type':'integer','multipleOf':3}", "0\n3\n-9\n12\n333", "1\n10\n-1"},
	{"{'type':'integer','multipleOf':10}", "0\n10\n-200", "5\n101"},
	{"{'type':'integer','multipleOf':2500}", "0\n2500\n10000", "250\n2501\n1250"},
	{"{'type':'integer','multipleOf':60,'minimum':60,'maximum':240}", "60\n120\n240", "0\n300\n90"},
	{"{'type':'number','multipleOf':0.5}", "0\n0.5\n-1.5\n2\n3.0", "0.25\n1.1"},
	{"{'type':'number','multipleOf':0.25}", "0.25\n0.75\n10.5", "0.3\n0.125"},
	{"{'multipleOf':7,'minimum':1,'maximum':20,'type':'number'}", "7\n14", "0\n21\n7.5"},
	{"{" D3 "'type':'integer','divisibleBy':4}", "8", "6"},

	/* strings */
	{"{'type':'string','minLength':2}", "'ab'\n'abc'\n'\\n\\n'", "''\n'a'\n'\\n'"},
	{"{'type':'string','maxLength':2}", "''\n'ab'\n'\xc3\xa9\xc3\xa9'\n'\\ud83d\\ude00x'", "'abc'\n'\xc3\xa9\xc3\xa9\xc3\xa9'"},
	{"{'type':'string','minLength':2,'maxLength':2}", "'ab'\n'\\u0041b'", "'a'\n'abc'"},
	{"{'type':'string','maxLength':0}", "''", "'a'"},
	{"{'minLength':3}", "'abc'\n1\nnull", "'ab'"},
	{"{'type':'string','pattern':'^a+$'}", "'a'\n'aaa'", "''\n'ab'\n'ba'"},
	{"{'type':'string','pattern':'b'}", "'b'\n'abc'", "''\n'a'"},
	{"{'type':'string','pattern':'^b'}", "'b'\n'bxx\\n'", "'ab'"},
	{"{'type':'string','pattern':'b$'}", "'b'\n'xb'", "'bx'"},
	{"{'type':'string','pattern':'^a|b$'}", "'ax'\n'xb'", "'xa'\n'bx'"},
	{"{'type':'string','pattern':'^(\\\\([0-9]{3}\\\\))?[0-9]{3}-[0-9]{4}$'}", "'555-1212'\n'(888)555-1212'", "'(888)5551212'\n'x555-1212'"},
	{"{'type':'string','pattern':'^[^\\\"]+$'}", "'a'\n'\\\\'\n'\\n'", "'\\\"'\n''"},
	{"{'type':'string','pattern':'^.$'}", "'a'\n'\\\"'\n'\\\\'\n'\\t'\n'\xf0\x9f\x98\x80'\n'\\ud83d\\ude00'", "'\\n'\n'ab'\n''"},
	{"{'type':'string','pattern':'^\\\\d+$','maxLength':3}", "'1'\n'123'", "'1234'\n''"},
	{"{'type':'string','pattern':'^[a-z]*$','minLength':2}", "'ab'\n'abcdef'", "'a'\n''\n'AB'"},
	{"{'type':'string','pattern':'^[A-Z]{3}$','maxLength':10}", "'ABC'", "'AB'"},
	{"{'allOf':[{'pattern':'^a'},{'pattern':'z$'}],'type':'string'}", "'az'\n'abcz'", "'a'\n'z'\n'za'"},
	{"{'type':'string','pattern':'^\\\\p{Lu}$'}", "'A'\n'\xc3\x89'\n'\\u00c9'", "'a'\n'1'"},
	{"{'type':'string','pattern':'$^'}", "''", "'a'"},

	/* formats */
	{"{'type':'string','format':'date'}", "'2024-02-29'\n'1999-12-31'", "'2023-02-29'\n'2024-13-01'\n'2024-04-31'\n'2024-1-1'"},
	{"{'type':'string','format':'date-time'}", "'2024-01-31T23:59:59Z'\n'2024-01-31T00:00:00.123+02:00'", "'2024-01-31'\n'2024-01-31T24:00:00Z'\n'2024-01-31T00:00:00'"},
	{"{'type':'string','format':'time'}", "'12:34:56Z'\n'12:34:56.5-08:00'", "'12:34:56'\n'25:00:00Z'"},
	{"{'type':'string','format':'email'}", "'a@b.co'\n'joe.bloggs+x@mail.example.com'", "'a'\n'a@b'\n'@b.co'\n'a..b@c.de'"},
	{"{'type':'string','format':'uuid'}", "'2eb8aa08-aa98-11ea-b4aa-73b441d16380'", "'2eb8aa08aa9811eab4aa73b441d16380'\n'2eb8aa08-aa98-11ea-b4aa-73b441d1638'"},
	{"{'type':'string','format':'ipv4'}", "'127.0.0.1'\n'255.255.255.255'", "'256.0.0.1'\n'1.2.3'\n'01.2.3.4'"},
	{"{'type':'string','format':'ipv6'}", "'::1'\n'::'\n'fe80::1:2'\n'1:2:3:4:5:6:7:8'", "'1:2'\n'12345::'\n':::'\n'1::2::3'"},
	{"{'type':'string','format':'hostname'}", "'example.com'\n'a-b.c'", "'-a'\n'a_b'\n''\n'a..b'"},
	{"{'type':'string','format':'uri'}", "'http://foo.bar/?baz=qux#quux'\n'https://example.com'", "'foo'\n'http://'\n'http://a b.co'"},
	{"{'type':'string','format':'duration'}", "'P3D'\n'PT1H30M'\n'P1Y2M'\n'P2W'", "'P'\n'PT'\n'1D'\n'P1YT'"},
	{"{'type':'string','format':'something-else'}", "'anything'", "1"},
	{"{'type':'string','contentEncoding':'base64'}", "''\n'TWFu'\n'TQ=='", "'a'\n'%'"},
	{"{'type':'string','format':'email','maxLength':6}", "'a@b.co'", "'aa@b.co'"},

	/* objects */
	{"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'string'}},'required':['a','b']}",
	 "{'a':1,'b':'x'}\n{ 'a' : 1 , 'b':'x', 'c':[] }", "{'a':1}\n{}\n{'b':'x','a':1}\n{'a':'x','b':'x'}\n{'a':1,'b':'x','a':2}"},
	{"{'type':'object','properties':{'a':{'type':'integer'},'b':{}}}", "{}\n{'a':1}\n{'b':2}\n{'a':1,'b':2}\n{'c':1}", "{'a':'x'}\n{'c':1,'a':1}"},
	{"{'type':'object','properties':{'a':{},'b':{},'c':{}},'required':['b'],'additionalProperties':false}", "{'b':1}\n{'a':1,'b':1}\n{'b':1,'c':1}\n{'a':1,'b':1,'c':1}",
	 "{}\n{'a':1}\n{'a':1,'c':1}\n{'b':1,'d':1}\n{,'b':1}\n{'b':1,}"},
	{"{'type':'object','properties':{'a':{}},'additionalProperties':{'type':'integer'}}", "{'a':'x'}\n{'b':1}\n{'a':null,'b':1,'c':2}\n{'aa':1,'':2}", "{'b':'x'}"},
	{"{'type':'object','additionalProperties':{'type':'integer'}}", "{}\n{'x':1,'y':2}", "{'x':'a'}"},
	{"{'type':'object','additionalProperties':false}", "{}\n{ }", "{'a':1}"},
	{"{'type':'object','required':['x y']}", "{'x y':1}\n{'x y':1,'z':2}", "{}\n{'z':1}"},
	{"{'type':'object','properties':{'a\\\"b':{},'\\u00e9':{}},'required':['a\\\"b','\\u00e9'],'additionalProperties':false}", "{'a\\\"b':1,'\xc3\xa9':2}", "{}"},
	{"{'type':'object','patternProperties':{'^s_':{'type':'string'},'^i_':{'type':'integer'}},'additionalProperties':false}",
	 "{}\n{'s_a':'x'}\n{'i_':1,'s_':'y'}", "{'s_a':1}\n{'x':1}"},
	{"{'type':'object','patternProperties':{'a':{'type':'integer'},'b':{'minimum':5}}}", "{'a':1}\n{'b':'x'}\n{'ab':5}\n{'c':null}", "{'a':'x'}\n{'ab':4}\n{'b':4}"},
	{"{'type':'object','properties':{'foo':{'minLength':2}},'patternProperties':{'o$':{'maxLength':3}}}", "{'foo':'ab'}\n{'o':'abc'}\n{'x':'abcd'}", "{'foo':'a'}\n{'foo':'abcd'}\n{'o':'abcd'}"},
	{"{'type':'object','propertyNames':{'maxLength':2}}", "{}\n{'ab':1}", "{'abc':1}"},
	{"{'type':'object','propertyNames':{'pattern':'^[a-z]$'},'additionalProperties':{'type':'null'}}", "{'a':null,'b':null}", "{'A':null}\n{'a':1}"},
	{"{'type':'object','propertyNames':{'enum':['a','b']},'additionalProperties':{'type':'integer'}}", "{}\n{'a':1}\n{'a':1,'b':2}", "{'c':1}\n{'a':1,'a':2}"},
	{"{'type':'object','propertyNames':{'enum':['a','b','c']},'minProperties':2}", "{'a':1,'c':1}\n{'a':1,'b':1,'c':1}", "{'a':1}\n{}"},
	{"{'type':'object','propertyNames':false}", "{}", "{'a':1}"},
	{"{'type':'object','minProperties':1}", "{'a':1}\n{'a':1,'b':1}", "{}"},
	{"{'type':'object','maxProperties':1}", "{}\n{'a':1}", "{'a':1,'b':1}"},
	{"{'type':'object','maxProperties':0}", "{}", "{'a':1}"},
	{"{'type':'object','properties':{'a':{},'b':{},'c':{}},'additionalProperties':false,'minProperties':2}", "{'a':1,'b':1}\n{'b':1,'c':1}\n{'a':1,'b':1,'c':1}", "{}\n{'a':1}\n{'c':1}"},
	{"{'type':'object','properties':{'a':{},'b':{},'c':{}},'additionalProperties':false,'maxProperties':1}", "{}\n{'c':1}", "{'a':1,'c':1}"},
	{"{'type':'object','properties':{'a':{},'b':{}},'minProperties':3}", "{'a':1,'b':1,'c':1}", "{'a':1,'b':1}\n{'a':1,'c':1,'c':2}"},
	{"{'type':'object','properties':{'a':{},'b':{}},'minProperties':1,'maxProperties':2}", "{'a':1}\n{'a':1,'x':1}\n{'x':1,'y':1}", "{}\n{'a':1,'b':1,'x':1}"},
	{"{'type':'object','properties':{'a':{},'b':{}},'dependentRequired':{'a':['b']}}", "{}\n{'b':1}\n{'a':1,'b':1}", "{'a':1}"},
	{"{" D7 "'type':'object','properties':{'a':{},'b':{}},'dependencies':{'a':['b']}}", "{}\n{'b':1}\n{'a':1,'b':1}", "{'a':1}"},
	{"{'type':'object','dependentSchemas':{'a':{'properties':{'b':{'type':'integer'}},'required':['b']}}}", "{}\n{'b':'x'}\n{'a':1,'b':1}", "{'a':1}\n{'a':1,'b':'x'}"},
	{"{" D3 "'type':'object','dependencies':{'a':'b'}}", "{'a':1,'b':1}\n{'c':1}", "{'a':1}"},
	{"{" D3 "'properties':{'a':{'required':true},'b':{}}}", "{'a':1}\n{'a':1,'b':2}", "{}\n{'b':2}"},
	{"{'properties':{'a':{'type':'integer'}}}", "{'a':1}\n{}", "{'a':'x'}\n1\n[]"},
	{"{'required':['a']}", "{'a':1}", "{}\n1"},
	{"{'type':'object','properties':{'a':{'type':'object','properties':{'b':{'type':'array','items':{'type':'object','properties':{'c':{'type':'null'}},'required':['c']}}},'required':['b']}},'required':['a']}",
	 "{'a':{'b':[]}}\n{'a':{'b':[{'c':null},{'c':null}]}}", "{'a':{'b':[{}]}}\n{'a':{}}"},
	{"{'type':'object','properties':{'a':true,'b':false}}", "{}\n{'a':1}", "{'b':1}\n{'a':1,'b':1}"},

	/* arrays */
	{"{'type':'array','items':{'type':'integer'}}", "[]\n[1]\n[1,2,3]", "['a']\n[1,'a']\n[,]"},
	{"{'type':'array','items':{'type':'integer'},'minItems':2}", "[1,2]\n[1,2,3]", "[]\n[1]"},
	{"{'type':'array','items':{'type':'integer'},'maxItems':2}", "[]\n[1]\n[1,2]", "[1,2,3]"},
	{"{'type':'array','minItems':1,'maxItems':1}", "[1]\n['a']", "[]\n[1,2]"},
	{"{'type':'array','maxItems':0}", "[]\n[ ]", "[1]"},
	{"{'type':'array','items':false}", "[]", "[1]"},
	{"{'type':'array','items':{'type':'null'},'minItems':3,'maxItems':5}", "[null,null,null]\n[null,null,null,null,null]", "[null,null]\n[null,null,null,null,null,null]"},
	{"{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}]}", "[]\n[1]\n[1,'a']\n[1,'a',null]", "['a']\n[1,2]"},
	{"{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':false}", "[]\n[1]\n[1,'a']", "[1,'a',null]"},
	{"{'type':'array','prefixItems':[{'type':'integer'}],'items':{'type':'string'},'minItems':2}", "[1,'a']\n[1,'a','b']", "[1]\n[1,2]"},
	{"{'type':'array','items':[{'type':'integer'}],'additionalItems':{'type':'string'}}", "[]\n[1,'a']", "[1,2]\n['a']"},
	{"{" D7 "'type':'array','items':[{'type':'integer'}],'additionalItems':false}", "[]\n[1]", "[1,2]"},
	{"{" D7 "'type':'array','items':{'type':'integer'},'additionalItems':false}", "[1,2]", "['a']"},
	{"{'type':'array','contains':{'const':5}}", "[5]\n[1,5]\n[5,'a']", "[]\n[1]"},
	{"{'type':'array','contains':{'type':'integer'},'minContains':2,'maxContains':3,'items':{'type':['integer','null']}}", "[1,2]\n[null,1,null,2,3]", "[1]\n[1,2,3,4]\n[1,'a',2]"},
	{"{'type':'array','contains':{'const':1},'minContains':0}", "[]\n[2]", "{}"},
	{"{'type':'array','contains':{'const':1},'maxItems':2}", "[1]\n[2,1]", "[2,2,1]\n[2]"},
	{"{'type':'array','items':{'type':'integer'},'contains':{'minimum':5},'minItems':2}", "[5,1]\n[1,5]", "[5]\n[1,2]"},
	{"{'allOf':[{'contains':{'const':1}},{'contains':{'const':2}}],'type':'array'}", "[1,2]\n[2,1]\n[1,0,2]", "[1]\n[2]"},
	{"{'type':'array','items':{'enum':['a','b','c']},'uniqueItems':true}", "[]\n['a']\n['c','a','b']", "['a','a']\n['a','b','a']"},
	{"{'type':'array','items':{'enum':['a','b','c']},'uniqueItems':true,'minItems':2,'maxItems':2}", "['a','b']\n['c','a']", "['a']\n['a','b','c']\n['a','a']"},
	{"{'type':'array','items':{'type':'boolean'},'uniqueItems':true}", "[true,false]\n[false]", "[true,true]"},
	{"{'type':'array','items':{'enum':[1,2,3,4,5,6,7,8]},'uniqueItems':true}", "[1,3,8]\n[]", "[1,1]\n[8,8]"},
	{"{'type':'array','items':{'enum':[1,2,3,4,5,6,7,8]},'uniqueItems':true,'minItems':2,'maxItems':3}", "[1,3]\n[1,3,8]", "[1]\n[1,2,3,4]"},
	{"{'type':'array','items':{'type':'integer','minimum':1,'maximum':3},'uniqueItems':true}", "[2,1,3]", "[2,2]"},
	{"{'type':'array','uniqueItems':true,'maxItems':1}", "[]\n[{}]", "[1,1]"},
	{"{'type':'array','prefixItems':[{'type':'integer'},{'type':'string'}],'items':false,'uniqueItems':true}", "[1,'a']", "[1,1]"},
	{"{'type':'array','items':{'type':'string'},'uniqueItems':false}", "['a','a']", "[1]"},

	/* combinations */
	{"{'anyOf':[{'type':'integer'},{'type':'string','maxLength':1}]}", "1\n'a'", "'ab'\n1.5"},
	{"{'anyOf':[{'type':'object','properties':{'a':{'const':1}},'required':['a'],'additionalProperties':false},{'type':'object','properties':{'b':{'const':2}},'required':['b'],'additionalProperties':false}]}",
	 "{'a':1}\n{'b':2}", "{'a':2}\n{'a':1,'b':2}\n{}"},
	{"{'anyOf':[true,{'type':'integer'}]}", "'a'", "x"},
	{"{'type':'object','properties':{'a':{},'b':{}},'anyOf':[{'required':['a']},{'required':['b']}]}", "{'a':1}\n{'b':1}\n{'a':1,'b':1}", "{}\n{'c':1}"},
	{"{'allOf':[{'type':'object','properties':{'a':{'type':'integer'}},'required':['a']},{'type':'object','properties':{'b':{'type':'string'}},'required':['b']}]}", "{'a':1,'b':'x'}", "{'a':1}\n{'b':'x'}"},
	{"{'allOf':[{'properties':{'a':{'minimum':1}}},{'properties':{'a':{'maximum':3,'type':'integer'}}}],'type':'object','required':['a']}", "{'a':1}\n{'a':3}", "{'a':0}\n{'a':4}"},
	{"{'allOf':[{'type':['string','null']},{'type':['null','integer']}]}", "null", "'a'\n1"},
	{"{'allOf':[{'properties':{'a':{}},'additionalProperties':false},{'properties':{'b':{}}}],'type':'object'}", "{}\n{'a':1}", "{'b':1}"},
	{"{'allOf':[{'minItems':1},{'maxItems':2},{'items':{'type':'integer'}}],'type':'array'}", "[1]\n[1,2]", "[]\n[1,2,3]\n['a']"},
	{"{'oneOf':[{'type':'integer'},{'type':'string'}]}", "1\n'a'", "null"},
	{"{'oneOf':[{'type':'integer'},{'minimum':2}]}", "1\n2.5\n'a'", "3\n1.5"},
	{"{'oneOf':[{'type':'object','properties':{'k':{'const':'a'},'x':{'type':'integer'}},'required':['k']},{'type':'object','properties':{'k':{'const':'b'},'x':{'type':'string'}},'required':['k']}]}",
	 "{'k':'a','x':1}\n{'k':'b','x':'s'}\n{'k':'b'}", "{'k':'a','x':'s'}\n{'k':'c'}\n{}"},
	{"{'type':'object','properties':{'a':{},'b':{}},'oneOf':[{'required':['a']},{'required':['b']}]}", "{'a':1}\n{'b':1}\n{'b':1,'c':2}", "{}\n{'a':1,'b':1}"},
	{"{'oneOf':[{'multipleOf':2},{'multipleOf':3}],'type':'integer'}", "2\n3\n9\n10", "6\n0\n5"},
	{"{'type':'string','oneOf':[{'pattern':'^a'},{'pattern':'z$'}]}", "'ab'\n'bz'", "'az'\n'b'"},
	{"{'not':{'type':'integer'}}", "'a'\n1.5\nnull\n[]", "1\n1.0"},
	{"{'not':{'type':['integer','string']}}", "1.5\nnull", "1\n'a'"},
	{"{'type':'string','not':{'enum':['a','b']}}", "'c'\n'ab'\n''", "'a'\n'b'"},
	{"{'type':'integer','not':{'const':0}}", "1\n-5\n10", "0"},
	{"{'type':'integer','not':{'minimum':5}}", "4\n-1", "5\n6"},
	{"{'type':'string','not':{'pattern':'^x'}}", "'ax'\n''", "'x'\n'xy'"},
	{"{'type':'string','not':{'maxLength':2}}", "'abc'", "'ab'"},
	{"{'type':'object','not':{'required':['a']}}", "{}\n{'b':1}", "{'a':1}\n{'b':1,'a':1}"},
	{"{'type':'array','not':{'items':{'type':'integer'}}}", "['a']\n[1,null]", "[]\n[1,2]"},
	{"{'type':'array','not':{'contains':{'type':'integer'}}}", "[]\n['a']", "[1]\n['a',1]"},
	{"{'not':{'not':{'type':'null'}}}", "null", "1"},
	{"{'type':'array','not':{'const':[1,2]}}", "[]\n[1]\n[1,3]\n[2,2]\n[1,2,3]", "[1,2]"},
	{"{'type':'object','properties':{'a':{}},'not':{'const':{'a':1}}}", "{}\n{'a':2}\n{'b':1}", "{'a':1}"},
	{"{'type':'object','not':{'minProperties':1}}", "{}", "{'a':1}"},
	{"{'if':{'type':'integer'},'then':{'minimum':5},'else':{'type':'string'}}", "5\n'a'", "4\n1.5\nnull"},
	{"{'if':{'type':'integer'},'then':{'minimum':5}}", "5\n'a'\n1.5", "4"},
	{"{'type':'object','properties':{'c':{'enum':['US','NL']},'zip':{'type':'string'}},'required':['c'],'if':{'properties':{'c':{'const':'US'}}},'then':{'properties':{'zip':{'pattern':'^[0-9]{5}$'}}},'else':{'properties':{'zip':{'pattern':'^[0-9]{4}$'}}}}",
	 "{'c':'US','zip':'12345'}\n{'c':'NL','zip':'1234'}\n{'c':'NL'}", "{'c':'US','zip':'1234'}\n{'c':'NL','zip':'12345'}"},
	{"{" D6 "'if':{'type':'integer'},'then':{'minimum':5}}", "4", "x"},
	{"{'type':'string','nullable':true}", "'a'\nnull", "1"},
	{"{" D7 "'type':'string','nullable':true}", "'a'", "null"},
	{"{" D3 "'disallow':['string','null']}", "1\n[]", "'a'\nnull"},
	{"{" D3 "'extends':{'type':'integer'},'minimum':3}", "3", "2\n'a'"},
	{"{" D3 "'type':['integer',{'type':'string','maxLength':1}]}", "1\n'a'", "'ab'"},
	{"{" D4 "'anyOf':[{'type':'integer'},{'minimum':2}]}", "1\n2.5", "1.0\n1.5"},

	/* unevaluated */
	{"{'type':'object','allOf':[{'properties':{'a':{}}}],'properties':{'b':{}},'unevaluatedProperties':false}", "{}\n{'b':1,'a':1}\n{'a':1}", "{'c':1}"},
	{"{'type':'object','anyOf':[{'properties':{'a':{}},'required':['a']},{'properties':{'b':{}},'required':['b']}],'unevaluatedProperties':{'type':'null'}}", "{'a':1}\n{'b':1,'c':null}", "{'a':1,'c':1}\n{}"},
	{"{'type':'object','additionalProperties':{'type':'integer'},'unevaluatedProperties':false}", "{'a':1}", "{'a':'x'}"},
	{"{'type':'array','prefixItems':[{'type':'integer'}],'unevaluatedItems':false}", "[]\n[1]", "[1,2]"},
	{"{'type':'array','allOf':[{'prefixItems':[true,true]}],'unevaluatedItems':{'type':'null'}}", "[1,2]\n[1,2,null]", "[1,2,3]"},

	/* references */
	{"{'$ref':'#/$defs/a','$defs':{'a':{'type':'integer'}}}", "1", "'a'"},
	{"{'type':'object','properties':{'l':{'$ref':'#/definitions/x~1y/items'}},'required':['l'],'definitions':{'x/y':{'items':{'enum':[7]}}}}", "{'l':7}", "{'l':8}"},
	{"{'$ref':'#/$defs/a%20b','$defs':{'a b':{'const':1}}}", "1", "2"},
	{"{'$defs':{'n':{'type':'object','properties':{'v':{'type':'integer'},'next':{'$ref':'#/$defs/n'}},'required':['v'],'additionalProperties':false}},'$ref':'#/$defs/n'}",
	 "{'v':1}\n{'v':1,'next':{'v':2,'next':{'v':3}}}", "{}\n{'v':1,'next':{}}"},
	{"{'type':'object','properties':{'c':{'type':'array','items':{'$ref':'#'}}},'additionalProperties':false}", "{}\n{'c':[]}\n{'c':[{},{'c':[{}]}]}", "{'c':[1]}\n{'d':1}"},
	{"{'$ref':'#/$defs/a','minimum':5,'$defs':{'a':{'type':'integer'}}}", "5", "4\n'a'"},
	{"{" D7 "'$ref':'#/definitions/a','minimum':5,'definitions':{'a':{'type':'integer'}}}", "5\n4", "'a'"},
	{"{'$id':'http://example.com/root.json','$ref':'item.json','$defs':{'i':{'$id':'item.json','type':'integer'}}}", "1", "'a'"},
	{"{'$id':'http://example.com/root.json','$ref':'http://example.com/root.json#/$defs/i','$defs':{'i':{'type':'integer'}}}", "1", "'a'"},
	{"{'$ref':'#here','$defs':{'i':{'$anchor':'here','type':'integer'}}}", "1", "'a'"},
	{"{" D7 "'$ref':'#here','definitions':{'i':{'$id':'#here','type':'integer'}}}", "1", "'a'"},
	{"{" D4 "'$ref':'#here','definitions':{'i':{'id':'#here','type':'integer'}}}", "1", "'a'"},
	{"{'$dynamicRef':'#node','$defs':{'i':{'$dynamicAnchor':'node','type':'integer'}}}", "1", "'a'"},
	{"{" D2019 "'type':'object','properties':{'a':{'$recursiveRef':'#'}},'additionalProperties':false}", "{'a':{'a':{}}}", "{'a':1}\n{'b':1}"},
	{"{'anyOf':[{'type':'integer'},{'type':'array','items':{'$ref':'#'}}]}", "1\n[1,[2,[]]]", "'a'\n['a']"},
	{"{'properties':{'$ref':{'type':'string'}},'type':'object'}", "{'$ref':'a'}", "{'$ref':1}"},
	{"{'enum':[{'$ref':'#/nowhere'}]}", "{'$ref':'#/nowhere'}", "{}"},

	/* as clients make them */
	{"{'type':'object','title':'Step','properties':{'explanation':{'title':'Explanation','type':'string'},'output':{'anyOf':[{'type':'string'},{'type':'null'}],'default':null}},'required':['explanation','output'],'additionalProperties':false}",
	 "{'explanation':'a','output':null}\n{\n  'explanation': 'a',\n  'output': 'b'\n}", "{'explanation':'a'}\n{'explanation':'a','output':1}"},
	{"{'$defs':{'Color':{'enum':['red','blue'],'title':'Color','type':'string'}},'type':'object','properties':{'c':{'allOf':[{'$ref':'#/$defs/Color'}],'description':'d'},'list':{'type':'array','items':{'$ref':'#/$defs/Color'}}},'required':['c','list']}",
	 "{'c':'red','list':['blue','red']}", "{'c':'green','list':[]}\n{'c':'red','list':['x']}"},
	{"{'discriminator':{'propertyName':'t'},'oneOf':[{'$ref':'#/$defs/A'},{'$ref':'#/$defs/B'}],'$defs':{'A':{'type':'object','properties':{'t':{'const':'a'},'n':{'type':'integer'}},'required':['t','n']},'B':{'type':'object','properties':{'t':{'const':'b'},'of':{'$ref':'#/$defs/A'}},'required':['t','of']}}}",
	 "{'t':'a','n':1}\n{'t':'b','of':{'t':'a','n':2}}", "{'t':'b','n':1}\n{'t':'a','of':1}"},
	{"{'type':'object','properties':{'location':{'type':'string'},'unit':{'type':'string','enum':['celsius','fahrenheit']}},'required':['location']}", "{'location':'Paris','unit':'celsius'}\n{'location':'Paris'}", "{'unit':'celsius'}\n{'location':'Paris','unit':'kelvin'}"},
};

static const struct refusal {
	const char *schema;
	int rc;
	const char *says;
} refusals[] = {
	{"1", ST_INVALID, "a schema is an object"},
	{"{'properties':{'a':1},'required':['a']}", ST_INVALID, "a schema is an object"},
	{"{'type':'strnig'}", ST_INVALID, "at the root: `type` is"},
	{"{'properties':{'a':{'items':{'type':7}}}}", ST_INVALID, "at /properties/a/items: `type`"},
	{"{'enum':[]}", ST_INVALID, "`enum`"},
	{"{'enum':5}", ST_INVALID, "`enum`"},
	{"{'required':'a'}", ST_INVALID, "`required`"},
	{"{'required':[1]}", ST_INVALID, "`required`"},
	{"{'properties':[]}", ST_INVALID, "`properties`"},
	{"{'minLength':-1}", ST_INVALID, "`minLength`"},
	{"{'maxItems':1.5}", ST_INVALID, "`maxItems`"},
	{"{'minimum':'3'}", ST_INVALID, "`minimum`"},
	{"{'multipleOf':0}", ST_INVALID, "`multipleOf` is not above 0"},
	{"{'multipleOf':0.01}", ST_UNSUPPORTED, "`multipleOf`"},
	{"{'pattern':7}", ST_INVALID, "`pattern`"},
	{"{'properties':{'a':{'pattern':'a(?=b)'}},'required':['a']}", ST_UNSUPPORTED, "at /properties/a: `pattern`: at byte 1 of the expression: lookahead"},
	{"{'pattern':'('}", ST_INVALID, "`pattern`"},
	{"{'allOf':[]}", ST_INVALID, "`allOf`"},
	{"{'anyOf':{}}", ST_INVALID, "`anyOf`"},
	{"{" D2020 "'items':[{}]}", ST_INVALID, "`prefixItems`"},
	{"{'type':'array','uniqueItems':true}", ST_UNSUPPORTED, "at the root: `uniqueItems`"},
	{"{'type':'object','properties':{'a':{'type':'array','items':{'type':'string'},'uniqueItems':true}}}", ST_UNSUPPORTED, "at /properties/a: `uniqueItems`"},
	{"{'type':'object','minProperties':3}", ST_UNSUPPORTED, "`minProperties`"},
	{"{'$ref':'http://example.com/other.json'}", ST_UNSUPPORTED, "never fetched"},
	{"{'$ref':'other.json#/a'}", ST_UNSUPPORTED, "never fetched"},
	{"{'$ref':'file:///etc/passwd'}", ST_UNSUPPORTED, "never fetched"},
	{"{'$ref':'#/$defs/none'}", ST_INVALID, "leads to no schema"},
	{"{'$ref':'#none'}", ST_INVALID, "leads to no schema"},
	{"{'$ref':7}", ST_INVALID, "`$ref` is not a string"},
	{"{'$ref':'#'}", ST_INVALID, "in a circle"},
	{"{'allOf':[{'$ref':'#/$defs/a'}],'$defs':{'a':{'anyOf':[{'$ref':'#/$defs/a'},{'type':'null'}]}}}", ST_INVALID, "in a circle"},
	{"{'$schema':'http://example.com/mine'}", ST_UNSUPPORTED, "`$schema`"},
	{"{'$schema':7}", ST_UNSUPPORTED, "`$schema`"},
	{"{'$dynamicRef':'#n','$defs':{'a':{'$dynamicAnchor':'n'},'b':{'$id':'b','$dynamicAnchor':'n'}}}", ST_UNSUPPORTED, "`$dynamicRef`"},
	{"{'$defs':{'a':{'$anchor':'x'},'b':{'$anchor':'x'}}}", ST_INVALID, "a second schema of the name"},
	{"{'type':'object','not':{'patternProperties':{'a':{'type':'null'}}}}", ST_UNSUPPORTED, "`patternProperties`"},
	{"{'type':'array','not':{'uniqueItems':true}}", ST_UNSUPPORTED, "`uniqueItems`"},
	{"{'type':'string','not':{'format':'date'}}", ST_UNSUPPORTED, "`format`"},
	{"false", ST_INVALID, "no value is valid"},
	{"{'not':{}}", ST_INVALID, "no value is valid"},
	{"{'type':'string','enum':[1]}", ST_INVALID, "no value is valid"},
	{"{'type':'integer','minimum':5,'maximum':4}", ST_INVALID, "no value is valid"},
	{"{'type':'string','minLength':5,'maxLength':4}", ST_INVALID, "no value is valid"},
	{"{'type':'array','items':false,'minItems':1}", ST_INVALID, "no value is valid"},
	{"{'type':'object','properties':{'a':false},'required':['a']}", ST_INVALID, "no value is valid"},
	{"{'type':'object','properties':{'a':{'$ref':'#'}},'required':['a']}", ST_INVALID, "no value is valid"},
	{"{'type':'string','pattern':'a^'}", ST_INVALID, "no value is valid"},
	{"{'type':'integer','multipleOf':7,'minimum':1,'maximum':6}", ST_INVALID, "no value is valid"},
	{"{'type':'object','additionalProperties':false,'required':['a']}", ST_INVALID, "no value is valid"},
	{"{'allOf':[{'type':'string'},{'type':'integer'}]}", ST_INVALID, "no value is valid"},
	{"{'oneOf':[true,true]}", ST_INVALID, "no value is valid"},
	{"{'type':'string','maxLength':1000000,'pattern':'^[a-z]+$'}", ST_LIMIT, "at most"},
	{"{'type':'string','pattern':'^(a|b)*a(a|b){30}$'}", ST_LIMIT, "too complicated"},
	{"{'type':'array','contains':{'const':1},'maxItems':100000}", ST_LIMIT, "`contains`"},
};

/* A copy with every ' as ". */
static char *quoted(const char *text)
{
	char *s = mem_strdup(text), *c;

	for (c = s; *c; c++)
		if (*c == '\'') *c = '"';
	return s;
}

/* with_blanks: false leaves out the texts that have a blank or a newline. */
static void check_texts(const struct gram *g, const struct row *row, const char *list, bool want, bool with_blanks)
{
	char *texts = quoted(list), *next = texts, *end;
	const char *text;

	/* Divided by newlines that stand between texts; those inside of one are followed by a blank or a bracket. */
	while (next) {
		text = end = next;
		while ((end = strchr(end, '\n')) && (end[1] == ' ' || (end[1] == ']' && text[0] == '[') || (end[1] == '}' && text[0] == '{'))) end++;
		if (end) *end = 0;
		if (!with_blanks && strpbrk(text, " \n")) text = "";
		if ((*text || !want) && gramwalk_accepts(g, text, strlen(text)) != want) fail_msg("%s %s %s", row->schema, want ? "does not take" : "takes", text);
		next = end ? end + 1 : NULL;
	}
	free(texts);
}

static void test_rows(void **state)
{
	struct gramc_opts compact = gramtry_opts;
	size_t i;

	compact.any_whitespace = false;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		char *schema = quoted(rows[i].schema);
		struct errbuf err = {{0}};
		struct gram *g;

		if (gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &gramtry_opts, &err)) fail_msg("%s: %s", rows[i].schema, err.text);
		check_texts(g, &rows[i], rows[i].yes, true, true);
		check_texts(g, &rows[i], rows[i].no, false, true);
		gram_free(g);
		assert_int_equal(gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &compact, &err), ST_OK);
		check_texts(g, &rows[i], rows[i].yes, true, false);
		check_texts(g, &rows[i], rows[i].no, false, true);
		gram_free(g);
		free(schema);
	}
}

static void test_refusals(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(refusals); i++) {
		char *schema = quoted(refusals[i].schema);
		struct errbuf err = {{0}};
		struct gram *g;
		int rc;

		rc = gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &gramtry_opts, &err);
		if (rc != refusals[i].rc || !strstr(err.text, refusals[i].says)) fail_msg("%s: %d, %s", refusals[i].schema, rc, err.text);
		free(schema);
	}
}

/* Without "type", by the letter everything else is allowed too. */
static void test_exact_types(void **state)
{
	const char *schema = "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}";
	struct gramc_opts o = gramtry_opts;
	struct errbuf err = {{0}};
	struct gram *g;

	o.exact_types = true;
	assert_int_equal(gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &o, &err), ST_OK);
	assert_true(gramwalk_accepts(g, "7", 1));
	assert_true(gramwalk_accepts(g, "{\"a\":1}", 7));
	assert_false(gramwalk_accepts(g, "{}", 2));
	gram_free(g);
}

/* begin, n times the middle, end, n times the close. */
static char *nested(const char *begin, const char *middle, const char *end, const char *close, size_t n)
{
	struct strbuf s;
	size_t i;

	strbuf_init(&s, 64 * MIB);
	strbuf_puts(&s, begin);
	for (i = 0; i < n; i++) strbuf_puts(&s, middle);
	strbuf_puts(&s, end);
	for (i = 0; i < n; i++) strbuf_puts(&s, close);
	return strbuf_take(&s);
}

/* A list of n different words. */
static char *words(const char *begin, const char *format, const char *end, size_t n)
{
	struct strbuf s;
	size_t i;

	strbuf_init(&s, 64 * MIB);
	strbuf_puts(&s, begin);
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(&s, ',');
		strbuf_printf(&s, format, (unsigned)(i * 2654435761u), (unsigned)i);
	}
	strbuf_puts(&s, end);
	return strbuf_take(&s);
}

static uint64_t cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Whatever the size, the answer comes at once: a grammar or a limit. */
static void test_large(void **state)
{
	char *schemas[] = {
		nested("", "{\"items\":", "{}", "}", 2000),
		nested("", "{\"not\":", "{}", "}", 124),
		nested("", "{\"type\":\"object\",\"properties\":{\"a\":", "{}", "}}", 100),
		nested("{\"allOf\":[{}", ",{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]},{\"minProperties\":2}]}", "]}", "", 40),
		words("{\"enum\":[", "\"%x-%u\"", "]}", 100000),
		words("{\"enum\":[", "%u.%u", "]}", 20000),
		words("{\"enum\":[", "{\"a\":\"%x\",\"b\":%u}", "]}", 5000),
		words("{\"not\":{\"enum\":[", "{\"a\":\"%x\",\"b\":%u}", "]}}", 500),
		words("{\"type\":\"object\",\"properties\":{", "\"%x-%u\":{\"type\":\"string\"}", "}}", 20000),
		words("{\"type\":\"object\",\"required\":[", "\"%x-%u\"", "]}", 20000),
		words("{\"type\":\"object\",\"dependentRequired\":{", "\"%x\":[\"%u\"]", "}}", 1000),
		words("{\"oneOf\":[", "{\"properties\":{\"%x\":{\"const\":%u}}}", "]}", 90),
		words("{\"oneOf\":[", "{\"required\":[\"%x\"],\"minProperties\":%u}", "]}", 200),
		words("{\"patternProperties\":{", "\"%x.*%u\":{}", "}}", 6),
		words("{\"pattern\":\"^(", "%x|%u", ")$\"}", 20000),
		nested("{\"pattern\":\"^", "(a|b|ab)*", "$\"}", "", 300),
		nested("{\"pattern\":\"^", "\\\\p{L}*\\\\d{1,9}", "$\"}", "", 100),
		nested("{\"prefixItems\":[{}", ",{\"type\":\"integer\",\"multipleOf\":2999}", "]}", "", 50),
		nested("{\"prefixItems\":[{}", ",{\"type\":\"number\",\"minimum\":-1234567.891,\"maximum\":98765432.123}", "]}", "", 2000),
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(schemas); i++) {
		struct errbuf err = {{0}};
		struct gram *g = NULL;
		uint64_t began = cpu_ms();
		int rc = gramtry_compile(&g, GRAMTRY_SCHEMA, schemas[i], strlen(schemas[i]), &gramtry_opts, &err);

		began = cpu_ms() - began;
		if (getenv("VERBOSE")) printf("%2zu: %3d %4llu ms %zu bytes %s\n", i, rc, (unsigned long long)began, strlen(schemas[i]), err.text);
		if (rc != ST_OK && rc != ST_LIMIT) fail_msg("%.100s: %d, %s", schemas[i], rc, err.text);
#ifndef SLUICE_SAN
		if (began > 400) fail_msg("%.100s: %llu ms", schemas[i], (unsigned long long)began);
#endif
		gram_free(g);
		free(schemas[i]);
	}
}

/* More than the worker could try behind each other. */
static void test_optional_members(void **state)
{
	unsigned n;

	for (n = 512; n <= 513; n++) {
		char *schema = words("{\"type\":\"object\",\"properties\":{", "\"%x-%u\":{\"type\":\"integer\"}", "}}", n);
		struct errbuf err = {{0}};
		struct gram *g = NULL;
		int rc = gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &gramtry_opts, &err);

		assert_int_equal(rc, n == 512 ? ST_OK : ST_LIMIT);
		if (rc != ST_OK) assert_non_null(strstr(err.text, "more than 512 `properties` in a row"));
		gram_free(g);
		free(schema);
	}
}

/* A small limit is a limit. */
static void test_bytes_max(void **state)
{
	const char *schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"format\":\"date-time\"}}}";
	struct gramc_opts o = gramtry_opts;
	struct errbuf err = {{0}};
	struct gram *g;

	o.bytes_max = 1000;
	assert_int_equal(gramtry_compile(&g, GRAMTRY_SCHEMA, schema, strlen(schema), &o, &err), ST_LIMIT);
	assert_non_null(strstr(err.text, "1000 bytes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),  cmocka_unit_test(test_refusals),  cmocka_unit_test(test_exact_types),
		cmocka_unit_test(test_large), cmocka_unit_test(test_optional_members), cmocka_unit_test(test_bytes_max),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
