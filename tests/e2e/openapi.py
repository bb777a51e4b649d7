"""schemathesis against a server's own document; test_openapi.py runs a little of it, long_openapi.py much."""
import os
import subprocess
import sys

import server as sv

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance", "response_headers_conformance", "missing_required_header", "ignored_auth")
# A short context: what a random request generates ends soon.
FLAGS = ("--max-model-len", "64")


def schemathesis(s, folder, examples, phases, seconds, seed=1, checks=CHECKS):
    """Fails with its report."""
    p = subprocess.run([os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", s.url + "/openapi.json", "--checks", ",".join(checks), "--phases", phases, "--max-examples",
                        str(examples), "--seed", str(seed), "--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
                        *(["-H", "Authorization: Bearer " + s.key] if s.key else [])], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds * sv.SLOW)
    assert p.returncode == 0, p.stdout[-8000:]
    return p.stdout
