"""How far exact full Bayes goes, and where a sparse approximation takes over.

ABO3 formation energy (two columns of 73 levels; needs LVGP_DATA). For each number of training rows:
the time of one gradient of the exact and of the sparse (VFE, M = 50 and 100) log density on one
core inside a compiled program, and the time that 150 000 of them take on this machine's cores,
which is what a fit by Markov chains needs, roughly. Then whole fits of the exact model from chains
started over the prior and around a mode, for at most `seconds` each: R-hat and effective sample
size of the predictions when the time was up.

    LVGP_DATA=... python benchmarks/exact_limits.py [seconds]
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import tables

from lvgp import compute, options
from lvgp.errors import LVGPError, LVGPWarning
from lvgp.infer.convergence import layout, watched_rows
from lvgp.infer.inducing import at_rows
from lvgp.infer.optimize import find_mode, starting_points
from lvgp.infer.sample import sample
from lvgp.model import pack_rows
from lvgp.priors import Priors

SIZES = (100, 250, 500, 1000, 2000)
GRADIENTS = 150_000


def packed(case, points):
    """Return model and rows, with inducing points at evenly spaced rows if any."""
    rows = pack_rows(case.encoded.x, case.encoded.t, case.standardised)
    if not points:
        return case.model, rows
    model = replace(case.model, approximation="vfe")
    inducing = at_rows(model, rows, np.linspace(0, len(case.y) - 1, points).astype(int))
    return model, rows._replace(inducing=jax.tree.map(jnp.asarray, inducing))


def gradient_seconds(model, rows):
    """Return the time of one gradient."""
    start = jnp.asarray(starting_points(model, Priors(), 1, 0)[0])

    def several(vector, rows, count):
        def once(_, vector):
            return vector + 1e-12 * jax.grad(model.log_density)(vector, rows, Priors())

        return jax.lax.fori_loop(0, count, once, vector)

    compiled = jax.jit(several, compiler_options=compute.ONE_THREAD)
    compiled(start, rows, 1).block_until_ready()
    count, took = max(2, 20_000 // len(rows.y)), []
    for _ in range(5):
        begun = time.perf_counter()
        compiled(start, rows, count).block_until_ready()
        took.append((time.perf_counter() - begun) / count)
    return min(took)


def fit(case, seconds, warm):
    """Return what a fit of limited time reached."""
    model, rows = packed(case, 0)
    budget = options.budget("auto", 4, None, None, None, seconds, "predictions")
    mode = find_mode(model, rows, Priors(), 2, 0) if warm else None
    draws = sample(model, rows, Priors(), budget, 0, mode=mode)
    watched = len(watched_rows(int(rows.mask.sum())))
    found, fitted = draws.sampling.convergence, layout(model, watched).fitted
    return draws.sampling.draws, found.r_hat[fitted].max(), found.ess_bulk[fitted].min()


def main(seconds):
    """Print both tables."""
    warnings.simplefilter("ignore", LVGPWarning)
    print("| rows | exact, ms | minutes | VFE M=50, ms | minutes | VFE M=100, ms | minutes |")
    print("|---|---|---|---|---|---|---|")
    with compute.scope(), compute.one_blas_thread():
        for size in SIZES:
            case, cells = tables.abo3(rows=size), []
            for points in (0, 50, 100):
                took = gradient_seconds(*packed(case, points))
                cells += [f"{took * 1e3:.2f}", f"{took * GRADIENTS / compute.cores() / 60:.0f}"]
            print(f"| {size} | {' | '.join(cells)} |", flush=True)
    print("\n| rows | chains start | draws | largest R-hat | smallest ESS |\n|---|---|---|---|---|")
    with compute.scope():
        for warm in (False, True):
            start = "around a mode" if warm else "over the prior"
            try:
                draws, r_hat, ess = fit(tables.abo3(rows=500), seconds, warm)
                print(f"| 500 | {start} | {draws} | {r_hat:.3f} | {ess:.0f} |", flush=True)
            except LVGPError:
                print(f"| 500 | {start} | none in {seconds:g} s | | |", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 300.0)
