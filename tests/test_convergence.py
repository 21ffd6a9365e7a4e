"""R-hat and ESS on identified quantities, through ArviZ and at a glance."""

from __future__ import annotations

import arviz
import independent
import numpy as np
import pytest

from lvgp import compute
from lvgp.infer import convergence
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

MODEL = Model(2, (3, 4), (2, 3), kernel="matern52")


def autoregressive(chains, draws, quantities, memory, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((chains, draws, quantities))
    for draw in range(1, draws):
        values[:, draw] = memory * values[:, draw - 1] + np.sqrt(1 - memory**2) * values[:, draw]
    return values


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    x, y = rng.random((14, 2)), rng.standard_normal(14)
    t = np.stack([rng.integers(0, 3, 14), rng.integers(0, 4, 14)], axis=1)
    vectors = rng.normal(size=(5, MODEL.size)) - np.eye(MODEL.size)[1]
    return x, t, y, vectors


def test_identified_quantities_are_those_of_the_definition(table):
    x, t, y, vectors = table
    with compute.scope():
        rows = pack_rows(x, t, y)
        values = convergence.identified(MODEL, vectors, np.arange(5.0), rows, Priors())
    places = convergence.layout(MODEL, 14)
    assert values.shape == (5, places.size)
    np.testing.assert_array_equal(values[:, places.hyperparameters], vectors[:, : MODEL.raw_start])
    np.testing.assert_array_equal(values[:, places.log_density], np.arange(5.0))
    for draw, vector in enumerate(vectors):
        z = independent.unpack(MODEL, vector)["z"]
        for block, latents in zip(places.correlations, z, strict=True):
            apart = np.linalg.norm(latents[:, None] - latents[None], axis=-1)
            expected = (
                independent.CORRELATIONS["matern52"](apart)[np.triu_indices(len(z[0]), 1)]
                if latents is z[0]
                else independent.CORRELATIONS["matern52"](apart)[np.triu_indices(len(z[1]), 1)]
            )
            np.testing.assert_allclose(values[draw, block], expected, rtol=1e-10)
        mean, _ = independent.predict(MODEL, vector, (x, t), y, (x, t))
        np.testing.assert_allclose(values[draw, places.fitted], mean, rtol=1e-7, atol=1e-9)


def test_rotating_the_latents_changes_no_identified_quantity(table):
    x, t, y, vectors = table
    turned = vectors.copy()
    rng = np.random.default_rng(2)
    start = MODEL.raw_start
    for levels, dim in zip(MODEL.n_levels, MODEL.latent_dims, strict=True):
        rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        block = slice(start, start + levels * dim)
        turned[:, block] = (turned[:, block].reshape(5, levels, dim) @ rotation).reshape(5, -1)
        start += levels * dim
    with compute.scope():
        rows = pack_rows(x, t, y)
        before, after = (
            convergence.identified(MODEL, some, np.zeros(5), rows, Priors())
            for some in (vectors, turned)
        )
    assert not np.allclose(vectors, turned)
    np.testing.assert_allclose(before, after, atol=1e-9)


def test_maps_rest_on_correlations_and_precisions_and_predictions_on_the_rest():
    places = convergence.layout(MODEL, 14)
    for block in places.correlations:
        assert places.for_maps[block].all()
    assert places.for_maps[4:6].all()
    assert not places.for_maps[:4].any()
    assert not places.for_maps[places.fitted].any()
    assert not places.for_maps[places.log_density]


def test_measure_is_arviz_quantity_by_quantity():
    values = autoregressive(4, 200, 3, 0.6)
    values[0, :, 2] += 1.0
    found = convergence.measure(values)
    for quantity in range(3):
        one = values[..., quantity]
        assert found.ess_bulk[quantity] == pytest.approx(arviz.ess(one, method="bulk"))
        assert found.ess_tail[quantity] == pytest.approx(arviz.ess(one, method="tail"))
        assert found.r_hat[quantity] == pytest.approx(arviz.rhat(one))
    assert found.r_hat[2] > 1.05 > found.r_hat[:2].max()


def test_quantity_that_never_moves_counts_as_known():
    values = autoregressive(4, 100, 2, 0.0)
    values[..., 1] = 1.0
    found, seen = convergence.measure(values), convergence.glance(values)
    assert found.r_hat[1] == seen.r_hat[1] == 1.0
    assert found.ess_bulk[1] == seen.ess[1] == 400.0


def test_quantity_that_is_not_a_number_counts_as_unknown():
    values = autoregressive(4, 400, 2, 0.0)
    values[1, 7, 1] = np.nan
    assert not convergence.glance(values).r_hat[1] < 1.01
    assert not convergence.reached(convergence.measure(values), np.array([False, True]))


def test_single_chain_is_compared_with_itself():
    steady = autoregressive(1, 400, 1, 0.3)
    drifting = steady + np.linspace(0, 4, 400)[:, None]
    assert convergence.measure(steady).r_hat[0] < 1.03
    assert convergence.measure(drifting).r_hat[0] > 1.3


@pytest.mark.parametrize("memory", [0.0, 0.2, 0.5, 0.9])
def test_a_glance_is_near_what_arviz_says(memory):
    values = autoregressive(4, 400, 8, memory, seed=3)
    values[1, :, 0] += 0.5
    found, seen = convergence.measure(values), convergence.glance(values)
    np.testing.assert_allclose(seen.ess, found.ess_bulk, rtol=0.05)
    np.testing.assert_allclose(seen.r_hat, found.r_hat, atol=1e-3)


@pytest.mark.parametrize("spoil", ["ess_bulk", "ess_tail", "r_hat"])
def test_one_bad_quantity_of_interest_is_enough(spoil):
    good = convergence.Convergence(np.full(3, 500.0), np.full(3, 500.0), np.full(3, 1.001))
    interest = np.array([True, True, False])
    assert convergence.reached(good, interest)
    getattr(good, spoil)[2] = 1.5
    assert convergence.reached(good, interest)
    getattr(good, spoil)[1] = 1.5
    assert not convergence.reached(good, interest)
    getattr(good, spoil)[1] = np.nan
    assert not convergence.reached(good, interest)
