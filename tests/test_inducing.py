"""Sparse fits from the outside, and the search for inducing points."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lvgp
from lvgp import LVGPRegressor
from lvgp.errors import DataWarning, InputError, LVGPWarning
from lvgp.infer.inducing import at_rows, find_points, find_sparse_mode, greedy_rows
from lvgp.model import Model, pack_rows
from lvgp.priors import Priors

RULES = ("fitc", "vfe")
FIRST_RULE = ["fitc", pytest.param("vfe", marks=pytest.mark.long)]
MODEL = Model(2, (5, 3), (2, 1), approximation="fitc")


def table(rows=60, seed=0):
    """Two numeric columns, one with five levels, one with three."""
    rng = np.random.default_rng(seed)
    x, t = rng.random((rows, 2)), np.stack([rng.integers(0, 5, rows), rng.integers(0, 3, rows)], 1)
    y = np.sin(3 * x[:, 0]) + np.array([0.0, 0.1, 1.0, 1.1, 2.0])[t[:, 0]] + 0.4 * t[:, 1] * x[:, 1]
    y = y + 0.05 * rng.standard_normal(rows)
    return x, t, (y - y.mean()) / y.std(ddof=1)


def frame(rows=60, seed=0):
    x, t, y = table(rows, seed)
    X = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    return X.assign(m=[f"m{i}" for i in t[:, 0]], s=[f"s{i}" for i in t[:, 1]]), y


def fitted(rule, method="map", X=None, y=None, **options):
    if X is None:
        X, y = frame()
    chosen = {"n_inducing": 15, "restarts": 3, "random_state": 0, "progress": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        return LVGPRegressor(method, approximation=rule, **chosen).fit(X, y)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("double_precision")
def test_density_with_points_at_all_rows_is_the_exact_density(rule):
    x, t, y = table(30)
    rows = pack_rows(x, t, y)
    inducing = at_rows(MODEL, rows, np.arange(30))
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, inducing))
    sparse, exact = Model(2, (5, 3), (2, 1), approximation=rule), Model(2, (5, 3), (2, 1))
    rng = np.random.default_rng(1)
    for _ in range(5):
        vector = 0.5 * rng.standard_normal(MODEL.size)
        vector[1] = -3.0
        np.testing.assert_allclose(
            sparse.log_density(vector, placed, Priors()),
            exact.log_density(vector, rows, Priors()),
            atol=1e-6,
        )
        np.testing.assert_allclose(
            sparse.fitted_mean(vector, placed, Priors())[:30],
            exact.fitted_mean(vector, rows, Priors())[:30],
            atol=1e-6,
        )


@pytest.mark.usefixtures("double_precision")
def test_greedy_rows_are_those_of_a_pivoted_cholesky():
    x, t, y = table(20)
    rows = pack_rows(x, t, y)
    vector = 0.3 * np.random.default_rng(1).standard_normal(MODEL.size)
    found = np.asarray(greedy_rows(MODEL, 8, vector, rows, Priors()))
    p = MODEL.parameters(jnp.asarray(vector), Priors())
    points = np.concatenate(
        [x / np.asarray(p.lengthscales)]
        + [np.asarray(z)[t[:, j]] for j, z in enumerate(p.latents)],
        axis=1,
    )
    K = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(-1))
    for step in range(8):
        before = found[:step]
        explained = K[:, before] @ np.linalg.solve(
            K[np.ix_(before, before)] + 1e-12 * np.eye(step), K[before]
        )
        left = np.diag(K) - np.diag(explained)
        left[before] = -1.0
        np.testing.assert_allclose(left[found[step]], left.max(), atol=1e-8)
    assert len(set(found.tolist())) == 8


@pytest.mark.parametrize("rule", FIRST_RULE)
@pytest.mark.usefixtures("double_precision")
def test_mode_is_reproducible_and_its_points_stay_in_bounds(rule):
    x, t, y = table()
    model = Model(2, (5, 3), (2, 1), approximation=rule)
    ends = [
        find_sparse_mode(model, pack_rows(x, t, y), Priors(), 10, 3, seed=0, workers=workers)
        for workers in (1, 2)
    ]
    np.testing.assert_array_equal(ends[0].vectors, ends[1].vectors)
    inducing = ends[0].inducing
    assert ((inducing.x >= 0) & (inducing.x <= 1)).all()
    for weights, levels in zip(inducing.weights, (5, 3), strict=True):
        assert weights.shape == (10, levels)
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    # free points do better than points that were only chosen, and some left their row
    assert any((weights.max(axis=1) < 1.0).any() for weights in inducing.weights)
    rows = pack_rows(x, t, y, inducing=inducing)
    density = model.log_density(ends[0].vectors[0], rows, Priors())
    np.testing.assert_allclose(density, ends[0].log_densities[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("rule", "method"),
    [
        ("fitc", "map"),
        pytest.param("vfe", "map", marks=pytest.mark.long),
        pytest.param("fitc", "mle", marks=pytest.mark.long),
        pytest.param("vfe", "vi", marks=pytest.mark.long),
        ("fitc", "bayes"),
        pytest.param("vfe", "bayes", marks=pytest.mark.long),
    ],
)
def test_every_method_predicts_well_and_survives_saving(rule, method, tmp_path):
    new, truth = frame(200, seed=9)
    model = fitted(rule, method, draws=150, warmup=100)
    found = model.predict(new)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.35 * truth.std()
    model.save(tmp_path / "model.lvgp")
    again = lvgp.load(tmp_path / "model.lvgp")
    np.testing.assert_array_equal(again.predict(new), found)
    left_out = model.loo()
    assert np.isfinite(left_out[["mean", "sd", "lower", "upper"]].to_numpy()).all()
    assert model.latent_map("m").coordinates.shape == (5, 2)
    assert np.isfinite(model.predict(new.iloc[:5], return_cov=True)[1]).all()


def test_more_points_than_rows_are_lowered_with_a_warning():
    X, y = frame(20)
    with pytest.warns(DataWarning, match="30 inducing points are more than the 20 distinct rows"):
        model = LVGPRegressor(
            "map", approximation="vfe", n_inducing=30, restarts=2, random_state=0, progress=False
        ).fit(X, y)
    assert len(model.draws_.inducing.x) == 20
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("count", [0, -3, 2.5, "many", None, True])
def test_impossible_numbers_of_points_are_refused(count):
    X, y = frame(20)
    with pytest.raises(InputError, match="n_inducing: expected a positive integer"):
        LVGPRegressor("map", approximation="fitc", n_inducing=count).fit(X, y)


@pytest.mark.parametrize("rule", RULES)
def test_one_inducing_point_and_one_factor(rule):
    X, y = frame(25)
    model = fitted(rule, X=X[["m"]], y=y, n_inducing=1)
    assert np.isfinite(model.predict(X[["m"]])).all()


@pytest.mark.parametrize("rule", FIRST_RULE)
def test_levels_without_rows_are_predicted_with_wide_intervals(rule):
    X, y = frame(60)
    levels = {"m": [f"m{i}" for i in range(90)]}
    with pytest.warns(DataWarning, match="column 'm' has 90 levels and the table 60 rows"):
        model = LVGPRegressor(
            "map",
            approximation=rule,
            levels=levels,
            n_inducing=15,
            restarts=2,
            random_state=0,
            progress=False,
        ).fit(X, y)
    new = X.iloc[[0, 0]].assign(m=["m0", "m77"])
    _, sd = model.predict(new, return_std=True)
    assert sd[1] > 2 * sd[0]


@pytest.mark.parametrize("rule", FIRST_RULE)
@pytest.mark.usefixtures("double_precision")
def test_a_level_without_rows_does_not_move_the_inducing_points(rule):
    """Its latents then follow their prior: the likelihood does not change with them."""
    x, t, y = table()
    model = Model(2, (6, 3), (2, 1), approximation=rule)
    rows = pack_rows(x, t, y)
    mode = find_sparse_mode(model, rows, Priors(), 12, 3, seed=0)
    assert (mode.inducing.weights[0][:, 5] == 0.0).all()
    assert (mode.inducing.weights[0][:, :5].max(axis=1) < 1.0).any()
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, mode.inducing))
    moved = mode.vectors[0].copy()
    moved[model.raw_start + 10 : model.raw_start + 12] += 1.7
    np.testing.assert_allclose(
        model.log_likelihood(moved, placed, Priors()),
        model.log_likelihood(mode.vectors[0], placed, Priors()),
        rtol=1e-12,
    )


@pytest.mark.parametrize("rule", FIRST_RULE)
@pytest.mark.usefixtures("double_precision")
def test_points_for_full_bayes_are_those_of_a_plane(rule):
    """In more dimensions chains start at the same process: distances are the same."""
    x, t, y = table()
    plane = Model(2, (5, 3), (2, 1), approximation=rule)
    space = Model(2, (5, 3), (4, 1), approximation=rule)
    rows = pack_rows(x, t, y)
    flat = find_sparse_mode(plane, rows, Priors(), 12, 3, seed=0)
    wide = find_points(space, rows, Priors(), 12, 3, seed=0)
    jax.tree.map(np.testing.assert_array_equal, wide.inducing, flat.inducing)
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, wide.inducing))
    assert wide.vectors.shape == (1, space.size)
    np.testing.assert_allclose(
        space.log_likelihood(wide.vectors[0], placed, Priors()),
        plane.log_likelihood(flat.vectors[0], placed, Priors()),
        rtol=1e-12,
    )
    same = find_points(plane, rows, Priors(), 12, 3, seed=0)
    np.testing.assert_array_equal(same.vectors, flat.vectors)


@pytest.mark.usefixtures("double_precision")
def test_points_may_go_where_rows_lie_outside_the_declared_bounds():
    x, t, y = table()
    mode = find_sparse_mode(
        Model(2, (5, 3), (2, 1), approximation="vfe"),
        pack_rows(3.0 * x - 1.0, t, y),
        Priors(),
        12,
        3,
        seed=0,
    )
    assert mode.inducing.x.min() < 0.0
    assert mode.inducing.x.max() > 1.0
    assert ((mode.inducing.x >= -1.0) & (mode.inducing.x <= 2.0)).all()


@pytest.mark.parametrize("rule", FIRST_RULE)
@pytest.mark.usefixtures("double_precision")
def test_points_at_all_rows_stay_there(rule):
    """The likelihood is the exact one, and there is nothing to gain by moving."""
    x, t, y = table(20)
    model, priors = Model(2, (5, 3), (2, 1), approximation=rule), Priors(noise_floor=1e-4)
    mode = find_sparse_mode(model, pack_rows(x, t, y), priors, 20, 2, seed=0)
    assert sorted(map(tuple, mode.inducing.x)) == sorted(map(tuple, x))
    exact = Model(2, (5, 3), (2, 1)).log_density(mode.vectors[0], pack_rows(x, t, y), priors)
    np.testing.assert_allclose(mode.log_densities[0], exact, atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_the_search_is_described_as_it_was(rule):
    model = fitted(rule)
    search = model.optimization_
    assert search.starts == 2
    assert search.log_density == max(search.log_densities) == model.draws_.log_densities[0]
    said = str(model.diagnostics_)
    assert f"{search.reached} of the 2 best searches" in said
    assert "redrawing" not in said


@pytest.mark.parametrize("rule", FIRST_RULE)
def test_chains_of_a_sparse_model_say_what_inducing_points_leave_open(rule):
    said = str(fitted(rule, "bayes", draws=60, warmup=40).diagnostics_)
    assert "All chains started around one mode" in said
    assert ("VFE takes for noise what its inducing points miss" in said) == (rule == "vfe")
