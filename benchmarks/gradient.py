"""Time of one value-and-gradient of the log density, beside what it could and need not cost.

Compares, in one run and for the model of the borehole problem (6 numeric columns, 16 levels):

* ours: the density of `lvgp.model` with its hand-derived gradient;
* single: the same in single precision, as trajectories of larger tables use it;
* autodiff: the same density, differentiated through `jnp.linalg.cholesky` and N x N x d
  differences as plain JAX would have it;
* potrf and potrf + potri: LAPACK's Cholesky factor, and factor and inverse, of an N x N matrix.

`in a program` is the time per evaluation inside one compiled program, which is how the optimiser
and the samplers evaluate; `16 at once` the same for a vmapped batch; `per call` includes what JAX
takes to call a compiled program from Python. All on one core: the script pins itself to one.

    python benchmarks/gradient.py [N ...]
"""

from __future__ import annotations

import os
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.linalg import lapack

from lvgp import compute, problems
from lvgp.infer.microcanonical import single_density
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

PRIORS = Priors()
SECONDS_A_CASE = 2.0


def autodiff_density(model, rows, n):
    """The same log density with nothing hand-derived and no padding."""
    x, t, y = rows.x[:n], rows.t[:n], rows.y[:n]

    def density(vector):
        p = model.parameters(vector, PRIORS)
        squared = jnp.sum(((x[:, None] - x[None]) / p.lengthscales) ** 2, axis=-1)
        for j, latents in enumerate(p.latents):
            z = latents[t[:, j]]
            squared = squared + jnp.sum((z[:, None] - z[None]) ** 2, axis=-1)
        # mu ~ N(0, 1) integrated out is a constant in the kernel
        C = p.variance * jnp.exp(-0.5 * squared) + p.noise * jnp.eye(n) + PRIORS.mean_sd**2
        L = jnp.linalg.cholesky(C)
        solved = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        log_determinant = jnp.sum(jnp.log(jnp.diagonal(L)))
        likelihood = -0.5 * solved @ solved - log_determinant - 0.5 * n * jnp.log(2 * jnp.pi)
        return likelihood + model.log_prior(vector, PRIORS)

    return density


def inside_a_program(function, repeats):
    """A program that evaluates `function` `repeats` times, each depending on the one before."""

    def step(_, carry):
        value, gradient = function(carry[0])
        return carry[0] + 1e-12 * gradient, carry[1] + value

    return lambda vector: lax.fori_loop(0, repeats, step, (vector, 0.0))


def best_times(programs):
    """Best time in microseconds of each program, taken in turns so that noise hits all alike."""
    best = dict.fromkeys(programs, np.inf)
    end = time.perf_counter() + SECONDS_A_CASE * len(programs)
    while time.perf_counter() < end:
        for name, (program, evaluations) in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(program())
            best[name] = min(best[name], (time.perf_counter() - begun) / evaluations * 1e6)
    return best


def many_calls(function, calls):
    """Call a function several times in a row, so that its data are in the cache as in real use."""

    def program():
        for _ in range(calls):
            result = jax.block_until_ready(function())
        return result

    return program, calls


def case(n):
    """Return all timings at n rows."""
    problem = problems.borehole()
    X, y = problem.sample(n, seed=0)
    model = Model(len(problem.bounds), (len(problem.levels),), (2,))
    encoded = problem.space.encode(X)
    rows = pack_rows(encoded.x, encoded.t, ((y - y.mean()) / y.std()).to_numpy())
    vector = jnp.asarray(0.5 * np.random.default_rng(0).normal(size=model.size)).at[1].set(-4.0)
    functions = {
        "ours": jax.value_and_grad(lambda v: model.log_density(v, rows, PRIORS)),
        "autodiff": jax.value_and_grad(autodiff_density(model, rows, n)),
    }
    (value, gradient), (expected, expected_gradient) = (
        jax.jit(f)(vector) for f in functions.values()
    )
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)
    functions["single"] = jax.value_and_grad(single_density(model, rows, PRIORS))

    repeats = max(1, int(2e5 / n**1.5) // 10)
    calls = min(repeats, 20)
    programs = {}
    for name, function in functions.items():
        loop = jax.jit(inside_a_program(function, repeats)).lower(vector).compile()
        call = jax.jit(function).lower(vector).compile()
        programs[f"{name}, in a program"] = (lambda loop=loop: loop(vector)), repeats
        programs[f"{name}, per call"] = many_calls(lambda call=call: call(vector), calls)
        if n <= 100:
            batch = jnp.tile(vector, (16, 1))
            many = jax.jit(jax.vmap(function)).lower(batch).compile()
            programs[f"{name}, 16 at once"] = (lambda many=many, batch=batch: many(batch)), 16
    C = np.asfortranarray(np.eye(n) + 0.5)
    programs["potrf"] = many_calls(lambda: lapack.dpotrf(C, lower=1, clean=0)[0], calls)
    programs["potrf + potri"] = many_calls(
        lambda: lapack.dpotri(lapack.dpotrf(C, lower=1, clean=0)[0], lower=1)[0], calls
    )
    for program, _ in programs.values():
        jax.block_until_ready(program())
    return best_times(programs)


def main(sizes):
    for n in sizes:
        with compute.scope():
            times = case(n)
        print(f"\nN = {n}: microseconds")
        for name, microseconds in times.items():
            print(f"  {name:26s} {microseconds:10.1f}")
        for way in ("in a program", "16 at once", "per call"):
            if f"ours, {way}" in times:
                ratio = times[f"autodiff, {way}"] / times[f"ours, {way}"]
                print(f"  autodiff / ours, {way:13s} {ratio:6.2f}")
        for other in ("potrf + potri", "single, in a program"):
            ratio = times["ours, in a program"] / times[other]
            print(f"  ours / ({other}) {ratio:6.2f}")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [32, 100, 300, 1000])
