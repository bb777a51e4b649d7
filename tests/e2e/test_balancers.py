"""The examples of deploy/ for load balancers, as they are but for addresses and ports, with the real programs: servers that leave, come
back and die behind them cost no client anything. Of Kubernetes what concerns a pod's end is played: its probes, preStop and signals."""
import os
import signal
import subprocess
import threading
import time

import pytest
import yaml

import server as sv
from test_proxies import HAPROXY, NGINX, Proxy

DEPLOY = os.path.join(sv.ROOT, "deploy")
LEAVING = ("--drain-delay", "1", "--drain-timeout", "20")


def example(name, servers, port):
    with open(os.path.join(DEPLOY, name)) as f:
        text = f.read()
    assert text.count("127.0.0.1:8000") == 1 and text.count("127.0.0.1:8001") == 1 and text.count("8080") == 1
    for old, s in zip(("127.0.0.1:8000", "127.0.0.1:8001"), servers):
        text = text.replace(old, "127.0.0.1:%d" % s.port)
    return text.replace("8080", str(port))


@pytest.fixture(params=["nginx", "haproxy"])
def balancer(request, tmp_path):
    """balancer(server, server): the example of that name, running."""
    made = []

    def make(*servers):
        port = sv.free_port()
        if request.param == "haproxy":
            if not HAPROXY:
                pytest.skip("no haproxy")
            (tmp_path / "cfg").write_text(example("haproxy.cfg", servers, port))
            argv = [HAPROXY, "-db", "-f", str(tmp_path / "cfg")]
        else:
            if not NGINX:
                pytest.skip("no nginx (nginx-light)")
            (tmp_path / "site").write_text(example("nginx.conf", servers, port))
            temps = "".join("  %s_temp_path %s/%s;\n" % (k, tmp_path, k) for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            (tmp_path / "conf").write_text("%sdaemon off; worker_processes 1; pid %s/pid; error_log %s/log;\nevents {}\nhttp {\n  access_log off;\n%s  include %s/site;\n}\n" %
                                           ("user root; " if os.geteuid() == 0 else "", tmp_path, tmp_path, temps, tmp_path))
            argv = [NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "conf"), "-e", str(tmp_path / "log")]
        made.append(Proxy(argv, port, servers[0], str(tmp_path / "out")))
        return made[-1]
    yield make
    for p in made:
        p.stop()


class Clients:
    """Threads that ask and ask, plain and streaming, over kept connections; each answer must be the right one."""

    def __init__(self, via, want, n=6):
        self.via, self.want, self.stop, self.errors, self.n_answers = via, want, threading.Event(), [], 0
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def run(self, i):
        conn = None
        try:
            while not self.stop.is_set():
                if i % 2:
                    got = self.via.stream("abc", max_tokens=12, ignore_eos=True).finish()[0]
                else:
                    conn = conn or self.via.conn(timeout=600)
                    r = conn.ask("POST", "/v1/completions", {"model": "tiny", "prompt": "abc", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
                    assert r.status == 200, r
                    got = r.json()["choices"][0]["text"]
                    if r.closes():
                        conn = conn.close()
                assert got == self.want, got
                self.n_answers += 1
        except Exception as e:  # told by the test's thread
            self.errors.append("client %d after %d answers: %r" % (i, self.n_answers, e))

    def finish(self):
        self.stop.set()
        for t in self.threads:
            t.join(60)
        assert not self.errors, "\n".join(self.errors)


def again(s, *flags):
    """Another server in the place of one that has ended."""
    return sv.Server(*flags, frontends=2, port=s.port).ready()


def test_rolling_restart_behind_it(start, tiny, balancer):
    a, b = (start(tiny, *LEAVING, frontends=2).ready() for _ in range(2))
    want = a.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    p = balancer(a, b)
    clients = Clients(p.via, want)
    replaced = []
    try:
        for s in (a, b):
            before = clients.n_answers
            sv.wait_for("answers", lambda: clients.n_answers > before + 20)
            s.p.send_signal(signal.SIGTERM)
            assert s.wait(60) == 0
            replaced.append(again(s, tiny, *LEAVING))
            time.sleep(1)  # until the balancer has seen it
        before = clients.n_answers
        sv.wait_for("answers", lambda: clients.n_answers > before + 20)
        clients.finish()
    finally:
        clients.stop.set()
        for s in replaced:
            s.stop()


def command(s, *words):
    r = subprocess.run([sv.SLUICE, *words, "--mesh", str(s.p.pid)], env={**os.environ, "TMPDIR": s.tmp}, capture_output=True, text=True, timeout=60 * sv.SLOW)
    assert r.returncode == 0, r


def test_a_mesh_that_changes_behind_it(start, tiny, balancer):
    a, b = (start(tiny, frontends=2).ready() for _ in range(2))
    want = a.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    p = balancer(a, b)
    clients = Clients(p.via, want)
    try:
        for words in (("scale", "frontends", "4"), ("reload",), ("scale", "frontends", "1"), ("reload",)):
            before = clients.n_answers
            command(a, *words)
            sv.wait_for("answers", lambda: clients.n_answers > before + 20)
    finally:
        clients.finish()
    assert len(a.kids("frontend")) == 1


def test_the_death_of_a_whole_server_behind_it(start, tiny, balancer):
    """Only what it had begun to answer is lost: plain answers are asked of the next one."""
    a, b = (start(tiny, frontends=2).ready() for _ in range(2))
    want = a.complete("abc", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    p = balancer(a, b)
    clients = Clients(p.via, want, n=1)  # number 0: plain
    try:
        for _ in range(3):
            before = clients.n_answers
            sv.wait_for("answers", lambda: clients.n_answers > before + 10)
            if a.p.poll() is None:
                a.kill_all()
    finally:
        clients.finish()
    a.release()


# ---- Kubernetes ----

def container():
    with open(os.path.join(DEPLOY, "kubernetes.yaml")) as f:
        deployment, service = yaml.safe_load_all(f)
    spec = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    c, = spec["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == c["ports"][0]["name"]
    return spec, c


def test_the_time_of_a_pod_suffices():
    spec, c = container()
    env = {e["name"]: e["value"] for e in c["env"]}
    assert int(env["SLUICE_PORT"]) == c["ports"][0]["containerPort"]
    assert spec["terminationGracePeriodSeconds"] >= int(env["SLUICE_DRAIN_DELAY"]) + int(env["SLUICE_DRAIN_TIMEOUT"]) + 10
def test_a_pods_life(start, tiny):
    """Probes, then the end: preStop, SIGTERM, as the kubelet does it; the stream that runs is finished, nobody is refused in the delay."""
    spec, c = container()
    env = {e["name"]: e["value"] for e in c["env"] if e["name"] not in ("SLUICE_PORT", "SLUICE_NUM_FRONTENDS", "SLUICE_LOG_FORMAT")}
    env["SLUICE_DRAIN_DELAY"] = "2"
    s = start(tiny, env=env, frontends=2)
    probe = lambda name: s.get(c[name]["httpGet"]["path"]).status
    sv.wait_for("it is alive", lambda: s.listens() and probe("startupProbe") == 200)
    s.ready()
    assert probe("livenessProbe") == probe("readinessProbe") == 200
    want = s.stream("abc", max_tokens=1500, ignore_eos=True).finish()
    st = s.stream("abc", max_tokens=1500, ignore_eos=True)
    assert st.next()
    command = c["lifecycle"]["preStop"]["exec"]["command"]
    stop = subprocess.Popen([sv.SLUICE, *command[1:], "--mesh", str(s.p.pid)], env={**os.environ, "TMPDIR": s.tmp}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sv.wait_for("it leaves", lambda: s.lines("/ready says 503"))
    assert probe("readinessProbe") == 503 and probe("livenessProbe") == 200
    assert s.complete("abc", max_tokens=4)["choices"]
    assert st.finish() == want
    out, _ = stop.communicate(timeout=60)
    assert stop.returncode == 0, out
    if s.p.poll() is None:
        s.p.send_signal(signal.SIGTERM)
    assert s.wait() == 0
    s.expect_nothing_left()
