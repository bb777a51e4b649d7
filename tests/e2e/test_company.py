"""Models whose sequences keep more than one list of KV blocks - recurrent states, windows, latent vectors - under pressure: what a request
gives does not depend on its company, on preemptions, or on a worker that dies."""
import concurrent.futures
import threading

import pytest

import server as sv
from test_folders import folder, goldens  # noqa: F401 (a fixture)

# name, and a pool that holds one of the longest requests, but not all of them
POOLS = [("qwen3-next", 60), ("gemma3", 130), ("gpt-oss", 130), ("deepseek-v3", 60)]
LEN_MAX = 330
TOKENS = 200  # long enough that requests meet, on fast machines too
ROUNDS = 2


def run(s, g):
    n = min(TOKENS, LEN_MAX - len(g["prompt_ids"]))
    kw = {"max_tokens": n, "ignore_eos": True, "return_token_ids": True}
    return s.complete(g["prompt_ids"], **kw)["choices"][0]["token_ids"]


def in_company(s, cases, n, want):
    with concurrent.futures.ThreadPoolExecutor(n * len(cases)) as pool:
        for got, g in zip(pool.map(lambda g: run(s, g), cases * n), cases * n):
            assert got == want[g["id"]], g["id"]


def kill_when_busy(s, killed):
    sv.wait_for("running requests", lambda: s.metric("vllm:num_requests_running") > 1)
    s.kill("worker")
    killed.set()


@pytest.mark.parametrize("name,blocks", POOLS)
def test_company_changes_nothing(folder, name, blocks):  # noqa: F811
    path = folder(name)
    cases = goldens(path)
    flags = ["--max-model-len", str(LEN_MAX), "--max-num-batched-tokens", "64", "--num-gpu-blocks-override", str(blocks)]
    with sv.Server(path, *flags, name="m", frontends=2) as s:
        s.ready()
        want = {g["id"]: run(s, g) for g in cases}
        in_company(s, cases, ROUNDS, want)
        assert s.metric("vllm:num_preemptions_total") > 0
        killed = threading.Event()
        killer = threading.Thread(target=kill_when_busy, args=(s, killed))
        killer.start()
        in_company(s, cases, ROUNDS, want)
        killer.join()
        assert killed.is_set()
        s.ready()
        s.wait_idle()
