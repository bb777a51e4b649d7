"""schemathesis, all that it does: each value at its edges, and many random requests; with keys and several frontends."""
import openapi
import pytest

import server as sv


@pytest.mark.parametrize("frontends, seed", [(1, 1), (4, 2)])
def test_schemathesis(tiny, tmp_path, frontends, seed):
    with sv.Server(tiny, *openapi.FLAGS, "--api-key", "other,k", frontends=frontends, key="k") as s:
        s.ready()
        before = s.kids("")
        openapi.schemathesis(s, tmp_path, 40, "examples,coverage,fuzzing", 900, seed)
        s.wait_idle()
        assert s.kids("") == before
