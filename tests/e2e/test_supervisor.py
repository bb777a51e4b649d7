"""`sluice serve` as a process: how it starts, refuses, reports, ends, and what it leaves behind (nothing)."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import server as sv
import wire



@pytest.fixture
def endless(models):
    return models(1000000)


ENDLESS = {"max_tokens": 900000, "ignore_eos": True}


def run(*argv, env=None, seconds=20, wrap=()):
    """(exit code, output) of a command that ends by itself."""
    full = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_") and k != "XDG_RUNTIME_DIR"}
    with tempfile.TemporaryDirectory(dir="/tmp") as tmp:
        p = subprocess.run([*wrap, sv.SLUICE, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**full, "TMPDIR": tmp, **(env or {})},
                           timeout=seconds * sv.SLOW)
        assert not os.listdir(tmp), "files are left"
    out = p.stdout.decode("utf-8", "replace")
    assert not sv.SAN_SPOKE.search(out), out
    return p.returncode, out


def expect_refused(code_and_text, code, *words, lines=2):
    """One clear line, no signal, nothing else."""
    got, text = code_and_text
    assert got == code, (got, text)
    for w in words:
        assert w in text, (w, text)
    assert len(text.strip().splitlines()) <= lines, text


# ---- refusals ----

@pytest.mark.parametrize("flags, words", [
    (["--nosuch"], ["--nosuch"]), (["--port", "x"], ["--port", "x"]), (["--port", "70000"], ["--port", "65535"]), (["--port"], ["--port"]), (["--num-frontends", "0"], ["--num-frontends"]),
    (["--num-frontends", "-1"], ["--num-frontends"]), (["--gpu-memory-utilization", "nan"], ["--gpu-memory-utilization"]), (["--gpu-memory-utilization", "1.5"], ["--gpu-memory-utilization"]),
    (["--kv-cache-memory-bytes", "1X"], ["--kv-cache-memory-bytes"]), (["--device", "tpu"], ["--device", "tpu"]), (["--drain-timeout", "abc"], ["--drain-timeout"]), (["extra.gguf"], ["extra.gguf"]),
    (["--max-model-len", "99999999999999999999"], ["--max-model-len"]),
])
def test_bad_flags(tiny, flags, words):
    expect_refused(run("serve", tiny, *flags), 2, *words)


def test_bad_variable(tiny):
    expect_refused(run("serve", tiny, env={"SLUICE_PORT": "abc"}), 2, "SLUICE_PORT", "abc")


def test_no_model():
    expect_refused(run("serve"), 2, "model")


def test_cuda_is_not_built(tiny):
    expect_refused(run("serve", tiny, "--device", "cuda"), 2, "cuda")


@pytest.mark.parametrize("content, words", [(None, ["nosuch.gguf", "o such file"]), (b"", ["nosuch.gguf"]), (b"GGUX" + b"\0" * 100, ["nosuch.gguf"]), ("dir", ["nosuch.gguf"])], ids=["missing", "empty", "magic", "folder"])
def test_model_that_cannot_be(tmp_path, content, words):
    path = tmp_path / "nosuch.gguf"
    if content == "dir":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    expect_refused(run("serve", str(path), "--port", str(sv.free_port())), 1, *words)


def test_model_cut_short(tiny, tmp_path):
    with open(tiny, "rb") as f:
        (tmp_path / "cut.gguf").write_bytes(f.read()[:-5000])
    expect_refused(run("serve", str(tmp_path / "cut.gguf"), "--port", str(sv.free_port())), 1, "cut.gguf", lines=3)


def test_too_much_kv_cache(tiny):
    expect_refused(run("serve", tiny, "--port", str(sv.free_port()), "--kv-cache-memory-bytes", "900T"), 1, "memory", "left for the KV cache", lines=24)


def test_too_little_kv_cache(tiny):
    expect_refused(run("serve", tiny, "--port", str(sv.free_port()), "--kv-cache-memory-bytes", "100"), 1, "memory", lines=24)


@pytest.mark.skipif(sv.IS_SAN, reason="a sanitizer's shadow needs the address space")
def test_too_little_memory(tiny):
    """As under `ulimit -v`: an error with a reason, whatever part of it runs out first."""
    code, text = run("serve", tiny, "--port", str(sv.free_port()), "--kv-cache-memory-bytes", "3G", wrap=("prlimit", "--as=2000000000:2000000000"), seconds=40)
    assert code == 1, (code, text)
    assert "memory" in text, text


@pytest.mark.parametrize("kind", ["sluice", "plain", "reuseport"])
def test_port_in_use(start, tiny, kind):
    if kind == "sluice":
        port = start(tiny, frontends=2).ready().port
    else:
        port = sv.free_port()
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == "reuseport":
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
    for host in ("127.0.0.1", "0.0.0.0"):
        begin = time.monotonic()
        expect_refused(run("serve", tiny, "--port", str(port), "--host", host), 1, str(port), "in use")
        assert time.monotonic() - begin < 8 * sv.SLOW
    if kind != "sluice":
        other.close()
    else:
        for _ in range(20):
            with wire.Conn("127.0.0.1", port) as c:
                assert c.ask("GET", "/v1/models").json()["data"][0]["id"] == "tiny"


def test_two_starts_at_once(tiny, start):
    """Of two that want the same port at the same moment exactly one serves."""
    port = sv.free_port()
    both = [start(tiny, port=port, name="s%d" % i, frontends=2) for i in range(2)]
    sv.wait_for("one has given up", lambda: any(s.p.poll() is not None for s in both))
    loser = next(s for s in both if s.p.poll() is not None)
    winner = next(s for s in both if s is not loser)
    winner.ready()
    assert loser.wait() == 1 and "in use" in loser.text()
    for _ in range(10):
        assert winner.get("/v1/models").json()["data"][0]["id"] == winner.name
    loser.release()


def test_strange_address(tiny):
    expect_refused(run("serve", tiny, "--host", "256.1.2.3"), 1, "256.1.2.3")
    expect_refused(run("serve", tiny, "--host", "192.0.2.1", "--port", str(sv.free_port())), 1, "192.0.2.1")


def test_long_ipc_dir(tiny, tmp_path, start):
    long = tmp_path / ("d" * 150)
    long.mkdir()
    code, text = run("serve", tiny, "--port", str(sv.free_port()), env={"TMPDIR": str(long)})
    assert code == 1 and "--ipc-dir" in text and str(len(str(long))) in text, text
    code, text = run("serve", tiny, "--port", str(sv.free_port()), "--ipc-dir", str(long))
    assert code in (1, 2) and "ipc-dir" in text, text
    s = start(tiny, "--ipc-dir", "/tmp", env={"TMPDIR": str(long)}).ready()
    s.complete()
    assert run("serve", tiny, "--port", str(sv.free_port()), env={"TMPDIR": "/nosuch/dir"})[0] == 1


# ---- start ----

def test_any_free_port(start, tiny):
    s = start(tiny, port=0)
    line = sv.wait_for("the log names the address", lambda: s.lines("ready: http://"))[0]
    s.port = int(line.split("http://127.0.0.1:")[1].split()[0])
    assert s.complete()["choices"]


def test_health_while_loading(start, models):
    """From the first moment: 503 with the phase and how far it is, then 200."""
    s = start(models(64, 8, 512))
    seen = []

    def poll():
        try:
            r = s.get("/health", timeout=5)
        except OSError:
            return False
        if r.status == 503:
            h = r.json()
            seen.append((h["phase"], h["progress"]))
            assert s.get("/live").status == 200, "alive, though not ready"
            assert s.get("/ready").status == 503 or s.get("/ready").status == 200
        else:
            assert r.status == 200
        return r.status == 200
    sv.wait_for("ready", poll, 60, 0)
    assert seen, "it was never seen loading"
    assert all(phase and phase != "serving" and 0 <= p <= 1 for phase, p in seen), seen
    progress = [p for _, p in seen]
    assert progress == sorted(progress), "progress does not go back"


def test_requests_while_loading_are_503(start, models):
    s = start(models(64, 8, 512))
    answers = []

    def ask():
        try:
            answers.append(s.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1}).status)
        except OSError:
            return False
        return answers[-1] == 200
    sv.wait_for("served", ask, 60)
    assert set(answers) <= {200, 503}, answers


def test_environment_sets_options(start, tiny):
    s = start(tiny, env={"SLUICE_MAX_MODEL_LEN": "100"}).ready()
    assert s.get("/v1/models").json()["data"][0]["max_model_len"] == 100
    s = start(tiny, "--max-model-len", "200", env={"SLUICE_MAX_MODEL_LEN": "100"}).ready()
    assert s.get("/v1/models").json()["data"][0]["max_model_len"] == 200


@pytest.mark.parametrize("k", [1, 4])
def test_frontends_share_the_port(start, tiny, k):
    s = start(tiny, frontends=k).ready()
    assert len(s.kids("frontend")) == k and len(s.kids("executor")) == 1 and len(s.kids("worker")) == 1
    want = s.complete(max_tokens=20)["choices"][0]["text"]
    assert {s.complete(max_tokens=20)["choices"][0]["text"] for _ in range(8 * k)} == {want}
    up = [v for key, v in s.metrics().items() if key.startswith('sluice:process_up{process="frontend"')]
    assert up == [1] * k


def test_served_names(start, tiny):
    s = start(tiny, name="one,two").ready()
    assert [m["id"] for m in s.get("/v1/models").json()["data"]] == ["one", "two"]
    for name, status in (("one", 200), ("two", 200), ("one,two", 404)):
        assert s.post("/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1}).status == status


def test_systemd_is_told(start, tiny, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.bind(path)
        n.settimeout(30 * sv.SLOW)
        s = start(tiny, env={"NOTIFY_SOCKET": path})
        said = n.recv(4096).decode()
        while "READY=1" not in said:
            said += "\n" + n.recv(4096).decode()
        assert s.get("/ready").status == 200
        s.p.send_signal(signal.SIGTERM)
        said = n.recv(4096).decode()
        while "STOPPING=1" not in said:
            said += "\n" + n.recv(4096).decode()
        assert s.wait() == 0


# ---- the end ----

@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_drain_finishes_a_stream(start, tiny, sig):
    s = start(tiny, frontends=2).ready()
    want = s.complete("drain", max_tokens=1500, ignore_eos=True)["choices"][0]["text"]
    st = s.stream("drain", max_tokens=1500, ignore_eos=True)
    assert st.next()
    s.p.send_signal(sig)
    sv.wait_for("it drains", lambda: s.lines("stopping"))
    text, _, reason = st.finish()
    assert (text, reason) == (want, "length"), "the running stream ends as if nothing were"
    assert s.wait() == 0
    s.expect_nothing_left()


@pytest.mark.parametrize("kind", ["worker", "executor"])
def test_a_drain_survives_the_death_of_the_engine(start, tiny, kind):
    s = start(tiny).ready()
    want = s.stream("drain", max_tokens=1500, ignore_eos=True).finish()
    st = s.stream("drain", max_tokens=1500, ignore_eos=True)
    st.next()
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it drains", lambda: s.lines("stopping"))
    s.kill(kind)
    assert st.finish() == want
    s.stop()


def test_drain_takes_nothing_new(start, endless):
    s = start(endless, "--device", "null").ready()
    st = s.stream("long", **ENDLESS)
    assert st.next()
    idle = s.conn()
    assert idle.ask("GET", "/live").status == 200
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it drains", lambda: s.lines("stopping"))
    assert idle.at_end(10 * sv.SLOW), "idle connections end"
    try:
        r = s.post("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1}, timeout=5)
        assert r.status == 503, r
    except (OSError, TimeoutError):
        pass
    st.close()
    assert s.wait() == 0


def test_second_signal_ends_at_once(start, endless):
    s = start(endless, "--device", "null", "--drain-timeout", "600").ready()
    st = s.stream("long", **ENDLESS)
    assert st.next()
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it drains", lambda: s.lines("stopping"))
    begin = time.monotonic()
    s.p.send_signal(signal.SIGTERM)
    s.wait()
    assert time.monotonic() - begin < 2 * sv.SLOW
    s.expect_nothing_left()
    st.close()
    s.release()


def test_drain_timeout_cuts_off(start, endless):
    s = start(endless, "--device", "null", "--drain-timeout", "0.5").ready()
    st = s.stream("long", **ENDLESS)
    assert st.next()
    begin = time.monotonic()
    s.p.send_signal(signal.SIGTERM)
    assert s.wait() == 0
    s.expect_quiet_log()
    assert 0.4 < time.monotonic() - begin < 5 * sv.SLOW, s.text()
    s.expect_nothing_left()
    st.close()
    s.release()


def test_signal_while_loading(start, models):
    for sig in (signal.SIGTERM, signal.SIGINT):
        s = start(models(64, 8, 512))
        sv.wait_for("it has begun", lambda: s.lines("loading"))
        s.p.send_signal(sig)
        assert s.wait() == 0
        s.expect_nothing_left()


def test_kill_of_the_supervisor_leaves_nothing(start, endless):
    s = start(endless, "--device", "null", frontends=3).ready()
    st = s.stream("long", **ENDLESS)
    assert st.next()
    assert os.listdir(s.tmp), "there is a socket folder while it runs"
    s.p.kill()
    s.p.wait()
    s.expect_nothing_left(1.0)
    st.close()
    s.release()


def test_restart_after_a_kill(start, tiny):
    port = sv.free_port()
    for _ in range(3):
        s = start(tiny, port=port, frontends=2).ready()
        s.complete()
        s.p.kill()
        s.p.wait()
        s.expect_nothing_left(1.0)
        s.release()


def test_stale_folder_is_removed(start, tiny):
    """A janitor that was killed too leaves a folder; the next start removes that, and only that."""
    a = start(tiny).ready()
    pids = a.pids()
    for pid in sorted(pids, key=lambda p: pids[p] != "sluice-janitor"):  # the janitor first, else it would clean up
        os.kill(pid, signal.SIGKILL)
    a.p.wait()
    sv.wait_for("all gone", lambda: not a.pids())
    stale = os.listdir(a.tmp)
    assert stale, "kill -9 of everything leaves the folder"
    b = start(tiny, env={"TMPDIR": a.tmp}).ready()
    c = start(tiny, env={"TMPDIR": a.tmp}).ready()
    left = os.listdir(a.tmp)
    assert not set(stale) & set(left) and len(left) == 2, (stale, left)
    b.complete()
    c.complete()
    b.stop()
    c.complete()
    c.stop()
    assert os.listdir(a.tmp) == []
    a.release()


def test_stopped_supervisor_is_no_dead_one(start, tiny):
    """SIGSTOP of the supervisor: the mesh goes on, and nobody takes its folder away."""
    s = start(tiny, frontends=2).ready()
    os.kill(s.p.pid, signal.SIGSTOP)
    other = start(tiny, env={"TMPDIR": s.tmp}).ready()
    other.complete()
    assert s.complete()["choices"]
    other.stop()
    os.kill(s.p.pid, signal.SIGCONT)
    assert s.complete()["choices"]


@pytest.mark.root
def test_as_pid_1(start, tiny):
    """As in a container: signals work and strangers are reaped."""
    s = start(tiny, frontends=2, wrap=("unshare", "--pid", "--fork", "--kill-child")).ready()
    s.complete()
    inner = next(p for p in s.pids() if sv.read_proc(p, "cmdline").split(b"\0")[0].endswith(b"/sluice") and b"serve" in sv.read_proc(p, "cmdline")
                 and int(sv.read_proc(p, "status").split(b"NSpid:")[1].split(b"\n")[0].split()[-1]) == 1)
    # A stranger whose parent dies becomes a child of PID 1.
    subprocess.run(["nsenter", "-t", str(inner), "-p", "sh", "-c", "(sleep 0.2 &) ; exit 0"], check=True)

    def children():
        """Of the inner supervisor, also dead ones."""
        found = {}
        for d in os.listdir("/proc"):
            status = sv.read_proc(int(d), "status") if d.isdigit() else b""
            if b"PPid:\t%d\n" % inner in status:
                found[int(d)] = status.split(b"\n")[0] + (b" zombie" if b"State:\tZ" in status else b"")
        return found
    sv.wait_for("the stranger is reaped", lambda: not any(b"sleep" in c or b"zombie" in c for c in children().values()))
    os.kill(inner, signal.SIGTERM)
    assert s.wait() == 0
    s.expect_nothing_left()


def test_frontend_that_cannot_start_ends_the_mesh(start, tmp_path, tiny):
    """A part that fails each time ends it all with a reason and an exit code, not an endless loop of restarts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in os.listdir(sv.BIN):
        if name.startswith("sluice"):
            os.symlink(os.path.join(sv.BIN, name), folder / name)
    os.unlink(folder / "sluice-executor")
    (folder / "sluice-executor").write_text("#!/bin/sh\nexit 1\n")
    (folder / "sluice-executor").chmod(0o755)
    s = start(tiny, env={"SLUICE_BIN_DIR": str(folder)})
    assert s.wait(60) == 1
    assert s.lines("executor"), s.text()
    s.expect_nothing_left()
    s.release()
    os.unlink(folder / "sluice-executor")
    s = start(tiny, env={"SLUICE_BIN_DIR": str(folder)})
    assert s.wait(30) == 1 and "sluice-executor is missing" in s.text(), s.text()
    s.expect_nothing_left()
    s.release()


def test_closed_stderr_and_stdout(tiny):
    """A log that goes nowhere must not stop it."""
    port = sv.free_port()
    p = subprocess.Popen([sys.executable, "-c", "import os,sys;os.close(0);os.close(1);os.close(2);os.execv(sys.argv[1],sys.argv[1:])", sv.SLUICE, "serve", tiny, "--port", str(port), "--host", "127.0.0.1",
                          "--served-model-name", "tiny"])
    try:
        def up():
            assert p.poll() is None, "it ended"
            try:
                with wire.Conn("127.0.0.1", port, timeout=5) as c:
                    return c.ask("GET", "/ready").status == 200
            except OSError:
                return False
        sv.wait_for("ready", up)
        with wire.Conn("127.0.0.1", port) as c:
            assert c.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 2}).status == 200
        p.send_signal(signal.SIGTERM)
        assert p.wait(20 * sv.SLOW) == 0
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()


def test_many_starts_leave_no_descriptor(start, tiny):
    """A server at rest holds few descriptors, and the same number after work."""
    s = start(tiny, frontends=2).ready()
    before = dict(zip(s.pids(), sv.settled_fds(s.pids())))
    threads = [threading.Thread(target=lambda i=i: s.complete("n %d" % i)) for i in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sv.wait_for("descriptors are given back", lambda: all(sv.fd_count(p) <= n + 1 for p, n in before.items()))
