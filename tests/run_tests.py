#!/usr/bin/env python3
"""Runs test programs, counts their tests, and says at the end `N passed, N failed`.

  run_tests.py --results FILE programs build/tests/test_map ...      cmocka programs, and others: exit code 0 is one passed test
  run_tests.py --results FILE command "sim, 200 seeds" -- CMD ...    one test: exit code 0 passed, 77 skipped
  run_tests.py --results FILE pytest PYTHON PATH [ARGS]              pytest, read from its JUnit file
  run_tests.py --results FILE fuzz --seconds 60 build/fuzz/tests/fuzz_messages ...
  run_tests.py --results FILE tidy --flags '-I.' common/map.c ...
  run_tests.py --results FILE sum                                    the skipped and failed ones by name, then the line

Each result is a line of FILE (suite, test, passed|failed|skipped, seconds), so that several commands add up to one sum. A
skipped test is named and counts as neither. Exit code: 0 when nothing of this run (of the whole file, for sum) failed.
Standard library only."""
import argparse
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77
TAIL_LINES = 60
PRINT = threading.Lock()

# Leaks count. No core files: a sanitizer's are as large as its shadow.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:handle_abort=1:disable_coredump=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


class Results:
    def __init__(self, path):
        self.path, self.failed = path, 0
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)

    def add(self, suite, test, state, seconds):
        self.failed += state == "failed"
        with PRINT, open(self.path, "a") as f:
            f.write("%s\t%s\t%s\t%.2f\n" % (suite, re.sub(r"\s+", " ", test), state, seconds))


def say(text):
    with PRINT:
        print(text, flush=True)


def environment():
    return {**SANITIZERS, **os.environ}


def run(argv, seconds):
    """(exit code or None after the limit, output, seconds). The limit ends the whole process group."""
    begin = time.monotonic()
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=environment(),
                         start_new_session=True)
    try:
        out, _ = p.communicate(timeout=seconds)
        code = p.returncode
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGABRT)
        try:
            out, _ = p.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, _ = p.communicate()
        code = None
    return code, out.decode("utf-8", "replace"), time.monotonic() - begin


def tail(text):
    lines = text.rstrip().splitlines()
    cut = ["..."] if len(lines) > TAIL_LINES else []
    return "\n".join("    " + l for l in cut + lines[-TAIL_LINES:])


def how(code):
    if code is None:
        return "takes too long"
    return "ended by signal %d" % -code if code < 0 else "exit code %d" % code


# ------------------------------------------------------------------ programs


def cmocka_results(out):
    """[(test, state)] in the order of running; the last is None when the program ended inside it."""
    found, running = [], None
    for line in out.splitlines():
        m = re.search(r"\[ RUN      \] (\S+)", line)
        if m:
            running = m.group(1)
            continue
        m = re.search(r"\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+)", line)
        if m and m.group(2) == running:
            found.append((running, {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[m.group(1)]))
            running = None
    if running:
        found.append((running, None))
    return found


def programs(args, results):
    def one(path):
        name = os.path.basename(path)
        where = name if path.startswith("build/tests/") else "/".join(path.split("/")[1:2]) + ":" + name
        if not os.path.exists(os.path.join(ROOT, path)):
            results.add(where, "(build)", "failed", 0)
            say("FAILED   %s: it is not built" % where)
            return
        code, out, seconds = run([path], args.timeout)
        tests = cmocka_results(out)
        bad = [t for t, state in tests if state in ("failed", None)]
        for t, state in tests:
            results.add(where, t, state or "failed", 0)
        if code != 0 and not bad:
            results.add(where, "(program)", "failed", seconds)
            bad = [how(code)]
        elif not tests:
            results.add(where, "(program)", "passed", seconds)
        n = max(1, sum(state == "passed" for _, state in tests))
        skips = sum(state == "skipped" for _, state in tests)
        if bad:
            say("FAILED   %-28s %s\n%s" % (where, ", ".join(bad) + " (%s)" % how(code), tail(out)))
        else:
            say("ok       %-28s %4d tests%s %7.1f s" % (where, n - (skips > 0 and n == 1 and len(tests) == skips), ", %d skipped" % skips if skips else "", seconds))

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, args.paths))


def command(args, results):
    code, out, seconds = run(args.argv, args.timeout)
    if code == 0:
        results.add("command", args.name, "passed", seconds)
        say("ok       %-28s %s (%.1f s)" % (args.name, (out.strip().splitlines() or [""])[-1][:90], seconds))
    elif code == SKIPPED:
        results.add("command", args.name, "skipped", seconds)
        say("skipped  %-28s %s" % (args.name, out.strip()[:200]))
    else:
        results.add("command", args.name, "failed", seconds)
        say("FAILED   %s: %s\n%s" % (args.name, how(code), tail(out)))


# ------------------------------------------------------------------ pytest


def pytest(args, results):
    # The e2e folder's name and the flavour make the file's: two runs must not read each other's.
    junit = os.path.join(ROOT, "build", "junit-%d.xml" % os.getpid())
    p = subprocess.Popen([args.python, "-m", "pytest", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", "--junitxml", junit, *args.args],
                         stdin=subprocess.DEVNULL, cwd=ROOT, env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        code = p.wait(args.timeout)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGINT)  # pytest then still ends its servers and writes its report
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        code = None
    n = 0
    if os.path.exists(junit):
        try:
            tree = ET.parse(junit)
        except ET.ParseError:
            tree = None
        for case in tree.iter("testcase") if tree is not None else []:
            kinds = {c.tag for c in case}
            state = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            n += 1
            why = next((c.get("message", "") for c in case if c.tag == "skipped"), "")
            results.add("e2e", "%s::%s%s" % (case.get("classname", ""), case.get("name", ""), " (%s)" % why[:120] if why else ""), state,
                        float(case.get("time", 0)))
        os.unlink(junit)
    if code is None or (code not in (0, 1) and not results.failed) or n == 0:
        results.add("e2e", "(pytest: %s)" % how(code), "failed", 0)


# ------------------------------------------------------------------ fuzz


def fuzz(args, results):
    def one(path):
        name = os.path.basename(path)[len("fuzz_"):]
        own = os.path.join("build", "fuzz", "corpus", name)  # what this run finds; the seeds stay as they are
        os.makedirs(os.path.join(ROOT, own), exist_ok=True)
        seeds = os.path.join("tests", "fuzz", "corpus", name)
        folders = [own] + ([seeds] if os.path.isdir(os.path.join(ROOT, seeds)) else [])
        argv = [path, "-max_total_time=%d" % args.seconds, "-timeout=10", "-rss_limit_mb=2560", "-print_final_stats=1", "-verbosity=1",
                "-artifact_prefix=build/fuzz/%s-" % name]
        dictionary = os.path.join("tests", "fuzz", name + ".dict")
        if os.path.exists(os.path.join(ROOT, dictionary)):
            argv.append("-dict=" + dictionary)
        code, out, seconds = run([*argv, *folders], args.seconds * 2 + 120)
        runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", out)
        results.add("fuzz", name, "passed" if code == 0 else "failed", seconds)
        if code == 0:
            say("ok       fuzz %-23s %s runs (%.0f s)" % (name, runs.group(1) if runs else "?", seconds))
        else:
            say("FAILED   fuzz %s: %s\n%s" % (name, how(code), tail(out)))

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, args.paths))


def tidy(args, results):
    def one(path):
        code, out, seconds = run(["clang-tidy", "--quiet", path, "--", *shlex.split(args.flags)], args.timeout)
        notes = [l for l in out.splitlines() if re.search(r": (warning|error):", l)]
        results.add("tidy", path, "failed" if notes or code != 0 else "passed", seconds)
        for l in notes:
            say(l.replace(ROOT + "/", ""))

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, args.paths))


# ------------------------------------------------------------------ sum


def total(results):
    rows = []
    if os.path.exists(results.path):
        with open(results.path) as f:
            rows = [l.rstrip("\n").split("\t") for l in f]
    for state in ("skipped", "failed"):
        for r in rows:
            if r[2] == state:
                print("%s: %s %s" % (state.upper() if state == "failed" else state, r[0], r[1]))
    passed, failed = (sum(r[2] == s for r in rows) for s in ("passed", "failed"))
    if not rows:
        print("nothing was run")
    print("%d passed, %d failed" % (passed, failed), flush=True)
    return 1 if failed or not passed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--results", default="build/results.tsv")
    p.add_argument("--jobs", type=int, default=max(1, min(2, os.cpu_count() or 1)))
    sub = p.add_subparsers(dest="what", required=True)
    s = sub.add_parser("programs")
    s.add_argument("--timeout", type=float, default=600)
    s.add_argument("paths", nargs="*")
    s = sub.add_parser("command")
    s.add_argument("--timeout", type=float, default=900)
    s.add_argument("name")
    s.add_argument("argv", nargs=argparse.REMAINDER)  # with its own `--`, which argparse would take out
    s = sub.add_parser("pytest")
    s.add_argument("--timeout", type=float, default=1800)
    s.add_argument("python")
    s.add_argument("args", nargs=argparse.REMAINDER)
    s = sub.add_parser("fuzz")
    s.add_argument("--seconds", type=int, default=60)
    s.add_argument("paths", nargs="*")
    s = sub.add_parser("tidy")
    s.add_argument("--timeout", type=float, default=300)
    s.add_argument("--flags", default="")
    s.add_argument("paths", nargs="*")
    sub.add_parser("sum")
    args = p.parse_args()
    if getattr(args, "argv", [])[:1] == ["--"]:
        del args.argv[0]
    os.chdir(ROOT)
    results = Results(args.results)
    if args.what == "sum":
        return total(results)
    {"programs": programs, "command": command, "pytest": pytest, "fuzz": fuzz, "tidy": tidy}[args.what](args, results)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
