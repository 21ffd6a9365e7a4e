"""How long trajectories should be: efficiency of the microcanonical sampler against their length.

For each case and mean length (in units of the square root of the number of parameters): gradients
a draw, and effective draws of the worst and the median identified quantity per 10 000 gradients of
sampling, no folds tried. "tuned" is what warm-up chooses; "2 steps" is the length that BlackJAX's
own tuning fixes.

    python benchmarks/trajectories.py [draws]
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import math
import sys
import time

import jax
import numpy as np
import tables

from lvgp import compute
from lvgp.infer import convergence
from lvgp.infer.chains import side_by_side
from lvgp.infer.microcanonical import TARGET_ACCEPT, Microcanonical
from lvgp.infer.optimize import starting_points
from lvgp.model import pack_rows
from lvgp.priors import Priors

PRIORS = Priors()
LENGTHS = ("2 steps", 1.5, 3.0, 4.0, 6.0, "tuned")


def sampled(case, changed, draws, seed=0):
    """Warm up, change the tuning, and sample; return the record, CPU seconds and the identified
    quantities (chains, draws, quantities)."""
    model, encoded = case.model, case.encoded
    with compute.scope():
        rows = pack_rows(encoded.x, encoded.t, case.standardised)
        keys = [jax.random.key(4 * seed + chain) for chain in range(4)]
        sampler = Microcanonical(model, rows, PRIORS, keys, TARGET_ACCEPT)
        points = sampler.begin(starting_points(model, PRIORS, 4, seed))
        with side_by_side(points, None, np.inf, lambda *_: None) as chains:
            sampler.warm_up(chains, 250)
            sampler.tuning = changed(sampler.tuning)
            cpu = time.process_time()
            record = chains.advance(sampler.advance, draws)
            cpu = time.process_time() - cpu
        pairs = zip(record.point.vector, record.point.log_density, strict=True)
        values = np.stack([convergence.identified(model, *pair, rows, PRIORS) for pair in pairs])
    return record, cpu, values


def with_length(case, length):
    """Return what sets the length of trajectories, and their number of folds to none."""

    def change(tuning):
        if length == "2 steps":
            tuning = tuning._replace(length=1.5 * tuning.step)
        elif length != "tuned":
            tuning = tuning._replace(length=length * math.sqrt(case.model.size))
        return tuning._replace(folds=np.zeros(len(case.model.n_levels)))

    return change


def main(draws):
    """Print a line for each case and length."""
    cases = [tables.problem("borehole", 2), tables.problem("borehole", 4)]
    if tables.has_tables():
        cases.append(tables.m2ax("shear"))
    print("| case | length | gradients a draw | worst per 1e4 | median per 1e4 |")
    print("|---|---|---|---|---|")
    for case in cases:
        for length in LENGTHS:
            record, _, values = sampled(case, with_length(case, length), draws)
            ess = convergence.measure(values).ess_bulk
            share = 1e4 / record.steps.sum()
            found = record.steps.mean(), share * ess.min(), share * np.median(ess)
            figures = " | ".join(f"{value:.1f}" for value in found)
            print(f"| {case.name} | {length} | {figures} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
