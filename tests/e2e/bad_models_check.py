#!/usr/bin/env python3
"""Gives good and bad model files to a program and checks what it does with each: exit code, text, time, memory.

  bad_models_check.py                                         build/bin/sluice inspect --check MODEL
  bad_models_check.py --serve                                 build/bin/sluice serve FILE --port PORT
  bad_models_check.py --serve --command 'build/san/bin/sluice serve {model} --host 127.0.0.1 --port {port}'
  bad_models_check.py --only gguf_huge                        some of the cases

The files come from ../shared/tools/bad_models.py and ../shared/golden/malformed (or $SLUICE_SHARED); without them nothing
can be checked: the script says so and exits with 77. Otherwise 0: all as expected, 1: not, 2: usage.

A file that must load: --check exits with 0; a server answers /health with 200 and one chat request with 200 (400, with the
words of the case, where the case says so), and ends at SIGTERM with 0.
A file that must be refused: an exit code from 1 to 125, no signal, one of the case's words in the output, at most three lines,
and /health was never 200. Both within the case's time and memory (all processes together).
Standard library only."""
import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77
LINES_MAX = 3

# What only a tokenizer can see. `inspect --check` looks at the files and the model's description; a server must refuse these.
OF_TOKENIZER = {"gguf_no_tokenizer.gguf", "gguf_unknown_tokenizer.gguf", "gguf_types_short.gguf", "gguf_bos_range.gguf", "gguf_dup_tokens.gguf",
                "gguf_bad_merge.gguf", "hf_no_tokenizer", "hf_tokenizer_broken", "hf_tokenizer_kind", "hf_tokenizer_ids"}
# Sanitizers multiply time and memory; the limits are for plain builds.
SLOWDOWN = {"plain": (1, 1), "san": (10, 4)}


def shared_dir():
    return os.environ.get("SLUICE_SHARED") or os.path.join(ROOT, "..", "shared")


def tree(pid):
    """The process and all its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name) as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(name))
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        out.append(p)
        todo += children.get(p, [])
    return out


def rss_mib(pid):
    total = 0
    for p in tree(pid):
        try:
            with open("/proc/%d/statm" % p) as f:
                total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            pass
    return total / (1 << 20)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(url, body=None, timeout=5):
    """(status, text); status 0 when there was no answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=timeout) as r:
            return r.status, r.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        return 0, ""


class Run:
    """One process with its output, its peak memory and its time."""

    def __init__(self, argv, log):
        self.log, self.peak, self.begin, self.sampled = log, 0.0, time.monotonic(), 0.0
        self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)

    def seconds(self):
        return time.monotonic() - self.begin

    def ended(self):
        if time.monotonic() - self.sampled > 0.05:  # walking /proc costs more than the poll
            self.peak = max(self.peak, rss_mib(self.p.pid))
            self.sampled = time.monotonic()
        return self.p.poll() is not None

    def wait(self, seconds, also=lambda: False):
        """Until it ends, `also` is true, or the time is over."""
        until = time.monotonic() + seconds
        while not self.ended() and not also() and time.monotonic() < until:
            time.sleep(0.005)
        return self.p.poll() is not None

    def stop(self, sig):
        if self.p.poll() is None:
            os.kill(self.p.pid, sig)

    def kill(self):
        """Its whole session: a server's children must not outlive the check."""
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.p.wait()

    def text(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")


def judge_refusal(case, run, faults):
    code, text = run.p.returncode, run.text()
    if code is None:
        faults.append("still running after %.1f s" % run.seconds())
    elif code < 0:
        faults.append("ended by signal %d" % -code)
    elif not 1 <= code <= 125:
        faults.append("exit code %d, though it must be refused" % code)
    if not any(w.lower() in text.lower() for w in case["words"]):
        faults.append("none of the words %s in the text" % case["words"])
    lines = [l for l in text.splitlines() if "ERROR" in l or "sluice" in l.split(":")[0]]
    if len(lines) > LINES_MAX:
        faults.append("%d lines of errors instead of one clear one" % len(lines))


def check_once(case, argv, limit, faults, log):
    run = Run(argv, log)
    run.wait(limit)
    try:
        if case["expect"] == "refuse":
            judge_refusal(case, run, faults)
        elif run.p.returncode != 0:
            faults.append("must load, but: exit code %s" % run.p.returncode)
    finally:
        run.kill()
    return run


def check_chat(case, base, faults):
    model = json.loads(ask(base + "/v1/models")[1] or "{}").get("data", [{}])[0].get("id", "")
    body = {"model": model, "messages": [{"role": "user", "content": "the red inn"}], "max_tokens": 4}
    status, text = ask(base + "/v1/chat/completions", body, 30)
    want = 400 if "chat 400" in case["expect"] else 200
    if status != want:
        faults.append("chat answered %d instead of %d: %.200s" % (status, want, text))
    if want == 400 and not any(w.lower() in text.lower() for w in case["words"]):
        faults.append("none of the words %s in the answer" % case["words"])
    if ask(base + "/health")[0] != 200:
        faults.append("not healthy any more after a chat request")


def check_serve(case, argv, port, limit, faults, log):
    base = "http://127.0.0.1:%d" % port
    run = Run(argv, log)
    seen = []

    def healthy():
        if ask(base + "/health", timeout=1)[0] == 200:
            seen.append(run.seconds())
        return bool(seen)

    try:
        run.wait(limit, healthy)
        if case["expect"] == "refuse":
            if seen:
                faults.append("/health was 200 after %.1f s, though it must be refused" % seen[0])
            judge_refusal(case, run, faults)
        elif not seen:
            faults.append("not ready after %.1f s (exit code %s)" % (run.seconds(), run.p.returncode))
        else:
            check_chat(case, base, faults)
            run.stop(signal.SIGTERM)
            if not run.wait(limit + 10):
                faults.append("still running %d s after SIGTERM" % (limit + 10))
            elif run.p.returncode != 0:
                faults.append("exit code %d after SIGTERM" % run.p.returncode)
    finally:
        run.kill()
    return run


def run_case(args, case):
    """A list of faults; empty: as expected."""
    slow, fat = SLOWDOWN["san" if args.san else "plain"]
    faults, limit, port = [], case["max_seconds"] * slow, free_port()
    argv = [w.format(model=case["file"], port=port) for w in shlex.split(args.command)]
    with tempfile.TemporaryFile() as log:
        if args.serve:
            run = check_serve(case, argv, port, limit, faults, log)
        else:
            run = check_once(case, argv, limit, faults, log)
        text = run.text()
    if run.peak > case["max_rss_mib"] * fat:
        faults.append("%.0f MiB resident; the limit is %.0f" % (run.peak, case["max_rss_mib"] * fat))
    if "Sanitizer" in text or "runtime error:" in text:
        faults.append("a sanitizer spoke")
    if faults or args.verbose:
        print("    " + "\n    ".join(text.strip().splitlines()[-12:]))
    return faults


def written_cases(shared, out):
    """The cases of bad_models.py: one file each."""
    subprocess.run([sys.executable, os.path.join(shared, "tools", "bad_models.py"), "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "index.json")) as f:
        cases = json.load(f)
    for c in cases:
        c["file"] = os.path.join(out, c["path"])
    return cases + split_cases(out)


def split_cases(out):
    """A split model that is whole, from the parts of which bad_models.py gives only one each."""
    folder = os.path.join(out, "split_good")
    os.mkdir(folder)
    for no, name in enumerate(("split_first-00001-of-00002.gguf", "split_second-00002-of-00002.gguf"), 1):
        shutil.copy(os.path.join(out, name), os.path.join(folder, "m-0000%d-of-00002.gguf" % no))
    case = {"expect": "load", "words": [], "max_seconds": 5, "max_rss_mib": 400}
    return [dict(case, path="split_good", file=folder),
            dict(case, path="split_good/m-00001-of-00002.gguf", file=os.path.join(folder, "m-00001-of-00002.gguf")),
            dict(case, path="split_good/m-00002-of-00002.gguf", file=os.path.join(folder, "m-00002-of-00002.gguf"), expect="refuse", words=["m-00001-of-00002.gguf"])]


def recorded_cases(shared, out):
    """golden/malformed: parts of files rather than models, so the good ones among them are refused for what they lack. A safetensors file
    becomes the weights of a folder that is good otherwise."""
    top = os.path.join(shared, "golden", "malformed")
    cases = []
    with open(os.path.join(top, "index.jsonl")) as f:
        for line in f:
            c = json.loads(line)
            model, words = os.path.join(top, c["file"]), [os.path.basename(c["file"])]
            if c["kind"] != "gguf":
                model = os.path.join(out, "malformed-" + os.path.basename(c["file"]))
                words = ["model.safetensors"] if c["expect"] == "reject" else ["model.safetensors", "tensor"]
                shutil.copytree(os.path.join(out, "hf_good"), model)
                shutil.copy(os.path.join(top, c["file"]), os.path.join(model, "model.safetensors"))
            cases.append({"path": "malformed/" + c["file"], "file": model, "expect": "refuse", "words": words, "max_seconds": 5, "max_rss_mib": 400})
    return cases


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--serve", action="store_true", help="the command is a server: ask /health and one chat request")
    p.add_argument("--command", help="command with {model} and, with --serve, {port}")
    p.add_argument("--only", default="", help="only models whose name contains this")
    p.add_argument("--san", action="store_true", help="limits for a build with sanitizers")
    p.add_argument("-v", "--verbose", action="store_true", help="show the program's output for each file")
    args = p.parse_args()
    if not args.command:
        args.command = "build/bin/sluice serve {model} --host 127.0.0.1 --port {port}" if args.serve else "build/bin/sluice inspect --check {model}"
    shared = shared_dir()
    if not os.path.exists(os.path.join(shared, "tools", "bad_models.py")):
        print("SKIPPED: no %s, so there are no bad model files to check" % os.path.join(shared, "tools", "bad_models.py"))
        return SKIPPED
    bad = ran = later = 0
    with tempfile.TemporaryDirectory() as out:
        for case in written_cases(shared, out) + recorded_cases(shared, out):
            if args.only not in case["path"]:
                continue
            if not args.serve and case["path"] in OF_TOKENIZER:
                print("later  %s (the tokenizer sees it, not the check of the file)" % case["path"])
                later += 1
                continue
            faults = run_case(args, case)
            ran += 1
            bad += bool(faults)
            print("%s  %s%s" % ("FAILED" if faults else "ok   ", case["path"], "".join("\n       " + f for f in faults)), flush=True)
    print("%d models: %d as expected, %d not; %d left to the server's own check" % (ran + later, ran - bad, bad, later))
    return 1 if bad or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
