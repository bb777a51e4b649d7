"""A running mesh is changed under load: sluice scale and sluice reload. No request is refused, reset or cut, streams go on where they
were, and what cannot start changes nothing."""
import os
import re
import signal
import subprocess
import threading
import time

import pytest

import server as sv
from test_balancers import Clients


def run(s, *words, timeout=60):
    """(exit code, what it said). Other meshes of this user may run."""
    p = subprocess.run([sv.SLUICE, *words, "--mesh", str(s.p.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       env={**os.environ, "TMPDIR": s.tmp, "XDG_RUNTIME_DIR": s.tmp}, timeout=timeout * sv.SLOW)
    return p.returncode, p.stdout.decode()


def do(s, *words):
    code, text = run(s, *words)
    assert code == 0, text + s.text()
    return text


def up(s):
    """Slots of the frontends that /metrics calls up."""
    return sorted(int(k.split('index="')[1].split('"')[0]) for k, v in s.metrics().items() if k.startswith('sluice:process_up{process="frontend"') and v)


def sockets(s):
    """What lies in the mesh's folder."""
    folder = next(os.path.join(s.tmp, d) for d in os.listdir(s.tmp) if d.startswith("sluice-"))
    return sorted(os.listdir(folder))


@pytest.fixture
def programs(tmp_path):
    """A folder with the programs, in which they may be replaced."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in os.listdir(sv.BIN):
        if os.path.isfile(os.path.join(sv.BIN, name)):
            os.symlink(os.path.join(sv.BIN, name), folder / name)
    return folder


def replace(programs, name, script):
    """Another program under that name, as an installer does it."""
    if script is None:
        (programs / name).unlink()
        return
    new = programs / (name + ".new")
    if script == "":
        os.symlink(os.path.join(sv.BIN, name), new)
    else:
        new.write_text("#!/bin/sh\n" + script)
        new.chmod(0o755)
    new.rename(programs / name)


def fit():
    return subprocess.run([os.path.join(sv.BIN, "sluice-executor"), "--fit"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()


class Streams:
    """Long streams of many seeds, each compared with its undisturbed twin."""

    def __init__(self, s, n, tokens):
        self.s, self.tokens = s, tokens
        self.want = [self.one(i)[0] for i in range(n)]
        self.got, self.errors = [None] * n, []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]
        self.begun = threading.Semaphore(0)
        for t in self.threads:
            t.start()

    def one(self, i):
        return self.open(i).finish()

    def open(self, i):
        kw = {"temperature": 0} if i % 2 == 0 else {"temperature": 1, "seed": i}
        return self.s.stream("abc %d" % i, max_tokens=self.tokens, ignore_eos=True, **kw)

    def run(self, i):
        try:
            stream = self.open(i)
            self.begun.release()
            self.got[i] = stream.finish()[0]
        except Exception as e:
            self.errors.append("stream %d: %r" % (i, e))

    def finish(self):
        for t in self.threads:
            t.join(60 * sv.SLOW)
        assert not self.errors, "\n".join(self.errors)
        assert self.got == self.want


# ---- scale ----

@pytest.mark.san
def test_more_and_fewer_frontends_under_load(tiny, start):
    s = start(tiny, frontends=2).ready()
    want = s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    clients = Clients(s, want)
    answered = 0
    try:
        for k in (4, 1, 3, 2):
            before = clients.n_answers
            text = do(s, "scale", "frontends", str(k))
            assert text.splitlines()[-1] == "%d frontend%s" % (k, " serves" if k == 1 else "s serve")
            assert len(s.kids("frontend")) == k and len(up(s)) == k, text
            sv.wait_for("answers", lambda: clients.n_answers > before + 10)
            now = s.metric("vllm:request_success_total")
            assert now > answered, "counters of those who left stay"
            answered = now
            with s.conn() as c:
                assert c.ask("GET", "/ready").status == 200
    finally:
        clients.finish()
    assert do(s, "scale", "frontends", "2") == "2 frontends serve\n"
    assert s.metric("sluice:restarts_total") == 0
    assert [n for n in sockets(s) if n.startswith("inbox-")] == ["inbox-%d" % i for i in up(s)]
    assert len([n for n in sockets(s) if n.startswith("frontend-")]) == 2
    s.wait_idle()


def test_descriptors_do_not_pile_up(tiny, start):
    s = start(tiny, frontends=2).ready()

    def fds():
        """Of a moment in which nobody's end is still being noticed."""
        pids = [s.p.pid, s.kids("executor")[0], s.kids("worker")[0]]
        counts = [[sv.fd_count(p) for p in pids] for _ in range(20) if time.sleep(0.02) is None]
        return [min(c) for c in zip(*counts)]
    do(s, "scale", "frontends", "3")
    do(s, "scale", "frontends", "2")
    do(s, "reload")
    before = fds()
    for _ in range(3):
        do(s, "scale", "frontends", "3")
        do(s, "scale", "frontends", "1")
        do(s, "scale", "frontends", "2")
        do(s, "reload")
    assert fds() == before


@pytest.mark.parametrize("words, says", [
    (["scale"], "expected `frontends K`"),
    (["scale", "workers", "2"], "expected `frontends K`"),
    (["scale", "frontends"], "expected `frontends K`"),
    (["scale", "frontends", "2", "3"], "too many words"),
    (["scale", "frontends", "0"], "must be from 1 to 256, but is 0"),
    (["scale", "frontends", "257"], "must be from 1 to 256, but is 257"),
    (["scale", "frontends", "2x"], "must be from 1 to 256, but is 2x"),
    (["reload", "keys"], "unexpected word keys"),
])
def test_bad_words(server, words, says):
    code, text = run(server, *words)
    assert code == 2 and says in text, text


def test_one_change_at_a_time_and_none_at_the_start_and_the_end(tiny, start, programs):
    s = start(tiny, frontends=1, env={"SLUICE_BIN_DIR": str(programs)})
    sv.wait_for("a mesh", lambda: not re.search("no running mesh|no mesh has", run(s, "reload")[1]))
    s.ready()
    replace(programs, "sluice-frontend", "[ \"$1\" = --fit ] && exec %s/sluice-frontend --fit\nexec sleep 100" % sv.BIN)
    code = []
    first = threading.Thread(target=lambda: code.append(run(s, "scale", "frontends", "2")))
    first.start()
    try:
        sv.wait_for("the new one", lambda: s.lines("starting 1 frontend") or code)
        assert not code, code
        for words in (("reload",), ("scale", "frontends", "1")):
            got, text = run(s, *words)
            assert got == 1 and "being changed already" in text, text
        s.p.send_signal(signal.SIGTERM)
        assert s.wait(30) == 0
    finally:
        first.join(60)
    assert code[0][0] == 1 and "the mesh is ending" in code[0][1], code


def test_over_a_unix_socket(tiny, start, tmp_path):
    s = start(tiny, frontends=2, host=str(tmp_path / "s")).ready()
    want = s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    clients = Clients(s, want, n=4)
    try:
        for words in (("scale", "frontends", "3"), ("scale", "frontends", "1"), ("reload",), ("scale", "frontends", "2")):
            before = clients.n_answers
            do(s, *words)
            sv.wait_for("answers", lambda: clients.n_answers > before + 10)
    finally:
        clients.finish()


# ---- listening sockets ----

def test_nobody_in_a_queue_waits_for_a_restart(tiny, start, programs):
    """A frontend that dies and does not come back: its siblings accept for it, until it does."""
    s = start(tiny, frontends=3, env={"SLUICE_BIN_DIR": str(programs)}).ready()
    replace(programs, "sluice-frontend", "exec sleep 100")
    s.kill("frontend", n=0)
    s.kill("frontend", n=0)
    sv.wait_for("the deaths", lambda: len(up(s)) == 1)
    for _ in range(60):
        assert s.get("/v1/models", timeout=5).status == 200
    replace(programs, "sluice-frontend", "")
    for pid in s.pids():
        if sv.read_proc(pid, "cmdline").startswith(b"sleep"):
            os.kill(pid, signal.SIGKILL)
    sv.wait_for("all of them", lambda: len(up(s)) == 3)
    for _ in range(60):
        assert s.get("/v1/models", timeout=5).status == 200


# ---- reload ----

@pytest.mark.san
def test_streams_outlive_a_reload(tiny, start):
    s = start(tiny, frontends=2).ready()
    pids = set(s.pids())
    streams = Streams(s, 8, 200)
    for _ in range(8):
        assert streams.begun.acquire(timeout=30)
    text = do(s, "reload")
    assert text.count("is replaced by frontend") == 2 and "executor was replaced" in text and "workers were replaced" in text
    assert text.splitlines()[-1] == "reloaded"
    streams.finish()
    assert not s.lines("WARNING") and not s.lines("ERROR")
    stayed = {n for p, n in s.pids().items() if p in pids}
    assert stayed <= {"sluice", "sluice-janitor"}, "all but the supervisor and its janitor are new: %s" % stayed
    assert s.metric("sluice:restarts_total") == 0
    s.wait_idle()


def test_reloads_under_load(tiny, start):
    s = start(tiny, frontends=3).ready()
    want = s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    clients = Clients(s, want)
    steps = 0
    try:
        for _ in range(3):
            before = clients.n_answers
            do(s, "reload")
            sv.wait_for("answers", lambda: clients.n_answers > before + 10)
            now = s.metric("vllm:generation_tokens_total")
            assert now > steps, "counters go on"
            steps = now
    finally:
        clients.finish()
    assert len(s.kids("frontend")) == 3
    s.wait_idle()


def test_a_reload_brings_template_keys_and_certificate(tiny, start, tmp_path):
    keys, template = tmp_path / "keys", tmp_path / "template"
    keys.write_text("old\n")
    template.write_text("{% for m in messages %}A{{ m.content }}{% endfor %}")
    s = start(tiny, "--api-key-file", str(keys), "--chat-template", str(template), key="old").ready()

    def tokens(key):
        s.key = key
        r = s.post("/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": "x"}]})
        return r.json()["count"] if r.status == 200 else r.status
    first = tokens("old")
    keys.write_text("new\n")
    template.write_text("{% for m in messages %}AAAAAAAAAAAAAAAAAAA{{ m.content }}{% endfor %}")
    do(s, "reload")
    assert tokens("old") == 401
    assert tokens("new") > first
    template.write_text("{% for")
    before = s.pids()
    code, text = run(s, "reload")
    assert code == 1 and "frontend" in text and "template" in text, text
    assert s.pids() == before and tokens("new") > first
    keys.unlink()
    code, text = run(s, "reload")
    assert code == 1 and str(keys) in text and "nothing was reloaded" in text, text
    assert s.pids() == before and tokens("new") > first


BROKEN = [
    ("sluice-frontend", "exit 1", "ended with code 1 when it was asked for its version"),
    ("sluice-executor", "kill -9 $$", "was ended by signal 9 when it was asked"),
    ("sluice-worker-cpu", "echo protocol 1, status page 1 of 2 bytes", "is of another version (it has protocol 1, status page 1 of 2 bytes; the mesh runs with"),
    ("sluice-executor", "", None),
    ("sluice-worker-cpu", None, "is missing or not executable"),
    ("sluice-frontend", "[ \"$1\" = --fit ] && echo FIT && exit\nexit 7", "exited with code 7"),
    ("sluice-frontend", "[ \"$1\" = --fit ] && echo FIT && exit\nkill -11 $$", "was ended by signal 11"),
]


def test_programs_that_cannot_start_change_nothing(tiny, start, programs):
    s = start(tiny, frontends=2, env={"SLUICE_BIN_DIR": str(programs)}).ready()
    want = s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    clients = Clients(s, want, n=4)
    try:
        for name, script, says in BROKEN:
            before, answers = s.pids(), clients.n_answers
            replace(programs, name, script and script.replace("FIT", "'%s'" % fit()))
            code, text = run(s, "reload")
            assert (code, says is None) in ((1, False), (0, True)), text
            if says:
                assert says in text, text
                assert s.pids() == before, text
                assert s.get("/ready").status == 200
            replace(programs, name, "")
            sv.wait_for("answers", lambda: clients.n_answers > answers + 5)
        replace(programs, "sluice-frontend", "[ \"$1\" = --fit ] && echo '%s' && exit\nexit 7" % fit())
        code, text = run(s, "scale", "frontends", "4")
        assert code == 1 and "exited with code 7" in text, text
        assert len(s.kids("frontend")) == 2
        replace(programs, "sluice-frontend", "")
        do(s, "reload")
    finally:
        clients.finish()


def test_an_executor_that_cannot_start_is_told_and_tried_again(tiny, start, programs):
    """That one cannot be tried beside the old one. What fits and fails later is the restart policy's."""
    s = start(tiny, frontends=1, env={"SLUICE_BIN_DIR": str(programs)}).ready()
    want = s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    replace(programs, "sluice-executor", "[ \"$1\" = --fit ] && echo '%s' && exit\nexit 9" % fit())
    code, text = run(s, "reload")
    assert code == 1 and "executor exited with code 9" in text, text
    replace(programs, "sluice-executor", "")
    assert s.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"] == want


@pytest.mark.parametrize("kind", ["frontend", "executor", "worker"])
def test_deaths_during_reloads(tiny, start, kind):
    """Of a frontend what it served is lost, as always; the others' streams are not, and the mesh is whole afterwards."""
    s = start(tiny, frontends=2).ready()
    streams = Streams(s, 6, 150) if kind != "frontend" else None
    for i in range(3):
        codes = []
        t = threading.Thread(target=lambda: codes.append(run(s, "reload")[0]))
        t.start()
        time.sleep(0.1 * i)
        try:
            s.kill(kind)
        except (IndexError, ProcessLookupError):
            pass  # it is being replaced right now
        t.join()
        assert codes in ([0], [1])
    if streams:
        streams.finish()
    sv.wait_for("a whole mesh", lambda: len(s.kids("frontend")) == 2 and len(up(s)) == 2)
    do(s, "reload")
    assert s.complete()
    s.wait_idle()


def test_a_retiring_frontend_finishes_its_streams(tiny, start):
    """Also one that takes longer than the command waits."""
    s = start(tiny, "--device", "null", "--null-step-us", "10000", "--drain-timeout", "1", frontends=1).ready()
    slow = s.stream("abc", max_tokens=350, ignore_eos=True)
    assert slow.next()
    text = do(s, "reload")
    assert text.splitlines()[-1] == "reloaded; 1 that retires finishes running answers and ends then", text
    assert len(s.kids("frontend")) == 2 and len(up(s)) >= 1
    assert s.complete()
    do(s, "scale", "frontends", "2")
    assert len(s.kids("frontend")) == 3
    assert slow.finish()[2] == "length"
    sv.wait_for("its end", lambda: len(s.kids("frontend")) == 2)
    assert not s.lines("WARNING")
