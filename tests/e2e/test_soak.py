"""A few seconds of the soak (long_soak.py): everything at once, and the books of both sides agree."""
import asyncio
import random

import server as sv
import soak


async def run(s):
    load, rng = soak.Load(s, 48, think_s=0.1), random.Random(7)
    for seconds, kills in ((4, ("worker", "executor")), (4, ("frontend", "worker", "executor"))):
        seen, counted = await soak.phase(load, seconds, kills, 1.2, rng)
        assert not load.errors, load.errors[:20]
        soak.expect_same_books(seen, counted)
        assert seen["length"] > 0 and seen["gone"] > 0 and seen["4xx"] > 0, seen
        assert kills[0] == "frontend" or seen["broken"] == 0
    return load


def test_everything_at_once(models):
    with sv.Server(models(1000000), "--device", "null", "--null-step-us", "2000", "--max-model-len", "200000", "--num-gpu-blocks-override", "40000", "--max-restarts", "0", frontends=2) as s:
        s.ready()
        load = asyncio.run(run(s))
        assert load.n > 100
