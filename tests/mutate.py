#!/usr/bin/env python3
"""Mutates C files one place at a time and counts how many of the mutants the given test programs notice.

  tests/mutate.py --tests test_kvpool,test_core executor/kvpool.c executor/core.c
  tests/mutate.py --sample 200 --seed 7 --tests test_core,test_sim executor/*.c
  tests/mutate.py --only executor/core.c:120 --tests test_core executor/core.c      one line, with the mutants shown

What is mutated: comparisons, + - && ||, ++ and --, constants +-1, conditions of if and while negated, statements deleted, returned
values. Not mutated, because they are the tests' own eyes and not behaviour: CHECK(...) and functions whose name
contains _check; nor comments, declarations, preprocessor lines and texts.

Each mutant: that one file is compiled, the test programs are linked again (it goes before the archive), and run one after the
other until one fails, crashes or takes too long (caught). Mutants that do not compile, and those that give the very same machine
code, do not count. The survivors are printed as file:line; the exit code is 1 when the score is below --at-least."""
import argparse
import concurrent.futures
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

BINARY = {"<=": ["<"], ">=": [">"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "<": ["<="], ">": [">="],
          "+": ["-"], "-": ["+"], "+=": ["-="], "-=": ["+="], "++": ["--"], "--": ["++"]}
TOKEN = re.compile(r"->|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|[A-Za-z_]\w*|0[xX][0-9a-fA-F]+\w*|\d[\w.]*|\S")
TYPE = re.compile(r"^\s*(static |const |struct |enum |union |unsigned |int |char |bool |float |double |void |size_t |u?int\d+_t )")


def blank(text):
    """The text with comments, strings and character constants blanked; the same length and lines."""
    out = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                 lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
    return out


def skipped_lines(lines):
    """Indices of lines that are not behaviour."""
    skip, depth, in_function_check, macro, in_check = set(), 0, False, False, 0
    for i, line in enumerate(lines):
        if line.startswith("#") or macro:
            skip.add(i)
            macro = line.rstrip().endswith("\\")
            continue
        if depth == 0 and re.match(r"^[a-z].*\b\w*_check(_\w+)?\(", line):
            in_function_check = True
        if in_check or re.search(r"\bCHECK\(", line):
            skip.add(i)
            start = line.find("CHECK(") if not in_check else 0
            in_check += line[start:].count("(") - line[start:].count(")")
        if in_function_check or depth == 0:
            skip.add(i)
        if depth == 0 and line.rstrip().endswith(";"):
            in_function_check = False
        depth += line.count("{") - line.count("}")
        if depth == 0 and line.startswith("}"):
            in_function_check = False
    return skip


def token_mutants(line):
    """(new line, what) for each operator and constant."""
    previous = ""
    for m in TOKEN.finditer(line):
        t, a, b = m.group(0), m.start(), m.end()
        if t in BINARY:
            binary = bool(re.match(r"[\w\])]", previous[-1:]))
            if t in ("+", "-", "<", ">") and not binary:
                previous = t
                continue
            if t in ("+", "-") and previous in ("return",):
                previous = t
                continue
            for r in BINARY[t]:
                yield line[:a] + r + line[b:], f"{t} -> {r}"
        elif re.fullmatch(r"\d+[uUlL]*", t) and not (previous == "[" and TYPE.match(line)):
            n = int(re.match(r"\d+", t).group(0))
            suffix = t[len(re.match(r"\d+", t).group(0)):]
            yield line[:a] + str(n + 1) + suffix + line[b:], f"{t} -> {n + 1}"
            if n > 0:
                yield line[:a] + str(n - 1) + suffix + line[b:], f"{t} -> {n - 1}"
        elif t in ("true", "false"):
            r = "false" if t == "true" else "true"
            yield line[:a] + r + line[b:], f"{t} -> {r}"
        previous = t


def closing(line, at):
    depth = 0
    for i in range(at, len(line)):
        depth += (line[i] == "(") - (line[i] == ")")
        if depth == 0:
            return i
    return -1


def mutants_of(text):
    """(index of the line, new line, what it was)."""
    lines, clean = text.split("\n"), blank(text).split("\n")
    skip = skipped_lines(clean)
    for i, (line, c) in enumerate(zip(lines, clean)):
        if i in skip or not c.strip():
            continue
        # Work on the blanked line for positions, on the real one for text: both have equal lengths.
        for new, what in token_mutants(c):
            # Rebuild with the real text outside of the changed token.
            pre = os.path.commonprefix([new, c])
            tail = len(os.path.commonprefix([new[len(pre):][::-1], c[len(pre):][::-1]]))
            yield i, line[:len(pre)] + new[len(pre):len(new) - tail] + line[len(line) - tail:], what
        m = re.search(r"\b(if|while) \(", c)
        if m:
            a = m.end() - 1
            b = closing(c, a)
            if b > 0:
                yield i, line[:a] + "(!" + line[a:b + 1] + ")" + line[b + 1:], f"{m.group(1)} negated"
        m = re.match(r"^(\s*)return (.+);\s*$", c)
        if m and m.group(2) not in ("true", "false", "0"):
            yield i, line[:m.start(2)] + "0" + line[m.end(2):], "return 0"
        # A whole statement on its line, perhaps behind an if, which then stays for its side effects.
        body = re.match(r"^\s*(?:(?:if|while|for|else if) \(.*\) |else )?([\w*(].*;)\s*$", c)
        ends_before = i == 0 or re.search(r"[;{}):]\s*$|else\s*$|^\s*$", clean[i - 1])
        if body and ends_before and not TYPE.match(c) and not re.match(r"^\s*return\b", c):
            start = body.start(1)
            m = re.match(r"^\s*(?:if|while|for|else if) (?=\()", c)
            if m:
                start = closing(c, m.end()) + 1
                if start <= 0 or c[start:].strip() == "":
                    continue
                while c[start] == " ":
                    start += 1
            if not re.match(r"return\b", c[start:]) or m:
                yield i, line[:start] + ";", f"deleted: {c[start:].strip()}"


def limit(cpu_s):
    """A mutant that allocates or runs for ever shall not take the machine along."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Builder:
    def __init__(self, tests, make_args, timeout):
        self.tests, self.timeout = tests, timeout
        self.links, self.compiles = {}, {}
        self.make = ["make", "-s", *make_args]
        subprocess.run([*self.make, *(f"build/tests/{t}" for t in tests)], check=True)
        for t in tests:
            out = subprocess.run([*self.make, "-n", "-W", "build/lib/libsluice.a", f"build/tests/{t}"], check=True,
                                 capture_output=True, text=True).stdout
            self.links[t] = next(l for l in out.splitlines() if f"-o build/tests/{t} " in l)
            self.links[t] = shlex.split(self.links[t])

    def compile_command(self, source):
        if source not in self.compiles:
            target = "build/obj/" + source[:-2] + ".o"
            out = subprocess.run([*self.make, "-n", "-W", source, target], check=True, capture_output=True, text=True).stdout
            words = shlex.split(next(l for l in out.splitlines() if f"-o {target} " in l))
            drop = {"-MMD", "-MP", "-g", "-Werror"}
            words = [w for w in words if w not in drop]
            self.compiles[source] = ["-O0" if w in ("-O2", "-O3") else w for w in words]
        return self.compiles[source]

    def compile(self, source, text, folder):
        os.makedirs(os.path.join(folder, os.path.dirname(source)), exist_ok=True)
        path, obj = os.path.join(folder, source), os.path.join(folder, "m.o")
        with open(path, "w") as f:
            f.write(text)
        words = list(self.compile_command(source))
        words[words.index("-o") + 1] = obj
        words[words.index(source)] = path
        # Two workers compile in folders of equal names' lengths, so __FILE__ does not make objects differ.
        words.append(f"-ffile-prefix-map={folder}/=")
        rc = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        if rc != 0:
            return None
        with open(obj, "rb") as f:
            return f.read()

    def caught_by(self, folder):
        """The test that notices the mutant, or None."""
        for t in self.tests:
            words = list(self.links[t])
            at = words.index("-o")
            exe = os.path.join(folder, t)
            words[at + 1] = exe
            words.insert(at + 2, os.path.join(folder, "m.o"))
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            try:
                rc = subprocess.run([exe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=self.timeout * 20,
                                    preexec_fn=lambda: limit(self.timeout), env={**os.environ, "MUTATE": "1"}).returncode
            except subprocess.TimeoutExpired:
                return f"{t} (time)"
            if rc != 0:
                return t
        return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+")
    p.add_argument("--tests", required=True, help="comma-separated test programs of build/tests, the quickest first")
    p.add_argument("--sample", type=int, default=0, help="so many mutants, drawn with --seed; 0: all")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--timeout", type=int, default=10, help="CPU seconds of one test program")
    p.add_argument("--at-least", type=float, default=0, help="score in percent below which the exit code is 1")
    p.add_argument("--only", default="", help="FILE:LINE, shows each mutant of that line")
    p.add_argument("--survivors", default="", help="also write the survivors to this file")
    p.add_argument("--make", default="", help="arguments for make, e.g. CC=clang")
    a = p.parse_args()

    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    work = []
    texts = {}
    for f in a.files:
        texts[f] = open(f).read()
        work += [(f, i, new, what) for i, new, what in mutants_of(texts[f])]
    if a.only:
        work = [w for w in work if f"{w[0]}:{w[1] + 1}" == a.only]
    if a.sample and a.sample < len(work):
        work = random.Random(a.seed).sample(work, a.sample)
    builder = Builder(a.tests.split(","), a.make.split(), a.timeout)
    top = tempfile.mkdtemp(prefix="mutate-")
    local, lock, folders = threading.local(), threading.Lock(), []
    base, survivors, counts = {}, [], {"caught": 0, "survived": 0, "invalid": 0, "same": 0}

    def folder():
        if not hasattr(local, "path"):
            with lock:
                local.path = os.path.join(top, f"w{len(folders)}")
                folders.append(local.path)
            os.makedirs(local.path)
        return local.path

    def one(w):
        f, i, new, what = w
        lines = texts[f].split("\n")
        with lock:
            if f not in base:
                base[f] = builder.compile(f, texts[f], os.path.join(top, "base"))
        if base[f] is None:
            sys.exit(f"{f} does not compile")
        lines[i] = new
        obj = builder.compile(f, "\n".join(lines), folder())
        if obj is None:
            result = "invalid"
        elif obj == base[f]:
            result = "same"
        else:
            by = builder.caught_by(folder())
            result = "caught" if by else "survived"
            if a.only:
                print(f"{by or 'SURVIVED'}: {what}: {new.strip()}", flush=True)
        with lock:
            counts[result] += 1
            if result == "survived":
                survivors.append((f, i + 1, what, texts[f].split("\n")[i].strip()))
            done = sum(counts.values())
            if done % 100 == 0:
                print(f"  {done}/{len(work)}: {counts}", file=sys.stderr, flush=True)

    try:
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for r in pool.map(one, work):
                pass
    finally:
        shutil.rmtree(top, ignore_errors=True)
    text = "".join(f"{f}:{line}: {what}: {src}\n" for f, line, what, src in sorted(survivors))
    print(text, end="")
    if a.survivors:
        with open(a.survivors, "w") as out:
            out.write(text)
    n = counts["caught"] + counts["survived"]
    score = 100.0 * counts["caught"] / n if n else 100.0
    print(f"{n} mutants, {counts['caught']} caught, {counts['survived']} survived: {score:.1f} % "
          f"({counts['invalid']} do not compile, {counts['same']} give the same code)")
    return 1 if score < a.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
