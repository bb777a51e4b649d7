"""What operators see: a real Prometheus scrapes a real server, and every expression of the dashboard and of the alerts is asked; log lines
are JSON and hold no text of clients; spans are what a collector of OpenTelemetry reads."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import server as sv
import wire

DASHBOARD = os.path.join(sv.ROOT, "deploy", "grafana", "sluice.json")
RULES = os.path.join(sv.ROOT, "deploy", "prometheus")
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MARKER = "xyzzy-plugh"


# ---- Prometheus ----

needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus (deploy/deps.sh test)")


def promtool(*words, **kw):
    p = subprocess.run(["promtool", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **kw)
    return p.returncode, p.stdout.decode()


class Prometheus:
    def __init__(self, s, folder):
        self.port = sv.free_port()
        config = folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%s/alerts.yml]\n"
                          "scrape_configs:\n- job_name: sluice\n  static_configs: [{targets: ['127.0.0.1:%d']}]\n" % (RULES, s.port))
        self.log = open(folder / "log", "wb")
        self.p = subprocess.Popen(["prometheus", "--config.file=%s" % config, "--storage.tsdb.path=%s" % (folder / "data"),
                                   "--web.listen-address=127.0.0.1:%d" % self.port, "--log.level=warn"], stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        url = "http://127.0.0.1:%d/api/v1/%s?%s" % (self.port, path, urllib.parse.urlencode(query))
        try:
            with urllib.request.urlopen(url, timeout=10) as r:
                return json.load(r)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError("%s: %s" % (query, e.read().decode())) from None

    def query(self, expr):
        """[(labels, value)]"""
        return [(r["metric"], float(r["value"][1])) for r in self.get("query", query=expr)["result"]]

    def ready(self):
        def scraped():
            assert self.p.poll() is None, "prometheus ended"
            try:
                urllib.request.urlopen("http://127.0.0.1:%d/-/ready" % self.port, timeout=10).close()
                return self.query('min_over_time(up[10s]) == 1 and count_over_time(up[10s]) > 3')
            except OSError:
                return False
        sv.wait_for("four scrapes", scraped, 30, 0.1)

    def stop(self):
        self.p.terminate()
        self.p.wait(20)
        self.log.close()


def dashboard_expressions():
    """[(panel, expression)] as Grafana would ask them."""
    with open(DASHBOARD) as f:
        board = json.load(f)
    found = [("annotation", a["expr"]) for a in board["annotations"]["list"]]
    for panel in board["panels"]:
        found += [(panel["title"], t["expr"]) for t in panel.get("targets", [])]
    assert len(found) > 50
    return [(p, e.replace("$__rate_interval", "10s").replace("$__range", "10s").replace("$instance", ".*")) for p, e in found]


def alert_expressions():
    with open(os.path.join(RULES, "alerts.yml")) as f:
        return re.findall(r"^\s+expr: (.*)$", f.read(), re.M)


def load_until(s, done):
    """Requests of all kinds, one after the other."""
    i = 0
    while not done.is_set():
        i += 1
        s.chat("count to %d" % i, max_tokens=8, ignore_eos=True)
        s.complete("the inn %d" % (i % 3), max_tokens=8, ignore_eos=True)


@needs_prometheus
def test_dashboard_and_alerts_show_what_there_is(start, tiny, tmp_path):
    s = start(tiny, frontends=2).ready()
    prometheus, done = Prometheus(s, tmp_path), threading.Event()
    load = threading.Thread(target=load_until, args=(s, done))
    load.start()
    try:
        prometheus.ready()
        names = {k.split("{")[0] for k in s.metrics()}
        for title, expr in [*dashboard_expressions(), *(("alert", e) for e in alert_expressions())]:
            for metric in re.findall(r"\b(?:vllm|sluice):\w+", expr):
                assert metric in names, "%s asks for %s, which is no metric" % (title, metric)
            result = prometheus.query(expr)
            if title not in ("alert", "annotation"):
                assert result, "%s: no data for %s" % (title, expr)
                assert not all(math.isnan(v) for _, v in result), "%s: no number for %s" % (title, expr)
        assert prometheus.query("sum(rate(vllm:generation_tokens_total[10s]))")[0][1] > 0
        assert {m["index"] for m, _ in prometheus.query("sluice:frontend_http_requests_total")} == {"0", "1"}
        firing = [a["labels"]["alertname"] for a in prometheus.get("alerts")["alerts"] if a["state"] == "firing"]
        assert not firing
        health = [r["health"] for g in prometheus.get("rules")["groups"] for r in g["rules"]]
        assert health and set(health) == {"ok"}
    finally:
        done.set()
        load.join()
        prometheus.stop()


@needs_prometheus
def test_rules_do_what_they_say():
    for words in (("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")):
        code, text = promtool(*words, cwd=RULES)
        assert code == 0, text


@needs_prometheus
def test_metrics_pass_the_lint(server):
    """All but what is as it is on purpose: names of vLLM, and the prefix that is ours in the same manner; counters
    are whole numbers, so times are in nanoseconds."""
    code, text = promtool("check", "metrics", input=server.get("/metrics").body)
    known = ("metric names should not contain ':'", "vllm:iteration_tokens_total non-counter", "nanoseconds_total use base unit")
    assert not [line for line in text.splitlines() if not any(k in line for k in known)]


def test_a_slow_reader_shows_in_the_time_of_writing(start, tiny):
    """A stream of megabytes for a client that begins to read a second after the kernel's buffers are full."""
    s = start(tiny, "--device", "null").ready()
    slow = lambda: s.metric("sluice:request_write_seconds_bucket", le="+Inf") - s.metric("sluice:request_write_seconds_bucket", le="0.5")
    assert slow() == 0
    with s.conn(rcvbuf=4096, timeout=60 * sv.SLOW) as c:
        c.send(wire.request("POST", "/v1/completions", {"model": "tiny", "prompt": "x", "n": 16, "max_tokens": 4000, "ignore_eos": True, "stream": True}))
        sv.wait_for("all tokens", lambda: s.metric("vllm:generation_tokens_total") >= 64000, 60)
        time.sleep(1)  # this is what is measured
        assert c.answer().status == 200
    sv.wait_for("the wait is seen", slow, 5)


# ---- logs ----

def log_objects(s):
    """Every line of the log as JSON."""
    out = [json.loads(line) for line in s.text().splitlines()]
    for o in out:
        assert {"ts", "level", "process", "pid", "msg"} <= set(o), o
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", o["ts"]), o
        assert o["level"] in ("debug", "info", "warning", "error")
    return out


def request_lines(s, n):
    """The first n, as soon as they are there: they are written behind the answers."""
    return sv.wait_for("%d request lines" % n, lambda: (lambda lines: lines if len(lines) >= n else None)([o for o in log_objects(s) if o["msg"] == "request"]))


def test_log_lines_are_json_without_text_of_clients(start, tiny):
    s = start(tiny, "--log-format", "json", "--enable-log-requests", "--log-level", "debug", frontends=2).ready()
    s.chat(MARKER, max_tokens=5, ignore_eos=True)
    assert s.post("/v1/completions", {"model": "tiny", "prompt": MARKER, "temperature": MARKER}).status == 400
    assert s.get("/v1/nothing?" + MARKER).status == 404
    s.get("/health"), s.get("/metrics")
    st = s.stream(MARKER, max_tokens=4000, ignore_eos=True)
    assert st.next()
    st.close()
    by = {(o["path"], o["status"]): o for o in request_lines(s, 4)}
    assert set(by) == {("/v1/chat/completions", 200), ("/v1/completions", 400), ("/v1/nothing", 404), ("/v1/completions", 200)}
    chat, left = by["/v1/chat/completions", 200], by["/v1/completions", 200]
    assert chat["output_tokens"] == 5 and chat["finish"] == "length" and chat["prompt_tokens"] > 3 and chat["model"] == "tiny"
    assert left["gone"] == "client" and left["finish"] == "abort"
    for key in ("parse_ms", "template_ms", "tokenize_ms", "ttft_ms", "decode_ms", "write_ms"):
        assert 0 <= chat[key] <= chat["total_ms"], key
    assert re.fullmatch("[0-9a-f]{32}", chat["trace_id"])
    s.kill("worker")
    sv.wait_for("the worker is back", lambda: s.metric("sluice:restarts_total", process="worker") > 0)
    s.ready()
    log_objects(s)
    assert MARKER not in s.text()


def test_log_shows_the_beginning_of_texts_when_it_is_asked_to(start, tiny):
    s = start(tiny, "--enable-log-requests", "--max-log-len", "7").ready()
    s.complete("caf\u00e9 \u00e9tude", max_tokens=3, ignore_eos=True)
    line = sv.wait_for("the line", lambda: s.lines(" request id="))[0]
    assert 'prompt="caf\u00e9 "' in line and "tude" not in line  # seven bytes end within the second accent
    assert re.search(r' output_tokens=3 finish=length ', line)


# ---- spans ----

def spans_of(path, n):
    """[[span]] of the file's first n lines, read as a collector would."""
    lines = sv.wait_for("%d spans" % n, lambda: (lambda t: t if len(t) >= n else None)(open(path).read().splitlines()))
    return [read_export(json.loads(line)) for line in lines]


def read_export(o):
    assert set(o) == {"resourceSpans"} and len(o["resourceSpans"]) == 1
    r = o["resourceSpans"][0]
    resource = attributes(r["resource"])
    assert resource["service.name"] == "sluice" and resource["process.pid"] > 0
    (scope,) = r["scopeSpans"]
    parent, *children = scope["spans"]
    assert parent["name"] == "llm_request" and parent["kind"] == 2
    at = int(parent["startTimeUnixNano"])
    for span in scope["spans"]:
        assert set(span) <= {"traceId", "spanId", "parentSpanId", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"}
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16) > 0
        assert isinstance(span["startTimeUnixNano"], str) and int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    for span in children:
        assert span["traceId"] == parent["traceId"] and span["parentSpanId"] == parent["spanId"] and span["kind"] == 1
        assert at <= int(span["startTimeUnixNano"]) and int(span["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])
        at = int(span["endTimeUnixNano"])
    assert len({s["spanId"] for s in scope["spans"]}) == len(scope["spans"])
    return scope["spans"]


def attributes(o):
    kinds = {"stringValue": str, "doubleValue": float, "intValue": int, "arrayValue": lambda a: [v["stringValue"] for v in a["values"]]}
    out = {}
    for a in o["attributes"]:
        ((kind, value),) = a["value"].items()
        assert kind != "intValue" or isinstance(value, str), "64 bits are text in OTLP JSON"
        assert a["key"] not in out
        out[a["key"]] = kinds[kind](value)
    return out


def test_spans_are_otlp_and_carry_the_callers_trace(start, tiny, tmp_path):
    path = tmp_path / "spans.jsonl"
    s = start(tiny, "--trace-file", str(path), frontends=3).ready()
    body = {"model": "tiny", "messages": [{"role": "user", "content": MARKER}], "max_tokens": 6, "ignore_eos": True, "temperature": 0}
    before = time.time_ns()
    for header in ("00-%s-%s-01", "00-%s-%s-00", "01-%s-%s-01-later", "00-%s-%s-1", "zz-%s-%s-01"):
        r = s.ask("POST", "/v1/chat/completions", body, headers=["traceparent: " + header % (TRACE_ID, PARENT_ID), "X-Request-Id: r-" + header[:2]])
        assert r.status == 200
    s.complete(MARKER, max_tokens=4, n=2, ignore_eos=True)
    assert s.post("/v1/completions", {"model": "tiny", "prompt": []}).status == 400
    traces = spans_of(path, 6)
    assert len(traces) == 6, "one caller did not want its request traced"
    assert [t[0].get("parentSpanId") for t in traces] == [PARENT_ID, PARENT_ID, None, None, None, None]
    assert [t[0]["traceId"] == TRACE_ID for t in traces] == [True, True, False, False, False, False]
    assert [c["name"] for c in traces[0]] == ["llm_request", "parse", "template", "tokenize", "queue", "prefill", "decode", "write"]
    assert [c["name"] for c in traces[4]] == ["llm_request", "parse", "tokenize", "queue", "prefill", "decode", "write"]
    assert before <= int(traces[0][0]["startTimeUnixNano"]) and int(traces[0][0]["endTimeUnixNano"]) <= time.time_ns()
    a = attributes(traces[0][0])
    assert a["gen_ai.request.id"] == "r-00" and a["gen_ai.usage.completion_tokens"] == 6 and a["gen_ai.response.finish_reasons"] == ["length"]
    assert a["gen_ai.response.model"] == "tiny" and a["http.response.status_code"] == 200 and a["gen_ai.request.max_tokens"] == 6
    for key in ("time_in_queue", "time_to_first_token", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"):
        assert 0 <= a["gen_ai.latency." + key] <= a["gen_ai.latency.e2e"], key
    assert attributes(traces[4][0])["gen_ai.usage.completion_tokens"] == 8 and attributes(traces[4][0])["gen_ai.request.n"] == 2
    assert attributes(traces[5][0])["http.response.status_code"] == 400 and traces[5][0]["status"] == {}
    assert MARKER not in path.read_text()
    path.rename(tmp_path / "spans.1")  # a rotation
    s.p.send_signal(signal.SIGHUP)
    sv.wait_for("a new file", path.exists)

    def in_the_new_file():  # each frontend opens it for itself
        s.complete(max_tokens=1)
        return len(path.read_text().splitlines()) >= 3
    sv.wait_for("spans in it", in_the_new_file)
    assert all(len(read_export(json.loads(line))) > 4 for line in path.read_text().splitlines())


def test_a_trace_file_that_takes_nothing_holds_nobody(start, tiny, tmp_path):
    """A full disk, and a pipe whose reader sleeps."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in ("/dev/full", str(pipe)):
            s = start(tiny, "--trace-file", path).ready()
            for _ in range(60):  # more than a pipe holds
                s.complete(max_tokens=2, ignore_eos=True)
            if path == "/dev/full":
                sv.wait_for("it is counted", lambda: s.complete(max_tokens=1) and s.metric("sluice:lines_dropped_total") >= 60)
            s.stop()
    finally:
        os.close(reader)


def test_a_trace_file_that_cannot_be_is_said(start, tiny):
    s = start(tiny, "--trace-file", "/nonexistent/spans")
    assert s.wait() == 1
    assert s.lines("--trace-file: /nonexistent/spans: No such file or directory")
