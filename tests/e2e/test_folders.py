"""Checkpoints as people have them, served: Hugging Face folders with their own tokenizer, template, generation_config.json.

The folders are those of the golden data (../shared/golden/tiny or $SLUICE_SHARED, else the copies in tests/data): small random models with
recorded outputs."""
import concurrent.futures
import json
import os
import shutil
import tarfile

import jsonschema
import openai
import pytest

import fakehub
import server as sv

DATA = os.path.join(sv.ROOT, "tests", "data", "golden", "tiny")
SHARED = os.path.join(os.environ.get("SLUICE_SHARED") or os.path.join(sv.ROOT, "..", "shared"), "golden", "tiny")
CARRIED = sorted(n.removesuffix(".tar.xz") for n in os.listdir(DATA) if n.endswith(".tar.xz"))
ALL = sorted({*CARRIED, *(n for n in (os.listdir(SHARED) if os.path.isdir(SHARED) else []) if not n.startswith("_"))})
LOW_MARGIN = 0.05  # of the two best logits: below it rounding may decide
N_PROMPTS = 4


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """folder(name): the path of a golden folder."""
    top = tmp_path_factory.mktemp("golden")

    def find(name):
        if os.path.isdir(os.path.join(SHARED, name)):
            return os.path.join(SHARED, name)
        path = str(top / name)
        if not os.path.isdir(path):
            with tarfile.open(os.path.join(DATA, name + ".tar.xz")) as t:
                t.extractall(path, filter="data")
        return path if os.path.exists(os.path.join(path, "golden.jsonl")) else os.path.join(path, name)
    return find


@pytest.fixture
def changed(folder, tmp_path):
    """changed(name, file=object or text or None ...): a copy of a folder with other files; None: without it."""
    def make(name, files):
        path = str(tmp_path / "model")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder(name), path, ignore=shutil.ignore_patterns("golden*", "info.json"))
        os.chmod(path, 0o755)
        for file, content in files.items():
            at = os.path.join(path, file)
            if os.path.exists(at):
                os.remove(at)
            if content is not None:
                with open(at, "w") as f:
                    f.write(content if isinstance(content, str) else json.dumps(content))
        return path
    return make


def read(path, file):
    with open(os.path.join(path, file)) as f:
        return json.load(f)


def goldens(path):
    with open(os.path.join(path, "golden.jsonl")) as f:
        return [json.loads(line) for line in f]


def model_of(path):
    return os.path.join(path, "model.gguf") if os.path.exists(os.path.join(path, "model.gguf")) else path


# ---- right answers ----

@pytest.mark.parametrize("name", ALL)
def test_greedy_outputs_are_the_recorded_ones(folder, name):
    path = folder(name)
    picked = sorted(goldens(path), key=lambda g: len(g["prompt_ids"]))[::4][:N_PROMPTS]
    with sv.Server(model_of(path), "--activations", "f32", name="m", frontends=2) as s:
        s.ready()

        def run(g):
            kw = {"max_tokens": len(g["greedy_ids"]), "ignore_eos": True, "return_token_ids": True}
            return s.complete(g["prompt_ids"], **kw)["choices"][0]["token_ids"]
        with concurrent.futures.ThreadPoolExecutor(N_PROMPTS) as pool:  # one batch
            for g, got in zip(picked, pool.map(run, picked)):
                want = g["greedy_ids"]
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), len(want))
                assert len(got) == len(want) and (at == len(want) or g["margins"][at] < LOW_MARGIN), "%s: step %d gives %d instead of %d, margin %g" % (
                    g["id"], at, got[at], want[at], g["margins"][at])
        s.wait_idle()


@pytest.fixture(scope="module")
def qwen2(folder):
    """Its model has 515 rows of vocabulary, its tokenizer 512 tokens."""
    with sv.Server(folder("qwen2"), "--activations", "f32", name=None, frontends=2) as s:
        s.name = folder("qwen2")
        s.ready()
        yield s
        s.wait_idle()


def test_it_is_called_by_its_path(qwen2, folder):
    assert [m["id"] for m in qwen2.get("/v1/models").json()["data"]] == [folder("qwen2")]


def test_its_tokenizer_and_template(qwen2):
    ask = {"model": qwen2.name, "messages": [{"role": "user", "content": "hello <|im_end|>"}]}
    r = qwen2.post("/tokenize", ask).json()
    # The control tokens are the template's; the client's are text.
    assert r["tokens"].count(1) == 2 and r["tokens"].count(2) == 1 and r["tokens"][0] == 1
    text = qwen2.post("/detokenize", {"model": qwen2.name, "tokens": r["tokens"]}).json()["prompt"]
    assert text == "<|im_start|>user\nhello <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    for stream in (False, True):
        with openai.OpenAI(base_url=qwen2.url + "/v1", api_key="any", max_retries=0) as c:
            r = c.chat.completions.create(**ask, max_tokens=12, temperature=0, stream=stream)
            got = "".join(d.choices[0].delta.content or "" for d in r if d.choices) if stream else r.choices[0].message.content
        want = qwen2.chat(ask["messages"], max_tokens=12)["choices"][0]["message"]["content"]
        assert got == want and want


def test_ids_that_the_tokenizer_does_not_know(qwen2, folder):
    """The model may draw and read them; they stand for nothing."""
    for extra in (512, 514):
        r = qwen2.complete([70, extra, 71], max_tokens=4, logit_bias={str(extra): 100}, return_token_ids=True, logprobs=3)
        c = r["choices"][0]
        assert c["token_ids"] == [extra] * 4 and c["text"] == ""
        assert qwen2.stream([70, extra], max_tokens=4, logit_bias={str(extra): 100}).finish()[0] == ""
        assert qwen2.post("/detokenize", {"model": qwen2.name, "tokens": [70, extra, 71]}).json()["prompt"] == \
            qwen2.post("/detokenize", {"model": qwen2.name, "tokens": [70, 71]}).json()["prompt"]
    for field in ({"prompt": [515]}, {"prompt": "a", "logit_bias": {"515": 1}}, {"prompt": "a", "stop_token_ids": [515]}):
        r = qwen2.post("/v1/completions", {"model": qwen2.name, "max_tokens": 1, **field})
        assert r.status == 400, r
    greedy = [i for g in goldens(folder("qwen2")) for i in g["greedy_ids"]]
    assert max(greedy) < 515


PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
                                           "tags": {"type": "array", "items": {"enum": ["a", "bc", "ünï"]}, "maxItems": 2}},
          "required": ["name", "age", "tags"], "additionalProperties": False}


def test_guided_outputs(qwen2):
    """What tokens stand for comes from tokenizer.json in the worker as in the frontend."""
    def one(seed):
        kw = {"temperature": 1.5, "seed": seed, "max_tokens": 200}
        schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}
        text = qwen2.chat("x", **kw, **schema)["choices"][0]["message"]["content"]
        jsonschema.validate(json.loads(text), PERSON)
        assert qwen2.stream([{"role": "user", "content": "x"}], "/v1/chat/completions", **kw, **schema).finish()[0] == text
        assert qwen2.complete("x", guided_choice=["left", "right é"], **kw)["choices"][0]["text"] in ("left", "right é")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))


def test_embeddings(qwen2):
    r = qwen2.post("/v1/embeddings", {"model": qwen2.name, "input": ["hello", [70, 514]]}).json()
    assert [len(d["embedding"]) for d in r["data"]] == [128, 128]


def test_a_folder_is_fetched_and_served(folder, tmp_path):
    """From a hub: links of a cache instead of files."""
    files = {n: open(os.path.join(folder("qwen2"), n), "rb").read() for n in os.listdir(folder("qwen2")) if not n.startswith(("golden", "info"))}
    with fakehub.Hub() as hub:
        hub.repos["org/qwen2"] = fakehub.Repo(files)
        with sv.Server("org/qwen2", "--activations", "f32", name=None, env={"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "no_proxy": "*"}) as s:
            s.name = "org/qwen2"
            s.ready()
            g = goldens(folder("qwen2"))[0]
            got = s.complete(g["prompt_ids"], max_tokens=8, ignore_eos=True, return_token_ids=True)["choices"][0]["token_ids"]
            assert got == g["greedy_ids"][:8]
            assert s.chat("hi", max_tokens=2)["model"] == "org/qwen2"


@pytest.mark.san
@pytest.mark.parametrize("kind", ["worker", "frontend"])
def test_a_model_that_is_replaced_does_not_go_on_with_its_streams(changed, kind):
    """Who starts again and finds another model under the name waits for the first one to come back."""
    path = changed("qwen3", {})
    file = os.path.join(path, "model.safetensors")
    shutil.copy(file, file + ".first")
    with sv.Server(path, "--activations", "f32", name="m") as s:
        s.ready()
        ask = {"max_tokens": 40, "ignore_eos": True, "return_token_ids": True}
        want = s.complete([70, 71, 72], **ask)["choices"][0]["token_ids"]
        with open(file, "rb") as f:
            other = bytearray(f.read())
        other[len(other) // 4:] = b"\0" * (len(other) - len(other) // 4)
        with open(file + ".other", "wb") as f:
            f.write(other)
        os.replace(file + ".other", file)
        if kind == "worker":
            stream = s.stream([70, 71, 72], **ask)
            stream.next()
        s.kill(kind)
        sv.wait_for("the refusal", lambda: s.lines("ERROR", "is another model than the one that is being served"))
        os.replace(file + ".first", file)
        if kind == "worker":
            assert stream.finish()[1] == want
        s.ready()
        assert s.complete([70, 71, 72], **ask)["choices"][0]["token_ids"] == want


# ---- what the files beside it say ----

def test_the_end_of_a_generation(changed):
    def drawn(files):
        with sv.Server(changed("qwen2", files), "--activations", "f32", name="m") as s:
            s.ready()
            c = s.complete([70], max_tokens=4, logit_bias={"77": 100}, return_token_ids=True)["choices"][0]
            return c["finish_reason"], len(c["token_ids"])
    config = read(changed("qwen2", {}), "config.json")
    assert drawn({}) == ("length", 4)
    assert drawn({"generation_config.json": {"eos_token_id": 77}})[0] == "stop"
    assert drawn({"generation_config.json": {"eos_token_id": [5, 77]}})[0] == "stop"
    assert drawn({"generation_config.json": None, "config.json": {**config, "eos_token_id": 77}})[0] == "stop"
    assert drawn({"config.json": {**config, "eos_token_id": 77}}) == ("length", 4), "generation_config.json wins"


def test_defaults_of_sampling(changed):
    path = changed("qwen2", {"generation_config.json": {"do_sample": False, "temperature": 0.01, "top_k": 1, "top_p": 0.9, "max_new_tokens": 5}})
    ask = {"model": "m", "prompt": [70, 71], "max_tokens": 9}
    with sv.Server(path, "--activations", "f32", name="m", frontends=2) as s:
        s.ready()
        assert len(s.lines("generation_config.json: requests that do not say it get temperature 0.01, top_k 1, top_p 0.9, max_new_tokens 5")) == 1
        r = s.post("/v1/completions", {**ask, "return_token_ids": True}).json()
        assert r["choices"][0]["token_ids"] == s.complete([70, 71], return_token_ids=True)["choices"][0]["token_ids"], "top_k 1 is greedy"
        assert r["usage"]["completion_tokens"] == 5, "max_new_tokens bounds every request"
        r = s.post("/v1/responses", {"model": "m", "input": "hi", "max_output_tokens": 2}).json()
        assert (r["temperature"], r["top_p"]) == (0.01, 0.9)
        hot = [s.post("/v1/completions", {**ask, "temperature": 2, "top_k": -1, "top_p": 1, "seed": i}).json()["choices"][0]["text"] for i in range(4)]
        assert len(set(hot)) == 4, "a request's own win"
    with sv.Server(path, "--activations", "f32", "--generation-config", "vllm", name="m") as s:
        s.ready()
        assert not s.lines("generation_config.json")
        many = [s.post("/v1/completions", {**ask, "seed": i}).json() for i in range(6)]
        assert len({r["choices"][0]["text"] for r in many}) > 1, "neutral: drawn at temperature 1"
        assert many[0]["usage"]["completion_tokens"] == 9


def test_templates(changed):
    said = "{{ bos_token }}{{ pad_token }}:{{ messages[0].content }}"
    path = changed("qwen2", {"chat_template.jinja": said})
    with sv.Server(path, name="m") as s:
        s.ready()
        ids = s.post("/tokenize", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
        assert s.post("/detokenize", {"model": "m", "tokens": ids}).json()["prompt"] == "<|endoftext|>:hi"
    config = read(path, "tokenizer_config.json")
    del config["chat_template"]
    with sv.Server(changed("qwen2", {"tokenizer_config.json": config}), name="m") as s:
        s.ready()
        r = s.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        assert r.status == 400 and "chat template" in r.text()


def test_another_tokenizer(folder, changed):
    """--tokenizer wins, also for what outputs may be."""
    json_file = read(folder("qwen2"), "tokenizer.json")
    for t in json_file["added_tokens"]:
        t["content"] = t["content"].upper()
    json_file["model"]["vocab"] = {k.upper() if k.startswith("<|") else k: v for k, v in json_file["model"]["vocab"].items()}
    other = changed("qwen2", {"tokenizer.json": json_file})
    with sv.Server(folder("qwen2"), "--tokenizer", os.path.join(other, "tokenizer.json"), name="m") as s:
        s.ready()
        assert s.post("/detokenize", {"model": "m", "tokens": [1]}).json()["prompt"] == "<|IM_START|>"
        assert s.complete("x", guided_choice=["yes"], max_tokens=8)["choices"][0]["text"] == "yes"


# ---- what is refused ----

TOKENIZER = "tokenizer.json: "


@pytest.mark.parametrize("what, files, words", [
    ("no tokenizer", {"tokenizer.json": None}, TOKENIZER + "No such file"),
    ("a broken one", {"tokenizer.json": "{"}, TOKENIZER + "is not valid JSON"),
    ("another kind", {"tokenizer.json": {"model": {"type": "NoSuch", "vocab": {}}}}, TOKENIZER + 'model.type: "NoSuch" is not supported'),
    ("a broken config", {"tokenizer_config.json": "["}, "tokenizer_config.json: is not valid JSON"),
    ("a broken template", {"chat_template.jinja": "{% if %}"}, "chat template"),
    ("odd sampling", {"generation_config.json": {"temperature": "hot"}}, "generation_config.json: temperature: "),
    ("odd ends", {"generation_config.json": {"eos_token_id": "two"}}, "generation_config.json: eos_token_id: is a text; expected a token id"),
])
def test_bad_companions_are_refused(changed, what, files, words):
    s = sv.Server(changed("qwen2", files), name="m", frontends=2)
    try:
        seen = []
        while s.p.poll() is None:
            try:
                seen.append(s.get("/health").status)
            except OSError:
                pass
        assert s.wait() == 1 and 200 not in seen, (seen, s.text())
        assert len(s.lines("ERROR")) == 1 and words in s.text(), s.text()
    finally:
        s.release()


def test_tokens_that_the_model_does_not_have(changed, folder):
    tokenizer = read(folder("qwen2"), "tokenizer.json")
    for token_id, words in ((515, 'token "<far>" has id 515, but'), (999999, "expected a token id, 0 to")):
        far = dict(tokenizer["added_tokens"][0], id=token_id, content="<far>")
        s = sv.Server(changed("qwen2", {"tokenizer.json": {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], far]}}), name="m")
        try:
            assert s.wait() == 1 and len(s.lines("ERROR")) == 1 and words in s.text(), s.text()
        finally:
            s.release()
