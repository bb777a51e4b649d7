#!/usr/bin/env python3
"""Starts a server on a free port, runs a command with its address, and ends the server; exit code: the command's, or 1 when the
server did not end well.

  with_server.py [--frontends K] [--model FILE] [--model-name NAME] [--key KEY] [--serve 'more flags'] -- COMMAND {url} {port}
"""
import argparse
import os
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server as sv  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frontends", type=int, default=1)
    p.add_argument("--model", default=sv.REAL_MODEL)
    p.add_argument("--model-name", default="smollm2")
    p.add_argument("--key", help="an API key that it asks for, beside others")
    p.add_argument("--serve", default="")
    p.add_argument("command", nargs=argparse.REMAINDER)
    args = p.parse_args()
    if args.command[:1] == ["--"]:
        del args.command[0]
    keys = ["--api-key", "another," + args.key] if args.key else []
    with sv.Server(args.model, *keys, *shlex.split(args.serve), frontends=args.frontends, name=args.model_name, key=args.key) as s:
        s.ready()
        code = subprocess.run([w.replace("{url}", s.url).replace("{port}", str(s.port)) for w in args.command]).returncode
        s.wait_idle()
    return code


if __name__ == "__main__":
    sys.exit(main())
