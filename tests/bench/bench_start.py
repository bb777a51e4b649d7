#!/usr/bin/env python3
"""How long a server takes from its start to the first token: Sluice beside llama.cpp, on the same model, in one run.

  tests/bench/bench_start.py [--model FILE] [--peer PATH/llama-server] [--rounds 9] [--json FILE]

Each round starts one server after the other, with its defaults and the same number of threads, and asks for a streamed completion again and
again until its first token comes. The model is in the page cache. Medians count; the bar: at most 0.4 of llama.cpp's time. For Sluice the
processor time of all its processes up to then, and their PSS a moment later, are shown too. Exit code 1 when the bar is missed. Not a
test: nothing of it runs in `make test`.
"""
import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

from bench import ROOT, free_port, tree

BAR = 0.4
BODY = json.dumps({"model": "m", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "stream": True}).encode()
REQUEST = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
           b"Content-Length: %d\r\n\r\n" % len(BODY)) + BODY


def ask(port):
    """True when a token came."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(REQUEST)
        got = b""
        while b"data: {" not in got:
            part = s.recv(65536)
            if not part:
                return False
            got += part
    return True


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def pss(pid):
    """Bytes of a process: all, and of those the ones of files."""
    got = {}
    with open("/proc/%d/smaps_rollup" % pid) as f:
        for line in f.read().split("\n")[1:]:
            if line.startswith("Pss"):
                got[line.split(":")[0]] = int(line.split()[1]) * 1024
    return got["Pss"], got.get("Pss_File", 0)


def start(argv, pause):
    """Seconds to the first token, and a list of (name, cpu seconds, pss, pss of files) of the processes."""
    port = free_port()
    argv = [a.replace("PORT", str(port)) for a in argv]
    begin = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                if ask(port):
                    break
            except OSError:
                pass
            if p.poll() is not None or time.perf_counter() - begin > 120:
                raise SystemExit("%s did not start" % argv[0])
            time.sleep(pause)
        took = time.perf_counter() - begin
        processes = []
        for pid in tree(p.pid):
            with open("/proc/%d/comm" % pid) as f:
                name = f.read().strip()
            processes.append((name, cpu_seconds(pid)) + pss(pid))
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait(30)
    return took, processes


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", default=os.path.join(ROOT, "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--peer", help="llama-server; without it only Sluice is measured and the bar is not judged")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--pause", type=float, default=0.005, help="seconds between two requests")
    p.add_argument("--json", help="also write the figures there")
    a = p.parse_args()
    sluice = os.path.join(os.environ.get("SLUICE_BIN_DIR", os.path.join(ROOT, "build/bin")), "sluice")
    ours = [sluice, "serve", a.model, "--served-model-name", "m", "--port", "PORT", "--host", "127.0.0.1", "--threads", str(a.threads),
            "--no-progress"]
    peer = [a.peer, "-m", a.model, "--port", "PORT", "--host", "127.0.0.1", "-t", str(a.threads)]
    with open(a.model, "rb", buffering=0) as f:  # into the page cache
        while f.read(1 << 24):
            pass
    times, peer_times, processes = [], [], []
    for k in range(a.rounds):
        took, processes = start(ours, a.pause)
        times.append(took)
        if a.peer:
            peer_times.append(start(peer, a.pause)[0])
        print("round %d of %d: %.3f s%s" % (k + 1, a.rounds, times[-1], "; llama.cpp %.3f s" % peer_times[-1] if a.peer else ""),
              file=sys.stderr)
    print("start to first token, median of %d, %d threads: %.3f s (best %.3f)" % (a.rounds, a.threads, statistics.median(times), min(times)))
    print("  %-24s %9s %10s %10s" % ("process", "CPU s", "PSS MB", "of files"))
    for name, cpu, all_bytes, file_bytes in processes:
        print("  %-24s %9.2f %10.1f %10.1f" % (name, cpu, all_bytes / 1e6, file_bytes / 1e6))
    missed = False
    if a.peer:
        ratio = statistics.median(times) / statistics.median(peer_times)
        missed = ratio > BAR
        print("  llama.cpp: %.3f s (best %.3f)" % (statistics.median(peer_times), min(peer_times)))
        print("  %s  %.3f  (<= %.1f)  of llama.cpp's time" % ("MISSED" if missed else "good  ", ratio, BAR))
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"seconds": times, "peer_seconds": peer_times}, f)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
