"""The control socket: which mesh an operator's command finds, who may ask, and what the answers bring."""
import glob
import json
import mmap
import os
import shutil
import socket
import struct
import subprocess

import pytest

import server as sv


def run(*words, env=None, timeout=30, prefix=()):
    """(exit code, stdout and stderr) of `sluice WORDS`."""
    p = subprocess.run([*prefix, sv.SLUICE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       env={**os.environ, **(env or {})}, timeout=timeout * sv.SLOW)
    return p.returncode, p.stdout.decode()


def control_path(s):
    return glob.glob(s.tmp + "/sluice-*/control")[0]


def control(s):
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c.settimeout(10 * sv.SLOW)
    c.connect(control_path(s))
    return c


def ask(c, request):
    c.send(request if isinstance(request, bytes) else json.dumps(request).encode())
    return json.loads(c.recv(65536))


def test_says_who_it_is(server):
    with control(server) as c:
        a = ask(c, {"command": "mesh"})
        assert a["ok"] and a["pid"] == server.p.pid and a["at"] == server.url and a["model"] == "tiny" and a["ready"], a
        assert ask(c, {"command": "mesh"})["ok"], "a second request on the same connection"


def test_paths_may_be_any_bytes(tiny, start, tmp_path):
    model = os.fsencode(tmp_path) + b"/tiny\xff.gguf"
    shutil.copy(tiny, model)
    s = start(os.fsdecode(model), host=os.fsdecode(os.fsencode(tmp_path) + b"/at\xff"), name=None).ready()
    assert 'model_name="%s/tiny\ufffd.gguf"' % tmp_path in s.get("/metrics").text()
    assert s.get("/v1/models").json()["data"][0]["id"] == "%s/tiny\ufffd.gguf" % tmp_path
    assert s.post("/v1/completions", {"model": "%s/tiny\ufffd.gguf" % tmp_path, "prompt": "x", "max_tokens": 1}).status == 200
    assert run("scale", "frontends", "1", "--mesh", str(s.p.pid), env={"TMPDIR": s.tmp}) == (0, "1 frontend serves\n")


def test_hands_out_the_page_for_reading_only(server):
    with control(server) as c:
        c.send(b'{"command": "page"}')
        data, fds, _, _ = socket.recv_fds(c, 65536, 4)
    assert json.loads(data)["ok"] and len(fds) == 1
    try:
        size = os.fstat(fds[0]).st_size
        with mmap.mmap(fds[0], size, prot=mmap.PROT_READ) as page:
            assert struct.unpack_from("<Q", page, 0)[0] == 0x736c756963655047
        with pytest.raises(PermissionError):
            mmap.mmap(fds[0], size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fds[0])


@pytest.mark.parametrize("packet", [b"", b"{", b"[]", b'{"command": 3}', b"\xff\xfe", b"x" * 5000])
def test_nonsense_ends_its_connection_only(server, packet):
    with control(server) as c:
        if packet:
            c.send(packet)
        else:
            c.shutdown(socket.SHUT_WR)
        while True:
            answer = c.recv(65536)
            if not answer:
                break
            assert not json.loads(answer)["ok"]
    with control(server) as c:
        a = ask(c, {"command": "fly"})
        assert not a["ok"] and "knows no command fly" in a["error"]
        assert ask(c, {"command": "mesh"})["ok"]


def test_places_for_operators_are_limited_and_come_back(server):
    first = [control(server) for _ in range(16)]
    for c in first:
        assert ask(c, {"command": "mesh"})["ok"]
    with control(server) as c:
        assert "too many" in json.loads(c.recv(65536))["error"]
        assert c.recv(10) == b""
    for c in first:
        c.close()

    def again():
        with control(server) as c:
            try:
                return ask(c, {"command": "mesh"})["ok"]
            except OSError:
                return False
    sv.wait_for("a place", again)


@pytest.mark.root
def test_nobody_else_may_ask(server):
    """Also when the folder lets somebody in."""
    path = control_path(server)
    code = "import socket; c = socket.socket(1, 5); c.connect(%r); c.send(b'{\"command\":\"mesh\"}'); print(c.recv(100))" % path
    for p in (server.tmp, os.path.dirname(path)):
        os.chmod(p, 0o755)
    os.chmod(path, 0o777)
    try:
        p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", code],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert b"b''" in p.stdout or b"reset" in p.stdout or b"Broken pipe" in p.stdout, p.stdout
    finally:
        os.chmod(os.path.dirname(path), 0o700)
    with control(server) as c:
        assert ask(c, {"command": "mesh"})["ok"]


def test_finds_the_only_mesh_and_asks_when_there_are_two(tiny, start, tmp_path):
    env = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}  # others' meshes may lie in /tmp
    where = ["--ipc-dir", str(tmp_path)]
    code, text = run("drain", *where)
    assert code == 1 and "no mesh runs with its sockets in %s" % tmp_path in text
    a, b = (start(tiny, *where, env=env, name=n) for n in ("first", "second"))
    a.ready(), b.ready()
    code, text = run("drain", *where)
    assert code == 1 and "several meshes run" in text, text
    for s in (a, b):
        assert "--mesh %d " % s.p.pid in text and s.url in text and s.name in text, text
    code, text = run("drain", *where, "--mesh", "1")
    assert code == 1 and "no mesh has process 1" in text and str(a.p.pid) in text
    code, text = run("drain", *where, "--mesh=%d" % a.p.pid)
    assert (code, text) == (0, "the mesh has ended\n")
    assert a.wait() == 0 and b.complete()
    assert "no mesh runs with its sockets in %s" % a.tmp in run("drain", env={**env, "SLUICE_IPC_DIR": a.tmp})[1]
    code, text = run("drain", env={"SLUICE_IPC_DIR": str(tmp_path)})
    assert (code, text) == (0, "the mesh has ended\n")
    assert b.wait() == 0


@pytest.mark.parametrize("words, says", [
    (["drain", "now"], "unexpected word now"),
    (["drain", "--mesh"], "--mesh needs a value"),
    (["drain", "--mesh", "12x"], "must be a process id"),
    (["drain", "--mesh=0"], "must be a process id"),
    (["drain", "--ipc-dir="], "--ipc-dir needs a value"),
    (["drain", "--wait"], "unknown option --wait"),
])
def test_bad_words(words, says):
    code, text = run(*words)
    assert code == 2 and says in text, text
