#!/usr/bin/env python3
"""What the frontends cost, beside what the kernel and nginx cost on the same machine in the same run.

  tests/bench/frontbench.py [--model FILE] [--frontends 2] [--step-ms 60] [--quick] [--json FILE]

  one token   streaming requests for one token at 64, 512, 2048 and 4096 kept connections (--device null): requests/s, p99,
              CPU of all processes a request
  nginx       the same client, as many processes, a static file of the answer's size
  open loop   the same requests on a schedule of half of what the server can: p99; beside it that of a server that does nothing
              (bareserver.c), which is the client's, the kernel's and the machine's part of it
  streams     2048 streams of 512 tokens, a chunk each: CPU of all processes a token, less that of a bare loop of send() of the
              same bytes to as many sockets (sendbench.c). Once as fast as the null worker is, where a write takes the chunks of
              several steps, and once with steps that are longer than the mesh needs for one, so that each token is a write

The client is frontload.c; LOADGEN=PATH uses another one, which takes the options that are written below and prints one line of
JSON (it draws a new prompt for each request; ours sends the same). Prints a table and the bars; exit code 1 when a bar is missed.
Connections need descriptors (ulimit -n 20000). Not a test: nothing of it runs in `make test`.
"""
import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import ROOT, free_port, tree  # noqa: E402

BENCH = os.path.join(ROOT, "build/bench")
WORDS = " ".join("word%d" % i for i in range(16))
STREAMS, STREAM_TOKENS = 2048, 512
HZ = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    total = 0
    for p in tree(pid):
        try:
            with open("/proc/%d/stat" % p) as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return total / HZ


class Server:
    """A process that listens; its CPU is that of all its descendants."""

    def __init__(self, argv, port, path):
        self.port = port
        self.log = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen(argv, stdout=self.log, stderr=subprocess.STDOUT)
        for _ in range(300):
            if subprocess.run(["curl", "-sf", "-o", os.devnull, "http://127.0.0.1:%d%s" % (port, path)]).returncode == 0:
                return
            time.sleep(0.1)
        self.log.seek(0)
        raise SystemExit("%s did not start:\n%s" % (argv[0], self.log.read()[-2000:]))

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(60)


def request_file(folder, name, method, path, body=b""):
    head = "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (method, path, len(body))
    full = os.path.join(folder, name)
    with open(full, "wb") as f:
        f.write(head.encode() + body)
    return full


def ours(server, connections, requests, file, rate=0):
    out = subprocess.check_output([os.path.join(BENCH, "frontload"), str(server.port), str(connections), str(requests), str(rate), file])
    rps, p50, p99, failed, n_bytes, reads, _ = map(float, out.split())
    return {"rps": rps, "p50_ms": p50, "p99_ms": p99, "failed": int(failed), "bytes": n_bytes, "reads": reads}


def theirs(server, connections, requests, rate=0):
    argv = [os.environ["LOADGEN"], "--port", str(server.port), "--model", "m", "--concurrency", str(connections), "--requests", str(requests),
            "--max-tokens", "1", "--ignore-eos", "--no-retry", "--json"] + (["--rate", str(rate)] if rate else [])
    d = json.loads(subprocess.run(argv, stdout=subprocess.PIPE).stdout)
    return {"rps": d["req_s"], "p50_ms": d["e2e_p50_ms"], "p99_ms": d["e2e_p99_ms"], "failed": d["failed"]}


def load(server, connections, requests, file, rate=0):
    before = cpu_s(server.p.pid)
    use_other = "LOADGEN" in os.environ and not file.endswith(".nginx")
    d = theirs(server, connections, requests, rate) if use_other else ours(server, connections, requests, file, rate)
    d["cpu_us"] = (cpu_s(server.p.pid) - before) * 1e6 / requests
    return d


def nginx(folder, n_processes, n_bytes):
    port = free_port()
    with open(os.path.join(folder, "answer"), "wb") as f:
        f.write(b"x" * n_bytes)
    with open(os.path.join(folder, "nginx.conf"), "w") as f:
        f.write("""daemon off; worker_processes %d; pid %s/pid; error_log stderr crit;
events { worker_connections 8192; }
http { access_log off; keepalive_requests 100000000; client_body_temp_path %s; proxy_temp_path %s; fastcgi_temp_path %s;
uwsgi_temp_path %s; scgi_temp_path %s; open_file_cache max=10;
server { listen 127.0.0.1:%d reuseport; root %s; } }
""" % (n_processes, folder, folder, folder, folder, folder, folder, port, folder))
    return Server(["nginx", "-p", folder, "-c", os.path.join(folder, "nginx.conf")], port, "/answer")


def bare(n_processes):
    port = free_port()
    return Server([os.path.join(BENCH, "bareserver"), str(port), str(n_processes)], port, "/")


def sluice(a, *more):
    port = free_port()
    binary = os.path.join(os.environ.get("SLUICE_BIN_DIR", os.path.join(ROOT, "build/bin")), "sluice")
    argv = [binary, "serve", a.model, "--device", "null", "--num-frontends", str(a.frontends), "--port", str(port), "--host", "127.0.0.1",
            "--served-model-name", "m", "--max-num-seqs", "4096", "--max-num-batched-tokens", "8192", "--no-progress", *more]
    return Server(argv, port, "/ready")


def streams(a, folder, name, step_ms, fig):
    body = json.dumps({"model": "m", "prompt": " ".join(["one"] * 32), "max_tokens": STREAM_TOKENS, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    file = request_file(folder, "streams", "POST", "/v1/completions", body)
    server = sluice(a, "--null-step-us", str(int(step_ms * 1000)))
    before = cpu_s(server.p.pid)
    d = ours(server, STREAMS, STREAMS, file)
    used = cpu_s(server.p.pid) - before
    server.stop()
    tokens = STREAMS * STREAM_TOKENS
    chunk = int(d["bytes"] / tokens)
    send_us = float(subprocess.check_output([os.path.join(BENCH, "sendbench"), str(STREAMS), str(chunk), "50"]))
    fig["streams"][name] = {"failed": d["failed"], "cpu_us_a_token": used * 1e6 / tokens, "send_us": send_us, "chunk_bytes": chunk,
                            "reads_a_token": d["reads"] / tokens, "tokens_a_core_s": tokens / used}


def judge(fig):
    rows = fig["one_token"]
    best = max(r["rps"] for r in rows.values())
    yield "no failures", sum(r["failed"] for r in [*rows.values(), *fig["streams"].values()]), 0, "<="
    for n, r in rows.items():
        yield "p99 at %s, of connections/throughput" % n, r["p99_ms"] / 1e3 / (int(n) / r["rps"]), 2.5, "<="
        yield "CPU us a request at %s" % n, r["cpu_us"], 50, "<="
    last = list(rows.values())[-1]
    yield "throughput with most connections, of the best", last["rps"] / best, 0.9, ">="
    yield "requests/s, of nginx's", best / fig["nginx"]["rps"], 0.2, ">="
    for n, r in fig["open_loop"].items():
        yield "p99 ms at half of saturation, %s connections" % n, r["p99_ms"], 1, "<="
        yield "p99 ms of a server that does nothing, %s connections" % n, fig["bare"][n]["p99_ms"], 1, "<="
    yield "reads a token of the paced streams (few: raise --step-ms)", fig["streams"]["paced"]["reads_a_token"], 0.9, ">="
    for name, s in fig["streams"].items():
        yield "CPU us a token over the bare send, %s" % name, s["cpu_us_a_token"] - s["send_us"], 2, "<="
    yield "tokens/s a core of all processes", fig["streams"]["at full speed"]["tokens_a_core_s"], 250000, ">="


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default=os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--frontends", type=int, default=2)
    p.add_argument("--requests", type=int, default=60000, help="of each load")
    p.add_argument("--step-ms", type=float, default=60, help="of the paced streams: longer than the mesh needs for a step, so that each token is a write")
    p.add_argument("--quick", action="store_true", help="512 connections and few requests: whether it works at all")
    p.add_argument("--json", help="also write the figures there")
    a = p.parse_args()
    if not shutil.which("nginx"):
        raise SystemExit("frontbench compares with nginx: apt-get install nginx-light")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    counts, requests = ([512], 5000) if a.quick else ([64, 512, 2048, 4096], a.requests)
    fig = {"one_token": {}, "open_loop": {}, "bare": {}, "streams": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        body = json.dumps({"model": "m", "prompt": WORDS, "max_tokens": 1, "temperature": 0, "stream": True, "ignore_eos": True}).encode()
        file = request_file(folder, "one", "POST", "/v1/completions", body)
        server = sluice(a)
        answer = int(ours(server, 1, 50, file)["bytes"] / 50)
        for n in counts:
            fig["one_token"][str(n)] = load(server, n, requests, file)
        best = max(r["rps"] for r in fig["one_token"].values())
        for n in ([512] if a.quick else [512, 2048]):
            fig["open_loop"][str(n)] = load(server, n, requests // 2, file, best / 2)
        server.stop()
        server = bare(a.frontends)
        for n in fig["open_loop"]:
            fig["bare"][n] = load(server, int(n), requests // 2, file, best / 2)
        server.stop()
        server = nginx(folder, a.frontends, answer)
        fig["nginx"] = load(server, 512, requests * 2, request_file(folder, "get.nginx", "GET", "/answer"))
        server.stop()
        streams(a, folder, "at full speed", 0, fig)
        streams(a, folder, "paced", a.step_ms, fig)
    for name in ("one_token", "open_loop", "bare"):
        for n, r in fig[name].items():
            print("%-10s %5s connections  %8.0f/s  p50 %8.2f ms  p99 %8.2f ms  %6.1f us CPU a request  %d failed" %
                  (name, n, r["rps"], r["p50_ms"], r["p99_ms"], r["cpu_us"], r["failed"]))
    print("nginx        512 connections  %8.0f/s  %6.1f us CPU a request (%d bytes)" % (fig["nginx"]["rps"], fig["nginx"]["cpu_us"], answer))
    for name, s in fig["streams"].items():
        print("streams    %5d x %d tokens  %6.2f us CPU a token, %.2f reads; bare send of %d bytes %.2f us; %.0f tokens/s a core, %s" %
              (STREAMS, STREAM_TOKENS, s["cpu_us_a_token"], s["reads_a_token"], s["chunk_bytes"], s["send_us"], s["tokens_a_core_s"], name))
    missed = 0
    for name, value, bar, how in judge(fig):
        good = value <= bar if how == "<=" else value >= bar
        missed += not good
        print("  %-58s %9.2f  %s %g  %s" % (name, value, how, bar, "good" if good else "MISSED"))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(fig, f, indent=1)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
