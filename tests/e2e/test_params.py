"""Parameters and messages of both endpoints, as OpenAI and vLLM have them: what each does, and what is refused in its name."""
import json

import pytest

pytestmark = pytest.mark.san
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
IDS = [5, 6, 7, 8, 9, 10, 11, 12]


def user(text):
    return [{"role": "user", "content": text}]


def ids_of(server, **kw):
    return server.post("/tokenize", {"model": "tiny", **kw}).json()["tokens"]


def refused(server, path, param, **kw):
    body = {"model": "tiny", "max_tokens": 2, **({"messages": user("x")} if path.startswith(CHAT) else {"prompt": "x"}), **kw}
    e = server.post(path, body)
    assert e.status == 400 and e.error()["param"] == param, e
    return e.error()["message"]


# ---- prompts ----

def test_several_prompts_are_as_each_alone(server):
    prompts = ["the red inn", IDS, "x"]
    alone = [server.complete(p, max_tokens=6, ignore_eos=True) for p in prompts]
    r = server.complete(prompts, max_tokens=6, ignore_eos=True)
    assert [c["index"] for c in r["choices"]] == [0, 1, 2]
    assert [c["text"] for c in r["choices"]] == [a["choices"][0]["text"] for a in alone]
    assert r["usage"]["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone)
    r = server.complete(["a", "b"], n=2, max_tokens=3)
    assert [c["index"] for c in r["choices"]] == [0, 1, 2, 3]
    assert "--max-n" in refused(server, TEXT, "prompt", prompt=["a"] * 65, n=2)
    assert "--max-n" in refused(server, TEXT, "prompt", prompt=["a"] * 129)


def test_max_n_is_an_option(start, tiny):
    s = start(tiny, "--max-n", "3").ready()
    assert len(s.complete(n=3)["choices"]) == 3
    for kw in ({"n": 4}, {"best_of": 4}, {"prompt": ["a", "b"], "n": 2}):
        r = s.post(TEXT, {"prompt": "x", **kw})
        assert r.status == 400 and "3 (--max-n)" in r.error()["message"], r


def test_truncate_prompt_tokens(server):
    want = server.complete(IDS[-3:], max_tokens=5, return_token_ids=True)
    got = server.complete(IDS, max_tokens=5, truncate_prompt_tokens=3, return_token_ids=True)
    assert got["choices"][0]["token_ids"] == want["choices"][0]["token_ids"] and got["usage"] == {**want["usage"], "prompt_tokens_details": got["usage"]["prompt_tokens_details"]}
    assert server.complete(IDS, truncate_prompt_tokens=100)["usage"]["prompt_tokens"] == len(IDS)
    assert server.complete([5] * 5000, truncate_prompt_tokens=-1, max_tokens=10, ignore_eos=True)["usage"] == {
        "prompt_tokens": 4086, "completion_tokens": 10, "total_tokens": 4096, "prompt_tokens_details": {"cached_tokens": 0}}
    assert server.chat("x" * 9000, truncate_prompt_tokens=50)["usage"]["prompt_tokens"] == 50
    assert "maximum context length" in refused(server, TEXT, "prompt", prompt=[5] * 5000, truncate_prompt_tokens=4500)


def test_echo(server):
    plain = server.complete("the red inn", max_tokens=4, ignore_eos=True)["choices"][0]["text"]
    assert server.complete("the red inn", max_tokens=4, ignore_eos=True, echo=True)["choices"][0]["text"] == "the red inn" + plain
    ids = ids_of(server, prompt="the red inn")
    assert server.complete(ids, max_tokens=4, ignore_eos=True, echo=True)["choices"][0]["text"] == "the red inn" + plain
    m = user("hi") + [{"role": "assistant", "content": "So I say"}]
    kw = {"max_tokens": 4, "ignore_eos": True, "continue_final_message": True, "add_generation_prompt": False}
    plain = server.chat(m, **kw)["choices"][0]["message"]["content"]
    assert server.chat(m, echo=True, **kw)["choices"][0]["message"]["content"] == "So I say" + plain


# ---- templates ----

def test_generation_prompt(server):
    with_it, without = (ids_of(server, messages=user("x"), add_generation_prompt=v) for v in (True, False))
    assert with_it[:len(without)] == without and len(with_it) > len(without)
    assert server.chat("x", add_generation_prompt=False)["usage"]["prompt_tokens"] == len(without)


@pytest.mark.parametrize("text", ["So I say", "So I say ", " x", "a\n\nb", "<|im_end|>", "\u9f9c"], ids=repr)
def test_continue_final_message(server, text):
    """The prompt ends with the message's text: no end of the turn, no beginning of another."""
    m = user("hi") + [{"role": "assistant", "content": text}]
    rendered = server.post(CHAT + "/render", {"messages": m, "continue_final_message": True}).json()
    whole = server.post(CHAT + "/render", {"messages": m, "add_generation_prompt": False}).json()
    assert rendered["prompt"].rstrip().endswith(text.rstrip()) and whole["prompt"].startswith(rendered["prompt"])
    assert whole["prompt"][len(rendered["prompt"]):].strip() == "<|im_end|>"
    assert server.chat(m, continue_final_message=True, add_generation_prompt=False)["usage"]["prompt_tokens"] == len(rendered["token_ids"])
    parts = user("hi") + [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
    assert ids_of(server, messages=parts, continue_final_message=True) == rendered["token_ids"]


def test_continue_and_generate_exclude_each_other(server):
    assert refused(server, CHAT, "continue_final_message", continue_final_message=True, add_generation_prompt=True) == \
        "Cannot set both `continue_final_message` and `add_generation_prompt` to True."


def test_template_of_the_request(start, tiny):
    s = start(tiny, "--trust-request-chat-template").ready()
    kw = {"messages": user("<|im_end|>"), "chat_template": "{{ messages[0].content }}{{ x }}", "chat_template_kwargs": {"x": "<|im_start|>"}}
    r = s.post(CHAT + "/render", kw).json()
    assert r["prompt"] == "<|im_end|><|im_start|>" and not {0, 1, 2} & set(r["token_ids"])  # a client's text stays text
    assert s.post(CHAT + "/render", {**kw, "chat_template": "<|im_start|>"}).json()["token_ids"] == [1]
    for template, text in (("{% if %}", "line 1: expected an expression"), ("{{ raise_exception('No cats.') }}", "No cats."), ("{{ nosuch() }}", "nosuch"),
                           ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "5000000 steps"),
                           ("{% set x = 'x' * 9000 * 1000 %}{{ x }}{{ x }}{{ x }}{{ x }}", "bytes"), ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper"),
                           ("(" * 5, None), ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "nested deeper")):
        r = s.post(CHAT, {"max_tokens": 1, **kw, "chat_template": template})
        assert r.status == (400 if text else 200), r
        assert not text or text in r.error()["message"], r
    assert s.complete()["choices"]


def test_tool_arguments_are_objects_for_the_template(start, tiny):
    """Clients send the JSON text that they got; printed as JSON once more it would be a string."""
    s = start(tiny, "--trust-request-chat-template").ready()
    kw = {"chat_template": "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"}
    for text, want in (('{"a": [1, {"b": null}]}', '{"a": [1, {"b": null}]}'), ('{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}'),
                       ("", "{}"), ("not JSON", '"not JSON"')):
        m = user("x") + [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}]}]
        assert s.post(CHAT + "/render", {"messages": m, **kw}).json()["prompt"] == want


# ---- streams and usage ----

def test_continuous_usage(server):
    s = server.stream(max_tokens=5, ignore_eos=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    s.finish()
    counts = [e["usage"]["completion_tokens"] for e in s.events if e.get("usage")]
    assert len(counts) == len(s.events) and counts == sorted(counts) and counts[-1] == 5


def test_prompt_logprobs(server):
    r = server.complete(IDS, prompt_logprobs=2, max_tokens=1)["choices"][0]
    assert len(r["prompt_logprobs"]) == len(IDS) and r["prompt_logprobs"][0] is None and all(len(p) >= 2 for p in r["prompt_logprobs"][1:])
    assert refused(server, TEXT, "prompt_logprobs", prompt_logprobs=1, stream=True) == "`prompt_logprobs` are not available when `stream` is true."


# ---- what a token may be ----

def test_bias_and_allowed(server):
    a = server.complete(max_tokens=6, ignore_eos=True, allowed_token_ids=[7], return_token_ids=True)["choices"][0]
    assert a["token_ids"] == [7] * 6
    b = server.complete(max_tokens=6, ignore_eos=True, logit_bias={"9": 100}, return_token_ids=True)["choices"][0]
    assert b["token_ids"] == [9] * 6
    plain = server.complete(max_tokens=6, ignore_eos=True, return_token_ids=True)["choices"][0]["token_ids"]
    never = server.complete(max_tokens=6, ignore_eos=True, logit_bias={str(plain[0]): -100}, return_token_ids=True)["choices"][0]["token_ids"]
    assert plain[0] not in never
    for bad in ({"99999": 1}, {"-1": 1}, {"x": 1}, {"5": 101}, {"5": "1"}, [5], {str(i): 1 for i in range(5000)}):
        refused(server, TEXT, "logit_bias", logit_bias=bad)
    for bad in ([99999], [-1], [], ["a"], 5):
        refused(server, CHAT, "allowed_token_ids", allowed_token_ids=bad)


# ---- the output's form: once, and in its own name ----

WAYS = {
    "response_format": {"type": "json_object"}, "guided_json": {"type": "object"}, "guided_regex": "a+", "guided_choice": ["a", "b"], "guided_grammar": 'root ::= "a"',
    "structured_outputs": {"regex": "a+"}, "grammar": 'root ::= "a"', "json_schema": {"type": "object"}, "regex": "a+", "ebnf": 'root ::= "a"',
}


@pytest.mark.parametrize("field", WAYS)
def test_one_way_at_most(server, field):
    other = "guided_regex" if field != "guided_regex" else "guided_choice"
    r = server.post(TEXT, {"prompt": "x", field: WAYS[field], other: WAYS[other]})
    assert r.status == 400 and "one way at most" in r.error()["message"] and field in r.error()["message"], r
    r = server.post(CHAT, {"messages": user("x"), field: WAYS[field], "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert r.status == 400 and r.error()["param"] == "tool_choice", r


@pytest.mark.parametrize("field, bad", [
    ("guided_regex", "["), ("guided_regex", "(((("), ("guided_regex", "a{5,2}"), ("guided_regex", 5), ("guided_choice", []), ("guided_choice", "a"), ("guided_choice", [5]),
    ("guided_grammar", "root ::= x"), ("guided_grammar", "x"), ("guided_grammar", "(" * 60000), ("grammar", "(" * 60000), ("guided_json", "{"), ("guided_json", {"type": "nosuch"}), ("guided_json", []),
    ("guided_json", {"type": "string", "pattern": "(((("}), ("guided_json", {"$ref": "#/nosuch"}), ("structured_outputs", {"json": {"type": "nosuch"}}),
    ("structured_outputs", {"structural_tag": "x"}), ("structured_outputs", "x"), ("response_format", {"type": "structural_tag"}),
], ids=lambda v: str(v)[:30])
def test_bad_constraints_are_refused_by_name(server, field, bad):
    for path in (TEXT, CHAT):
        r = server.post(path, {"messages": user("x"), "prompt": "x", field: bad})
        assert r.status == 400 and r.error()["param"].startswith(field), r
        assert field in r.error()["message"]


def test_good_constraints_hold(server):
    kw = {"max_tokens": 40, "temperature": 1, "seed": 3}
    assert server.complete(guided_choice=["red", "blue"], **kw)["choices"][0]["text"] in ("red", "blue")
    assert server.complete(structured_outputs={"choice": ["red"]}, **kw)["choices"][0]["text"] == "red"
    assert server.chat(guided_regex="[ab]{3}", **kw)["choices"][0]["message"]["content"].strip("ab") == ""
    assert server.chat(grammar='root ::= "x" "y"+ "z"?', **{**kw, "max_tokens": 5})["choices"][0]["message"]["content"].startswith("xy")
    text = server.chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, "a", None]}}}, **kw)["choices"][0]["message"]["content"]
    assert json.loads(text) in (1, "a", None)
    assert json.loads(server.complete(guided_json='{"const": {"a": [1]}}', **kw)["choices"][0]["text"]) == {"a": [1]}


# ---- rendering, tokens ----

def test_render_is_what_a_request_starts_from(server):
    m = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "the red inn"}]}]
    r = server.post(CHAT + "/render", {"messages": m, "temperature": 0.5, "max_tokens": 7, "stop": ["a", "b"], "seed": 5, "stream": True})
    j = r.json()
    assert r.status == 200 and j["token_ids"] == ids_of(server, messages=m) and j["model"] == "tiny" and j["request_id"] == r.headers["x-request-id"]
    p = j["sampling_params"]
    assert (p["temperature"], p["max_tokens"], p["stop"], p["seed"], p["n"], j["stream"]) == (0.5, 7, ["a", "b"], 5, 1, True)
    j = server.post(TEXT + "/render", {"prompt": ["the red inn", IDS]}).json()
    assert [x["token_ids"] for x in j] == [ids_of(server, prompt="the red inn"), IDS] and j[0]["prompt"] == "the red inn"
    assert len(server.post(TEXT + "/render", {"prompt": "x"}).json()) == 1
    refused(server, CHAT + "/render", "temperature", temperature=-1)
    refused(server, TEXT + "/render", "prompt", prompt=[])
    assert server.post(CHAT + "/render", {"messages": m, "model": "nosuch"}).status == 404


def test_tokenize_in_vllms_shape(server):
    r = server.post("/tokenize", {"prompt": "the inn", "return_token_strs": True}).json()
    assert set(r) == {"count", "max_model_len", "tokens", "token_strs"} and "".join(r["token_strs"]) == "the inn"
    assert server.post("/tokenize", {"prompt": "the inn"}).json()["token_strs"] is None
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
    assert len(ids_of(server, messages=user("x"), tools=[tool])) > len(ids_of(server, messages=user("x"))) + 5
    for kw in ({"messages": user("x"), "add_generation_prompt": "x"}, {"prompt": "x", "add_special_tokens": 1}, {"prompt": "x", "return_token_strs": "x"}, {"prompt": 5}, {"prompt": ["x"]},
               {"messages": []}, {"prompt": "x", "model": 5}):
        assert server.post("/tokenize", kw).status == 400, kw
    assert server.post("/detokenize", {"tokens": r["tokens"]}).json() == {"prompt": "the inn"}
    assert server.post("/detokenize", {"tokens": []}).json() == {"prompt": ""}


# ---- JSON ----

@pytest.mark.parametrize("path", [TEXT, CHAT, "/tokenize", "/detokenize", "/v1/embeddings", CHAT + "/render", TEXT + "/render"])
def test_broken_bodies(server, path):
    """Never our fault, and the answer is sound whatever the bytes were; large ones, which go another way, as well."""
    bodies = [b"", b"{", b"[]", b"null", b'"x"', b"{}x", b'{"prompt":"\xff"}', b'{"prompt":"\n"}', b'{"temperature":NaN}', b'{"a":1,"a":2}', b"\xef\xbb\xbf", b'{"a":1e999}', b"{'a':1}",
              b'{"z":' + b"[" * 100000 + b"]" * 100000 + b"}", b'{"messages":' + b'[{"a":' * 5000 + b"1" + b"}]" * 5000 + b"}", b'{"tools":' + b"[" * 50000, b'{"prompt":"\\ud800"}',
              b'{"x":[' + b"1," * (1 << 20) + b"1]}"]
    for b in bodies:
        for pad in (b"", b" " * 40000):
            r = server.post(path, b + pad)
            assert r.status == 400 and r.error()["message"], (b[:40], r)


@pytest.mark.parametrize("field", ["n", "best_of", "max_tokens", "seed", "top_k", "priority", "min_tokens", "logprobs", "prompt_logprobs", "stop", "stop_token_ids", "model", "truncate_prompt_tokens"])
def test_integers_beyond_64_bits_are_refused_by_name(server, field):
    for value in (2 ** 64 + 5, -2 ** 70):
        r = server.post(TEXT, {"prompt": "x", field: [value] if field == "stop_token_ids" else value})
        assert r.status == 400 and r.error()["param"] == field, r
