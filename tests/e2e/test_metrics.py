"""/metrics, /health and their kin: one truth for the whole mesh, whichever frontend answers."""
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

import server as sv
import wire

pytestmark = pytest.mark.san

# Names and labels that gateways and dashboards look for.
VLLM = {
    "vllm:num_requests_running": "gauge", "vllm:num_requests_waiting": "gauge", "vllm:kv_cache_usage_perc": "gauge", "vllm:cache_config_info": "gauge",
    "vllm:time_to_first_token_seconds": "histogram", "vllm:inter_token_latency_seconds": "histogram", "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:prompt_tokens": "counter", "vllm:generation_tokens": "counter", "vllm:request_success": "counter", "vllm:num_preemptions": "counter",
    "vllm:prefix_cache_queries": "counter", "vllm:prefix_cache_hits": "counter", "vllm:request_prompt_tokens": "histogram", "vllm:request_generation_tokens": "histogram",
    "vllm:iteration_tokens_total": "histogram",
}


def scrape(s):
    r = s.get("/metrics")
    assert r.status == 200 and r.headers["content-type"].startswith("text/plain"), r
    return list(text_string_to_metric_families(r.text()))


def test_format_and_names(server):
    families = {f.name: f for f in scrape(server)}
    for name, kind in VLLM.items():
        assert name in families and families[name].type == kind, name
        for s in families[name].samples:
            if name != "vllm:cache_config_info":
                assert s.labels["model_name"] == "tiny"
            assert s.labels["engine"] == "0"
    for name in families:
        assert name.startswith(("vllm:", "sluice:")), name
    info = families["vllm:cache_config_info"].samples[0].labels
    assert info["block_size"] == "16" and int(info["num_gpu_blocks"]) > 0


def test_histograms_are_histograms(server):
    server.complete()
    for f in scrape(server):
        if f.type != "histogram":
            continue
        buckets = [(float(s.labels["le"].replace("+Inf", "inf")), s.value) for s in f.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf")
        assert [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert buckets[-1][1] == next(s.value for s in f.samples if s.name.endswith("_count"))


def test_every_scrape_is_the_sum(start, tiny):
    """Four frontends; connections land on any of them, and all must say the same."""
    s = start(tiny, frontends=4).ready()
    for i in range(10):
        s.complete("count %d" % i, max_tokens=5, ignore_eos=True)
    s.wait_idle()
    seen = set()
    for _ in range(12):
        m = s.metrics()
        seen.add((m['vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length"}'], m['vllm:generation_tokens_total{model_name="tiny",engine="0"}'],
                  m['vllm:time_to_first_token_seconds_count{model_name="tiny",engine="0"}']))
    assert seen == {(10.0, 50.0, 10.0)}


def test_counters_never_fall(start, tiny):
    s = start(tiny, frontends=2).ready()
    last = {}

    def look():
        now = {k: v for k, v in s.metrics().items() if "_total{" in k or "_count{" in k or "_bucket{" in k}
        fallen = {k: (last[k], now.get(k)) for k in last if now.get(k, -1) < last[k]}
        assert not fallen, fallen
        last.update(now)

    for kind in ("frontend", "worker", "executor"):
        for i in range(4):
            s.complete("n %d" % i)
            look()
        before = s.metric("sluice:restarts_total", process=kind)
        s.kill(kind)
        sv.wait_for("%s is back" % kind, lambda: restarted(s, kind) > before)
        s.ready()
        look()
        s.complete()
        look()


def restarted(s, kind):
    try:
        return s.metric("sluice:restarts_total", process=kind)
    except OSError:  # the frontend that was killed had this connection
        return 0


def test_gauges_follow_the_load(server):
    streams = [server.stream("load %d" % i, max_tokens=3900, ignore_eos=True) for i in range(6)]
    for st in streams:
        assert st.next()
    assert server.metric("vllm:num_requests_running") == 6
    assert server.metric("sluice:live_requests") == 6
    assert 0 < server.metric("vllm:kv_cache_usage_perc") < 1 and server.blocks()["used"] >= 6
    for st in streams:
        st.close()
    server.wait_idle()


def test_worker_steps_are_counted(server):
    before = server.metric("sluice:steps_total")
    server.complete(max_tokens=20, ignore_eos=True)
    assert server.metric("sluice:steps_total") >= before + 20
    sv.wait_for("the worker's own count follows", lambda: server.metric("sluice:worker_steps_total") >= before + 20, 5)


def test_scrape_is_cheap(server):
    """A gateway scrapes every 50 ms: the scrape itself must not be felt. The bound is loose, it finds scrapes that ask others."""
    with server.conn() as c:
        n = 200
        begin = time.monotonic()
        for _ in range(n):
            assert c.ask("GET", "/metrics").status == 200
        assert (time.monotonic() - begin) / n < 0.01 * sv.SLOW


def test_health_when_serving(server):
    for path in ("/health", "/ready", "/live", "/ping"):
        r = server.get(path)
        assert r.status == 200, (path, r)
    h = server.get("/health").json()
    assert h["status"] == "ok" and h["phase"] == "serving"
    assert server.get("/version").json()["version"]


def test_label_values_are_escaped(start, tiny):
    s = start(tiny, name='a"b\\c').ready()
    s.name = 'a"b\\c'
    s.complete()
    assert any(x.labels.get("model_name") == 'a"b\\c' for f in scrape(s) for x in f.samples)


def test_a_wire_that_ends_early(server):
    with server.conn() as c:
        c.send(wire.request("GET", "/metrics")[:-2])
    assert server.get("/metrics").status == 200
