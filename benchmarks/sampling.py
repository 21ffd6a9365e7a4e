"""Full Bayes: the paper's way of sampling beside ours, in one run.

The paper's way: a plain NumPyro program, autodiff, NUTS with 1500 + 1500 transitions, tree depth 7,
one chain. Ours: the default of method="bayes" (4 chains until R-hat < 1.01 and ESS >= 400). Both on
the same density and judged on the same identified quantities (hyperparameters, all pairwise level
correlations, the log density, predictive means at the training rows). CPU seconds cover warm-up and
sampling without compilation, everything on one core. Wall seconds cover compilation too; the wall
time and the time to ESS 400 of our way are taken in a second process with all cores, the latter
with compiled programs warm.

Where a posterior has modes that are rarely left, the ESS of a run depends on which of them it
happened to visit, and one chain does not notice those it never met. So each way runs with several
seeds. The lines "paper" and "ours" are averages over seeds (our wall times are of the first alone;
the time to ESS 400 of the paper's way follows from its average rate). In the lines "pooled" the
chains of all seeds are measured together, as if they were those of one run, per CPU second of all
of them; of runs that differ in length, as much of each as the shortest has. There is a ratio for
either.

    python benchmarks/sampling.py [case ...]

Needs LVGP_DATA for the M2AX cases. Writes benchmarks/results/sampling.json, case by case, with the
figures of every seed.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["LVGP_CACHE"] = "off"
ALL_CORES = "--all-cores"

import sys

if ALL_CORES not in sys.argv and hasattr(os, "sched_setaffinity"):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})

import json
import math
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import papers_way as papers
import tables
from papers_way import PRIORS

from lvgp import compute, options
from lvgp.infer import convergence
from lvgp.infer.sample import sample
from lvgp.model import pack_rows

RESULTS = Path(__file__).parent / "results"
CHAINS = 4
PAPERS_SEEDS, OUR_SEEDS = range(4), range(3)
COLUMNS = [
    "wall",
    "cpu",
    "gradients",
    "min_ess",
    "median_ess",
    "max_r_hat",
    "min_ess_per_cpu",
    "time_to_400",
]
CASES = {
    "m2ax shear": lambda: tables.m2ax("shear"),
    "m2ax bulk": lambda: tables.m2ax("bulk"),
    "borehole 32": lambda: tables.problem("borehole", 2),
    "borehole 64": lambda: tables.problem("borehole", 4),
    "otl_circuit 72": lambda: tables.problem("otl_circuit", 4),
}


def papers_way(case, rows):
    """Sample as the paper does with each seed; return figures of each, and of all together."""
    *rest, begun, first = (
        *(papers.begin(case, seed) for seed in PAPERS_SEEDS[1:]),
        time.perf_counter(),
        papers.begin(case, PAPERS_SEEDS[0]),
    )
    infos = [first, *rest]
    program = papers.compiled(first)
    compiling = time.perf_counter() - begun
    made, values = [], []
    for seed, info in zip(PAPERS_SEEDS, infos, strict=True):
        begun, cpu = time.perf_counter(), time.process_time()
        positions, steps = jax.block_until_ready(program(info.param_info.z, papers.chain_key(seed)))
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - begun
        values.append(papers_values(case.model, rows, info, positions)[None])
        figures = quality(values[-1], cpu)
        made.append(
            figures
            | {
                "wall": compiling + seconds,
                "gradients": int(steps.sum()),
                "saturated": float((steps[papers.WARMUP :] >= 2**papers.DEPTH - 1).mean()),
                # one chain cannot show R-hat; the time is what the ESS alone would need
                "time_to_400": seconds * 400.0 / figures["min_ess"],
                "ended": "one chain",
            }
        )
    return made, pooled(values, made)


def papers_values(model, rows, info, positions):
    """Return the identified quantities along one chain of the plain program, warm-up left out."""
    vectors = papers.draws(model, info, positions)
    densities = np.asarray(
        jax.lax.map(lambda vector: model.log_density(vector, rows, PRIORS), vectors)
    )
    return convergence.identified(model, vectors, densities, rows, PRIORS)


def our_way(case, rows):
    """Sample as method="bayes" does by default; figures of each seed, and of all together."""
    once(case.model, rows, draws=60)
    values, made = zip(*(one_of_ours(case.model, rows, seed) for seed in OUR_SEEDS), strict=True)
    return list(made), pooled(values, made)


def one_of_ours(model, rows, seed):
    """Sample with one seed; return identified quantities and figures."""
    cpu = time.process_time()
    draws = once(model, rows, seed)
    cpu = time.process_time() - cpu
    vectors, densities = (draws.by_chain(part) for part in (draws.vectors, draws.log_densities))
    values = np.stack(
        [
            convergence.identified(model, *chain, rows, PRIORS)
            for chain in zip(vectors, densities, strict=True)
        ]
    )
    sampling = draws.sampling
    return values, quality(values, cpu) | {
        "gradients": sampling.gradients,
        "saturated": float((sampling.steps >= sampling.most_steps).mean()),
        "draws": sampling.draws,
        "ended": sampling.ended,
    }


def once(model, rows, seed=0, draws=None):
    """Sample with the default budget."""
    budget = options.budget("auto", CHAINS, None, draws, None, None, "all")
    return sample(model, rows, PRIORS, budget, seed)


def with_all_cores(name):
    """Return wall seconds of our way in a process of its own, compilation included and not."""

    def free():
        os.sched_setaffinity(0, cores)

    command = [sys.executable, __file__, ALL_CORES, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=free)
    return json.loads(done.stdout.splitlines()[-1])


def walls(case, rows):
    """Wall seconds of the first fit and of the second; how the second ended."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        draws = once(case.model, rows)
        times.append(time.perf_counter() - begun)
    converged = draws.sampling.ended == "converged"
    return {"wall": times[0], "time_to_400": times[1] if converged else math.nan}


def quality(values, cpu):
    """Effective sample sizes over identified quantities, and per CPU second."""
    found = convergence.measure(values)
    return {
        "cpu": cpu,
        "min_ess": float(found.ess_bulk.min()),
        "median_ess": float(np.median(found.ess_bulk)),
        "max_r_hat": float(found.r_hat.max()),
        "min_ess_per_cpu": float(found.ess_bulk.min() / cpu),
    }


def pooled(values, made):
    """Return figures of the chains of all seeds together, cut to the length of the shortest."""
    least = min(part.shape[1] for part in values)
    cpu = sum(
        figures["cpu"] * least / part.shape[1] for part, figures in zip(values, made, strict=True)
    )
    return quality(np.concatenate([part[:, :least] for part in values]), cpu)


def average(made):
    """Return the figures of several seeds as one line of the table."""
    numbers = {name: float(np.mean([m[name] for m in made])) for name in COLUMNS if name in made[0]}
    if "time_to_400" in numbers:
        numbers["time_to_400"] = 1.0 / float(np.mean([1.0 / m["time_to_400"] for m in made]))
    return numbers | {"ended": ", ".join(sorted({figures["ended"] for figures in made}))}


def main(names):
    """Run the cases and print the table, a line at a time."""
    path = RESULTS / "sampling.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    print("| case | way | " + " | ".join(COLUMNS) + " | ended | ratio |")
    print("|" + "---|" * (len(COLUMNS) + 4), flush=True)
    for name in names:
        with compute.scope(), compute.one_blas_thread():
            case, rows = prepared(name)
            theirs, theirs_pooled = papers_way(case, rows)
            show(name, "paper", average(theirs))
            show(name, "paper, pooled", theirs_pooled)
            ours, ours_pooled = our_way(case, rows)
        line = average(ours) | with_all_cores(name)
        ratios = [
            a_way["min_ess_per_cpu"] / other["min_ess_per_cpu"]
            for a_way, other in ((line, average(theirs)), (ours_pooled, theirs_pooled))
        ]
        show(name, "ours", line, f"{ratios[0]:.1f}x")
        show(name, "ours, pooled", ours_pooled, f"{ratios[1]:.1f}x")
        kept[name] = {
            "paper": average(theirs) | {"seeds": theirs},
            "paper pooled": theirs_pooled,
            "ours": line | {"seeds": ours},
            "ours pooled": ours_pooled,
            "ratio": ratios[0],
            "pooled ratio": ratios[1],
        }
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(kept, indent=1))


def show(name, way, figures, ratio=""):
    """Print a line; what is not known of a way is left empty."""
    known = (f"{figures[column]:.4g}" if column in figures else "" for column in COLUMNS)
    ended = figures.get("ended", "")
    print(f"| {name} | {way} | {' | '.join(known)} | {ended} | {ratio} |", flush=True)


def prepared(name):
    """Return a case with its training rows packed; to be called in double precision."""
    case = CASES[name]()
    encoded = case.encoded
    return case, pack_rows(encoded.x, encoded.t, case.standardised)


if __name__ == "__main__":
    if ALL_CORES in sys.argv:
        with compute.scope():
            print(json.dumps(walls(*prepared(sys.argv[-1]))))
    else:
        available = [name for name in CASES if tables.has_tables() or "m2ax" not in name]
        main(sys.argv[1:] or available)
