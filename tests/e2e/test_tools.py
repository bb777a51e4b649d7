"""Tool calls and reasoning through the real client. The model is random, so what it says is forced: by tool_choice, which is a grammar,
or by guided_choice, which makes it write exactly what a trained model would."""
import gzip
import json
import os

import jsonschema
import openai
import pytest

import server as sv

pytestmark = pytest.mark.san

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                     "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {"zone": {"$ref": "#/$defs/zone"}},
                                                                         "required": ["zone"], "additionalProperties": False,
                                                                         "$defs": {"zone": {"enum": ["UTC", "CET"]}}}}}
TOOLS = [WEATHER, CLOCK]
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]


def template(name, folder):
    path = folder / (name + ".jinja")
    with gzip.open(os.path.join(sv.ROOT, "tests/data/golden/chat/templates/%s.jinja.gz" % name)) as f:
        path.write_bytes(f.read())
    return str(path)


@pytest.fixture(scope="module")
def hermes(tiny, tmp_path_factory):
    s = sv.Server(tiny, "--chat-template", template("chatml_tools", tmp_path_factory.mktemp("t")), frontends=2)
    with s:
        s.ready()
        yield s
        s.wait_idle()


@pytest.fixture
def client(hermes):
    with openai.OpenAI(base_url=hermes.url + "/v1", api_key="any", max_retries=0, timeout=120) as c:
        yield c


def ask(client, **kw):
    return client.chat.completions.create(**{"model": "tiny", "messages": ASK, "max_tokens": 400, "temperature": 1, "tools": TOOLS, **kw})


def check_calls(calls):
    assert calls
    for call in calls:
        assert call.type == "function" and call.id
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    assert len({c.id for c in calls}) == len(calls)


def joined(stream):
    """The deltas of a stream put together, as clients do; checks their form on the way."""
    calls, text, reasoning, reasons = {}, "", "", []
    for chunk in stream:
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for d in choice.delta.tool_calls or []:
            if d.index not in calls:
                assert d.id and d.type == "function" and d.function.name
                calls[d.index] = [d.id, d.function.name, ""]
            else:
                assert d.id is None and not d.function.name
            calls[d.index][2] += d.function.arguments or ""
        if choice.finish_reason:
            reasons.append(choice.finish_reason)
    assert len(reasons) == 1
    return calls, text, reasoning, reasons[0]


@pytest.mark.parametrize("seed", range(6))
def test_required_always_calls(client, seed):
    r = ask(client, tool_choice="required", seed=seed)
    check_calls(r.choices[0].message.tool_calls)
    assert r.choices[0].finish_reason == "tool_calls" and not r.choices[0].message.content


def test_only_one_call_without_parallel_calls(client):
    for seed in range(8):
        assert len(ask(client, tool_choice="required", parallel_tool_calls=False, seed=seed).choices[0].message.tool_calls) == 1


@pytest.mark.parametrize("name", ["get_weather", "get_time"])
def test_a_named_function_is_called(client, name):
    r = ask(client, tool_choice={"type": "function", "function": {"name": name}}, seed=4)
    calls = r.choices[0].message.tool_calls
    check_calls(calls)
    assert [c.function.name for c in calls] == [name]


def test_streamed_calls_are_the_same(client):
    whole = ask(client, tool_choice="required", seed=11).choices[0].message.tool_calls
    calls, text, _, reason = joined(ask(client, tool_choice="required", seed=11, stream=True))
    assert [(c[1], c[2]) for _, c in sorted(calls.items())] == [(c.function.name, c.function.arguments) for c in whole]
    assert text == "" and reason == "tool_calls"


def test_choices_call_apart(client):
    r = ask(client, tool_choice="required", n=3, seed=5)
    assert [c.index for c in r.choices] == [0, 1, 2]
    for c in r.choices:
        check_calls(c.message.tool_calls)
        assert c.finish_reason == "tool_calls"


CALL = 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "C"}}\n</tool_call>'


def test_auto_takes_the_models_own_calls(client):
    kw = {"extra_body": {"guided_choice": [CALL]}}
    m = ask(client, **kw).choices[0]
    check_calls(m.message.tool_calls)
    assert m.message.content == "Let me look." and m.finish_reason == "tool_calls"
    calls, text, _, reason = joined(ask(client, stream=True, **kw))
    assert text == "Let me look." and reason == "tool_calls"
    assert [c[1:] for c in calls.values()] == [["get_weather", '{"city": "Oslo", "unit": "C"}']]


def test_auto_without_a_call_is_text(client):
    r = ask(client, extra_body={"guided_choice": ["It <tool is fine."]}).choices[0]
    assert r.message.content == "It <tool is fine." and not r.message.tool_calls and r.finish_reason == "stop"


def test_none_leaves_calls_as_text(client):
    r = ask(client, tool_choice="none", extra_body={"guided_choice": [CALL]}).choices[0]
    assert r.message.content == CALL and not r.message.tool_calls


def test_a_conversation_goes_on_with_the_results(client):
    calls = ask(client, tool_choice="required", parallel_tool_calls=False, seed=1).choices[0].message
    messages = ASK + [calls.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": calls.tool_calls[0].id, "content": "-3 C, snow"}]
    r = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=4)
    assert r.usage.prompt_tokens > ask(client, max_tokens=1).usage.prompt_tokens


def test_tools_change_the_prompt(client):
    with_tools = ask(client, max_tokens=1).usage.prompt_tokens
    assert with_tools > client.chat.completions.create(model="tiny", messages=ASK, max_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize("kw, word", [({"tool_choice": "required", "tools": []}, "tools"), ({"tool_choice": "some"}, "tool_choice"),
                                      ({"tool_choice": {"type": "function", "function": {"name": "nosuch"}}}, "nosuch")], ids=str)
def test_bad_ones_are_refused(client, kw, word):
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, **kw)
    assert word in str(e.value)


def test_a_schema_that_cannot_be_kept_is_named(client):
    bad = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {"x": {"type": "number", "multipleOf": 0.01}}}}}
    for choice, words in (("required", "tools[2].function.parameters"), ({"type": "function", "function": {"name": "g"}}, "function `g`")):
        with pytest.raises(openai.BadRequestError) as e:
            ask(client, tools=TOOLS + [bad], tool_choice=choice)
        assert words in str(e.value) and "multipleOf" in str(e.value) and "/properties/x" in str(e.value)


@pytest.fixture(scope="module")
def thinker(tiny, tmp_path_factory):
    s = sv.Server(tiny, "--chat-template", template("chatml_think", tmp_path_factory.mktemp("t")), frontends=1)
    with s:
        s.ready()
        yield s
        s.wait_idle()


def test_reasoning_is_apart(thinker):
    """The grammar holds for what comes behind the reasoning. This model never ends it by itself: the last tokens are kept for the answer."""
    with openai.OpenAI(base_url=thinker.url + "/v1", api_key="any", max_retries=0, timeout=120) as client:
        kw = {"model": "tiny", "messages": ASK, "max_tokens": 120, "seed": 3, "extra_body": {"guided_choice": ["Wear a coat.", "Wear a hat."]}}
        r = client.chat.completions.create(**kw)
        m = r.choices[0].message
        assert m.reasoning_content and m.content in ("Wear a coat.", "Wear a hat.")
        assert r.usage.completion_tokens_details.reasoning_tokens > 10
        _, text, reasoning, reason = joined(client.chat.completions.create(stream=True, **kw))
        assert (text, reasoning, reason) == (m.content, m.reasoning_content, "stop")


def test_a_template_without_tools_is_told_of_them(server):
    """The tiny model's own template has no place for tools: they are told in words, and calls are written as Hermes models write them."""
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=120) as client:
        assert ask(client, max_tokens=1).usage.prompt_tokens > client.chat.completions.create(model="tiny", messages=ASK, max_tokens=1).usage.prompt_tokens + 50
        check_calls(ask(client, tool_choice="required", seed=2).choices[0].message.tool_calls)
        m = ask(client, extra_body={"guided_choice": [CALL]}).choices[0]
        check_calls(m.message.tool_calls)
        assert m.finish_reason == "tool_calls"
