"""How time and memory grow with the number of rows: gradients and whole fits of sparse models.

Random tables with two columns of 73 levels and one numeric column. One gradient of the log density
(one core, inside a compiled program, fastest of several) and the peak memory of a process that
computes it, for M inducing points; then whole MAP fits of FITC with two starts, compilation
included (VFE goes on from there and takes up to twice as long). The exponent is the slope of log
time against log N. A process for each size, so that peaks are its own.

    python benchmarks/scaling.py

Writes benchmarks/results/scaling.json.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from lvgp import LVGPRegressor, compute
from lvgp.errors import LVGPWarning
from lvgp.infer.inducing import at_rows
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

RESULTS = Path(__file__).parent / "results" / "scaling.json"
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
FIT_SIZES = (500, 2000, 10_000)
POINTS = (50, 100)
LEVELS = 73


def arrays(rows):
    """Return inputs, level codes and a response of no particular shape."""
    rng = np.random.default_rng(rows)
    x, t = rng.random((rows, 1)), rng.integers(0, LEVELS, (rows, 2))
    effects = rng.normal(size=(2, LEVELS))
    y = (
        effects[0, t[:, 0]] * effects[1, t[:, 1]]
        + np.sin(4 * x[:, 0])
        + 0.1 * rng.normal(size=rows)
    )
    return x, t, (y - y.mean()) / y.std(ddof=1)


def gradient_seconds(rows, points, rule):
    """Return the time of one gradient."""
    model = Model(1, (LEVELS, LEVELS), (2, 2), approximation=rule)
    with compute.scope():
        packed = pack_rows(*arrays(rows))
        inducing = at_rows(model, packed, np.linspace(0, rows - 1, points).astype(int))
        packed = packed._replace(inducing=jax.tree.map(jnp.asarray, inducing))
        vector = jnp.asarray(0.3 * np.random.default_rng(0).standard_normal(model.size))

        @jax.jit
        def several(vector, packed, count):
            def once(_, vector):
                value, slope = jax.value_and_grad(model.log_density)(vector, packed, Priors())
                return vector + 1e-12 * slope + 1e-300 * value

            return jax.lax.fori_loop(0, count, once, vector)

        several(vector, packed, 1).block_until_ready()
        count, took = max(1, 20_000 // rows), []
        for _ in range(5):
            begun = time.perf_counter()
            several(vector, packed, count).block_until_ready()
            took.append((time.perf_counter() - begun) / count)
    return min(took)


def fit_seconds(rows, points, rule):
    """Return the time of a MAP fit from two starts, compilation included."""
    warnings.simplefilter("ignore", LVGPWarning)
    x, t, y = arrays(rows)
    X = pd.DataFrame(
        {"x": x[:, 0], "a": [f"a{i}" for i in t[:, 0]], "b": [f"b{i}" for i in t[:, 1]]}
    )
    model = LVGPRegressor(
        "map", approximation=rule, n_inducing=points, restarts=2, random_state=0, progress=False
    )
    begun = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begun


def measure(what, rows, points, rule):
    """Measure in a process of its own."""
    command = [sys.executable, __file__, what, str(rows), str(points), rule]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Run everything, print the tables."""
    results = []
    for what, sizes, rules in (
        ("gradient", SIZES, ("fitc", "vfe")),
        ("fit", FIT_SIZES, ("fitc",)),
    ):
        for rule in rules:
            for points in POINTS:
                for rows in sizes:
                    found = measure(what, rows, points, rule)
                    results.append(
                        {"what": what, "rule": rule, "points": points, "rows": rows} | found
                    )
                    RESULTS.write_text(json.dumps(results, indent=1))
    print("| what | rule | M | " + " | ".join(f"N={rows}" for rows in SIZES) + " | exponent |")
    print("|---" * (len(SIZES) + 4) + "|")
    for (what, rule, points), part in pd.DataFrame(results).groupby(["what", "rule", "points"]):
        cells = {
            one.rows: f"{one.seconds * 1e3:.3g} ms, {one.megabytes:.0f} MB"
            if what == "gradient"
            else f"{one.seconds:.3g} s, {one.megabytes:.0f} MB"
            for one in part.itertuples()
        }
        slope = np.polyfit(np.log(part["rows"]), np.log(part["seconds"]), 1)[0]
        row = " | ".join(cells.get(rows, "") for rows in SIZES)
        print(f"| {what} | {rule} | {points} | {row} | {slope:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        what, rows, points, rule = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
        work = {"gradient": gradient_seconds, "fit": fit_seconds}[what]
        seconds = work(rows, points, rule)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(json.dumps({"seconds": seconds, "megabytes": peak}))
    else:
        main()
