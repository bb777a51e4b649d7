"""--tokenizer: a tokenizer.json instead of the model file's vocabulary."""
import gzip
import json
import os
import subprocess

import pytest

import server as sv

FILES = os.path.join(sv.ROOT, "tests", "data", "golden", "tokenizer", "files")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"


def unpacked(folder, name, config=None):
    """A folder with that vocabulary's tokenizer.json."""
    with gzip.open(os.path.join(FILES, name, "tokenizer.json.gz")) as src:
        (folder / "tokenizer.json").write_bytes(src.read())
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def wide_model(tmp_path):
    """A random model without a vocabulary, with rows for the 1,000 tokens of spm-tiny."""
    path = str(tmp_path / "wide.gguf")
    subprocess.run([os.path.join(sv.ROOT, "build", "tests", "tinymodel"), path, "2048", "1", "64", "1000"], check=True)
    return path


@pytest.mark.real
def test_the_same_vocabulary_gives_the_same_answers(real, tmp_path):
    folder = unpacked(tmp_path, "smollm2", {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}})
    with sv.Server(sv.REAL_MODEL, "--tokenizer", folder, name="smollm2") as s:
        s.ready()
        for text in ("Hello, world!", "<|im_start|>user\nhi<|im_end|>", "na\u00efve \U0001f600 12345"):
            want = real.post("/tokenize", {"model": "smollm2", "prompt": text}).json()["tokens"]
            assert s.post("/tokenize", {"model": "smollm2", "prompt": text}).json()["tokens"] == want
        assert s.chat("What is 2+2?", max_tokens=12)["choices"] == real.chat("What is 2+2?", max_tokens=12)["choices"]


@pytest.mark.real
def test_the_folder_brings_its_chat_template(tmp_path):
    folder = unpacked(tmp_path, "smollm2", {"eos_token": "<|im_end|>", "chat_template": TEMPLATE})
    with sv.Server(sv.REAL_MODEL, "--tokenizer", folder, name="smollm2") as s:
        s.ready()
        ids = s.post("/tokenize", {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
        assert s.post("/detokenize", {"model": "smollm2", "tokens": ids}).json()["prompt"] == "<|im_start|>user: hi<|im_end|>"


def test_sentencepiece_is_served(wide_model, tmp_path):
    folder = unpacked(tmp_path, "spm-tiny")
    with sv.Server(wide_model, "--tokenizer", os.path.join(folder, "tokenizer.json"), name="wide") as s:
        s.ready()
        r = s.post("/tokenize", {"model": "wide", "prompt": "Hello world", "add_special_tokens": False}).json()
        assert r["tokens"] == [553, 676, 935, 821], r  # recorded in spm-tiny.jsonl
        assert s.post("/detokenize", {"model": "wide", "tokens": r["tokens"]}).json()["prompt"] == "Hello world"
        for prompt in ("the", "\u4f60\u597d \U0001f600"):
            kw = {"max_tokens": 40, "temperature": 1.5, "seed": 5}
            whole = s.complete(prompt, **kw)["choices"][0]["text"]
            assert s.stream(prompt, **kw).finish()[0] == whole, "bytes of characters are held back until they are whole"


def refused(model, tokenizer):
    """What a server says that does not start."""
    s = sv.Server(model, "--tokenizer", tokenizer)
    try:
        assert s.wait() == 1
        return s.text()
    finally:
        s.release()


def test_a_tokenizer_of_another_model_is_refused(wide_model, models, tmp_path):
    folder = unpacked(tmp_path, "spm-tiny")
    said = refused(models(), folder)
    assert "--tokenizer: the tokenizer has 1000 tokens, but" in said and "a vocabulary of 265" in said, said
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    said = refused(wide_model, folder)
    assert "tokenizer.json: model.type: \"Unigram\" is not supported; expected \"BPE\"" in said, said
