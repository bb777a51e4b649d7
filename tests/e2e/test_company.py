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


def ask(s, cases, n_tokens):
    answer = s.complete([g["prompt_ids"] for g in cases], max_tokens=n_tokens, ignore_eos=True, return_token_ids=True)
    return [c["token_ids"] for c in sorted(answer["choices"], key=lambda c: c["index"])]


def n_tokens(g):
    return min(TOKENS, LEN_MAX - len(g["prompt_ids"]))


def in_company(s, cases, n, want):
    """Prompts of one request begin together, however slow its client is."""
    by_length = {}
    for g in cases * n:
        by_length.setdefault(n_tokens(g), []).append(g)
    with concurrent.futures.ThreadPoolExecutor(len(by_length)) as pool:
        for some, got in zip(by_length.values(), pool.map(lambda k: ask(s, by_length[k], k), by_length)):
            for g, ids in zip(some, got):
                assert ids == want[g["id"]], g["id"]


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
        want = {g["id"]: ask(s, [g], n_tokens(g))[0] for g in cases}
        in_company(s, cases, ROUNDS, want)
        assert s.metric("vllm:num_preemptions_total") > 0
        killed = threading.Event()
        killer = threading.Thread(target=kill_when_busy, args=(s, killed))
        killer.start()
        while killer.is_alive():
            in_company(s, cases, ROUNDS, want)
        killer.join()
        assert killed.is_set()
        s.ready()
        s.wait_idle()
