"""Requests of many choices, with the official client: each choice is what it would be alone, whatever they share; log-probabilities
in all forms, against each other; every choice ends, and ends with its client."""
import math

import openai
import pytest

import server as sv
import wire

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello there"}]
PROMPTS = ["the red inn", "a long way", [5, 6, 7, 8, 9]]
# The null device draws a token in microseconds: these streams end when they are ended.
NULL = ("--device", "null")
ENDLESS = {"max_tokens": 900000, "ignore_eos": True}


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0, timeout=120) as c:
        yield c


def chat(client, **kw):
    extra = {"return_token_ids": True, **kw.pop("extra_body", {})}
    return client.chat.completions.create(**{"model": "tiny", "messages": HELLO, "max_tokens": 12, "seed": 3, "extra_body": extra, **kw})


def text(client, **kw):
    extra = {"return_token_ids": True, "ignore_eos": True, **kw.pop("extra_body", {})}
    return client.completions.create(**{"model": "tiny", "prompt": "the red inn", "max_tokens": 12, "seed": 3, "extra_body": extra, **kw})


def gather(stream):
    """{index: (text, ids, finish)} of a stream; each index must end once, with nothing behind."""
    said, ids, ends, last = {}, {}, {}, None
    for chunk in stream:
        last = chunk
        for c in chunk.choices:
            assert c.index not in ends, "something comes behind the end of a choice"
            part = c.text if hasattr(c, "text") else c.delta.content
            said[c.index] = said.get(c.index, "") + (part or "")
            ids.setdefault(c.index, []).extend(getattr(c, "token_ids", None) or [])
            if c.finish_reason:
                ends[c.index] = c.finish_reason
    assert sorted(said) == sorted(ends) == list(range(len(said)))
    return {i: (said[i], ids[i], ends[i]) for i in said}, last


def whole(r):
    return {c.index: (c.text if hasattr(c, "text") else c.message.content, c.token_ids, c.finish_reason) for c in r.choices}


# ---- choices ----

@pytest.mark.parametrize("ask", [chat, text])
@pytest.mark.parametrize("n", [2, 3])
def test_choices_differ_and_repeat(client, ask, n):
    plain = whole(ask(client, n=n))
    assert list(plain) == list(range(n)), "in order"
    assert len({tuple(ids) for _, ids, _ in plain.values()}) == n, "one seed, different choices"
    assert whole(ask(client, n=n)) == plain, "and a request with a seed can be repeated"
    assert whole(ask(client))[0] == plain[0], "the first one does not depend on how many there are"
    streamed, _ = gather(ask(client, n=n, stream=True))
    assert streamed == plain


def test_choices_of_a_chat_have_a_role_each(client):
    chunks = list(chat(client, n=3, stream=True))
    roles = [(c.index, c.delta.role) for chunk in chunks for c in chunk.choices if c.delta.role]
    assert sorted(roles) == [(i, "assistant") for i in range(3)]
    assert [chunks[i].choices[0].index for i in range(3)] == [0, 1, 2], "before anything is said"
    assert len({c.id for c in chunks}) == 1


def test_prompts_times_choices(client):
    got = whole(text(client, prompt=["the red inn", "a long way"], n=2))
    assert list(got) == [0, 1, 2, 3]
    for i, p in enumerate(["the red inn", "a long way"]):
        alone = whole(text(client, prompt=p, n=2))
        assert got[2 * i] == alone[0] and got[2 * i + 1] == alone[1]
    streamed, _ = gather(text(client, prompt=["the red inn", "a long way"], n=2, stream=True))
    assert streamed == got
    ids = whole(text(client, prompt=[[5, 6, 7], [8, 9]]))
    assert ids[1] == whole(text(client, prompt=[8, 9]))[0]


def test_equal_prompts_without_a_seed_differ(client):
    got = whole(text(client, prompt=["the red inn"] * 4, seed=openai.omit if hasattr(openai, "omit") else openai.NOT_GIVEN, max_tokens=32))
    assert len({tuple(ids) for _, ids, _ in got.values()}) == 4


def test_usage_counts_prompts_once_and_all_choices(client):
    r = text(client, prompt=["the red inn", "a long way"], n=3, max_tokens=5)
    alone = [text(client, prompt=p, max_tokens=1).usage.prompt_tokens for p in ("the red inn", "a long way")]
    assert r.usage.prompt_tokens == sum(alone) and r.usage.completion_tokens == 6 * 5
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    _, last = gather(text(client, prompt=["the red inn", "a long way"], n=3, max_tokens=5, stream=True, stream_options={"include_usage": True}))
    assert last.choices == [] and last.usage.total_tokens == r.usage.total_tokens


def test_continuous_usage(client):
    counts = {}
    chunks = list(chat(client, n=2, stream=True, extra_body={"ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}))
    for chunk in chunks[:-1]:
        assert chunk.usage.total_tokens == chunk.usage.prompt_tokens + chunk.usage.completion_tokens
        i = chunk.choices[0].index
        assert chunk.usage.completion_tokens >= counts.get(i, 0)
        counts[i] = chunk.usage.completion_tokens
    assert counts == {0: 12, 1: 12} and chunks[-1].usage.completion_tokens == 24


def test_best_of(client):
    four = text(client, n=4, logprobs=0, max_tokens=8).choices
    mean = lambda c: sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs)
    want = [c.token_ids for c in sorted(four, key=mean, reverse=True)]
    r = text(client, n=2, best_of=4, max_tokens=8)
    assert [c.token_ids for c in r.choices] == want[:2]
    assert [c.index for c in r.choices] == [0, 1] and all(c.logprobs is None for c in r.choices)
    assert r.usage.completion_tokens == 4 * 8, "what was drawn and thrown away is counted"
    with pytest.raises(openai.BadRequestError) as e:
        text(client, n=1, best_of=2, stream=True)
    assert e.value.param == "best_of"


def test_stop_strings_end_one_choice(client):
    free = text(client, n=3, max_tokens=60).choices
    # Something that spans tokens in one of them.
    t = free[1].text
    stop = next(t[i:i + 3] for i in range(4, len(t) - 3) if "\ufffd" not in t[i:i + 3])
    for keep in (False, True):
        want = []
        for c in free:
            at = c.text.find(stop)
            want.append((c.text if at < 0 else c.text[:at + keep * len(stop)], "length" if at < 0 else "stop"))
        kw = {"n": 3, "max_tokens": 60, "stop": [stop, "\u2603never"], "extra_body": {"include_stop_str_in_output": keep}}
        r = text(client, **kw)
        assert [(c.text, c.finish_reason) for c in r.choices] == want
        assert [c.stop_reason for c in r.choices] == [stop if f == "stop" else None for _, f in want]
        got, _ = gather(text(client, stream=True, **kw))
        assert [(got[i][0], got[i][2]) for i in range(3)] == want


def test_too_many_choices_are_refused_by_name(client, start, tiny):
    for kw, param in (({"n": 129}, "n"), ({"best_of": 129}, "best_of"), ({"n": 65, "prompt": ["a", "b"]}, "prompt")):
        with pytest.raises(openai.BadRequestError) as e:
            text(client, **kw)
        assert e.value.param == param, e.value
    s = start(tiny, "--max-n", "2").ready()
    assert s.post(TEXT, {"prompt": "x", "n": 2, "max_tokens": 1}).status == 200
    assert s.post(TEXT, {"prompt": "x", "n": 3, "max_tokens": 1}).error()["param"] == "n"


def test_more_choices_than_the_server_holds(start, tiny):
    """All of them start or none; what could never fit is not asked again."""
    s = start(tiny, "--max-requests", "4").ready()
    for stream in (False, True):
        r = s.post(TEXT, {"prompt": "x", "n": 5, "max_tokens": 4, "stream": stream})
        assert r.status == 400 and "5" in r.error()["message"] and "--max-requests" in r.error()["message"], r
        s.wait_idle()
    assert len(s.post(TEXT, {"prompt": "x", "n": 4, "max_tokens": 4}).json()["choices"]) == 4


@pytest.mark.parametrize("n", [0, -1, 1000000, 1.5, "2"])
@pytest.mark.parametrize("name", ["n", "best_of"])
@pytest.mark.parametrize("stream", [False, True])
def test_senseless_numbers_are_refused_before_anything_starts(server, name, n, stream):
    for path, body in ((TEXT, {"prompt": "x"}), (CHAT, {"messages": HELLO})):
        r = server.post(path, {**body, name: n, "stream": stream})
        assert r.status == 400 and r.error()["param"] == name, r


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_chunks_please_strict_clients(server, path, n):
    st = server.stream("x" if path == TEXT else HELLO, path, n=n, max_tokens=6, ignore_eos=True, stream_options={"include_usage": True})
    for _ in st:
        pass
    st.conn.close()
    *events, last = st.events
    assert len({(e["id"], e["object"], e["created"], e["model"]) for e in st.events}) == 1
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 6 * n
    reasons = {}
    for e in events:
        assert len(e["choices"]) == 1 and e["usage"] is None
        c = e["choices"][0]
        assert c["index"] not in reasons and 0 <= c["index"] < n and "finish_reason" in c and "logprobs" in c
        if c["finish_reason"]:
            reasons[c["index"]] = c["finish_reason"]
        if path == CHAT:
            assert isinstance(c["delta"], dict) and c["delta"].get("role", "assistant") == "assistant"
            assert c["delta"] != {} or c["finish_reason"]
        else:
            assert isinstance(c["text"], str)
    assert sorted(reasons) == list(range(n)) and set(reasons.values()) == {"length"}


# ---- clients that go away, or do not read ----

@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_choices_end_with_their_client(start, models, stream, reset):
    s = start(models(1000000), *NULL).ready()
    c = s.conn()
    c.send(wire.request("POST", TEXT, {"prompt": ["x", "y"], "n": 4, "stream": stream, **ENDLESS}))
    sv.wait_for("all run", lambda: s.metric("vllm:num_requests_running") == 8)
    c.close(reset)
    s.wait_idle()
    assert s.metric("sluice:client_gone_total") == 1, "one client, one request"


def test_what_waits_for_a_slow_reader_is_bounded(start, models):
    """Log-probabilities of four choices, unread: a hundred times the text. The request ends before they fill the memory."""
    s = start(models(1000000), *NULL).ready()
    pid = s.kids("frontend")[0]
    before = sv.rss_mib(pid)
    st = wire.Stream(s.host, s.port, TEXT, {"prompt": "x", "stream": True, "n": 4, "logprobs": 20, **ENDLESS}, timeout=300, rcvbuf=4096)
    try:
        sv.wait_for("it ends", lambda: s.metric("vllm:request_success_total", finished_reason="error") == 1, 120)
        assert sv.rss_mib(pid) < before + 200 * sv.SLOW
        s.wait_idle()
    finally:
        st.close()


def test_plain_answer_that_is_too_large_is_refused(start, models):
    s = start(models(1000000), *NULL).ready()
    r = s.post(TEXT, {"prompt": "x", "n": 4, "logprobs": 20, **ENDLESS}, timeout=300)
    assert r.status == 400 and "24 MiB" in r.error()["message"]
    s.wait_idle()


def test_copies_of_a_long_prompt_are_bounded(start, models):
    """Each choice keeps its own copy of the prompt."""
    s = start(models(1000000), *NULL).ready()
    before = sv.rss_mib(s.kids("frontend")[0])
    r = s.post(TEXT, {"prompt": [5] * 600000, "n": 128, "max_tokens": 1}, timeout=120)
    assert r.status == 400 and r.error()["param"] == "n" and "256 MiB" in r.error()["message"], r
    assert sv.rss_mib(s.kids("frontend")[0]) < before + 150 * sv.SLOW
    assert s.post(TEXT, {"prompt": [5] * 600000, "n": 2, "max_tokens": 1}, timeout=120).status == 200


@pytest.mark.parametrize("kind", ["worker", "executor"])
def test_choices_go_on_after_a_death(start, tiny, kind):
    """With penalties, whose counts die with the worker, and the prompt's log-probabilities: the same to the last token."""
    s = start(tiny).ready()
    body = {"prompt": [5, 6, 7, 8], "n": 3, "seed": 3, "max_tokens": 400, "ignore_eos": True, "frequency_penalty": 0.3, "presence_penalty": 0.2,
            "echo": True, "logprobs": 0, "return_token_ids": True}
    want = s.post(TEXT, body).json()["choices"]
    st = wire.Stream(s.host, s.port, TEXT, {**body, "stream": True})
    got = {i: ([], []) for i in range(3)}
    for n, e in enumerate(st):
        assert "error" not in e, e
        for c in e["choices"]:
            got[c["index"]][0].extend(c["token_ids"])
            got[c["index"]][1].extend(c["logprobs"]["token_logprobs"] if c["logprobs"] else [])
        if n == 60:
            s.kill(kind)
    st.conn.close()
    assert n > 100, "it was killed in the middle"
    for i in range(3):
        assert got[i] == (want[i]["token_ids"], want[i]["logprobs"]["token_logprobs"])
    s.ready()
    s.wait_idle()


# ---- log-probabilities ----

def test_both_shapes_say_the_same(client, server):
    ids = server.post("/tokenize", {"model": "tiny", "messages": HELLO}).json()["tokens"]
    a = chat(client, logprobs=True, top_logprobs=3, n=2, extra_body={"ignore_eos": True})
    b = text(client, prompt=ids, logprobs=3, n=2)
    for x, y in zip(a.choices, b.choices):
        assert x.token_ids == y.token_ids
        entries, columns = x.logprobs.content, y.logprobs
        assert [e.token for e in entries] == columns.tokens
        assert [e.logprob for e in entries] == columns.token_logprobs
        assert len(entries) == len(columns.top_logprobs) == len(columns.text_offset) == 12
        for e, top in zip(entries, columns.top_logprobs):
            best = {t.token: t.logprob for t in reversed(e.top_logprobs)}
            assert len(e.top_logprobs) == 3 and all(top[k] == v for k, v in best.items()) and top[e.token] <= 0
            assert bytes(e.bytes).decode("utf-8", "replace") == e.token
        assert columns.text_offset[0] == 0 and all(b - a == len(t) for a, b, t in zip(columns.text_offset, columns.text_offset[1:], columns.tokens))


def test_streamed_logprobs_are_the_plain_ones(client):
    plain = text(client, n=2, logprobs=2)
    got = {0: [], 1: []}
    for chunk in text(client, n=2, logprobs=2, stream=True):
        for c in chunk.choices:
            if c.logprobs:
                got[c.index] += list(zip(c.logprobs.tokens, c.logprobs.token_logprobs, c.logprobs.text_offset))
    for c in plain.choices:
        assert got[c.index] == list(zip(c.logprobs.tokens, c.logprobs.token_logprobs, c.logprobs.text_offset))


def test_tokens_as_ids(client):
    r = text(client, logprobs=1, extra_body={"return_tokens_as_token_ids": True}).choices[0]
    assert r.logprobs.tokens == ["token_id:%d" % i for i in r.token_ids]
    assert all(t in top for t, top in zip(r.logprobs.tokens, r.logprobs.top_logprobs))
    c = chat(client, logprobs=True, extra_body={"return_tokens_as_token_ids": True}).choices[0]
    assert [e.token for e in c.logprobs.content] == ["token_id:%d" % i for i in c.token_ids]


def drawn(client, prompt, n=10):
    """A greedy continuation: ids and the log-probability of each, as the sampler saw it."""
    r = text(client, prompt=prompt, max_tokens=n, temperature=0, logprobs=2, extra_body={"return_tokens_as_token_ids": True}).choices[0]
    return r.token_ids, r.logprobs


@pytest.mark.parametrize("prompt", [[5, 6, 7], [5 + i % 200 for i in range(600)]], ids=["short", "in chunks"])
def test_prompt_logprobs_are_those_of_the_generation(client, prompt):
    """Teacher-forced: the prompt's log-probabilities at the tokens that were drawn are those with which they were drawn."""
    ids, lp = drawn(client, prompt)
    r = text(client, prompt=prompt + ids, max_tokens=1, extra_body={"prompt_logprobs": 2})
    rows = r.choices[0].prompt_logprobs
    assert len(rows) == len(prompt) + len(ids) and rows[0] is None
    for i, t in enumerate(ids):
        row = rows[len(prompt) + i]
        assert row[str(t)]["logprob"] == pytest.approx(lp.token_logprobs[i], abs=1e-5)
        assert row[str(t)]["rank"] == 1, "greedy takes the likeliest"
        want = {k.split(":")[1]: v for k, v in lp.top_logprobs[i].items()}
        assert {k: v["logprob"] for k, v in row.items()} == pytest.approx(want, abs=1e-5)
    for t, row in zip((prompt + ids)[1:], rows[1:]):
        own = row[str(t)]
        assert own["logprob"] <= 0 and own["rank"] >= 1 and isinstance(own["decoded_token"], str)
        ranks = sorted(v["rank"] for k, v in row.items() if k != str(t) or v["rank"] <= 2)
        assert ranks == [1, 2]
        by_rank = sorted(row.values(), key=lambda v: v["rank"])
        assert all(a["logprob"] >= b["logprob"] for a, b in zip(by_rank, by_rank[1:]))


def test_prompt_logprobs_of_a_chat(client):
    r = chat(client, n=2, max_tokens=1, extra_body={"prompt_logprobs": 0})
    assert len(r.prompt_logprobs) == r.usage.prompt_tokens == len(r.prompt_token_ids)
    assert r.prompt_logprobs[0] is None
    assert [list(row) for row in r.prompt_logprobs[1:]] == [[str(i)] for i in r.prompt_token_ids[1:]]


def test_prompt_logprobs_with_cached_prefix(client):
    """What is in the prefix cache has no logits any more: it is computed again, and the values are the same."""
    prompt = [7 + (i * 3) % 150 for i in range(100)]
    ask = lambda: text(client, prompt=prompt, max_tokens=1, extra_body={"prompt_logprobs": 1}).choices[0].prompt_logprobs
    first = ask()
    assert len(first) == 100 and ask() == first
    text(client, prompt=prompt + [5], max_tokens=1)
    assert ask() == first


def test_echo(client):
    r = text(client, prompt="the red inn", echo=True, n=2)
    assert all(c.text.startswith("the red inn") for c in r.choices)
    bare = text(client, prompt="the red inn", n=2)
    assert [c.text for c in r.choices] == ["the red inn" + c.text for c in bare.choices]
    got, _ = gather(text(client, prompt="the red inn", echo=True, n=2, stream=True))
    assert [got[i][0] for i in range(2)] == [c.text for c in r.choices]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_echo_with_logprobs(client, stream):
    prompt = [5, 6, 7]
    ids, lp = drawn(client, prompt)
    kw = {"prompt": prompt + ids, "echo": True, "logprobs": 2, "max_tokens": 2, "temperature": 0, "extra_body": {"return_tokens_as_token_ids": True}}
    if stream:
        columns = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for chunk in text(client, stream=True, **kw):
            for k in columns:
                columns[k] += getattr(chunk.choices[0].logprobs, k) if chunk.choices[0].logprobs else []
    else:
        columns = text(client, **kw).choices[0].logprobs.model_dump()
    n = len(prompt) + len(ids)
    assert columns["tokens"][:n] == ["token_id:%d" % i for i in prompt + ids] and len(columns["tokens"]) == n + 2
    assert columns["token_logprobs"][0] is None and columns["top_logprobs"][0] is None and columns["text_offset"][0] == 0
    assert columns["token_logprobs"][len(prompt):n] == pytest.approx(lp.token_logprobs, abs=1e-5)
    assert all(math.isfinite(v) and v <= 0 for v in columns["token_logprobs"][1:])
    for i, want in enumerate(lp.top_logprobs):
        assert columns["top_logprobs"][len(prompt) + i] == pytest.approx(want, abs=1e-5)
    assert columns["text_offset"] == sorted(columns["text_offset"])


def test_prompt_alone(client):
    """What evaluations ask: how likely is this text? Nothing is drawn."""
    prompt = [5, 6, 7, 8]
    c = text(client, prompt=[prompt, prompt[:2]], echo=True, logprobs=1, max_tokens=0)
    rows = text(client, prompt=prompt, max_tokens=1, extra_body={"prompt_logprobs": 1}).choices[0].prompt_logprobs
    assert [len(x.logprobs.tokens) for x in c.choices] == [4, 2] and c.usage.completion_tokens == 0
    assert c.choices[0].logprobs.token_logprobs[1:] == [row[str(t)]["logprob"] for t, row in zip(prompt[1:], rows[1:])]
    assert c.choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError) as e:
        text(client, max_tokens=0)
    assert e.value.param == "max_tokens"


# ---- what changes the draw ----

def test_bias_and_allowed_ids(client):
    assert text(client, logit_bias={"77": 100}, temperature=0).choices[0].token_ids == [77] * 12
    free = text(client, temperature=0).choices[0].token_ids
    banned = text(client, temperature=0, logit_bias={str(free[0]): -100}).choices[0].token_ids
    assert banned[0] != free[0]
    some = text(client, n=3, extra_body={"allowed_token_ids": [40, 41, 42]})
    assert {t for c in some.choices for t in c.token_ids} <= {40, 41, 42}


@pytest.mark.parametrize("presence, frequency", [(0, 0), (2, 0), (0, 2), (1.5, 0.5), (-2, -1)])
def test_penalties(client, presence, frequency):
    """Greedy: each token is the likeliest after what its earlier appearances cost it; log-probabilities are those before."""
    r = text(client, temperature=0, max_tokens=60, n=2, logprobs=20, presence_penalty=presence, frequency_penalty=frequency,
             extra_body={"return_tokens_as_token_ids": True})
    for c in r.choices:
        seen = {}
        for t, top in zip(c.logprobs.tokens, c.logprobs.top_logprobs):
            cost = {k: v - (presence + frequency * seen[k] if k in seen else 0) for k, v in top.items()}
            assert cost[t] == pytest.approx(max(cost.values()), abs=1e-4)
            seen[t] = seen.get(t, 0) + 1
    assert r.choices[0].token_ids == r.choices[1].token_ids, "each choice has its own counts"


def test_repetition_penalty(client):
    distinct = lambda v: len(set(text(client, temperature=0, max_tokens=60, extra_body={"repetition_penalty": v}).choices[0].token_ids))
    assert distinct(0.5) <= distinct(1) < distinct(10) == 60
