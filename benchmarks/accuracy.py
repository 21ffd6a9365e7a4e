"""Accuracy of MAP, variational and full Bayes over random splits and designs.

And of the paper's way of sampling (`papers_way.py`: one chain, of which 100 draws are kept, as the
authors do), which is what to hold full Bayes against on the same splits and designs.

M2AX shear modulus, 100 training rows of 223 (splits 100 and on; needs LVGP_DATA), and borehole with
two observations a level. RRMSE, mean interval score and coverage of the 95 % intervals for f, mean
and standard error over replicates; the figures of the authors' implementation beside them
(`shared/reference`: 3 splits of M2AX, 2 designs of borehole).

    python benchmarks/accuracy.py [replicates] [method ...]

Writes benchmarks/results/accuracy.json after every fit, and goes on from what is in it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import papers_way
import tables

from lvgp import LVGPRegressor, compute
from lvgp.errors import LVGPWarning
from lvgp.infer.draws import Draws
from lvgp.posterior import Posterior

METHODS = "map", "vi", "bayes", "paper"
PAPERS_DRAWS = 100
RESULTS = Path(__file__).parent / "results" / "accuracy.json"
AUTHORS = {
    ("m2ax shear", "map"): (0.829, 356, 0.29),
    ("m2ax shear", "bayes"): (0.585, 81, 0.89),
    ("borehole 32", "map"): (0.123, 126, 0.29),
    ("borehole 32", "bayes"): (0.150, 51, 0.98),
}
AUTHORS |= {(name, "paper"): AUTHORS[name, "bayes"] for name in ("m2ax shear", "borehole 32")}


def cases(replicates):
    """Yield the data sets: the authors' first split seeds, then others."""
    seeds = [100, 137, 175, 212, 250, *range(replicates)][:replicates]
    for seed in range(replicates):
        yield seed, tables.problem("borehole", 2, seed)
    if tables.has_tables():
        for seed in seeds:
            yield seed, tables.m2ax("shear", seed)


def scores(case, method):
    """Fit and score."""
    if method == "paper":
        return papers_scores(case)
    bounds = {
        column.name: (column.low, column.high)
        for column in case.space.quantitative
        if hasattr(column, "low")
    }
    categorical = [column.name for column in case.space.qualitative] if bounds else None
    model = LVGPRegressor(
        method, bounds=bounds or None, categorical=categorical, random_state=0, progress=False
    )
    return tables.fitted(model, case)


def papers_scores(case):
    """Sample the paper's way, on one core, and score the predictions from the draws it keeps."""
    begun = time.perf_counter()
    with compute.scope(), compute.one_blas_thread():
        info = papers_way.begin(case, 0)
        run = papers_way.compiled(info)
        positions, _ = run(info.param_info.z, papers_way.chain_key(0))
        vectors = papers_way.draws(case.model, info, positions)
    seconds = time.perf_counter() - begun
    kept = np.linspace(0, len(vectors) - 1, PAPERS_DRAWS).round().astype(int)
    draws = Draws("bayes", vectors[kept], np.full(PAPERS_DRAWS, np.nan), seed=0)
    moments = case.y.mean(), case.y.std(ddof=1)
    posterior = Posterior(
        case.model, papers_way.PRIORS, draws, case.encoded, case.standardised, *moments
    )
    found = posterior.summary(case.space.encode(case.X_test), (0.025, 0.975), False)
    lower, upper = found.quantiles.T
    return tables.scores(case, found.mean, lower, upper) | {"seconds": seconds, "verdict": None}


def main(replicates, methods=METHODS):
    """Run everything, then print the table."""
    warnings.simplefilter("ignore", LVGPWarning)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {(one["case"], one["seed"], one["method"]) for one in results}
    for seed, case in cases(replicates):
        for method in methods:
            if (case.name, seed, method) in done:
                continue
            found = scores(case, method)
            results.append({"case": case.name, "seed": seed, "method": method} | found)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1))
    print("| case | method | RRMSE | interval score | coverage | seconds | ok | authors |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, method), part in pd.DataFrame(results).groupby(["case", "method"], sort=False):
        figures = " | ".join(
            f"{part[score].mean():.3g} +- {part[score].std() / np.sqrt(len(part)):.2g}"
            for score in ("rrmse", "interval_score", "coverage", "seconds")
        )
        theirs = AUTHORS.get((name, method), "")
        judged = part["verdict"].notna().any()
        ok = f"{(part['verdict'] == 'ok').sum()} of {len(part)}" if judged else "not judged"
        print(f"| {name} | {method} | {figures} | {ok} | {theirs} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:] or METHODS)
