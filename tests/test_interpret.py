"""Frame of reference, representative latents, alignment, and what a map says of its levels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from lvgp import interpret
from lvgp.errors import InputError


def distances(latents):
    return np.linalg.norm(latents[..., :, None, :] - latents[..., None, :, :], axis=-1)


def turned(latents, rng):
    """The same latents rotated, perhaps mirrored, and shifted, each draw differently."""
    dim = latents.shape[-1]
    out = []
    for one in latents:
        rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        out.append(one @ rotation + rng.normal(size=dim))
    return np.array(out)


def scattered(draws, levels, dim, spread, seed=0):
    """Draws around one true map, each turned at will; and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(levels, dim))
    return turned(truth + spread * rng.normal(size=(draws, levels, dim)), rng), truth


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_frame_has_its_zeros_and_keeps_all_distances(dim):
    latents = np.random.default_rng(dim).normal(size=(7, 6, dim))
    framed = interpret.in_frame(latents)
    np.testing.assert_allclose(distances(framed), distances(latents), atol=1e-12)
    for level in range(dim):
        assert (framed[:, level, level:] == 0).all()
        assert (framed[:, level + 1, level] >= 0).all()


def test_whichever_levels_come_first_no_distance_changes():
    latents = np.random.default_rng(0).normal(size=(4, 2))
    for order in itertools.permutations(range(4)):
        framed = interpret.in_frame(latents[list(order)])
        np.testing.assert_allclose(distances(framed), distances(latents[list(order)]), atol=1e-12)


@pytest.mark.parametrize("angle", np.linspace(0, 2 * np.pi, 9))
def test_frame_undoes_any_rotation(angle):
    latents = np.array([[0.0, 0.0], [2.0, 0.0], [0.5, 1.0], [-1.0, 0.3]])
    c, s = np.cos(angle), np.sin(angle)
    rotated = latents @ np.array([[c, -s], [s, c]]) + [3.0, -1.0]
    framed = interpret.in_frame(rotated)
    np.testing.assert_allclose(framed, latents, atol=1e-12)


@pytest.mark.parametrize("kind", ["all the same", "first two the same", "on a line"])
def test_frame_of_coincident_levels_is_finite_and_keeps_distances(kind):
    latents = np.random.default_rng(1).normal(size=(5, 3))
    if kind == "all the same":
        latents[:] = latents[0]
    elif kind == "first two the same":
        latents[1] = latents[0]
    else:
        latents = np.outer(np.arange(5.0), latents[0])
    framed = interpret.in_frame(latents)
    np.testing.assert_allclose(distances(framed), distances(latents), atol=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "matern32"])
def test_objective_is_the_mean_norm_and_its_gradient_that_of_differences(kernel):
    latents, truth = scattered(9, 5, 2, 0.3)
    draws, _ = interpret.correlations(kernel, latents)
    point = interpret.in_frame(truth)
    matrix, _ = interpret.correlations(kernel, point)
    expected = np.mean([np.linalg.norm(one - matrix, "fro") for one in draws])
    objective = interpret._Objective(kernel, draws, 2)
    parameters = point[objective.free]
    value, gradient = objective(parameters)
    assert value == pytest.approx(expected, rel=1e-12)
    assert interpret.mean_distance(kernel, point, draws) == pytest.approx(expected, rel=1e-12)
    for function, slope in (
        (lambda p: objective(p)[0], gradient),
        (lambda p: objective.squared(p)[0], objective.squared(parameters)[1]),
    ):
        np.testing.assert_allclose(slope, approx_fprime(parameters, function, 1e-7), atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_representative_is_no_worse_than_any_draw_or_the_squared_solution(seed, dim):
    latents, _ = scattered(40, 6, dim, 0.6, seed)
    draws, _ = interpret.correlations("rbf", latents)
    found = interpret.representative("rbf", latents, draws)
    value = interpret.mean_distance("rbf", found, draws)
    assert value <= min(interpret.mean_distance("rbf", one, draws) for one in latents)
    objective = interpret._Objective("rbf", draws, dim)
    rng = np.random.default_rng(seed)
    for start in (latents[0], latents[7], rng.normal(size=(6, dim))):
        squared = interpret.minimize(
            objective.squared, interpret.in_frame(start)[objective.free], jac=True
        )
        assert value <= objective(squared.x)[0] + 1e-6
    for level in range(dim):
        assert (found[level, level:] == 0).all()


def test_representative_of_tight_draws_is_the_truth_however_they_are_turned():
    latents, truth = scattered(60, 7, 2, 1e-3)
    draws, _ = interpret.correlations("rbf", latents)
    found = interpret.representative("rbf", latents, draws)
    np.testing.assert_allclose(distances(found), distances(truth), atol=0.01)
    np.testing.assert_array_equal(found, interpret.representative("rbf", latents, draws))


def test_mean_norm_resists_a_few_draws_of_another_map():
    """The squared norm would be pulled to the average; the norm stays with the many."""
    many, truth = scattered(45, 5, 2, 1e-3)
    few, _ = scattered(15, 5, 2, 1e-3, seed=9)
    draws, _ = interpret.correlations("rbf", np.concatenate([many, few]))
    found = interpret.representative("rbf", np.concatenate([many, few]), draws)
    np.testing.assert_allclose(distances(found), distances(truth), atol=0.02)


def test_alignment_turns_every_draw_onto_the_target():
    latents, truth = scattered(30, 8, 3, 0.0)
    everyone = np.ones(8, bool)
    np.testing.assert_allclose(
        interpret.aligned(latents, truth, everyone),
        np.broadcast_to(truth, latents.shape),
        atol=1e-10,
    )
    noisy, _ = scattered(30, 8, 3, 0.2)
    after = interpret.aligned(noisy, truth, everyone)
    np.testing.assert_allclose(distances(after), distances(noisy), atol=1e-10)
    rng = np.random.default_rng(2)
    misfit = ((after - truth) ** 2).sum()
    few = np.arange(8) < 5
    by_few = interpret.aligned(noisy, truth, few)
    assert ((by_few - truth)[:, few] ** 2).sum() < ((after - truth)[:, few] ** 2).sum()
    for _ in range(20):
        other = turned(noisy, rng)
        other += truth.mean(axis=0) - other.mean(axis=1, keepdims=True)
        assert misfit <= ((other - truth) ** 2).sum() + 1e-9


# what a map says


@pytest.fixture(scope="module")
def latent():
    rng = np.random.default_rng(4)
    truth = np.array([[0.0, 0.0], [0.2, 0.0], [2.0, 0.0], [0.0, 0.0]])
    draws = truth + 0.05 * rng.normal(size=(400, 4, 2))
    draws[:, 3] = 1.5 * rng.normal(size=(400, 2))
    levels, counts = ("Nb", "Ta", "W", "Zr"), (5, 4, 6, 0)
    return interpret.latent_map("rbf", "M", levels, counts, turned(draws, rng))


def test_closer_is_a_probability_of_the_draws(latent):
    assert latent.closer("Ta", "Nb", "W") == 1.0
    assert latent.closer("Ta", "W", "Nb") == 0.0
    assert latent.closer("Ta", "Nb", "Nb") == 0.5
    both = latent.closer("Nb", "Zr", "W") + latent.closer("Nb", "W", "Zr")
    assert both == pytest.approx(1.0)
    assert 0.05 < latent.closer("Nb", "Zr", "W") < 0.95


def test_nearest_levels_come_with_probabilities_and_observations(latent):
    table = latent.nearest("Nb")
    assert list(table.columns) == ["correlation", "lower", "upper", "probability", "observations"]
    assert table.index[0] == "Ta"
    assert table["probability"].sum() == pytest.approx(1.0)
    assert table.loc["Zr", "observations"] == 0
    assert len(latent.nearest("Nb", 1)) == 1


def test_correlations_have_intervals_that_hold_the_mean(latent):
    lower, upper = latent.correlation_interval(0.9)
    mean = latent.correlation
    assert list(mean.index) == list(mean.columns) == ["Nb", "Ta", "W", "Zr"]
    assert ((lower <= mean) & (mean <= upper)).all().all()
    np.testing.assert_allclose(np.diag(mean), 1.0)
    expected = np.quantile(latent.correlation_draws[:, 0, 3], [0.05, 0.95])
    np.testing.assert_allclose([lower.loc["Nb", "Zr"], upper.loc["Nb", "Zr"]], expected)
    with pytest.raises(InputError, match="coverage"):
        latent.correlation_interval(2)


def test_region_holds_its_share_and_is_wide_where_nothing_is_known(latent):
    centre, half_axes = latent.region("Ta", 0.8)
    relative = (latent.draws[:, 1] - centre) @ np.linalg.inv(half_axes)
    assert ((relative**2).sum(axis=1) <= 1).mean() == pytest.approx(0.8, abs=0.02)
    unknown = np.linalg.norm(latent.region("Zr", 0.8)[1])
    assert unknown > 5 * np.linalg.norm(half_axes)
    assert list(latent.known) == [True, True, True, False]


def test_unknown_level_is_named(latent):
    with pytest.raises(InputError, match="column 'M' has no level 'Xx'; it has 'Nb', 'Ta'"):
        latent.closer("Xx", "Nb", "Ta")


def test_single_estimate_gives_the_same_object():
    latents, _ = scattered(1, 5, 2, 0.0)
    latent = interpret.latent_map("rbf", "M", tuple("abcde"), (1,) * 5, latents)
    np.testing.assert_allclose(latent.coordinates, interpret.in_frame(latents[0]))
    assert latent.draws.shape == (1, 5, 2)
    assert latent.closer("a", "b", "c") in (0.0, 1.0)
    assert (latent.region("b")[1] == 0).all()


def test_map_of_many_dimensions_is_drawn_where_its_levels_lie_widest_apart():
    rng = np.random.default_rng(4)
    flat = np.zeros((9, 5))
    flat[:, :2] = rng.normal(size=(9, 2))
    flat[:, 2:] = 0.02 * rng.normal(size=(9, 3))
    draws = turned(flat + 0.01 * rng.normal(size=(300, 9, 5)), rng)
    latent = interpret.latent_map("rbf", "site", tuple("ABCDEFGHI"), (3,) * 9, draws)
    plane, points = latent.plane, latent.coordinates.to_numpy()
    np.testing.assert_allclose(plane.T @ plane, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(distances(points @ plane), distances(flat[:, :2]), atol=0.05)
    shares = np.linalg.eigvalsh(np.cov(points.T))[::-1]
    assert f"{shares[:2].sum() / shares.sum():.0%} of the spread" in latent.axis_labels[1]
    assert "5 latent dimensions" in latent.axis_labels[0]
    # a shadow holds at least what its body holds
    border = latent.outline("C", coverage=0.8)
    cloud, middle = latent.draws[:, 2] @ plane, latent.region("C")[0] @ plane
    shape = np.linalg.inv(np.cov((border - middle)[:-1].T))
    radius = ((border - middle) @ shape * (border - middle)).sum(axis=1).mean()
    inside = ((cloud - middle) @ shape * (cloud - middle)).sum(axis=1) <= radius
    assert 0.8 <= inside.mean() <= 1.0


@pytest.mark.parametrize("dim", [1, 2])
def test_map_of_up_to_two_dimensions_is_drawn_as_it_is(dim):
    draws, _ = scattered(50, 6, dim, 0.1)
    latent = interpret.latent_map("rbf", "site", tuple("ABCDEF"), (3,) * 6, draws)
    points = latent.coordinates.to_numpy() @ latent.plane
    np.testing.assert_array_equal(points[:, :dim], latent.coordinates.to_numpy())
    assert latent.axis_labels == ("latent dimension 1", "latent dimension 2")
    if dim == 1:
        assert (points[:, 1] == 0).all()
        np.testing.assert_allclose(latent.outline("B")[:, 1], 0.0, atol=1e-6)
