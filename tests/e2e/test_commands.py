"""The other words of the command: chat, inspect, version, and what --help says."""
import json
import re
import subprocess

import pytest

import server as sv

pytestmark = pytest.mark.san


def run(*argv, input=None, seconds=30, env=None):
    import os
    full = {**{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}, **(env or {})}
    p = subprocess.run([sv.SLUICE, *argv], input=input, stdin=None if input is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds * sv.SLOW,
                       env={k: v for k, v in full.items() if v is not None})
    assert not sv.SAN_SPOKE.search(p.stderr), p.stderr
    return p


@pytest.mark.parametrize("argv", [["--help"], ["help"], ["serve", "--help"], ["chat", "--help"], ["complete", "--help"], ["tokenize", "--help"], ["bench", "--help"], ["inspect", "--help"], ["version", "--help"]], ids=" ".join)
def test_help(argv):
    p = run(*argv)
    text = p.stdout.lower()
    assert p.returncode == 0 and "usage: sluice" in text and "example" in text and not p.stderr


def test_help_of_serve_names_every_option():
    """Each row of the table of options, with its variable."""
    text = run("serve", "--help").stdout
    with open(sv.ROOT + "/proto/config.def") as f:
        flags = re.findall(r'O\(\w+, \w+, "([a-z-]+)"', f.read())
    assert len(flags) > 20
    for flag in flags:
        assert "--" + flag in text or "--[no-]" + flag in text, flag
        assert "SLUICE_" + flag.upper().replace("-", "_") in text, flag


def test_version():
    with open(sv.ROOT + "/VERSION") as f:
        version = f.read().strip()
    assert run("version").stdout == "sluice %s\n" % version
    assert run("--version").stdout == "sluice %s\n" % version


@pytest.mark.parametrize("argv", [[], ["nosuch"], ["chat", "--nosuch"], ["chat", "--max-tokens"], ["chat", "--max-tokens", "many"], ["complete", "--seed", "-3", "x"], ["tokenize", "--ids=1", "x"],
                                  ["bench", "--num-prompts", "0"], ["bench", "--percentiles", "50,x"], ["bench", "word"], ["inspect"], ["inspect", "--nosuch"]], ids=" ".join)
def test_bad_usage(argv):
    p = run(*argv)
    assert p.returncode == 2 and p.stderr, (p.returncode, p.stderr)


def test_inspect(tiny):
    p = run("inspect", tiny)
    assert p.returncode == 0
    for word in ("llama", "4096", "265"):
        assert word in p.stdout, p.stdout
    p = run("inspect", "--json", tiny)
    assert p.returncode == 0 and json.loads(p.stdout)
    assert run("inspect", "--check", tiny).returncode == 0
    p = run("inspect", "/nosuch.gguf")
    assert p.returncode == 1 and "/nosuch.gguf" in p.stderr


def test_chat_asks_once(server):
    p = run("chat", "--url", server.url, "--max-tokens", "8", "--temperature", "0", "hello there")
    assert p.returncode == 0 and p.stdout.strip(), p.stderr
    want = server.chat("hello there", max_tokens=8)["choices"][0]["message"]["content"]
    safe = "".join(c if c.isprintable() or c == "\n" else "?" for c in want)
    assert p.stdout == safe + "\n", (want, p.stdout)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", p.stdout), "control characters of an answer do not reach the terminal"


def test_chat_names_the_model(server):
    assert run("chat", "--url", server.url, "--print-model").stdout == "tiny\n"


def test_chat_holds_a_conversation(server):
    p = run("chat", "--url", server.url, "--max-tokens", "4", input="hello\nagain\n/reset\nnew\n/exit\n")
    assert p.returncode == 0, p.stderr


def test_chat_without_a_server():
    p = run("chat", "--url", "http://127.0.0.1:%d" % sv.free_port(), "hello")
    assert p.returncode == 1 and p.stderr.strip()


def test_chat_takes_the_url_from_its_variable(server):
    assert run("chat", "--print-model", env={"SLUICE_URL": server.url}).stdout == "tiny\n"


def test_chat_asks_no_proxy_for_this_machine(server):
    env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": None, "NO_PROXY": None}
    assert run("chat", "--url", server.url, "--print-model", env=env).stdout == "tiny\n"


def test_chat_shows_errors(server):
    p = run("chat", "--url", server.url, "--model", "nosuch", "hello")
    assert p.returncode == 1 and "nosuch" in p.stderr


def test_complete(server):
    want = server.complete("Once upon", max_tokens=9, temperature=0, seed=3)["choices"][0]["text"]
    p = run("complete", "--url", server.url, "--max-tokens", "9", "--temperature", "0", "--seed=3", "Once", "upon")
    assert p.returncode == 0 and p.stdout == shown(want) + "\n", p
    p = run("complete", "--url", server.url, "--max-tokens=9", "--temperature=0", "--echo", input="Once upon")
    assert p.stdout == shown("Once upon" + want) + "\n"
    p = run("complete", "--url", server.url, "--model", "nosuch", "x")
    assert p.returncode == 1 and "nosuch" in p.stderr
    p = run("complete", "--url", server.url, "--guided-json", "{", "x")
    assert p.returncode == 2 and "guided-json" in p.stderr


def shown(text):
    """As the tools print what a server sends: no control characters."""
    return "".join("?" if c < " " and c not in "\n\t" else c for c in text)


def test_tokenize(server):
    ids = server.post("/tokenize", {"prompt": "Hello, \u00fcber"}).json()["tokens"]
    assert ids and run("tokenize", "--url", server.url, "--ids", "Hello, \u00fcber").stdout.split() == list(map(str, ids))
    assert run("tokenize", "--url", server.url, "--count", input="Hello, \u00fcber").stdout == "%d\n" % len(ids)
    lines = run("tokenize", "--url", server.url, "--", "Hello, \u00fcber").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == ids
    assert json.loads(run("tokenize", "--url", server.url, "--json", "Hello").stdout)["count"] >= 1
    assert int(run("tokenize", "--url", server.url, "--chat", "--count", "Hello").stdout) > 2
    p = run("tokenize", "--url", server.url, input="a\0b")
    assert p.returncode == 2 and "zero byte" in p.stderr


def test_bench_closed_loop(server, tmp_path):
    out = tmp_path / "r.json"
    p = run("bench", "--url", server.url, "--num-prompts", "24", "--max-concurrency", "8", "--random-input-len", "40", "--random-prefix-len", "24",
            "--random-output-len", "5", "--json", str(out), "--percentiles", "50,95", seconds=60)
    assert p.returncode == 0, p.stderr
    r = json.loads(out.read_text())
    assert r["completed"] == 24 and r["failed"] == 0
    assert r["total_input_tokens"] == 24 * 64 and r["total_output_tokens"] == 24 * 5
    assert 0 < r["median_ttft_ms"] <= r["p95_ttft_ms"] <= r["p95_e2el_ms"]
    assert abs(r["output_throughput"] * r["duration"] - 120) < 0.01
    assert re.search(r"Successful requests +24\n", p.stdout) and "P95" in p.stdout


def test_bench_open_loop(server):
    p = run("bench", "--url", server.url, "--num-prompts", "20", "--request-rate", "40", "--burstiness", "2", "--random-output-len", "3", "--endpoint",
            "/v1/chat/completions", "--json", "-", seconds=60)
    assert p.returncode == 0, p.stderr
    r = json.loads(p.stdout)
    assert r["completed"] == 20 and r["request_rate"] == 40
    assert r["duration"] > 0.15, "the requests came at their times, not at once"


def test_bench_says_what_failed(server):
    p = run("bench", "--url", server.url, "--num-prompts", "3", "--model", "nosuch")
    assert p.returncode == 1 and "all requests failed" in p.stderr and "nosuch" in p.stderr
    p = run("bench", "--url", "http://127.0.0.1:%d" % sv.free_port())
    assert p.returncode == 1 and "is the server running" in p.stderr


def test_curl(server):
    """As the line that `make run` prints."""
    p = subprocess.run(["curl", "-sN", server.url + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d",
                        '{"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "stream": true, "max_tokens": 4}'], stdout=subprocess.PIPE, timeout=60)
    assert p.returncode == 0 and p.stdout.endswith(b"data: [DONE]\n\n")
    p = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", server.url + "/health"], stdout=subprocess.PIPE, timeout=60)
    assert p.stdout == b"200"


def test_wrk(server):
    """Many connections at once; every answer is good."""
    p = subprocess.run(["wrk", "-t2", "-c64", "-d1s", server.url + "/v1/models"], stdout=subprocess.PIPE, text=True, timeout=60)
    assert p.returncode == 0 and "requests in" in p.stdout
    assert "Non-2xx" not in p.stdout and "Socket errors" not in p.stdout, p.stdout
