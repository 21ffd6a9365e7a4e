"""Markov chains on small models: right answers, reproducible, stoppable, honest."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial

import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import isokinetic_velocity_verlet
from blackjax.util import generate_unit_vector
from scipy import stats

from lvgp import compute
from lvgp.errors import LVGPError, NumericalWarning
from lvgp.infer import convergence, folds, metric, microcanonical, nuts
from lvgp.infer.chains import RUN, Point, Record, side_by_side
from lvgp.infer.convergence import glance
from lvgp.infer.microcanonical import single_density
from lvgp.infer.optimize import starting_points
from lvgp.infer.sample import _WATCHED, Budget, _next_look, _Watch, first_points, sample
from lvgp.kernels import KERNELS
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

ORDINARY = Model(1, (), ())
MIXED = Model(1, (4,), (2,))
SAMPLERS = ["microcanonical", "nuts"]


def budget(sampler="microcanonical", **changes):
    usual = {
        "chains": 4,
        "warmup": 200,
        "draws": 500,
        "target_accept": 0.85,
        "seconds": np.inf,
        "maps_too": True,
    }
    return Budget(sampler, **(usual | changes))


def table(model, rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, model.n_quantitative))
    t = (
        np.stack([rng.permutation(np.resize(np.arange(n), rows)) for n in model.n_levels], 1)
        if model.n_levels
        else np.empty((rows, 0), int)
    )
    y = np.sin(5 * x[:, 0]) + 0.7 * (t.sum(axis=1) % 3) + 0.1 * rng.standard_normal(rows)
    return x, t, (y - y.mean()) / y.std(ddof=1)


def drawn(model, settings, seed=0, rows=16, **options):
    x, t, y = table(model, rows)
    with compute.scope():
        return sample(model, pack_rows(x, t, y), Priors(), settings, seed, **options)


def log_density_on_grid(grid, x, y):
    """The density of `independent` for one numeric column, at many parameter vectors at once."""
    log_variance, log_noise, log_omega = (grid[:, i, None, None] for i in range(3))
    squared = ((x - x.T) / np.exp(log_omega)) ** 2
    C = np.exp(log_variance - 0.5 * squared) + 1.0 + (1e-6 + np.exp(log_noise)) * np.eye(len(y))
    L = np.linalg.cholesky(C)
    solved = np.linalg.solve(L, np.broadcast_to(y[:, None], (len(grid), len(y), 1)))
    log = -0.5 * (solved**2).sum(axis=(1, 2)) - 0.5 * len(y) * np.log(2 * np.pi)
    log -= np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    log += stats.norm.logpdf(grid[:, 0])
    log += stats.halfcauchy.logpdf(np.exp(grid[:, 1]), scale=0.01) + grid[:, 1]
    wide = np.log(10.0)
    outside = np.maximum(np.abs(grid[:, 2]) - wide, 0.0)
    return log - 0.5 * (outside / 0.1) ** 2 - np.log(2 * wide + np.sqrt(2 * np.pi) * 0.1)


@pytest.fixture
def guided_wrongly(monkeypatch):
    """Trajectories follow another density throughout: acceptance must make up for it.

    They are short, as the two densities differ the more the further one goes.
    """

    def steeper(model, rows, priors):
        return lambda vector: 1.6 * model.log_density(vector, rows, priors) + 0.6 * vector[0]

    monkeypatch.setattr(microcanonical, "single_density", steeper)
    monkeypatch.setattr(microcanonical, "_ROWS_WORTH_SINGLE", 0)
    yield from _untuned(monkeypatch, step=0.4, length=0.8)


def _untuned(monkeypatch, step, length):
    """Start where the mass is, and tune nothing."""

    def untuned(sampler, chains, transitions):
        chains.states = sampler.begin(np.tile([0.2, -3.5, -1.0], (len(chains.states), 1)))
        sampler.tuning = microcanonical.Tuning(step, length, metric.unit(ORDINARY), np.zeros(0))
        chains.advance(sampler.advance, transitions)

    programs = microcanonical.start, microcanonical.advance
    monkeypatch.setattr(microcanonical.Microcanonical, "warm_up", untuned)
    for program in programs:
        program.clear_cache()
    yield
    for program in programs:
        program.clear_cache()


@pytest.mark.parametrize(
    ("sampler", "trouble"),
    [
        ("microcanonical", None),
        ("nuts", None),
        ("microcanonical", "guided_wrongly"),
    ],
)
def test_posterior_of_an_ordinary_process_is_that_of_quadrature(sampler, trouble, request):
    """Means and variances of three parameters against sums over a grid of the independent density.

    |z| < 5 with the Monte-Carlo error from the ESS, six comparisons: false alarms below 1e-5.
    """
    if trouble:
        request.getfixturevalue(trouble)
    x, t, y = table(ORDINARY, 16)
    axes = np.linspace(-3.5, 5, 33), np.linspace(-14, 2, 33), np.linspace(-2.7, 2.7, 33)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    log = log_density_on_grid(grid, x, y)
    expected = [independent.log_density(ORDINARY, v, x, t, y) for v in grid[::997]]
    np.testing.assert_allclose(log[::997], expected, rtol=1e-6)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = weights @ grid
    variance = weights @ (grid - mean) ** 2
    draws = drawn(ORDINARY, budget(sampler, draws=2000))
    by_chain = draws.by_chain(draws.vectors)
    for power, expected in ((by_chain, mean), ((by_chain - mean) ** 2, variance)):
        found = convergence.measure(power)
        assert found.ess_bulk.min() > 100
        error = power.std(axis=(0, 1)) / np.sqrt(found.ess_bulk)
        z = (power.mean(axis=(0, 1)) - expected) / error
        assert np.abs(z).max() < 5, z


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_log_densities_are_those_of_the_draws(sampler):
    x, t, y = table(MIXED, 16)
    draws = drawn(MIXED, budget(sampler, warmup=60, draws=20))
    ours = [independent.log_density(MIXED, vector, x, t, y) for vector in draws.vectors[::9]]
    np.testing.assert_allclose(draws.log_densities[::9], ours, rtol=1e-8)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_depend_on_the_seed_and_not_on_the_cores(sampler):
    settings = budget(sampler, warmup=60, draws=40)
    first, again, other = (
        drawn(MIXED, settings, seed, workers=workers) for seed, workers in ((3, 1), (3, 3), (4, 1))
    )
    np.testing.assert_array_equal(first.vectors, again.vectors)
    assert not np.allclose(first.vectors, other.vectors)
    assert first.vectors.shape == (160, MIXED.size)


def test_chains_differ_from_each_other():
    draws = drawn(MIXED, budget(warmup=60, draws=20))
    ends = draws.by_chain(draws.vectors)[:, -1]
    assert len(np.unique(ends[:, 0])) == 4


def test_chains_stop_when_good_enough_and_say_so():
    enough = drawn(MIXED, budget(draws=3000, maps_too=False))
    assert enough.sampling.ended == "converged"
    assert enough.sampling.draws < 3000
    interest = ~convergence.layout(MIXED, 16).for_maps
    assert convergence.reached(enough.sampling.convergence, interest)
    short = drawn(MIXED, budget(warmup=60, draws=30))
    assert short.sampling.ended == "draws"
    assert short.sampling.draws == 30


@pytest.mark.parametrize(
    ("least_ess", "most_r_hat", "look", "needed"),
    [
        (300.0, 1.005, 390, 400),  # 400 / 300 of the draws made, but never more than 1.3 at once
        (380.0, 1.015, 390, 450),  # R-hat - 1 must shrink to two thirds
        (40.0, 1.002, 480, 3000),
        (401.0, 1.002, 330, 330),
        (1e-300, np.inf, 480, 300_000),
    ],
)
def test_the_next_look_is_where_chains_may_be_good_enough(least_ess, most_r_hat, look, needed):
    assert _next_look(300, least_ess, most_r_hat) == (look, needed)


def test_only_the_worst_quantities_are_watched_until_they_are_good():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 300, 3 * _WATCHED))
    drifting = slice(_WATCHED, _WATCHED + 5)
    values[..., drifting] += np.arange(4.0)[:, None, None]
    of_interest = np.setdiff1d(np.arange(3 * _WATCHED), [_WATCHED])
    watch = _Watch(of_interest)
    least, most = watch.look([values[:, :200], values[:, 200:]])
    everywhere = glance(values[..., of_interest])
    assert (least, most) == (everywhere.ess.min(), everywhere.r_hat.max())
    assert len(watch.places) == _WATCHED
    assert set(range(_WATCHED + 1, _WATCHED + 5)) <= set(watch.places)
    assert _WATCHED not in watch.places


def test_quantities_not_watched_for_a_while_still_have_to_be_good():
    values = np.random.default_rng(1).standard_normal((4, 400, 3 * _WATCHED))
    values[:, :200, 0] += np.arange(4.0)[:, None]
    watch = _Watch(np.arange(3 * _WATCHED))
    watch.look([values[:, :200]])
    assert 0 in watch.places
    values[:, :200, 0] -= np.arange(4.0)[:, None]
    left_alone = np.setdiff1d(np.arange(3 * _WATCHED), watch.places)[0]
    values[..., left_alone] += np.arange(4.0)[:, None]
    least, most = watch.look([values])
    assert (least, most) == (glance(values).ess.min(), glance(values).r_hat.max())
    assert most > 1.5
    assert left_alone in watch.places
    values[..., left_alone] -= np.arange(4.0)[:, None]
    least, most = watch.look([values])
    assert (least, most) == (glance(values).ess.min(), glance(values).r_hat.max())
    assert len(watch.places) == 3 * _WATCHED


def test_time_limit_ends_sampling_with_what_there_is(monkeypatch):
    drawn(MIXED, budget(warmup=60, draws=10))
    # no chains ever agree so well: only the clock can end them
    monkeypatch.setattr("lvgp.infer.sample.MOST_R_HAT", 0.0)
    draws = drawn(MIXED, budget(warmup=60, draws=10**6, seconds=6.0))
    assert draws.sampling.ended == "time"
    assert draws.sampling.draws >= 50
    with pytest.raises(LVGPError, match=r"time limit of 0.001 s ended with 0 draws"):
        drawn(MIXED, budget(seconds=0.001))


def test_padding_rows_and_more_rows_reuse_the_compiled_program():
    settings = budget(warmup=40, draws=20)
    drawn(MIXED, settings, rows=16)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    try:
        drawn(MIXED, settings, seed=1, rows=17)
        drawn(MIXED, settings, seed=2, rows=18)
        drawn(MIXED, budget(warmup=60, draws=130), seed=3, rows=16)
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiled == []


def test_nearly_equal_rows_without_noise_floor_get_jitter():
    x, t, y = table(MIXED, 16)
    x[:8], t[:8] = x[0] + 1e-12 * np.arange(8)[:, None], t[0]
    priors = Priors(noise_floor=0.0, noise_scale=1e-300)
    points = starting_points(MIXED, priors, 16, 0)
    points[:, 1] = -800.0
    with compute.scope(), pytest.warns(NumericalWarning, match="added to the noise variance"):
        rows, chosen = first_points(MIXED, pack_rows(x, t, y), priors, 4, points)
    assert float(rows.jitter) > 0
    assert chosen.shape == (4, MIXED.size)


# trajectories in single precision


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [13, 27])
def test_the_density_in_single_precision_is_nearly_the_density(kernel, rows):
    """Padding rows included: 14 of them, and none."""
    model = Model(1, (4,), (2,), kernel)
    vector = np.random.default_rng(0).standard_normal(model.size)
    vector[1] = -4.0
    with compute.scope():
        packed = pack_rows(*table(model, rows))
        single = single_density(model, packed, Priors())
        double = partial(model.log_density, rows=packed, priors=Priors())
        (found, slope), (value, gradient) = (
            jax.jit(jax.value_and_grad(density))(vector) for density in (single, double)
        )
    assert found.dtype == slope.dtype == np.float64
    assert 0.0 < abs(found - value) < 0.1
    assert 0.0 < np.linalg.norm(slope - gradient) < 0.01 * np.linalg.norm(gradient)


@pytest.mark.parametrize(
    ("tolerance", "most_wrong", "stays"),
    [(0.05, 0.0, True), (1e-12, 0.0, False), (1e-12, 1.0, True)],
)
def test_chains_stay_in_single_precision_only_where_its_gradient_is_right(
    tolerance, most_wrong, stays, monkeypatch
):
    monkeypatch.setattr(microcanonical, "_ROWS_WORTH_SINGLE", 0)
    monkeypatch.setattr(microcanonical, "_MOST_ERROR", tolerance)
    with compute.scope():
        rows = pack_rows(*table(MIXED, 16))
        sampler = microcanonical.Microcanonical(MIXED, rows, Priors(), [], 0.85)
        assert sampler.in_single
        points = sampler.begin(starting_points(MIXED, Priors(), 3, 0))
        record = jax.tree.map(lambda *parts: np.stack(parts)[:, None], *points)
        with side_by_side(points, 1, np.inf, lambda *_: None) as chains:
            kept = sampler._checked(chains, record, most_wrong)
        assert sampler.in_single == stays
        kept = [jax.tree.map(lambda part, i=i: part[i, 0], kept) for i in range(3)]
        for point in [*chains.states, *kept]:
            right = microcanonical.start(MIXED, False, point.vector, rows, Priors())
            assert point.log_density == pytest.approx(float(right.log_density), rel=1e-9)
            np.testing.assert_allclose(point.gradient, right.gradient, rtol=0.05, atol=0.05)
            exact = np.allclose(point.gradient, right.gradient, rtol=1e-9, atol=1e-9)
            assert exact != stays


def test_columns_are_folded_the_more_the_slower_their_maps_change_if_folds_change_them():
    model, rng = Model(1, (5, 4, 4), (2, 2, 2)), np.random.default_rng(0)
    vectors = 0.3 * rng.standard_normal((4, 200, model.size))
    latents = vectors[..., model.raw_start :]
    latents[..., 10:18] = 0.3 * np.repeat(rng.standard_normal((4, 20, 8)), 10, axis=1)
    latents[..., 18:] = 0.3 * np.repeat(rng.standard_normal((4, 4, 8)), 50, axis=1)
    nothing = np.zeros((4, 200))
    record = Record(Point(vectors, nothing, None), *[nothing] * 5, began=vectors)
    few = jax.tree.map(lambda part: part[:, :4], record)
    # where trajectories begin where the last one ended, folds have led nowhere
    idle = record._replace(began=np.roll(vectors, 1, axis=1))
    with compute.scope():
        rows = pack_rows(*table(model, 20))
        sampler = microcanonical.Microcanonical(model, rows, Priors(), [], 0.85)
        before = sampler.tuning
        found = []
        for seen in (few, record, idle):
            sampler.tuning = before
            sampler._choose_folds(seen)
            found.append(sampler.tuning.folds)
    np.testing.assert_array_equal(found[0], before.folds)
    quick, slow, slowest = found[1]
    assert quick == folds.FEWEST_FOLDS < slow < slowest
    # a draw of the second map is worth a tenth of an independent one; luck of the worst of pairs
    assert 0.25 < slow < 0.9
    np.testing.assert_array_equal(found[2], folds.FEWEST_FOLDS)


@pytest.mark.parametrize("tried", [0.0, 1.0])
def test_trajectories_begin_where_the_last_one_ended_or_where_folds_led_from_there(tried):
    with compute.scope():
        rows, start = pack_rows(*table(MIXED, 16)), starting_points(MIXED, Priors(), 1, 0)
        keys = [jax.random.key(0)]
        sampler = microcanonical.Microcanonical(MIXED, rows, Priors(), keys, 0.85)
        sampler.tuning = sampler.tuning._replace(folds=np.full(len(MIXED.n_levels), tried))
        plain = nuts.Nuts(MIXED, rows, Priors(), keys, 0.8, 10)
        _, record = sampler.advance(sampler.begin(start)[0], 0, 0, 20)
        _, of_nuts = plain.advance(plain.begin(start)[0], 0, 0, 20)
    ended, began = np.asarray(record.point.vector)[:19], np.asarray(record.began)[1:20]
    hyperparameters = slice(0, MIXED.raw_start)
    np.testing.assert_array_equal(began[:, hyperparameters], ended[:, hyperparameters])
    np.testing.assert_allclose((began**2).sum(axis=1), (ended**2).sum(axis=1), rtol=1e-12)
    assert (began != ended).any() == (tried > 0.0)
    np.testing.assert_array_equal(of_nuts.began[1:20], of_nuts.point.vector[:19])


def test_small_tables_and_sparse_models_are_sampled_in_double_precision():
    with compute.scope():
        small, large = (pack_rows(*table(MIXED, rows)) for rows in (60, 100))
        sparse = Model(1, (4,), (2,), approximation="fitc")
        made = [
            microcanonical.Microcanonical(model, rows, Priors(), [], 0.85).in_single
            for model, rows in ((MIXED, small), (MIXED, large), (sparse, large))
        ]
    assert made == [False, True, False]


# a second trajectory where the first one fails


def funnel(vector):
    """Log density of a ~ N(0, 1) and b given a ~ N(0, exp(2 a)): narrow where a is low."""
    a, b = vector
    return -0.5 * a**2 - 0.5 * (b * jnp.exp(-a)) ** 2 - a


def one_transition(starts, seed=0):
    """Make one transition from each of the points (count, 2); return where it led, its record."""
    integrate = isokinetic_velocity_verlet(funnel, jnp.ones(2))

    def walk(point, moved, direction, step, steps):
        begin, end, kinetic = microcanonical._trajectory(
            integrate, point, moved, direction, step, steps
        )
        proposed = Point(end.position, end.logdensity, end.logdensity_grad)
        gain = end.logdensity - begin.log_density - kinetic
        return microcanonical._Leg(begin, proposed, end.momentum, gain)

    def transition(vector, key):
        keys = jax.random.split(key)
        point = Point(vector, *jax.value_and_grad(funnel)(vector))
        direction = generate_unit_vector(keys[0], vector)
        still, step, steps = jnp.asarray(False), jnp.asarray(1.2), jnp.asarray(3, jnp.int32)
        return microcanonical._walked(walk, point, still, direction, step, steps, keys[1])

    keys = jax.random.split(jax.random.key(seed), len(starts))
    with compute.scope():
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(transition))(starts, keys))


@pytest.mark.parametrize("clearly", [2.0, 0.2])
def test_second_trajectories_leave_the_density_as_it_is(clearly, monkeypatch):
    """Exact draws are still exact draws after a transition: seven expectations stay as they are.

    |z| < 5: false alarms below 1e-5. Nearly every failure leads to a second trajectory where it
    need not be clear.
    """
    monkeypatch.setattr(microcanonical, "_CLEARLY", clearly)
    count = 400_000
    normal = np.random.default_rng(0).standard_normal((count, 2))
    starts = np.stack([normal[:, 0], np.exp(normal[:, 0]) * normal[:, 1]], axis=1)
    point, record = one_transition(starts)
    second = record.steps > 3
    moved = second & (point.vector != starts).any(axis=1)
    assert 0.05 < moved.mean() < second.mean()

    def features(draws):
        a, b = draws.T
        scaled = b * np.exp(-a)
        return np.stack(
            [a, a**2, a < -1.0, a < -2.0, scaled**2, np.abs(scaled) < 0.3, a * scaled**2], axis=1
        )

    # start and end have the same distribution, so each difference is zero on average
    change = features(point.vector) - features(starts).astype(float)
    z = change.mean(axis=0) / (change.std(axis=0) / np.sqrt(count))
    assert np.abs(z).max() < 5, z


def test_trajectories_count_the_steps_of_all_that_were_tried():
    wide, narrow = np.array([[0.0, 0.0]] * 200), np.array([[-4.0, 0.005]] * 200)
    for starts, least in ((wide, 3), (narrow, 9)):
        _, record = one_transition(starts)
        assert set(record.steps) <= {3, 9, 12}
        assert np.median(record.steps) >= least
    assert record.acceptance.mean() < 0.5


# stopping from the keyboard

INTERRUPTED = """
    import os, signal, threading
    import numpy as np, pandas as pd
    from lvgp import LVGPRegressor
    from lvgp.infer import microcanonical, sample

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have it ignored

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    sample.MOST_R_HAT = 0.0  # no chains ever agree so well: they would go on for ever
    glance, move_step = sample.glance, microcanonical.Microcanonical._move_step
    WHEN
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"m": np.resize(list("abcd"), 24), "x": rng.random(24)})
    model = LVGPRegressor(warmup=40, draws=10**6, chains=2, random_state=0, progress=False)
    try:
        model.fit(X, rng.standard_normal(24))
        print("fitted", model.draws_.sampling.ended, model.draws_.sampling.draws >= 150)
        print(model.diagnostics_)
        print(np.isfinite(model.predict(X)).all())
    except KeyboardInterrupt:
        print("given up", hasattr(model, "draws_"))
"""
WHILE_SAMPLING = """timer = threading.Timer(0.5, interrupt)
sample.glance = lambda v: (timer.ident or timer.start(), glance(v))[1]"""
WHILE_CHECKING = "sample.glance = lambda v: (interrupt(), glance(v))[1]"
WHILE_MEASURING = """measure, calls = sample.measure, []
sample.MOST_R_HAT, sample.LEAST_ESS = 1e9, 0.0
sample.measure = lambda v: (calls.append(1), len(calls) == 1 and interrupt(), measure(v))[2]"""
WHILE_WARMING_UP = (
    "microcanonical.Microcanonical._move_step = lambda *a, **k: (interrupt(), move_step(*a, **k))"
)


def _interrupted(when):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(INTERRUPTED).replace("WHEN", when)],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("when", [WHILE_SAMPLING, WHILE_CHECKING, WHILE_MEASURING])
def test_interrupt_keeps_the_draws_made_so_far(when):
    out = _interrupted(when)
    assert "fitted interrupted True" in out
    assert "interrupted from the keyboard" in out
    assert out.strip().endswith("True")


def test_interrupt_during_warm_up_is_passed_on():
    assert _interrupted(WHILE_WARMING_UP).strip() == "given up False"


def test_chains_stay_level_when_there_are_more_of_them_than_workers():
    """A round of 200 transitions ends early; every chain has made about as many."""
    order = []

    def step(state, chain, first, count):
        order.append(chain)
        if len(order) == 40:
            chains.deadline = 0.0
        part = np.zeros(32)
        point = Point(np.zeros((32, 1)), part, np.zeros((32, 1)))
        return state + count, Record(point, part, part, part, part, part, part)

    with side_by_side([0, 0, 0, 0, 0], 2, np.inf, lambda run, record: None) as chains:
        record = chains.advance(step, 100_000)
    assert chains.ended == "time"
    assert max(chains.states) - min(chains.states) <= 2 * RUN
    assert record.acceptance.shape == (5, min(chains.states))
    assert chains.made == min(chains.states) > RUN
