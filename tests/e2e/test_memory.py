"""How much memory a server takes for its KV cache: the options against /metrics and `sluice inspect --memory`, refusals with their numbers."""
import json
import os
import re
import subprocess
import tarfile

import pytest

import server as sv

KIB, MIB = 1 << 10, 1 << 20


def golden(folder, tmp_path):
    """A folder of golden data: the shared one, or the project's packed copy."""
    for root in (os.environ.get("SLUICE_SHARED"), os.path.join(sv.ROOT, "..", "shared")):
        if root and os.path.isdir(os.path.join(root, "golden", folder)):
            return os.path.join(root, "golden", folder)
    with tarfile.open(os.path.join(sv.ROOT, "tests", "data", "golden", folder + ".tar.xz")) as t:
        t.extractall(tmp_path, filter="data")
    return os.path.join(tmp_path, os.path.basename(folder))


def sluice(*argv, env=None):
    full = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_") or k == "SLUICE_BIN_DIR"}
    return subprocess.run([sv.SLUICE, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * sv.SLOW, env={**full, **(env or {})})


def plan(model, *flags, code=0, env=None):
    p = sluice("inspect", "--memory", "--json", *flags, model, env=env)
    assert p.returncode == code, (p.returncode, p.stderr)
    return json.loads(p.stdout)


def cache_config(s):
    key = next(k for k in s.metrics() if k.startswith("vllm:cache_config_info{"))
    return dict(re.findall(r'(\w+)="([^"]*)"', key))


def n_blocks(s):
    return int(cache_config(s)["num_gpu_blocks"])


# Each of the three ways to say a size given or not: the first one that is given decides.
WAYS = [(blocks, size, share) for blocks in (None, "300") for size in (None, "4M") for share in (None, "0.5")]


@pytest.mark.parametrize("blocks, size, share", WAYS, ids=["-".join(x or "auto" for x in w) for w in WAYS])
def test_precedence(tiny, start, blocks, size, share):
    flags = []
    for name, value in (("--num-gpu-blocks-override", blocks), ("--kv-cache-memory-bytes", size), ("--gpu-memory-utilization", share)):
        flags += [name, value] if value else []
    p = plan(tiny, *flags)
    assert p["rule"] == ("num_gpu_blocks_override" if blocks else "kv_cache_memory_bytes" if size else "gpu_memory_utilization")
    assert p["block_bytes"] == 2 * 2 * 16 * 16 * 2 * 2  # two layers' keys and values: 2 heads of 16, 16 tokens, f16
    want = 300 if blocks else 4 * MIB // p["block_bytes"] if size else 256 * p["request_blocks"]  # all of --max-num-seqs at full length
    s = start(tiny, *flags).ready()
    assert n_blocks(s) == p["num_gpu_blocks"] == want
    assert s.complete()["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("dtype, bits", [("auto", 16), ("bf16", 16), ("bfloat16", 16), ("f16", 16), ("half", 16), ("f32", 32), ("fp8", 8), ("fp8_e4m3", 8), ("int8", 10)])
def test_types(tiny, start, dtype, bits):
    """int8: 16 bytes and a scale of 4 for each head."""
    s = start(tiny, "--kv-cache-dtype", dtype, "--kv-cache-memory-bytes", "4M").ready()
    assert n_blocks(s) == 4 * MIB // (2 * 2 * 2 * 16 * 16 * bits // 8)
    assert cache_config(s)["cache_dtype"] == {"bfloat16": "bf16", "half": "f16", "fp8_e4m3": "fp8"}.get(dtype, dtype)
    assert s.complete()["usage"]["completion_tokens"] == 8


def test_type_that_is_unknown(tiny):
    p = sluice("serve", tiny, "--kv-cache-dtype", "fp8_e5m2")
    assert p.returncode == 2 and "auto|bf16|f16|f32|fp8|int8" in p.stderr, p.stderr


@pytest.mark.parametrize("value, blocks, want", [("1K", None, 1024), ("1k", None, 1000), ("17", "2", 17), ("auto", "20", 320), ("-1", "20", 320), ("auto", "5000", 4096), ("", "300", 4096)])
def test_length(tiny, start, value, blocks, want):
    flags = ["--max-model-len=" + value, *(["--num-gpu-blocks-override", blocks] if blocks else [])]
    s = start(tiny, *flags).ready()
    assert s.get("/v1/models").json()["data"][0]["max_model_len"] == want
    assert plan(tiny, *flags)["max_model_len"] == want
    assert ("--max-model-len auto: %d tokens is the longest that fits" % want in s.text()) == (value in ("auto", "-1"))
    r = s.post("/v1/completions", {"model": "tiny", "prompt": [5] * (want - 1), "max_tokens": 5, "ignore_eos": True})
    assert r.status == 200 and r.json()["usage"]["completion_tokens"] == 1, r


REFUSED = [
    (["--num-gpu-blocks-override", "10"], ["needs 256 KV blocks", "gives 10", "the largest --max-model-len that fits is 160"]),
    (["--num-gpu-blocks-override", "10", "--max-model-len", "161"], ["one request of 161 tokens", "needs 11 KV blocks"]),
    (["--kv-cache-memory-bytes", "100K"], ["--kv-cache-memory-bytes gives 25", "the largest --max-model-len that fits is 400"]),
    (["--kv-cache-memory-bytes", "4095"], ["less than one KV block, which takes 4096 bytes"]),
    (["--kv-cache-memory-bytes", "900T"], ["asks for a KV cache of", "MiB are left of"]),
    (["--max-model-len", "4097"], ["--max-model-len 4097", "4096"]),
    (["--max-model-len", "auto", "--kv-cache-memory-bytes", "1K"], ["less than one KV block"]),
]


@pytest.mark.parametrize("flags, words", REFUSED, ids=[" ".join(f) for f, _ in REFUSED])
def test_refusals_have_numbers(tiny, flags, words):
    """Both say the same, and before any weight is read."""
    for command in (["serve", tiny, "--port", str(sv.free_port())], ["inspect", "--memory", tiny]):
        p = sluice(*command, *flags)
        assert p.returncode == 1, (command, p.returncode, p.stderr)
        for w in words:
            assert w in p.stderr.strip().splitlines()[-1], (w, p.stderr)


def test_serve_shows_the_table(tiny):
    flags = ["--num-gpu-blocks-override", "10"]
    table = sluice("inspect", "--memory", *flags, tiny)
    log = sluice("serve", tiny, "--port", str(sv.free_port()), *flags).stderr
    assert "fits: --max-model-len 160 (or auto)" in table.stdout
    for line in table.stdout.splitlines():
        if "available" not in line and "left" not in line:  # these change with the machine's memory
            assert line in log, (line, log)


def test_what_inspect_says_it_plans(tiny):
    """Options come from the environment too; a rank of several has a share; sizes that do not divide are listed."""
    assert plan(tiny, env={"SLUICE_NUM_GPU_BLOCKS_OVERRIDE": "777"})["num_gpu_blocks"] == 777
    assert plan(tiny, "--num-gpu-blocks-override", "778", env={"SLUICE_NUM_GPU_BLOCKS_OVERRIDE": "777"})["num_gpu_blocks"] == 778
    one, two = plan(tiny), plan(tiny, "--tensor-parallel-size", "2")
    assert two["block_bytes"] * 2 == one["block_bytes"] and two["weight_bytes"] < one["weight_bytes"]
    p = sluice("inspect", "--memory", "--tensor-parallel-size", "3", tiny)
    assert p.returncode == 1 and "sizes that divide: 1, 2, 4" in p.stderr, p.stderr
    assert sluice("inspect", "--memory", "--tensor-parallel-size", "0", tiny).returncode == 2
    assert sluice("inspect", "--memory", "--tensors", tiny).returncode == 2
    assert sluice("inspect", "--memory", tiny, env={"SLUICE_MAX_NUM_SEQS": "many"}).returncode == 2
    p = sluice("inspect", "--memory", "/nosuch.gguf")
    assert p.returncode == 1 and "/nosuch.gguf" in p.stderr


def test_null_device(tiny, start):
    """Nothing is computed, so nothing but the cache is planned."""
    p = plan(tiny, "--device", "null", "--num-gpu-blocks-override", "300")
    assert p["weight_bytes"] == p["activation_bytes"] == 0 and p["num_gpu_blocks"] == 300
    assert n_blocks(start(tiny, "--device", "null", "--num-gpu-blocks-override", "300").ready()) == 300


def test_states_switch_the_prefix_cache_off(tmp_path, start):
    model = golden("tiny/qwen3-next", tmp_path)
    s = start(model, "--max-num-seqs", "4", "--kv-cache-memory-bytes", "4M").ready()
    assert "prefix caching is off: %s has linear-attention layers" % model in s.text()
    assert cache_config(s)["enable_prefix_caching"] == "False"
    for _ in range(2):
        s.complete("the same long beginning of a text " * 3)
    assert s.metric("vllm:prefix_cache_hits_total") == 0
    p = plan(model, "--max-num-seqs", "4", "--kv-cache-memory-bytes", "4M")
    assert p["state_bytes"] == 4 * 3 * 4 * (8 * 16 * 16 + 3 * (2 * 4 * 16 + 8 * 16))  # three layers: heads' matrices, and inputs of the convolution


def test_windows_keep_few_blocks(tmp_path, start):
    """A request longer than the window runs in a pool that could not keep all its blocks."""
    model = golden("tiny/gemma3", tmp_path)
    flags = ["--max-num-seqs", "1", "--max-num-batched-tokens", "16"]
    need = plan(model, *flags)["request_blocks"]
    assert need < 3 * 32  # 512 tokens in three groups of two layers
    s = start(model, *flags, "--num-gpu-blocks-override", str(need)).ready()
    r = s.post("/v1/completions", {"model": "tiny", "prompt": [5] * 500, "max_tokens": 12, "ignore_eos": True})
    assert r.status == 200 and r.json()["usage"]["completion_tokens"] == 12, r
    s.wait_idle()
    assert plan(model, *flags, "--num-gpu-blocks-override", str(need - 1), code=1)["fits"] is False


def test_overrides(tmp_path, start):
    model = golden("tiny/llama-gptq", tmp_path)
    s = start(model, "--hf-overrides", '{"max_position_embeddings": 256}', "--max-num-seqs", "2").ready()
    assert s.get("/v1/models").json()["data"][0]["max_model_len"] == 256
    assert n_blocks(s) == 2 * 16
    p = sluice("serve", model, "--hf-overrides", "{")
    assert p.returncode == 2 and "--hf-overrides" in p.stderr, p.stderr
    p = sluice("serve", model, "--hf-overrides", '{"num_hidden_layers": 77}', "--port", str(sv.free_port()))
    assert p.returncode == 1 and "layers.4" in p.stderr, p.stderr
