"""A process that hangs, as one that is stopped does, is ended by the supervisor; nobody waits for it for ever. And what the
surroundings do to all processes at once: a freeze, a low limit of descriptors, a terminal that goes away."""
import os
import shutil
import signal
import time

import pytest

import server as sv


@pytest.mark.parametrize("kind", ["worker", "executor", "frontend"])
def test_a_hung_process_is_replaced(start, tiny, kind):
    s = start(tiny, "--heartbeat-timeout", "0.7", frontends=2).ready()
    body = {"max_tokens": 400, "ignore_eos": True, "return_token_ids": True}
    want = s.stream("hang", **body).finish()
    stream = s.stream("hang", **body)
    stream.next()
    pid = s.kill(kind, signal.SIGSTOP)
    if kind != "frontend":  # its own streams would end with it
        assert stream.finish() == want
    sv.wait_for("the hung process is gone", lambda: not sv.is_alive(pid))
    stream.close()
    s.ready()
    assert s.lines("has not responded for", "ending it"), s.text()
    assert s.complete()["choices"]
    s.wait_idle()


def test_idle_processes_that_hang_are_replaced(start, tiny):
    """Nobody waits for them, and still: the next request would."""
    s = start(tiny, "--hang-timeout", str(0.5 * sv.SLOW), frontends=2).ready()
    for kind in ("worker", "executor", "frontend"):
        pid = s.kill(kind, signal.SIGSTOP)
        sv.wait_for("the hung process is gone", lambda: not sv.is_alive(pid))
        s.ready()
        assert s.metric("sluice:hang_kills_total", process=kind) == 1
    assert s.complete()["choices"]


def test_a_frontend_that_hangs_while_it_drains(start, models):
    """The drain does not wait for its timeout."""
    s = start(models(1000000), "--hang-timeout", str(0.5 * sv.SLOW), "--drain-timeout", "600").ready()
    stream = s.stream("long", max_tokens=900000, ignore_eos=True)
    stream.next()
    s.p.send_signal(signal.SIGTERM)
    sv.wait_for("it drains", lambda: s.lines("stopping"))
    s.kill("frontend", signal.SIGSTOP)
    assert s.wait() == 0
    stream.close()
    s.expect_nothing_left()


def test_a_hang_timeout_that_is_too_short(start, tiny):
    s = start(tiny, "--hang-timeout", "0.2")
    assert s.wait() == 2
    assert s.lines("--hang-timeout: expected 0, or 0.5 and more"), s.text()


def test_a_frozen_machine_kills_nobody(start, tiny):
    s = start(tiny, "--heartbeat-timeout", "0.5", frontends=2).ready()
    before = s.kids("")
    pids = list(s.pids())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)  # the freeze itself
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    s.ready()
    assert s.complete()["choices"]
    assert s.kids("") == before, s.text()


@pytest.mark.parametrize("limit", [5, 8, 300])
def test_too_few_descriptors_are_named(start, tiny, limit):
    s = start(tiny, wrap=("bash", "-c", 'ulimit -n %d; exec "$@"' % limit, "_"))
    assert s.wait() == 1
    assert s.lines("the limit of open files is %d, but at least 512 are needed" % limit), s.text()


def test_a_low_soft_limit_is_raised(start, tiny):
    s = start(tiny, wrap=("bash", "-c", 'ulimit -S -n 64; exec "$@"', "_")).ready()
    assert s.complete()["choices"]


def test_the_end_of_the_terminal_under_nohup(start, tiny):
    s = start(tiny, wrap=("nohup",), frontends=2).ready()
    before = s.kids("")
    os.killpg(s.p.pid, signal.SIGHUP)
    assert s.complete()["choices"]
    with pytest.raises(AssertionError):
        sv.wait_for("a restart", lambda: s.kids("") != before or s.lines("started again"), 0.5)


def test_a_model_file_that_is_away_for_a_while(start, tiny, tmp_path):
    """A worker that cannot load again is tried again, and says why meanwhile."""
    model, away = str(tmp_path / "model.gguf"), str(tmp_path / "away.gguf")
    shutil.copy(tiny, model)
    s = start(model).ready()
    want = s.stream("away", max_tokens=400, ignore_eos=True).finish()
    stream = s.stream("away", max_tokens=400, ignore_eos=True)
    stream.next()
    os.rename(model, away)
    s.kill("worker")
    sv.wait_for("the reason is said", lambda: s.lines("ERROR", "load: ", "No such file"))
    os.rename(away, model)
    assert stream.finish() == want
    s.ready()
