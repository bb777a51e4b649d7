"""Fixtures: models, and servers that must end without a trace.

  SLUICE_BIN_DIR   the programs under test: build/bin, or build/san/bin for the same tests under ASan and UBSan

Tests marked `san` are the subset for sanitizers' builds; `real` ones load the default model."""
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server as sv  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "san: also in the runs under sanitizers")
    config.addinivalue_line("markers", "real: needs the default model")
    config.addinivalue_line("markers", "root: needs root")
    if not os.path.exists(sv.SLUICE):
        pytest.exit("%s is not built" % sv.SLUICE, 2)


def pytest_runtest_setup(item):
    if item.get_closest_marker("real") and not os.path.exists(sv.REAL_MODEL):
        pytest.skip("the default model is not there (make model)")
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """models(context, layers, dim): the path of a random model, written once."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def make(context=4096, layers=2, dim=64):
        key = (context, layers, dim)
        if key not in made:
            made[key] = str(folder / ("tiny-%d-%d-%d.gguf" % key))
            subprocess.run([os.path.join(sv.ROOT, "build", "tests", "tinymodel"), made[key], *map(str, key)], check=True)
        return made[key]
    return make


@pytest.fixture(scope="session")
def tiny(models):
    return models()


@pytest.fixture
def start():
    """start(model, *flags, **kw): a Server that has not been waited for; all are ended, and checked, after the test."""
    open_servers = []

    def make(*args, **kw):
        s = sv.Server(*args, **kw)
        open_servers.append(s)
        return s
    yield make
    errors = []
    for s in open_servers:
        if s.log.closed:
            continue
        try:
            s.stop(code=s.p.poll() if s.p.poll() is not None else 0)
        except AssertionError as e:
            errors.append(str(e))
    assert not errors, "\n".join(errors)


@pytest.fixture(scope="module")
def server(tiny):
    """One server for a whole file, two frontends. Each test that uses it must leave it healthy."""
    s = sv.Server(tiny, frontends=2)
    with s:
        s.ready()
        yield s
        s.wait_idle()


@pytest.fixture(autouse=True)
def still_healthy(request):
    """After each test with the shared server: a new connection gets an ordinary answer, and no process was lost."""
    if "server" not in request.fixturenames:
        yield
        return
    s = request.getfixturevalue("server")
    before = s.kids("")
    yield
    assert s.complete()["choices"][0]["finish_reason"] in ("length", "stop")
    assert s.kids("") == before, "a process died and was replaced:\n" + s.text()[-4000:]


@pytest.fixture(scope="module")
def real():
    """The default model, one frontend."""
    if not os.path.exists(sv.REAL_MODEL):
        pytest.skip("the default model is not there (make model)")
    s = sv.Server(sv.REAL_MODEL, "--kv-cache-memory-bytes", "512M", frontends=2, name="smollm2")
    with s:
        s.ready()
        yield s
        s.wait_idle()
