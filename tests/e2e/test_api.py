"""The meaning of the API at its edges: limits, stops, characters, message shapes, what is refused. Each test is a kind of
fault that other servers had. The model is random, so the answers are wild: all the better for characters that are cut."""
import base64
import json
import os
import socket
import threading

import pytest

pytestmark = pytest.mark.san
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"


def user(text):
    return [{"role": "user", "content": text}]


def text_body(**kw):
    return {"model": "tiny", "prompt": "the red inn", "max_tokens": 4, "temperature": 0, **kw}


def chat_body(**kw):
    return {"model": "tiny", "messages": user("the red inn"), "max_tokens": 4, "temperature": 0, **kw}


def sane(r):
    """Done, or refused in the form of the API; never our fault."""
    assert r.status in (200, 400), r
    if r.status == 400:
        r.error()
    return r


# ---- characters ----

@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_streams_never_cut_a_character(server, path):
    """At temperature 2 a byte-level vocabulary draws every kind of half character."""
    prompt = user("\U0001fae0 \u9f9c") if path == CHAT else "\U0001fae0 \u9f9c"
    for seed in range(12):
        kw = {"max_tokens": 1 + seed * 5, "temperature": 2, "seed": seed, "ignore_eos": True, "return_token_ids": True}
        whole = server.complete(prompt, path, **kw)["choices"][0]
        got, ids, reason = server.stream(prompt, path, **kw).finish()
        assert got == (whole["text"] if path == TEXT else whole["message"]["content"])
        assert ids == whole["token_ids"] and reason == whole["finish_reason"] == "length"
        assert len(ids) == kw["max_tokens"]


def test_characters_of_several_tokens_come_whole(server):
    """Each byte is a token here: detokenizing what was tokenized gives the text, and so does a stream that ends inside."""
    for text in ("\U0001fae0", "\u9f9c\u9f9c", "\U0001f469\u200d\U0001f469\u200d\U0001f466", "na\u00efve caf\u00e9"):
        ids = server.post("/tokenize", {"model": "tiny", "prompt": text}).json()["tokens"]
        assert len(ids) >= len(text)
        assert server.post("/detokenize", {"model": "tiny", "tokens": ids}).json()["prompt"] == text
        cut = server.post("/detokenize", {"model": "tiny", "tokens": ids[:-1]}).json()["prompt"]
        assert cut.rstrip("\ufffd") == text[:-1] or text.startswith(cut.rstrip("\ufffd"))


# ---- stop strings ----

def test_stop_strings_over_tokens(server):
    kw = {"max_tokens": 60, "ignore_eos": True}
    whole = server.complete(**kw)["choices"][0]["text"]
    for at, n in ((5, 1), (9, 3), (20, 5), (30, 9)):
        stop = whole[at:at + n]
        if "\ufffd" in stop:
            continue
        want = whole[:whole.index(stop)]
        for s in (stop, [stop], ["never", stop, "ever"]):
            c = server.complete(stop=s, **kw)["choices"][0]
            assert (c["text"], c["finish_reason"]) == (want, "stop"), stop
            text, _, reason = server.stream(stop=s, **kw).finish()
            assert (text, reason) == (want, "stop"), stop
        assert server.complete(stop=stop, include_stop_str_in_output=True, **kw)["choices"][0]["text"] == want + stop


def test_stop_string_that_never_comes_holds_nothing_back(server):
    kw = {"max_tokens": 40, "ignore_eos": True}
    whole = server.complete(**kw)["choices"][0]["text"]
    almost = whole[-3:] + "\u2603"  # its first characters end the answer
    assert server.stream(stop=almost, **kw).finish()[0] == whole


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], 5, [5], [["a"]], {"a": 1}, ["x"] * 1000, "x" * 100000, True])
def test_bad_stop_is_refused(server, stop):
    for path, b in ((TEXT, text_body(stop=stop)), (CHAT, chat_body(stop=stop))):
        assert server.post(path, b).error()["param"] == "stop"


def test_stop_token_ids(server):
    ids = server.complete(max_tokens=12, return_token_ids=True, ignore_eos=True)["choices"][0]["token_ids"]
    stop = next(i for i in ids[3:] if i not in ids[:3])
    c = server.complete(max_tokens=12, return_token_ids=True, ignore_eos=True, stop_token_ids=[stop])["choices"][0]
    assert c["finish_reason"] == "stop" and c["token_ids"] == ids[:ids.index(stop) + 1]
    assert server.post(TEXT, text_body(stop_token_ids=[99999])).status == 400
    late = server.complete(max_tokens=12, min_tokens=12, return_token_ids=True, ignore_eos=True, stop_token_ids=[stop])["choices"][0]
    assert late["finish_reason"] == "length" and len(late["token_ids"]) == 12 and stop not in late["token_ids"][:11]


# ---- form of streams ----

@pytest.mark.parametrize("path", [TEXT, CHAT])
@pytest.mark.parametrize("usage", [False, True])
def test_form_of_a_stream(server, path, usage):
    s = server.stream(user("hi") if path == CHAT else "hi", path, max_tokens=6, **({"stream_options": {"include_usage": True}} if usage else {}))
    s.finish()
    events = s.events
    for key in ("id", "object", "created", "model"):
        assert len({e[key] for e in events}) == 1, key
    assert events[0]["object"] == ("chat.completion.chunk" if path == CHAT else "text_completion")
    last = events.pop() if usage else None
    assert all(isinstance(e["choices"], list) and len(e["choices"]) == 1 and e["choices"][0]["index"] == 0 for e in events)
    assert [e["choices"][0]["finish_reason"] is not None for e in events] == [False] * (len(events) - 1) + [True]
    if path == CHAT:
        assert [e["choices"][0]["delta"].get("role") for e in events] == ["assistant"] + [None] * (len(events) - 1)
        assert all(not ("role" in e["choices"][0]["delta"] and e["choices"][0]["delta"]["role"] == "") for e in events)
    if usage:
        assert last["choices"] == [] and last["usage"]["completion_tokens"] <= 6
        assert all(e.get("usage", 0) is None for e in events)
    assert s.raw.endswith(b"data: [DONE]\n\n")


def test_error_of_a_stream_has_its_status(server):
    r = server.post(CHAT, chat_body(stream=True, temperature=-1))
    assert r.status == 400 and r.error()["param"] == "temperature"


# ---- numbers ----

@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_token_limits(server, path):
    def ask(**kw):
        return server.post(path, text_body(ignore_eos=True, **kw) if path == TEXT else chat_body(ignore_eos=True, **kw))

    for field in ("max_tokens", "max_completion_tokens"):
        r = ask(**{field: 3} if field == "max_tokens" else {"max_tokens": None, field: 3}).json()
        assert r["usage"]["completion_tokens"] == 3 and r["choices"][0]["finish_reason"] == "length"
        for bad in (0, -1, "5", 2.5, 1e30, [], True):
            r = ask(**{field: bad})
            assert r.status == 400 and r.error()["param"] == field, (field, bad, r)
    assert ask(max_tokens=3.0).json()["usage"]["completion_tokens"] == 3


def test_huge_token_limit_is_cut_to_what_fits(server):
    r = server.post(TEXT, text_body(max_tokens=10 ** 12, ignore_eos=True, prompt=[5] * 4000))
    assert r.status == 200 and r.json()["usage"]["total_tokens"] == 4096 and r.json()["choices"][0]["finish_reason"] == "length"
    r = server.post(CHAT, chat_body(max_tokens=None, messages=user("x" * 4000), ignore_eos=True))
    assert r.json()["usage"]["total_tokens"] == 4096


def test_absent_limit_of_a_completion_is_sixteen(server):
    assert server.post(TEXT, text_body(max_tokens=None, ignore_eos=True)).json()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("field", ["n", "best_of"])
@pytest.mark.parametrize("value", [0, -1, 129, 1000000, 1e18, "2", 1.5, None, 1, 2, 128])
def test_n_has_bounds(server, field, value):
    for stream in (False, True):
        for path, b in ((TEXT, text_body), (CHAT, chat_body)):
            r = server.post(path, b(stream=stream, **{field: value, "max_tokens": 1}))
            if value in (None, 1) or value in (2, 128) and not (stream and field == "best_of"):
                assert r.status == 200
            else:
                assert r.status == 400 and r.error()["param"] == field


@pytest.mark.parametrize("field, good, bad", [
    ("temperature", [0, 1e-9, 1e-5, 0.7, 2, 100, None], [-1, -1e-9, 1e400, "hot", [], True, 1e30]),
    ("top_p", [1, 0.5, 1e-9, None], [0, -0.1, 1.5, "x", {}]),
    ("top_k", [-1, 0, 1, 10 ** 9, None], [-2, 1.5, "x", 1e300]),
    ("min_p", [0, 0.5, 1, None], [-0.1, 1.1, "x"]),
    ("seed", [0, 1, -1, 2 ** 63 - 1, None], ["x", 1.5, 1e300]),
    ("repetition_penalty", [1, 0.5, 2, None], [0, -1, 1e30, "x"]),
    ("presence_penalty", [0, -2, 2, None], [1e30, -2.1, "x"]),
    ("frequency_penalty", [0, -2, 2, None], [-3, "x"]),
    ("priority", [0, None], [-5, 7, "x", 1e30]),  # without --scheduling-policy priority
])
def test_sampling_values(server, field, good, bad):
    for path, b in ((TEXT, text_body), (CHAT, chat_body)):
        for v in good:
            assert server.post(path, b(**{"temperature": 1, field: v})).status == 200, (field, v)
        for v in bad:
            raw = json.dumps(b(**{field: v})).replace("Infinity", "1e400").encode()
            r = server.post(path, raw)
            assert r.status == 400, (field, v, r)
            if v != 1e400:
                assert r.error()["param"] == field and field in r.error()["message"]


def test_cold_and_hot_do_not_disturb_neighbours(server):
    """One request's extremes must not reach the rows beside it."""
    want = server.complete(max_tokens=24, ignore_eos=True)["choices"][0]["text"]
    extremes = [{"temperature": 100}, {"temperature": 1e-6}, {"top_p": 1e-12, "temperature": 1}, {"top_k": 1, "temperature": 2}, {"min_p": 1, "temperature": 100}]
    streams = [server.stream("x%d" % i, max_tokens=24, ignore_eos=True, **e) for i, e in enumerate(extremes)]
    assert server.complete(max_tokens=24, ignore_eos=True)["choices"][0]["text"] == want
    for s in streams:
        s.finish()


# ---- messages and prompts ----

GOOD_MESSAGES = {
    "parts": [{"role": "user", "content": [{"type": "text", "text": "the red "}, {"type": "text", "text": "inn"}]}],
    "system": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "x"}],
    "empty assistant": user("a") + [{"role": "assistant", "content": ""}] + user("b"),
    "null name": [{"role": "user", "content": "x", "name": None}],
    "empty user": [{"role": "user", "content": ""}],
    "two users": user("a") + user("b"),
    "only system": [{"role": "system", "content": "x"}],
}


@pytest.mark.parametrize("messages", GOOD_MESSAGES.values(), ids=GOOD_MESSAGES)
def test_message_shapes_of_common_clients(server, messages):
    r = server.post(CHAT, chat_body(messages=messages))
    assert r.status == 200, r


def test_one_text_part_is_the_plain_text(server):
    plain = server.chat("the red inn", return_token_ids=True)
    parts = server.chat([{"role": "user", "content": [{"type": "text", "text": "the red inn"}]}], return_token_ids=True)
    assert parts["choices"] == plain["choices"] and parts["usage"] == plain["usage"]


ODD_MESSAGES = {
    "null content": user("a") + [{"role": "assistant", "content": None}],
    "tool turn": user("a") + [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                              {"role": "tool", "tool_call_id": "1", "content": "42"}],
    "wizard": [{"role": "wizard", "content": "x"}],
    "role number": [{"role": 5, "content": "x"}],
    "no role": [{"content": "x"}],
    "no content": [{"role": "user"}],
    "content number": [{"role": "user", "content": 5}],
    "content object": [{"role": "user", "content": {"text": "x"}}],
    "part without type": [{"role": "user", "content": [{"text": "x"}]}],
    "part null": [{"role": "user", "content": [None]}],
    "part text null": [{"role": "user", "content": [{"type": "text", "text": None}]}],
    "empty parts": [{"role": "user", "content": []}],
    "not objects": ["hi", 5, None],
    "thousands": user("x") * 3000,
    "system last": user("a") + [{"role": "system", "content": "b"}],
}


@pytest.mark.parametrize("messages", ODD_MESSAGES.values(), ids=ODD_MESSAGES)
def test_odd_messages_are_never_our_fault(server, messages):
    sane(server.post(CHAT, chat_body(messages=messages)))
    sane(server.post("/tokenize", {"model": "tiny", "messages": messages}))


@pytest.mark.parametrize("messages", [None, [], {}, "hi", 5, [[]], [{}]], ids=str)
def test_no_messages(server, messages):
    r = server.post(CHAT, chat_body(messages=messages))
    assert r.status == 400 and "messages" in r.error()["message"]


@pytest.mark.parametrize("prompt", [None, "", [], [""], [[]], {}, 5, ["a", ""], [[1], []], [-1], [1.5], ["a", 1], [2 ** 40], [2 ** 70], 2 ** 70, [[1, "a"]], True], ids=str)
def test_no_prompt(server, prompt):
    r = server.post(TEXT, text_body(prompt=prompt))
    assert r.status == 400 and r.error()["param"] == "prompt", r


@pytest.mark.parametrize("prompt", [["the red inn"], [[5, 6, 7]], [5, 6, 7], "x", "\0", " ", "\n", ["a", "b"], [[1], [2]], ["a", [2, 3]]], ids=repr)
def test_prompt_shapes(server, prompt):
    assert server.post(TEXT, text_body(prompt=prompt)).status == 200


NULLS = {k: None for k in ("stop", "tools", "tool_choice", "logit_bias", "user", "metadata", "n", "stream", "stream_options", "seed", "top_p", "response_format",
                           "logprobs", "top_logprobs", "presence_penalty", "store", "service_tier", "parallel_tool_calls")}


def test_null_is_not_given_and_the_unknown_is_ignored(server):
    want = server.chat("the red inn", max_tokens=4)
    for more in (NULLS, {"tools": [], "user": "me", "metadata": {"a": "b"}, "store": False}, {"response_format": {"type": "text"}, "tool_choice": "none"},
                 {"nosuch_field": {"deep": [1, 2, 3]}, "logit_bias": {}}):
        got = server.chat("the red inn", **{**more, "max_tokens": 4})
        assert got["choices"] == want["choices"], more


REFUSED = {
    "suffix": "x", "prompt_embeds": base64.b64encode(os.urandom(300)).decode(), "use_beam_search": True, "bad_words": ["x"], "modalities": ["audio"], "audio": {"voice": "x"},
    "chat_template": "{{ 1 }}", "functions": [{"name": "f"}], "length_penalty": 2, "logits_processors": ["x"], "guided_whitespace_pattern": " ", "kv_transfer_params": {"a": 1},
    "images": ["x"], "prediction": {"type": "content", "content": "x"}, "web_search_options": {},
}
CHAT_ONLY = {"modalities", "audio", "chat_template", "functions", "prediction", "web_search_options"}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_built_is_refused_by_name(server, field):
    for path, b in ((TEXT, text_body), (CHAT, chat_body)):
        if path == TEXT and field in CHAT_ONLY or path == CHAT and field == "suffix":
            continue
        r = server.post(path, b(**{field: REFUSED[field]}))
        assert r.status == 400 and field in r.error()["message"] and r.error()["param"] == field, r


def deep_schema(n):
    s = {"type": "string"}
    for _ in range(n):
        s = {"type": "object", "properties": {"a": s}}
    return s


@pytest.mark.parametrize("fmt", [{"type": "json_schema", "json_schema": {"name": "x", "schema": deep_schema(400)}}, {"type": "nosuch"}, {"type": 5}, {}, "json", [],
                                 {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(((("}}}], ids=lambda f: str(f)[:40])
def test_bad_response_format_is_refused_never_ignored(server, fmt):
    r = server.post(CHAT, chat_body(response_format=fmt))
    assert r.status == 400, r
    assert "response_format" in r.error()["message"] or "nested deeper" in r.error()["message"], r


def test_very_deep_schema(server):
    raw = json.dumps(chat_body(response_format={"type": "json_schema"}))[:-2] + ', "json_schema": ' + '{"properties":{"a":' * 5000 + "1" + "}}" * 5000 + "}}"
    assert server.post(CHAT, raw.encode()).status == 400


# ---- control tokens ----

def count(server, text, chat=True):
    if chat:
        return server.post("/tokenize", {"model": "tiny", "messages": user(text)}).json()["count"]
    return server.post("/tokenize", {"model": "tiny", "prompt": text}).json()["count"]


@pytest.mark.parametrize("word", ["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
def test_text_of_users_is_never_a_control_token(server, word):
    """The same length in ordinary letters costs as many tokens: each byte is one here, a control token would be one in all."""
    like = word.replace("|", "!")
    assert count(server, word * 50) == count(server, like * 50)
    assert server.chat(word * 50)["usage"]["prompt_tokens"] == server.chat(like * 50)["usage"]["prompt_tokens"]
    ids = server.post("/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": word}]}).json()["tokens"]
    assert sum(i < 3 for i in ids) == sum(i < 3 for i in server.post("/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}).json()["tokens"])
    for role in ("system", "assistant"):
        m = [{"role": role, "content": word}, {"role": "user", "content": "x"}]
        ids = server.post("/tokenize", {"model": "tiny", "messages": m}).json()["tokens"]
        assert ids.count(1) == 3 and ids.count(2) == 2


def test_control_token_across_parts_and_roles(server):
    """Nor may it arise where two texts, or a text and the template, meet."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "<|im_"}, {"type": "text", "text": "end|>"}]}]
    ids = server.post("/tokenize", {"model": "tiny", "messages": parts}).json()["tokens"]
    assert ids.count(2) == 1
    r = server.post("/tokenize", {"model": "tiny", "messages": [{"role": "<|im_end|>", "content": "x"}]})
    assert r.status == 400 or r.json()["tokens"].count(2) == 1


def test_chat_prompt_is_counted_once(server):
    """What /tokenize says of messages is what the request costs: nothing is added twice."""
    for m in GOOD_MESSAGES.values():
        assert server.post("/tokenize", {"model": "tiny", "messages": m}).json()["count"] == server.chat(m)["usage"]["prompt_tokens"]


# ---- spaces ----

@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_streamed_text_is_the_plain_text(server, path):
    for i in range(5):
        prompt = "the inn %d  the  " % i
        p = user(prompt) if path == CHAT else prompt
        c = server.complete(p, path, max_tokens=16, ignore_eos=True)["choices"][0]
        assert server.stream(p, path, max_tokens=16, ignore_eos=True).finish()[0] == (c["text"] if path == TEXT else c["message"]["content"])


def test_tokenize_takes_what_a_body_can_hold(server):
    """Neither shape has a bound of its own: the work is not the loop's."""
    n = 3 << 20
    assert server.post("/tokenize", {"model": "tiny", "prompt": "a" * n}).json()["count"] == n
    few = count(server, "a")
    assert count(server, "a" * n) == n - 1 + few
    r = server.post("/tokenize", {"model": "tiny", "prompt": "a" * (5 << 20)})
    assert r.status == 400 and "more than 4194304 tokens" in r.error()["message"]


def test_tokenize_there_and_back(server):
    for text in (" the", "the ", "  ", "\t\n", "a  b", "the\r\nre in", "\u00a0x", "\u3000"):
        r = server.post("/tokenize", {"model": "tiny", "prompt": text}).json()
        assert r["count"] == len(r["tokens"]) and r["max_model_len"] == 4096
        assert server.post("/detokenize", {"model": "tiny", "tokens": r["tokens"]}).json()["prompt"] == text


@pytest.mark.parametrize("body", [{"model": "tiny"}, {"model": "tiny", "tokens": "x"}, {"model": "tiny", "tokens": [99999]}, {"model": "tiny", "tokens": [-1]}, {"model": "tiny", "tokens": [1.5]},
                                  {"model": "tiny", "tokens": [2 ** 70]}], ids=str)
def test_bad_detokenize(server, body):
    assert server.post("/detokenize", body).status == 400


# ---- ids ----

def test_same_id_from_many_clients(server):
    """A client's id is a label, never a key of ours."""
    answers, errors = {}, []

    def one(i):
        try:
            with server.conn() as c:
                r = c.ask("POST", TEXT, text_body(prompt="client %d" % i, max_tokens=64, ignore_eos=True, request_id="same"), ["X-Request-Id: same"])
                answers[i] = r.json()
        except Exception as e:  # noqa: BLE001 (shown below)
            errors.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert len({a["id"] for a in answers.values()}) == 8
    for i, a in answers.items():
        assert a["choices"][0]["text"] == server.complete("client %d" % i, max_tokens=64, ignore_eos=True)["choices"][0]["text"]


def test_same_id_after_an_abort(server):
    s = server.stream(max_tokens=2000, ignore_eos=True, request_id="same")
    s.next()
    s.close()
    assert server.post(TEXT, text_body(request_id="same"), headers=["X-Request-Id: same"]).status == 200
    server.wait_idle()


# ---- nothing is fetched ----

def test_nothing_is_fetched(server):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        url = "http://127.0.0.1:%d/x.png" % listener.getsockname()[1]
        for part in ({"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}, {"type": "image_url", "image_url": url},
                     {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, {"type": "video_url", "video_url": {"url": url}}, {"type": "image_url"},
                     {"type": "file", "file": {"file_id": "x"}}, {"type": "nosuch"}):
            r = server.post(CHAT, chat_body(messages=[{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]))
            assert r.status == 400, (part, r)
            r.error()
        with pytest.raises(socket.timeout):
            listener.accept()


@pytest.mark.parametrize("model", ["nosuch", "", "TINY", "tiny ", "../tiny", "t" * 100000], ids=lambda m: m[:10])
def test_unknown_model(server, model):
    r = server.post(TEXT, text_body(model=model))
    assert r.status == 404 and r.error()["param"] == "model"
    for bad in (5, [], True):
        assert server.post(TEXT, text_body(model=bad)).status == 400


def test_template_that_raises(start, tmp_path, tiny):
    """The template's own words reach the client, as the client's fault."""
    with open(tiny, "rb") as f:
        data = f.read()
    at = data.index(b"{% for m in messages %}")
    new = b"{{ raise_exception('wrong order of roles') }}"
    import struct
    n = struct.unpack("<Q", data[at - 8:at])[0]
    # The same length, so that nothing behind it moves.
    (tmp_path / "raises.gguf").write_bytes(data[:at] + new + b" " * (n - len(new)) + data[at + n:])
    s = start(str(tmp_path / "raises.gguf")).ready()
    r = s.post(CHAT, chat_body())
    assert r.status == 400 and "wrong order of roles" in r.error()["message"]
    assert s.complete()["choices"]
