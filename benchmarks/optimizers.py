"""MAP from 16 starts: time and best log density, beside SciPy's L-BFGS-B start by start.

Cases: borehole, OTL circuit and piston with two observations a level, and, where LVGP_DATA names
the directory with the tables, M2AX shear modulus with 100 training rows. One core; compiled
programs are warm (each case is fitted once before it is timed). The authors' implementation took
the seconds in the last column on one core of this kind of machine (16 starts; lvgp-bayes).

    python benchmarks/optimizers.py
"""

from __future__ import annotations

import os
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from scipy.optimize import minimize

from lvgp import compute, problems
from lvgp.infer.optimize import find_mode, starting_points
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors
from lvgp.space import build_space

PRIORS = Priors()
STARTS = 16
AUTHORS = {"borehole": 78, "otl_circuit": 103, "piston": 125, "m2ax shear": 50}


def cases():
    """Yield name, model and training rows."""
    for make in (problems.borehole, problems.otl_circuit, problems.piston):
        problem = make()
        X, y = problem.design(per_level=2, seed=0)
        model = Model(len(problem.bounds), (len(problem.levels),), (2,))
        yield problem.name, model, problem.space.encode(X), y
    if "LVGP_DATA" in os.environ:
        table = pd.read_csv(Path(os.environ["LVGP_DATA"]) / "m2ax" / "m2ax.csv")
        chosen = np.random.RandomState(100).choice(len(table), 100, replace=False)
        X, y = table.loc[chosen, ["M", "A", "X"]], table.loc[chosen, "shear_modulus_GPa"]
        yield "m2ax shear", Model(1, (10, 12), (2, 2)), build_space(X).encode(X), y


def scipy_by_start(model, rows, starts):
    """Best log density, evaluations and seconds of SciPy's L-BFGS-B from each start."""
    program = jax.jit(jax.value_and_grad(lambda v: -model.log_density(v, rows, PRIORS)))
    program(starts[0])
    evaluations, best = 0, -np.inf

    def objective(vector):
        value, gradient = (np.asarray(part) for part in program(vector))
        if np.isfinite(value) and np.isfinite(gradient).all():
            return float(value), gradient
        return 1e10, np.zeros_like(vector)

    begun = time.perf_counter()
    for start in starts:
        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 6000}
        )
        evaluations, best = evaluations + found.nfev, max(best, -found.fun)
    return best, evaluations, time.perf_counter() - begun


def main():
    print(
        f"{'case':12s} {'ours':>10s} {'evals':>7s} {'s':>6s} {'reached':>8s} {'refined':>8s}"
        f" {'scipy':>10s} {'evals':>7s} {'s':>6s} {'authors s':>10s} {'faster':>7s}"
    )
    for name, model, encoded, y in cases():
        with compute.scope():
            rows = pack_rows(encoded.x, encoded.t, ((y - y.mean()) / y.std()).to_numpy())
            find_mode(model, rows, PRIORS, STARTS, seed=0)
            search = find_mode(model, rows, PRIORS, STARTS, seed=0).optimization
            starts = starting_points(model, PRIORS, STARTS, seed=0)
            best, evaluations, seconds = scipy_by_start(model, rows, starts)
        refined = f"{search.reached_refined}/{len(search.refined_log_densities)}"
        print(
            f"{name:12s} {search.log_density:10.4f} {search.evaluations:7d} {search.seconds:6.2f}"
            f" {f'{search.reached}/{search.starts}':>8s} {refined:>8s} {best:10.4f}"
            f" {evaluations:7d} {seconds:6.2f} {AUTHORS[name]:10d}"
            f" {AUTHORS[name] / search.seconds:6.0f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
