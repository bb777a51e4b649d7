"""`sluice pull` and `sluice serve ORG/NAME` against a hub of the tests' own (fakehub.py): what is fetched, where it lies, and all that can go
wrong on the way."""
import hashlib
import json
import os
import pty
import random
import resource
import signal
import socket
import subprocess
import threading

import pytest

import fakehub
import server as sv

TOKEN = "hf_averysecrettoken"
BIG = random.Random(7).randbytes(3_000_000)
FILES = {"config.json": b"{}", "tokenizer.json": b"{\"a\": 1}", "generation_config.json": b"{}", "chat_template.jinja": b"hi", "README.md": b"no",
         "model.safetensors": BIG, "original/params.json": b"{}", "onnx/model.onnx": b"no", "consolidated.safetensors": b"no", "pytorch_model.bin": b"no"}
WANTED = ["chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]


@pytest.fixture
def hub():
    with fakehub.Hub() as h:
        h.repos["org/m"] = fakehub.Repo(dict(FILES))
        yield h


class Puller:
    def __init__(self, hub, home):
        self.hub, self.home = hub, str(home)
        self.cache = os.path.join(self.home, "hub")

    def env(self, **more):
        full = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "SLUICE_", "HUGGING"))}
        full.update({"HF_ENDPOINT": self.hub.url, "HF_HOME": self.home, "no_proxy": "*"})
        full.update(more)
        return full

    def start(self, name, *flags, prelude=None, **env):
        return subprocess.Popen([sv.SLUICE, "pull", name, *flags], env=self.env(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=prelude)

    def run(self, name, *flags, code=0, **env):
        """(the path, what was said)"""
        p = self.start(name, *flags, **env)
        out, err = p.communicate(timeout=120)
        assert p.returncode == code, (p.returncode, out, err)
        assert TOKEN not in out + err
        assert not sv.SAN_SPOKE.search(err), err
        return out.removesuffix("\n"), err

    def repo(self, *more):
        return os.path.join(self.cache, "models--org--m", *more)

    def expect_whole(self, path, repo=None, wanted=WANTED):
        repo = repo or self.hub.repos["org/m"]
        assert path == self.repo("snapshots", repo.commit)
        assert sorted(os.listdir(path)) == wanted
        for name in wanted:
            with open(os.path.join(path, name), "rb") as f:
                assert f.read() == repo.files[name], name
            assert os.readlink(os.path.join(path, name)) == "../../blobs/" + repo.etag(name)
        left = [n for n in os.listdir(self.repo("blobs")) if "." in n]
        assert not left, left


@pytest.fixture
def pull(hub, tmp_path):
    return Puller(hub, tmp_path)


# ---- what is fetched, and where it lies ----

@pytest.mark.san
def test_a_folder_lies_where_huggingface_hub_finds_it(hub, pull):
    path, said = pull.run("org/m")
    pull.expect_whole(path)
    assert "fetching org/m, commit %s" % hub.repos["org/m"].commit in said and "4 files, 3.0 MB" in said, "two of the five have the same content"
    with open(pull.repo("refs", "main")) as f:
        assert f.read() == hub.repos["org/m"].commit
    code = ("import huggingface_hub as h\n"
            "print(h.snapshot_download('org/m', local_files_only=True))\n"
            "print(h.hf_hub_download('org/m', 'tokenizer.json', local_files_only=True))\n"
            "c = h.scan_cache_dir()\n"
            "print(len(c.warnings), [(r.repo_id, sorted(f.file_name for f in list(r.revisions)[0].files)) for r in c.repos])\n")
    python = os.path.join(sv.ROOT, "build", "venv", "bin", "python")
    out = subprocess.run([python, "-c", code], env=pull.env(HF_HUB_OFFLINE="1"), capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == [path, os.path.join(path, "tokenizer.json"), "0 [('org/m', %s)]" % WANTED]


def test_huggingface_hub_goes_on_with_our_cache(hub, pull):
    """And what it has fetched is not fetched again by us."""
    python = os.path.join(sv.ROOT, "build", "venv", "bin", "python")
    code = "import huggingface_hub as h; print(h.hf_hub_download('org/m', '%s'))"
    subprocess.run([python, "-c", code % "model.safetensors"], env=pull.env(HF_HUB_DISABLE_XET="1"), capture_output=True, text=True, check=True)
    hub.log.clear()
    path, _ = pull.run("org/m")
    pull.expect_whole(path)
    assert not hub.asked("GET", "model.safetensors")
    hub.log.clear()
    out = subprocess.run([python, "-c", code % "config.json"], env=pull.env(), capture_output=True, text=True, check=True).stdout
    assert out.strip() == os.path.join(path, "config.json") and not hub.asked("GET", "config.json")


def test_what_is_there_is_not_fetched_again(hub, pull):
    path, _ = pull.run("org/m")
    hub.log.clear()
    again, said = pull.run("org/m")
    assert again == path and said == ""
    assert {r[1] for r in hub.log if "/resolve/" in r[2]} == {"HEAD"}
    # A new commit with one new file: the others are linked.
    old = hub.repos["org/m"]
    hub.repos["org/m"] = fakehub.Repo({**FILES, "config.json": b"{\"new\": 1}"})
    hub.log.clear()
    path, _ = pull.run("org/m")
    pull.expect_whole(path)
    assert [r[2].rsplit("/", 1)[1] for r in hub.log if r[1] == "GET" and "/resolve/" in r[2]] == ["config.json"]
    assert os.path.exists(pull.repo("snapshots", old.commit, "model.safetensors"))


def test_revisions(hub, pull):
    new = hub.repos["org/m"]
    new.revisions |= {"v1.0", "refs/pr/7"}
    for revision in ("v1.0", "refs/pr/7"):
        path, _ = pull.run("org/m@" + revision)
        with open(pull.repo("refs", *revision.split("/"))) as f:
            assert f.read() == new.commit
    assert pull.run("org/m@" + new.commit)[0] == path
    assert sorted(os.listdir(pull.repo("refs"))) == ["refs", "v1.0"]
    _, said = pull.run("org/m@nosuch", code=1)
    assert "org/m: the hub knows no such repository or revision (404): Invalid rev id: nosuch" in said
    # The revision is asked for once: all files come from the commit that it was then.
    assert all("/resolve/%s/" % new.commit in r[2] for r in hub.log if "/resolve/" in r[2])


GGUFS = {"x-Q2_K.gguf": b"2", "x-Q4_K_M.gguf": b"4", "x-Q8_0.gguf": b"8", "mmproj-f16.gguf": b"m", "big/x-BF16-00001-of-00002.gguf": b"b1",
         "big/x-BF16-00002-of-00002.gguf": b"b2", "README.md": b"r", "config.json": b"{}"}


@pytest.mark.parametrize("name, files", [("org/g", ["x-Q4_K_M.gguf"]), ("org/g:q8_0", ["x-Q8_0.gguf"]), ("org/g/x-Q2_K.gguf", ["x-Q2_K.gguf"]),
                                         ("org/g:BF16", ["big/x-BF16-00001-of-00002.gguf", "big/x-BF16-00002-of-00002.gguf"])])
def test_quantizations(hub, pull, name, files):
    hub.repos["org/g"] = repo = fakehub.Repo(GGUFS)
    path, _ = pull.run(name)
    root = os.path.join(pull.cache, "models--org--g", "snapshots", repo.commit)
    assert path == os.path.join(root, files[0])
    assert sorted(os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs) == files
    for f in files:
        with open(os.path.join(root, f), "rb") as file:
            assert file.read() == GGUFS[f]


def test_a_quantization_that_is_not_there(hub, pull):
    hub.repos["org/g"] = fakehub.Repo(GGUFS)
    _, said = pull.run("org/g:Q5_0", code=1)
    assert "org/g has no quantization Q5_0; its GGUF files are x-Q2_K.gguf, x-Q4_K_M.gguf, x-Q8_0.gguf, big/x-BF16-00001-of-00002.gguf" in said
    hub.repos["org/g"] = fakehub.Repo({"README.md": b"", "pytorch_model.bin": b""})
    _, said = pull.run("org/g", code=1)
    assert "org/g has nothing that can be served; of 2 files none is config.json with *.safetensors, or *.gguf" in said


# ---- who may read it ----

@pytest.mark.parametrize("how", ["variable", "file", "path"])
def test_the_token_goes_to_the_hub_and_not_to_the_cdn(hub, pull, how):
    hub.repos["org/m"].gated = TOKEN
    env = {"HF_TOKEN": TOKEN} if how == "variable" else {}
    if how != "variable":
        file = os.path.join(pull.home, "token" if how == "file" else "elsewhere")
        with open(file, "w") as f:
            f.write(" %s\n" % TOKEN)
        if how == "path":
            env["HF_TOKEN_PATH"] = file
    pull.expect_whole(pull.run("org/m", **env)[0])
    for server, _, _, headers in hub.log:
        assert headers.get("Authorization") == ("Bearer " + TOKEN if server == "hub" else None)
    assert hub.asked("GET", "model.safetensors", "cdn")


def test_a_token_file_that_is_no_file(pull, tmp_path):
    """A pipe would hold the reader up for ever."""
    os.mkfifo(tmp_path / "pipe")
    _, said = pull.run("org/m", code=1, HF_TOKEN_PATH=str(tmp_path / "pipe"))
    assert "pipe: not a plain file" in said


def test_gated_private_and_unknown_repositories(hub, pull):
    _, said = pull.run("org/nosuch", code=1)
    assert "org/nosuch: the hub wants to know who asks (401): Repository not found" in said and "set HF_TOKEN" in said
    hub.repos["org/m"].gated = "another"
    _, said = pull.run("org/m", code=1)
    assert "(401): Access to model org/m is restricted" in said
    _, said = pull.run("org/m", code=1, HF_TOKEN=TOKEN)
    assert "org/m: the hub refuses it (403): Access to model org/m is restricted" in said and "conditions must be accepted" in said
    _, said = pull.run("org/m", code=1, HF_TOKEN="two\nlines")
    assert "HF_TOKEN holds what cannot be a token" in said
    assert len(said.splitlines()) == 1 and not os.path.exists(pull.cache)


# ---- interruptions ----

def wait_for_bytes(path, n):
    sv.wait_for("%d bytes in %s" % (n, path), lambda: os.path.exists(path) and os.path.getsize(path) >= n)


@pytest.mark.san
def test_a_killed_download_goes_on(hub, pull):
    hub.hold["model.safetensors"] = threading.Event()
    incomplete = pull.repo("blobs", hub.repos["org/m"].etag("model.safetensors") + ".incomplete")
    p = pull.start("org/m")
    wait_for_bytes(incomplete, 1_500_000)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    assert not os.path.exists(pull.repo("refs", "main")), "the revision does not mean a snapshot that is not whole"
    assert not os.path.exists(pull.repo("snapshots", hub.repos["org/m"].commit, "model.safetensors"))
    hub.hold.pop("model.safetensors").set()
    hub.log.clear()
    path, said = pull.run("org/m")
    pull.expect_whole(path)
    assert "model.safetensors: going on after 1.5 MB of 3.0 MB" in said
    assert [r[3].get("Range") for r in hub.asked("GET", "model.safetensors")] == ["bytes=1500000-"] * 2
    assert not [r for r in hub.log if r[1] == "GET" and r[2].endswith(".json") and "/resolve/" in r[2]], "small files are whole before weights begin"


@pytest.mark.parametrize("cut", [[0], [1_000_000, 0, 500_000]])
def test_answers_that_end_early_are_gone_on_with(hub, pull, cut):
    hub.cut["model.safetensors"] = list(cut)
    path, said = pull.run("org/m")
    pull.expect_whole(path)
    assert said.count("trying again") == len(cut)
    at, want = 0, [None]
    for n in cut:
        at += n
        want.append("bytes=%d-" % at if at else None)
    assert [r[3].get("Range") for r in hub.asked("GET", "model.safetensors", "cdn")] == want


def test_a_server_without_ranges_sends_all_again(hub, pull):
    hub.ranges = False
    hub.cut["model.safetensors"] = [1_000_000]
    pull.expect_whole(pull.run("org/m")[0])


def test_a_busy_hub_is_asked_again(hub, pull):
    hub.fail = {"/revision/main": [503, 429], "config.json": [500], "model.safetensors": [502]}
    path, said = pull.run("org/m")
    pull.expect_whole(path)
    assert said.count("trying again in") == 4


def test_what_does_not_pass_is_given_up(hub, pull):
    """A hub that stays busy, and one that tells of more bytes than it has."""
    hub.repos["org/n"] = fakehub.Repo({"x-Q4_K_M.gguf": b"four"})
    hub.bytes["x-Q4_K_M.gguf"] = b"for"
    hub.fail = {"/m/revision/main": [503] * 20}
    p = pull.start("org/n")
    _, said = pull.run("org/m", code=1)
    assert "given up after 6 tries: org/m: the hub answers with 503" in said
    assert len(hub.asked("GET", "/m/revision/main")) == 6
    _, err = p.communicate(timeout=60)
    assert p.returncode == 1 and "sluice pull: error: given up after 6 tries: x-Q4_K_M.gguf: " in err, err
    assert len(hub.asked("GET", "x-Q4_K_M.gguf", "cdn")) == 6


def test_silence_is_no_transfer(hub, pull):
    hub.hold["model.safetensors"] = threading.Event()
    p = pull.start("org/m", HF_HUB_DOWNLOAD_TIMEOUT="1")
    sv.wait_for("a second request", lambda: len(hub.asked("GET", "model.safetensors", "cdn")) == 2)
    hub.hold.pop("model.safetensors").set()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "model.safetensors: Operation too slow" in err, err
    pull.expect_whole(out.strip())
    assert hub.asked("GET", "model.safetensors", "cdn")[1][3]["Range"] == "bytes=1500000-"


def test_two_at_once_fetch_each_file_once(hub, pull):
    hub.hold["model.safetensors"] = threading.Event()
    first = pull.start("org/m")
    hub.reached.setdefault("model.safetensors", threading.Event())
    sv.wait_for("the first one fetches", lambda: hub.asked("GET", "model.safetensors", "cdn"))
    second = pull.start("org/m")
    for line in second.stderr:
        if "model.safetensors: another process is fetching it; waiting" in line:
            break
    else:
        raise AssertionError("the second one did not wait")
    hub.hold["model.safetensors"].set()
    for p in (first, second):
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        pull.expect_whole(out.strip())
    assert len(hub.asked("GET", "model.safetensors", "cdn")) == 1


def test_the_second_one_goes_on_when_the_first_is_killed(hub, pull):
    hub.hold["model.safetensors"] = threading.Event()
    first = pull.start("org/m")
    wait_for_bytes(pull.repo("blobs", hub.repos["org/m"].etag("model.safetensors") + ".incomplete"), 1_500_000)
    second = pull.start("org/m")
    for line in second.stderr:
        if "waiting" in line:
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    hub.hold["model.safetensors"].set()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0 and "going on after 1.5 MB" in err, err
    pull.expect_whole(out.strip())


# ---- what is not trusted ----

@pytest.mark.san
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_wrong_bytes_are_refused_and_removed(hub, pull, file):
    wrong = bytearray(FILES[file])
    wrong[0] ^= 1
    hub.bytes[file] = bytes(wrong)
    _, said = pull.run("org/m", code=1)
    name = hub.repos["org/m"].etag(file)
    got = hashlib.sha256(wrong).hexdigest() if file in hub.repos["org/m"].lfs else fakehub.git_sha1(bytes(wrong))
    assert "%s: its checksum is %s, but the hub says %s; it was removed" % (file, got, name) in said
    assert not [n for n in os.listdir(pull.repo("blobs")) if n.startswith(name)]
    hub.bytes.clear()
    pull.expect_whole(pull.run("org/m")[0])


def test_a_spoiled_beginning_is_fetched_again(hub, pull):
    os.makedirs(pull.repo("blobs"))
    incomplete = pull.repo("blobs", hub.repos["org/m"].etag("model.safetensors") + ".incomplete")
    for content in (b"x" * 1000, b"x" * len(BIG), b"x" * (len(BIG) + 1)):
        with open(incomplete, "wb") as f:
            f.write(content)
        path, said = pull.run("org/m")
        pull.expect_whole(path)
        assert len(content) > len(BIG) or "has a wrong checksum; fetching all of it" in said
        os.remove(pull.repo("blobs", hub.repos["org/m"].etag("model.safetensors")))


def test_an_incomplete_file_that_is_a_link_is_not_followed(hub, pull):
    os.makedirs(pull.repo("blobs"))
    target = os.path.join(pull.home, "precious")
    os.symlink(target, pull.repo("blobs", hub.repos["org/m"].etag("config.json") + ".incomplete"))
    _, said = pull.run("org/m", code=1)
    assert "cannot be opened" in said and not os.path.exists(target)


@pytest.mark.parametrize("size, words", [(10 ** 17, "100 PB are needed in"), (2 ** 62, "does not say how long it is"), (10 ** 30, "does not say how long it is")])
def test_sizes_that_no_disk_has(hub, pull, size, words):
    hub.headers["model.safetensors"] = {"X-Linked-Size": str(size)}
    _, said = pull.run("org/m", code=1)
    assert words in said
    assert not [r for r in hub.log if r[1] == "GET" and "/resolve/" in r[2]]


def test_more_bytes_than_told(hub, pull):
    hub.bytes["model.safetensors"] = BIG + b"more"
    _, said = pull.run("org/m", code=1)
    assert "model.safetensors: there are more bytes than the 3000000 that the hub told" in said


@pytest.mark.parametrize("name", ["../evil.json", "/tmp/evil.json", "a/../../evil.json", "..\\evil.json", "evil\n.json", "x/" * 600 + "evil.json"])
def test_names_that_leave_the_folder_are_not_fetched(hub, pull, name):
    hub.repos["org/m"].extra_names = [name, 7, None, {"rfilename": "x"}]
    path, _ = pull.run("org/m")
    pull.expect_whole(path)
    assert not [r for r in hub.log if "evil" in r[2]]


@pytest.mark.parametrize("etag", ["../../evil", "", "a b", "x" * 300, ".hidden"])
def test_etags_that_are_no_file_names(hub, pull, etag):
    hub.headers["model.safetensors"] = {"X-Linked-Etag": '"%s"' % etag}
    _, said = pull.run("org/m", code=1)
    assert "model.safetensors: the hub does not say what its content is called (etag)" in said


def test_an_etag_that_is_no_checksum_is_said(hub, pull):
    hub.headers["model.safetensors"] = {"X-Linked-Etag": '"version-7"'}
    path, said = pull.run("org/m")
    assert "calls its content version-7, which is no checksum: only its length was compared" in said
    assert os.readlink(os.path.join(path, "model.safetensors")) == "../../blobs/version-7"


def test_another_commit_than_asked_for(hub, pull):
    hub.headers["model.safetensors"] = {"X-Repo-Commit": "1" * 40}
    _, said = pull.run("org/m", code=1)
    assert "model.safetensors: the hub gives it from commit %s; asked for was" % ("1" * 40) in said


@pytest.mark.parametrize("to, words", [("file:///etc/passwd", "rotocol"), ("ftp://127.0.0.1/x", "rotocol"), ("", "redirects to nowhere")])
def test_redirects_to_elsewhere(hub, pull, to, words):
    hub.redirect_to = lambda file: to
    _, said = pull.run("org/m", code=1)
    assert words in said


def test_redirects_in_a_circle(hub, pull):
    hub.redirect_to = lambda file: hub.url + "/org/m/resolve/%s/%s" % (hub.repos["org/m"].commit, file)
    _, said = pull.run("org/m", code=1)
    assert "model.safetensors: it redirects too often" in said
    assert len(hub.log) < 40


def test_https(tmp_path):
    crt, key = str(tmp_path / "crt"), str(tmp_path / "key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", crt, "-days", "2",
                    "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    with fakehub.Hub(tls=(crt, key)) as hub:
        hub.repos["org/m"] = fakehub.Repo(dict(FILES))
        pull = Puller(hub, tmp_path)
        _, said = pull.run("org/m", code=1, HF_TOKEN=TOKEN)
        assert "org/m: SSL certificate problem: self" in said and len(said.splitlines()) == 1 and not hub.log
        _, said = pull.run("org/m", code=1, HF_TOKEN=TOKEN, SSL_CERT_FILE=crt)
        assert "model.safetensors: it redirects from https to http://127.0.0.1" in said
        assert not [r for r in hub.log if r[0] == "cdn"]
        hub.repos["org/m"].lfs.clear()  # all of it comes from the hub
        pull.expect_whole(pull.run("org/m", SSL_CERT_FILE=crt)[0])


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b"[" * 5000, b'{"sha": "main", "siblings": []}'])
def test_a_hub_that_is_none(pull, hub, answer, monkeypatch):
    monkeypatch.setattr(hub, "send_info", lambda h, name, revision: hub.plain(h, 200, answer))
    _, said = pull.run("org/m", code=1)
    assert "org/m: the hub" in said and len(said.splitlines()) == 1


# ---- the disk ----

def test_a_file_that_may_not_become_larger(hub, pull):
    p = pull.start("org/m", prelude=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)))
    _, err = p.communicate(timeout=60)
    assert p.returncode == 1 and "model.safetensors: " in err and "cannot be written: File too large" in err, err
    pull.expect_whole(pull.run("org/m")[0])


@pytest.mark.root
def test_a_full_disk(hub, pull):
    os.makedirs(pull.cache)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", pull.cache], capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        hub.hold["model.safetensors"] = threading.Event()
        p = pull.start("org/m")
        wait_for_bytes(pull.repo("blobs", hub.repos["org/m"].etag("model.safetensors") + ".incomplete"), 1_500_000)
        with open(os.path.join(pull.cache, "other"), "wb") as f:
            f.write(bytes(2_000_000))
        hub.hold.pop("model.safetensors").set()
        _, err = p.communicate(timeout=60)
        assert p.returncode == 1 and "model.safetensors: the disk is full" in err and "goes on with it" in err, err
        _, said = pull.run("org/m", code=1)
        assert "org/m: " in said and "are needed in" in said and "HF_HUB_CACHE names another place" in said
        os.remove(os.path.join(pull.cache, "other"))
        path, said = pull.run("org/m")
        pull.expect_whole(path)
        assert "going on after" in said
    finally:
        subprocess.run(["umount", pull.cache], check=True)


def test_a_cache_that_cannot_be_made(hub, pull):
    with open(pull.cache, "w") as f:
        f.write("a file")
    _, said = pull.run("org/m", code=1)
    assert "cannot be made: " in said and len(said.splitlines()) == 1


# ---- the command ----

def test_offline_nobody_is_asked(hub, pull):
    _, said = pull.run("org/m", code=1, HF_HUB_OFFLINE="1")
    assert "has not all of it, and HF_HUB_OFFLINE is set" in said and not hub.log
    path, _ = pull.run("org/m")
    hub.log.clear()
    assert pull.run("org/m", HF_HUB_OFFLINE="1") == (path, "") and not hub.log


def test_other_places(hub, pull, tmp_path):
    elsewhere = str(tmp_path / "elsewhere")
    path, _ = pull.run("org/m", "--cache-dir", elsewhere)
    assert path.startswith(elsewhere + "/models--org--m/snapshots/")
    assert pull.run("org/m", HF_HUB_CACHE=elsewhere)[0] == path
    assert not os.path.exists(pull.cache)


@pytest.mark.parametrize("argv", [[], ["org"], ["org/m", "more"], ["--nosuch", "org/m"], ["org/m:"], ["org/m@../x"], ["org/m/x.bin"], ["org/m", "--cache-dir"]])
def test_wrong_usage(pull, argv):
    p = subprocess.run([sv.SLUICE, "pull", *argv], env=pull.env(), capture_output=True, text=True)
    assert p.returncode == 2 and p.stderr.startswith("sluice pull: error: ") and len(p.stderr.splitlines()) == 1, p.stderr


def test_bad_variables(pull):
    for variable, value in (("HF_ENDPOINT", "ftp://x"), ("HF_ENDPOINT", "http://a b"), ("HF_HUB_DOWNLOAD_TIMEOUT", "soon")):
        _, said = pull.run("org/m", code=1, **{variable: value})
        assert variable in said and "expected" in said


def test_help(pull):
    p = subprocess.run([sv.SLUICE, "pull", "--help"], capture_output=True, text=True)
    assert p.returncode == 0 and "ORG/NAME:QUANT" in p.stdout and "HF_TOKEN" in p.stdout and "exit codes" in p.stdout


def test_a_bar_on_a_terminal(hub, pull):
    hub.bytes_per_s = 4_000_000
    ours, theirs = pty.openpty()
    p = subprocess.Popen([sv.SLUICE, "pull", "org/m"], env=pull.env(), stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(ours)
    assert p.wait() == 0
    p.stdout.close()
    assert b"\r\x1b[K[#" in text and b"of 3.0 MB, " in text and b"of 5 files" in text, text
    assert text.endswith(b"\r\x1b[K"), "the bar is taken away"


# ---- serving ----

def test_a_model_is_served_by_its_name(hub, pull, tiny):
    with open(tiny, "rb") as f:
        hub.repos["org/tiny-GGUF"] = fakehub.Repo({"tiny-Q8_0.gguf": f.read()})
    env = {k: v for k, v in pull.env().items() if k.startswith(("HF_", "no_proxy"))}
    with sv.Server("org/tiny-GGUF", name=None, env=env) as s:
        s.ready()
        assert s.get("/v1/models").json()["data"][0]["id"] == "org/tiny-GGUF"
        s.name = "org/tiny-GGUF"
        text = s.complete()["choices"][0]["text"]
        assert s.lines("tiny-Q8_0.gguf: fetched") and s.lines("org/tiny-GGUF is " + pull.cache)
    hub.log.clear()
    with sv.Server("org/tiny-GGUF", name=None, env=env) as s:  # from the cache; nobody is asked
        s.ready()
        s.name = "org/tiny-GGUF"
        assert s.complete()["choices"][0]["text"] == text
    assert not hub.log
    with sv.Server("org/tiny-GGUF:Q8_0", name="mine", env=env) as s:
        s.ready()
        assert [m["id"] for m in s.get("/v1/models").json()["data"]] == ["mine"]


def test_a_start_that_fetches_tells_systemd_and_may_be_stopped(hub, pull, tmp_path):
    hub.repos["org/g"] = fakehub.Repo({"x-Q4_K_M.gguf": BIG})
    hub.bytes_per_s = 200_000
    at = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(at)
        sock.settimeout(20)
        env = {k: v for k, v in pull.env().items() if k.startswith(("HF_", "no_proxy"))}
        with sv.Server("org/g", name=None, env={**env, "NOTIFY_SOCKET": at}) as s:
            said = sock.recv(1000).decode()
            assert said.startswith("EXTEND_TIMEOUT_USEC=120000000\nSTATUS=fetching: ") and "of 3.0 MB" in said
            s.p.send_signal(signal.SIGTERM)
            assert s.wait(5) == 0 and "stopped while fetching the model" in s.text()
    assert [n for n in os.listdir(os.path.join(pull.cache, "models--org--g", "blobs")) if n.endswith(".incomplete")], "what came stays there"


def test_a_model_that_is_nowhere_is_not_served(hub, pull):
    env = {k: v for k, v in pull.env().items() if k.startswith(("HF_", "no_proxy"))}
    for model, words in (("org/nosuch", "there is no file or folder org/nosuch, and as a model of the hub: org/nosuch: the hub wants to know who asks (401)"),
                         ("models/nosuch.gguf", "models/nosuch.gguf"), ("./org/m", "org/m")):
        s = sv.Server(model, env=env)
        try:
            assert s.wait() == 1
            assert len(s.lines("ERROR")) == 1 and words in s.text(), s.text()
        finally:
            s.release()
    assert len(hub.log) == 1
