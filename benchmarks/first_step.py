"""One first step, in a process of its own: what `bench_start` starts, as often as it needs to.

It prints as JSON how long that took, from after `import torch` to the end of the step, and how many
graphs the compiler has seen.
"""

from __future__ import annotations

import argparse
import json
import time

START = time.perf_counter()


def first_step(whose: str, shapes: list[tuple[int, ...]], compile: bool) -> int | None:
    """Make AdamW's first step on tensors; return how many kernels are planned, where that is known."""
    from benchmarks.tensors import random, trained

    params = trained(random(shapes, 0.02), random(shapes))
    if whose == "torch":
        from benchmarks.sides import compiled_torch

        compiled_torch(params).step()
        return None
    from dslmut.optim import adamw

    opt = adamw().bind(params, compile=compile)
    opt.step()
    return opt.explain().kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("whose", choices=["ours", "torch"])
    parser.add_argument("tensors", choices=["gpt2", "thirty", "toy"])
    options = parser.parse_args()
    from benchmarks.tensors import gpt2, thirty

    shapes = {"gpt2": gpt2(64), "thirty": thirty(1000), "toy": gpt2(8, layers=1)}[options.tensors]
    kernels = first_step(options.whose, shapes, compile=options.tensors != "toy")
    took = time.perf_counter() - START
    from torch._dynamo.utils import counters

    inductor = counters["inductor"]
    graphs = inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_hit"]
    print(json.dumps({"seconds": took, "kernels": kernels, "graphs": graphs}))


if __name__ == "__main__":
    main()
