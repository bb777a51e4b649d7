"""Twenty minutes of everything at once over 1024 connections: memory stays flat, nothing fails that was not made to, and the books of both
sides agree. `make check-long` runs it.

  SOAK_SECONDS, SOAK_CONNECTIONS, SOAK_FLAT   other sizes, another bound of growth (0.02)"""
import asyncio
import os
import random
import statistics

import server as sv
import soak

SECONDS = float(os.environ.get("SOAK_SECONDS", 1200))
CONNECTIONS = int(os.environ.get("SOAK_CONNECTIONS", 1024))
FLAT = float(os.environ.get("SOAK_FLAT", 0.02))
ENGINE, ALL = ("worker", "executor"), ("worker", "executor", "frontend")


def total(samples):
    """Median over the samples of what all processes hold, KiB; those taken while one was missing do not count."""
    whole = [sum(s.values()) for s in samples if len(s) == max(map(len, samples))]
    return statistics.median(whole)


async def run(s):
    load, rng = soak.Load(s, CONNECTIONS, think_s=CONNECTIONS / 250, hang_s=2), random.Random(7)
    await soak.phase(load, SECONDS * 0.1, (), 1, rng)  # caches fill
    first, last = [], []
    for name, share, kills, samples in (("with deaths of the engine", 0.3, ENGINE, first), ("with deaths of everything", 0.3, ALL, None),
                                        ("with deaths of the engine", 0.3, ENGINE, last)):
        seen, counted = await soak.phase(load, SECONDS * share, kills, 15, rng, samples)
        print("%s: clients %s; server %s" % (name, dict(seen), counted), flush=True)
        assert not load.errors, load.errors[:20]
        soak.expect_same_books(seen, counted)
        assert seen["broken"] <= load.frontend_kills * CONNECTIONS // 2 if kills == ALL else seen["broken"] == 0
    return load, total(first), total(last)


def test_soak(models):
    with sv.Server(models(1000000), "--device", "null", "--null-step-us", "3000", "--max-num-seqs", "512", "--max-model-len", "200000", "--num-gpu-blocks-override", "400000", "--max-restarts", "0", "--hang-timeout", "2", frontends=4) as s:
        s.ready()
        load, before, after = asyncio.run(run(s))
        print("%d requests; ended: %s; memory %.1f MiB, then %.1f MiB" % (load.n, dict(load.kills), before / 1024, after / 1024), flush=True)
        assert after <= before * (1 + FLAT), "memory grew"
        assert s.metric("sluice:restarts_total") >= sum(load.kills.values()) > 0 < load.frontend_kills
