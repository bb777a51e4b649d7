"""`sluice bench --mesh`: a short run of all that it measures, with figures that could be."""
import json

from test_commands import run


def test_a_short_run(tiny):
    p = run("bench", "--mesh", tiny, "--running", "32", "--num-frontends", "2", "--null-step-us", "1000", "--seconds", "0.3", "--wake-seconds", "0.02", "--json", "-", seconds=60)
    assert p.returncode == 0, p.stderr
    r = json.loads(p.stdout)
    (load,) = r["routed"]
    assert load["running"] == 32
    # All 32 have a token in each step; results of a step may be counted a moment before or after it.
    assert load["steps_per_s"] > 0 and 16 * load["steps_per_s"] < load["results_per_s"] < 64 * load["steps_per_s"]
    for key in ("schedule_us", "encode_us", "send_us", "executor_cpu_us", "worker_cpu_us"):
        assert load[key] > 0, key
    assert load["schedule_us"] + load["encode_us"] + load["send_us"] < 2 * load["executor_cpu_us"]
    o = r["overlap"]
    # The device takes its time, and nobody reaches more than the ideal, but for what a short measurement cuts off.
    assert o["device_us"] == 1000 and o["step_us"] > 900 and 0 < o["of_ideal"] < 1.1
    assert [w["per_s"] for w in r["wake"]] == [1, 10, 100, 1000]
    for w in r["wake"]:
        for side in ("ring", "futex"):
            assert 0 < w[side]["p50_us"] <= w[side]["p99_us"] and 0 < w[side]["cpu"] < 1


def test_it_wants_a_model_it_can_open(tmp_path):
    assert run("bench", "--mesh").returncode == 2
    p = run("bench", "--mesh", str(tmp_path / "none.gguf"), "--running", "1", "--wake-seconds", "0.01")
    assert p.returncode == 1 and "none.gguf" in p.stderr
