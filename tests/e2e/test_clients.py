"""Other people's clients as they come: openai with tools and pydantic, langchain-openai, litellm, curl.

The model is too small to call tools by itself; where a call must come, tool_choice demands it and the grammar makes it certain. Schemas are
bounded, so that an answer ends before max_tokens whatever the model says."""
import asyncio
import json
import os
import subprocess
from typing import Literal

import openai
import pydantic
import pytest

import server as sv

pytestmark = pytest.mark.real
QUESTION = "What is 2+2?"
HELLO = [{"role": "user", "content": QUESTION}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]

# ChatML with a place for tools, as Hermes and Qwen have it.
TEMPLATE = """{%- if tools %}<|im_start|>system
You may call functions. Tools:{% for t in tools %}
{{ t | tojson }}{% endfor %}
Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class Weather(pydantic.BaseModel):
    """The weather at a place."""
    city: Literal["Paris", "London"]
    celsius: int = pydantic.Field(ge=-50, le=50)


class GetWeather(pydantic.BaseModel):
    """Looks the weather up."""
    city: Literal["Paris", "London"]
    unit: Literal["celsius", "fahrenheit"]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Looks the weather up.", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


def check_args(text):
    args = json.loads(text) if isinstance(text, str) else text
    assert set(args) == {"city", "days"} and args["city"] in ("Paris", "London") and 1 <= args["days"] <= 9


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """The default model with a template that knows tools."""
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATE)
    s = sv.Server(sv.REAL_MODEL, "--kv-cache-memory-bytes", "512M", "--chat-template", str(path), name="smollm2")
    with s:
        s.ready()
        yield s
        s.wait_idle()


@pytest.fixture(scope="module")
def client(tools):
    with openai.OpenAI(base_url=tools.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
        yield c


def chat(client, **kw):
    return client.chat.completions.create(**{"model": "smollm2", "messages": WEATHER, "max_tokens": 120, "temperature": 0, **kw})


# ---- openai ----


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_openai_tools(client, choice):
    r = chat(client, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    c = r.choices[0]
    assert c.finish_reason == ("tool_calls" if choice == "required" else "stop") and not c.message.content, "as OpenAI has it"
    (call,) = c.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather" and call.id
    check_args(call.function.arguments)
    # The result goes back, and an answer in words comes.
    history = WEATHER + [c.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    r = chat(client, messages=history, tools=[TOOL], tool_choice="none", max_tokens=16)
    assert r.choices[0].message.content and r.choices[0].message.tool_calls is None


def test_openai_tools_streamed(client):
    kw = {"tools": [TOOL, OTHER], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    whole = chat(client, **kw).choices[0].message.tool_calls[0]
    with client.chat.completions.stream(model="smollm2", messages=WEATHER, max_tokens=120, temperature=0, **kw) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert final.choices[0].finish_reason == "stop"
    assert (call.function.name, call.function.arguments) == (whole.function.name, whole.function.arguments)
    deltas = [e for e in events if e.type == "tool_calls.function.arguments.delta"]
    assert len(deltas) > 1, "arguments come as they are made"
    assert "".join(e.arguments_delta for e in deltas) == whole.function.arguments


def test_openai_tools_by_pydantic(client):
    r = client.chat.completions.parse(model="smollm2", messages=WEATHER, max_tokens=120, temperature=0,
                                      tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required", parallel_tool_calls=False)
    (call,) = r.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_openai_parse(client):
    r = client.chat.completions.parse(model="smollm2", messages=WEATHER, max_tokens=120, temperature=0, response_format=Weather)
    assert isinstance(r.choices[0].message.parsed, Weather)
    with client.chat.completions.stream(model="smollm2", messages=WEATHER, max_tokens=120, temperature=0, response_format=Weather) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == r.choices[0].message.parsed


def test_openai_async_tools(tools):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=tools.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
            rs = await asyncio.gather(*(chat(c, tools=[TOOL], tool_choice="required", temperature=1, seed=i) for i in range(8)))
        return [call for r in rs for call in r.choices[0].message.tool_calls if r.choices[0].finish_reason == "tool_calls"]
    calls = asyncio.run(all_of_them())
    assert calls and len({c.id for c in calls}) == len(calls)
    for c in calls:
        check_args(c.function.arguments)


def flat(tool):
    return {"type": "function", **tool["function"], "strict": True}


def respond(client, **kw):
    return client.responses.create(**{"model": "smollm2", "input": WEATHER, "max_output_tokens": 120, "temperature": 0, **kw})


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"},
                                    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}])
def test_openai_responses_tools(client, choice):
    tools = [flat(TOOL)] if choice == "required" else [flat(OTHER), flat(TOOL)]
    r = respond(client, tools=tools, tool_choice=choice, parallel_tool_calls=False)
    (call,) = r.output
    assert r.status == "completed" and call.type == "function_call" and call.name == "get_weather" and call.call_id != call.id
    check_args(call.arguments)
    history = WEATHER + [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    r = respond(client, input=history, tools=tools, tool_choice="none", max_output_tokens=16)
    assert r.output[0].type == "message" and r.output_text


def test_openai_responses_tools_streamed(client):
    kw = {"tools": [flat(TOOL)], "tool_choice": {"type": "function", "name": "get_weather"}}
    whole = respond(client, **kw).output[0]
    events = list(respond(client, stream=True, **kw))
    types = [e.type.removeprefix("response.") for e in events]
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert types == (["created", "in_progress", "output_item.added"] + ["function_call_arguments.delta"] * len(deltas)
                     + ["function_call_arguments.done", "output_item.done", "completed"])
    assert len(deltas) > 1 and "".join(deltas) == whole.arguments == events[-3].arguments == events[-2].item.arguments
    assert events[2].item.name == events[-3].name == "get_weather" and events[-1].response.output[0].arguments == whole.arguments


def test_openai_responses_parse(client):
    r = client.responses.parse(model="smollm2", input=WEATHER, text_format=Weather, max_output_tokens=120, temperature=0)
    assert isinstance(r.output_parsed, Weather) and r.text.format.name == "Weather"
    with client.responses.stream(model="smollm2", input=WEATHER, text_format=Weather, max_output_tokens=120, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed == r.output_parsed


# ---- anthropic ----


@pytest.fixture(scope="module")
def claude(tools):
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=tools.url, api_key="any", max_retries=0, timeout=60) as c:
        yield c


def message(**kw):
    tool = {"name": "get_weather", "description": "Looks the weather up.", "input_schema": SCHEMA}
    return {"model": "smollm2", "messages": WEATHER, "max_tokens": 120, "extra_body": {"temperature": 0}, "tools": [tool], **kw}


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}])
def test_anthropic_tools(claude, choice):
    m = claude.messages.create(**message(tool_choice=choice))
    (block,) = m.content
    assert m.stop_reason == "tool_use" and block.type == "tool_use" and block.name == "get_weather" and block.id.startswith("toolu_")
    check_args(block.input)
    history = WEATHER + [{"role": "assistant", "content": m.content},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]}]
    m = claude.messages.create(**message(messages=history, tool_choice={"type": "none"}, max_tokens=16))
    assert m.content[0].type == "text" and m.content[0].text


def test_anthropic_tools_streamed(claude):
    choice = {"type": "tool", "name": "get_weather"}
    whole = claude.messages.create(**message(tool_choice=choice)).content[0]
    with claude.messages.stream(**message(tool_choice=choice)) as stream:
        parts = [e.partial_json for e in stream if e.type == "input_json"]
        m = stream.get_final_message()
    assert m.stop_reason == "tool_use" and m.content[0].input == whole.input == json.loads("".join(parts))
    assert len(parts) > 1


def test_anthropic_counts_tools(claude):
    n = claude.messages.count_tokens(model="smollm2", messages=WEATHER).input_tokens
    assert claude.messages.count_tokens(model="smollm2", messages=WEATHER, tools=message()["tools"]).input_tokens > n + 20


# ---- langchain-openai ----


@pytest.fixture(scope="module")
def lang(tools):
    from langchain_openai import ChatOpenAI

    def make(**kw):
        return ChatOpenAI(model="smollm2", base_url=tools.url + "/v1", api_key="any", max_tokens=120, temperature=0, max_retries=0, timeout=60, **kw)
    return make


@pytest.mark.parametrize("responses", [False, True])
def test_langchain_says(lang, responses):
    llm = lang(use_responses_api=responses)
    r = llm.invoke([("system", "You are a calculator."), ("human", QUESTION)])
    assert r.text and r.usage_metadata["output_tokens"] > 0
    chunks = list(llm.stream([("system", "You are a calculator."), ("human", QUESTION)]))
    assert "".join(c.text for c in chunks) == r.text and len(chunks) > 3
    assert {m.text for m in llm.batch([QUESTION] * 4)} == {llm.invoke(QUESTION).text}


def test_langchain_async(lang):
    """In one loop: langchain keeps its connections for all of its objects."""
    async def all_of_them():
        streams = [lang(use_responses_api=responses).astream(QUESTION) for responses in (False, True)]
        streamed = ["".join([c.text async for c in s]) for s in streams]
        return streamed + [m.text for m in await lang().abatch([QUESTION] * 4)]
    assert len(set(asyncio.run(all_of_them()))) == 1


@pytest.mark.parametrize("responses", [False, True])
def test_langchain_binds_tools(lang, responses):
    llm = lang(use_responses_api=responses).bind_tools([GetWeather], tool_choice="any", parallel_tool_calls=False)
    r = llm.invoke(WEATHER)
    (call,) = r.tool_calls
    assert call["name"] == "GetWeather" and GetWeather(**call["args"])
    whole = None
    for chunk in llm.stream(WEATHER):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == call["args"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(lang, method):
    assert isinstance(lang().with_structured_output(Weather, method=method).invoke(WEATHER), Weather)


def test_langchain_embeds(tools, client):
    from langchain_openai import OpenAIEmbeddings
    texts = ["the red inn", "a blue ship", "the red inn"]
    # Its own splitting of long texts would fetch another model's tokenizer.
    e = OpenAIEmbeddings(model="smollm2", base_url=tools.url + "/v1", api_key="any", check_embedding_ctx_length=False, max_retries=0, timeout=60)
    got = e.embed_documents(texts)
    assert got[0] == got[2] != got[1] and len(got[0]) == 576 and all(abs(sum(x * x for x in v) - 1) < 1e-3 for v in got)
    assert e.embed_query(texts[1]) == pytest.approx(got[1], abs=1e-6)
    assert [d.embedding for d in client.embeddings.create(model="smollm2", input=texts).data] == got


# ---- litellm ----


@pytest.fixture(scope="module")
def litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    import litellm
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    return litellm


def lite(served, route, **kw):
    """openai/ and anthropic/ are litellm's words for the two APIs."""
    base = served.url + "/v1" if route == "openai" else served.url
    return {"model": route + "/smollm2", "api_base": base, "api_key": "any", "messages": HELLO, "max_tokens": 40, "temperature": 0, "num_retries": 0, "timeout": 60, **kw}


@pytest.mark.parametrize("route", ["openai", "anthropic"])
def test_litellm_completion(litellm, tools, route):
    r = litellm.completion(**lite(tools, route))
    assert r.choices[0].message.content == tools.chat(HELLO, max_tokens=40)["choices"][0]["message"]["content"]
    assert r.usage.completion_tokens > 0 and r.choices[0].finish_reason in ("stop", "length")
    chunks = list(litellm.completion(**lite(tools, route, stream=True, stream_options={"include_usage": True})))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == r.choices[0].message.content
    r2 = asyncio.run(litellm.acompletion(**lite(tools, route)))
    assert r2.choices[0].message.content == r.choices[0].message.content


@pytest.mark.parametrize("route", ["openai", "anthropic"])
def test_litellm_tools(litellm, tools, route):
    choice = {"type": "function", "function": {"name": "get_weather"}}
    kw = lite(tools, route, messages=WEATHER, max_tokens=120, tools=[TOOL], tool_choice=choice)
    (call,) = litellm.completion(**kw).choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    check_args(call.function.arguments)
    parts = [c.choices[0].delta.tool_calls[0].function.arguments or "" for c in litellm.completion(stream=True, **kw) if c.choices and c.choices[0].delta.tool_calls]
    assert json.loads("".join(parts)) == json.loads(call.function.arguments)


def test_litellm_embeds(litellm, tools, client):
    kw = lite(tools, "openai", input=["the red inn", "a blue ship"])
    r = litellm.embedding(**{k: kw[k] for k in ("model", "api_base", "api_key", "input", "timeout")})
    for got, want in zip(r.data, client.embeddings.create(model="smollm2", input=kw["input"]).data, strict=True):
        assert got["embedding"] == pytest.approx(want.embedding, abs=1e-6), "numbers in words and in base64"


def test_litellm_responses(litellm, tools):
    kw = lite(tools, "openai", input=QUESTION, max_output_tokens=40)
    r = litellm.responses(**{k: v for k, v in kw.items() if k not in ("messages", "max_tokens", "num_retries")})
    assert r.status == "completed" and r.output[0].content[0].text


@pytest.mark.parametrize("route", ["openai", "anthropic"])
def test_litellm_sees_errors(litellm, tools, route):
    with pytest.raises(litellm.BadRequestError) as e:
        litellm.completion(**lite(tools, route, temperature=-3))
    assert "temperature" in str(e.value)
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**lite(tools, route), "model": route + "/other"})


# ---- curl ----


def curl(*argv, data=None):
    return subprocess.run(["curl", "-sS", "--max-time", "60", *argv], input=data, capture_output=True, timeout=90, check=True).stdout


def body(**kw):
    return json.dumps({"model": "smollm2", "messages": HELLO, "max_tokens": 40, "temperature": 0, **kw}).encode()


JSON = ("-H", "Content-Type: application/json")


def test_curl_posts(tools):
    want = tools.chat(HELLO, max_tokens=40)["choices"][0]["message"]["content"]
    url = tools.url + "/v1/chat/completions"
    for argv in ((), ("--http1.0",), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue"), ("--compressed",), ("-H", "Content-Type:"),
                 ("-H", "Connection: close"), ("--http2",)):
        r = json.loads(curl(*JSON, *argv, "--data-binary", "@-", url, data=body()))
        assert r["choices"][0]["message"]["content"] == want, argv


def test_curl_is_told_to_go_on(tools):
    """A large body: curl asks first by itself."""
    out = curl("-v", "--stderr", "-", *JSON, "-H", "Expect: 100-continue", "--data-binary", "@-", tools.url + "/v1/chat/completions", data=body(user="x" * 2_000_000))
    assert b"> Expect: 100-continue" in out and b"< HTTP/1.1 100 Continue" in out and b"< HTTP/1.1 200 OK" in out


def test_curl_streams(tools):
    """-N: each event is there when it is made, not at the end."""
    p = subprocess.Popen(["curl", "-sSN", "--max-time", "60", *JSON, "--data-binary", "@-", tools.url + "/v1/chat/completions"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(body(stream=True, max_tokens=1000, ignore_eos=True))
    p.stdin.close()
    assert p.stdout.readline().startswith(b"data: {")
    assert p.poll() is None
    assert tools.metric("vllm:num_requests_running") >= 1, "the first event came while the request ran"
    p.kill()
    p.wait()
    p.stdout.close()
    tools.wait_idle()


def test_curl_heads(tools):
    for path in ("/v1/models", "/health"):
        out = curl("-I", tools.url + path)
        assert out.startswith(b"HTTP/1.1 200 OK\r\n") and b"content-length: " in out.lower()
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "-I", tools.url + "/nothing") == b"404"


def test_curl_keeps_the_connection(tools):
    out = curl("-w", "%{num_connects},", "-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", *[tools.url + "/v1/models"] * 3)
    assert out == b"1,0,0,"


# ---- a model that thinks ----


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """The default model, made to think: the prompt ends in <think>. It never stops by itself; a schema makes it come to its answer."""
    path = tmp_path_factory.mktemp("template") / "think.jinja"
    path.write_text(TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}"))
    s = sv.Server(sv.REAL_MODEL, "--kv-cache-memory-bytes", "512M", "--chat-template", str(path), "--reasoning-parser", "qwen3", name="smollm2")
    with s:
        s.ready()
        yield s
        s.wait_idle()


def thoughts_of_chat(thinker, **kw):
    m = thinker.chat(WEATHER, max_tokens=60, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, **kw)["choices"][0]["message"]
    return m["reasoning_content"], m["content"]


def test_openai_responses_with_thoughts(thinker):
    thought, answer = thoughts_of_chat(thinker)
    assert thought and "</think>" not in thought
    check_args(answer)
    kw = {"max_output_tokens": 60, "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}
    with openai.OpenAI(base_url=thinker.url + "/v1", api_key="any", max_retries=0, timeout=60) as c:
        r = respond(c, **kw)
        events = list(respond(c, stream=True, **kw))
        again = respond(c, input=WEATHER + [o.model_dump() for o in r.output] + WEATHER, max_output_tokens=4)
    reasoning, message = r.output
    assert (reasoning.type, reasoning.content[0].text, message.content[0].text) == ("reasoning", thought, answer)
    assert 0 < r.usage.output_tokens_details.reasoning_tokens < r.usage.output_tokens
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == thought
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == answer
    assert [e.item.type for e in events if e.type == "response.output_item.done"] == ["reasoning", "message"]
    assert again.output[0].type == "reasoning" and again.status == "incomplete"


def test_anthropic_with_thoughts(thinker):
    anthropic = pytest.importorskip("anthropic")
    thought, answer = thoughts_of_chat(thinker)
    kw = {"model": "smollm2", "messages": WEATHER, "max_tokens": 60, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
          "extra_body": {"temperature": 0}}
    with anthropic.Anthropic(base_url=thinker.url, api_key="any", max_retries=0, timeout=60) as c:
        m = c.messages.create(**kw)
        with c.messages.stream(**kw) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_message()
        again = c.messages.create(**{**kw, "max_tokens": 4, "output_config": {}, "messages": WEATHER + [{"role": "assistant", "content": m.content}] + WEATHER})
    for x in (m, final):
        thinking, text = x.content
        assert (thinking.type, thinking.thinking, text.text) == ("thinking", thought, answer)
        assert 0 < x.usage.output_tokens_details.thinking_tokens < x.usage.output_tokens or x is final
    assert "thinking" in kinds and "text" in kinds
    assert again.content[0].type == "thinking" and again.stop_reason == "max_tokens"
