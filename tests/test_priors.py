"""The prior density term by term against SciPy and NumPyro, and the checks of its settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import ExpTransform
from scipy import integrate, stats

from lvgp.errors import InputError
from lvgp.model import Model
from lvgp.priors import PRESETS, Priors

pytestmark = pytest.mark.usefixtures("double_precision")

MODEL = Model(n_quantitative=2, n_levels=(3, 4), latent_dims=(2, 1))
CHANGED = Priors(
    mean_sd=1.5,
    log_variance_mean=0.4,
    log_variance_sd=0.7,
    noise_scale=0.3,
    noise_floor=1e-4,
    lengthscale_low=0.05,
    lengthscale_high=3.0,
    lengthscale_tail_sd=0.4,
    alpha=3.7,
)
SETTINGS = {"paper": Priors(), "noisy": PRESETS["noisy"], "changed": CHANGED}
Term = Callable[[float, Priors], float]


def _log_variance(value: float, priors: Priors) -> float:
    """Sigma^2 is log-normal: its density at exp(v), times the Jacobian exp(v)."""
    median = math.exp(priors.log_variance_mean)
    return stats.lognorm.logpdf(math.exp(value), priors.log_variance_sd, scale=median) + value


def _log_noise(value: float, priors: Priors) -> float:
    return stats.halfcauchy.logpdf(math.exp(value), scale=priors.noise_scale) + value


def _log_lengthscale(value: float, priors: Priors) -> float:
    """A mixture: uniform in the middle, and the two halves of a normal outside it."""
    low, high = math.log(priors.lengthscale_low), math.log(priors.lengthscale_high)
    sd = priors.lengthscale_tail_sd
    tails = sd * math.sqrt(2 * math.pi)
    in_tails = tails / (tails + high - low)
    if low <= value <= high:
        return math.log1p(-in_tails) + stats.uniform.logpdf(value, low, high - low)
    distance = low - value if value < low else value - high
    return math.log(in_tails / 2) + stats.halfnorm.logpdf(distance, scale=sd)


def _log_precision(value: float, priors: Priors) -> float:
    """SciPy's loggamma is the density of the log of a gamma variable."""
    return stats.loggamma.logpdf(value, priors.alpha, loc=-math.log(priors.alpha - 1))


def _raw_latent(value: float, priors: Priors) -> float:
    return stats.norm.logpdf(value)


def _terms(model: Model) -> list[Term]:
    """The density of each entry of the parameter vector, found by its name."""
    kinds = {
        "log_variance": _log_variance,
        "log_noise": _log_noise,
        "log_lengthscale": _log_lengthscale,
        "log_precision": _log_precision,
        "raw_latent": _raw_latent,
    }
    return [kinds[name.split("[")[0]] for name in model.names]


@partial(jax.jit, static_argnums=0)
def _compiled(model: Model, vector: jax.Array, priors: Priors) -> jax.Array:
    return model.log_prior(vector, priors)


def _log_prior(vector: Any, priors: Priors, model: Model = MODEL) -> float:
    return float(_compiled(model, jnp.asarray(vector), priors))


def _typical_vector(seed: int, model: Model = MODEL) -> np.ndarray:
    """A point that reaches into every tail, the lengthscales below, between and above."""
    rng = np.random.default_rng(seed)
    vector = 1.5 * rng.standard_normal(model.size)
    vector[1] = rng.uniform(-12, 1)
    vector[2 : 2 + model.n_quantitative] = rng.uniform(-4, 4, model.n_quantitative)
    return vector


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(10))
def test_log_prior_is_the_sum_of_scipys_densities(setting: str, seed: int) -> None:
    priors, vector = SETTINGS[setting], _typical_vector(seed)
    expected = sum(term(v, priors) for term, v in zip(_terms(MODEL), vector, strict=True))
    assert _log_prior(vector, priors) == pytest.approx(expected, rel=1e-10)


GRIDS = {
    "log_variance": np.linspace(-8, 8, 9),
    "log_noise": np.linspace(-30, 20, 11),
    "log_lengthscale[0]": np.concatenate([np.linspace(-4, 4, 9), np.log([0.05, 0.1, 3.0, 10.0])]),
    "log_lengthscale[1]": np.linspace(-4, 4, 9),
    "log_precision[0]": np.linspace(-10, 4, 8),
    "log_precision[1]": np.linspace(-10, 4, 8),
    "raw_latent[0,2,1]": np.linspace(-6, 6, 7),
    "raw_latent[1,3,0]": np.linspace(-6, 6, 7),
}


def _alone(name: str, value: float, priors: Priors) -> float:
    """One entry's own share of the log prior, the others' shares taken off by SciPy."""
    position, rest = MODEL.names.index(name), np.full(MODEL.size, 0.3)
    others = sum(term(0.3, priors) for entry, term in enumerate(_terms(MODEL)) if entry != position)
    rest[position] = value
    return _log_prior(rest, priors) - others


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", GRIDS)
def test_each_entry_has_the_density_of_its_term(name: str, setting: str) -> None:
    priors = SETTINGS[setting]
    term = _terms(MODEL)[MODEL.names.index(name)]
    found = [_alone(name, value, priors) for value in GRIDS[name]]
    expected = [term(value, priors) for value in GRIDS[name]]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("setting", SETTINGS)
def test_terms_are_numpyros_with_their_jacobians(setting: str) -> None:
    """The distributions on the natural scales, carried to the logarithm by NumPyro itself."""
    priors = SETTINGS[setting]
    to_log = ExpTransform().inv

    def of_log(base: dist.Distribution) -> dist.Distribution:
        return dist.TransformedDistribution(base, to_log)

    log_normal = dist.LogNormal(priors.log_variance_mean, priors.log_variance_sd)
    expected = {
        "log_variance": of_log(log_normal),
        "log_noise": of_log(dist.HalfCauchy(priors.noise_scale)),
        "log_precision[0]": of_log(dist.Gamma(priors.alpha, priors.alpha - 1)),
        "raw_latent[0,2,1]": dist.Normal(0.0, 1.0),
    }
    for name, distribution in expected.items():
        values = [value for value in GRIDS[name] if value > -25]
        found = [_alone(name, value, priors) for value in values]
        log_prob = [float(distribution.log_prob(jnp.asarray(value))) for value in values]
        np.testing.assert_allclose(found, log_prob, rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", GRIDS)
def test_each_term_integrates_to_one(name: str, setting: str) -> None:
    """By quadrature over the library's own values, on pieces that meet where a term has a kink.

    A Cauchy tail in the logarithm falls as exp(-v): beyond 60 there is less than 1e-20.
    """
    priors, position = SETTINGS[setting], MODEL.names.index(name)
    others = sum(term(0.3, priors) for entry, term in enumerate(_terms(MODEL)) if entry != position)

    def density(value: jax.Array) -> jax.Array:
        vector = jnp.full(MODEL.size, 0.3).at[position].set(value)
        return jnp.exp(MODEL.log_prior(vector, priors) - others)

    kinks = np.log([priors.lengthscale_low, priors.lengthscale_high])
    pieces = np.unique(np.concatenate([np.linspace(-60, 60, 25), kinks]))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    middle, half = (pieces[1:] + pieces[:-1]) / 2, (pieces[1:] - pieces[:-1]) / 2
    points = middle[:, None] + half[:, None] * nodes
    values = jax.vmap(density)(jnp.asarray(points.ravel())).reshape(points.shape)
    assert float(np.sum(values * weights * half[:, None])) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_latents_have_the_stated_density_given_gamma(seed: int) -> None:
    """The latents z = raw / sqrt(L gamma) are N(0, 1 / (L gamma)): same density as the raw ones."""
    vector = _typical_vector(seed)
    parameters = MODEL.parameters(jnp.asarray(vector), CHANGED)
    for j, (levels, dim) in enumerate(zip(MODEL.n_levels, MODEL.latent_dims, strict=True)):
        first = MODEL.names.index(f"raw_latent[{j},0,0]")
        raw = vector[first : first + levels * dim].reshape(levels, dim)
        sd = 1 / math.sqrt(levels * float(parameters.precisions[j]))
        latents = np.asarray(parameters.latents[j])
        np.testing.assert_allclose(latents, raw * sd, rtol=1e-12)
        carried = stats.norm.logpdf(latents, scale=sd).sum() + raw.size * math.log(sd)
        assert carried == pytest.approx(stats.norm.logpdf(raw).sum(), rel=1e-10)


def test_noise_is_the_excess_above_its_floor() -> None:
    vector = _typical_vector(0)
    noise = MODEL.parameters(jnp.asarray(vector), CHANGED).noise
    assert float(noise) == pytest.approx(CHANGED.noise_floor + math.exp(vector[1]), rel=1e-13)


def test_gamma_prior_has_its_mode_at_one_on_its_own_scale() -> None:
    """Less the Jacobian, the density of gamma peaks at 1, whatever alpha."""
    for alpha in (1.2, 2.0, 9.0):
        priors = dataclasses.replace(Priors(), alpha=alpha)
        gammas = np.linspace(0.5, 1.5, 201)
        density = [_alone("log_precision[0]", math.log(g), priors) - math.log(g) for g in gammas]
        assert gammas[int(np.argmax(density))] == pytest.approx(1.0)


@pytest.mark.parametrize("setting", SETTINGS)
def test_gradient_of_the_log_prior_is_its_slope(setting: str) -> None:
    """Central differences away from the two kinks, where the second derivative jumps."""
    priors, vector, step = SETTINGS[setting], _typical_vector(1), 1e-5
    gradient = jax.grad(MODEL.log_prior)(jnp.asarray(vector), priors)
    for position in range(MODEL.size):
        up, down = vector.copy(), vector.copy()
        up[position] += step
        down[position] -= step
        slope = (_log_prior(up, priors) - _log_prior(down, priors)) / (2 * step)
        assert float(gradient[position]) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("n_quantitative", "n_levels", "latent_dims"),
    [(0, (), ()), (3, (), ()), (0, (5,), (2,)), (1, (3, 3), (1, 2))],
)
def test_every_shape_of_model_has_all_its_terms(
    n_quantitative: int, n_levels: tuple[int, ...], latent_dims: tuple[int, ...]
) -> None:
    model = Model(n_quantitative, n_levels, latent_dims)
    vector = _typical_vector(2, model)
    expected = sum(term(v, CHANGED) for term, v in zip(_terms(model), vector, strict=True))
    assert _log_prior(vector, CHANGED, model) == pytest.approx(expected, rel=1e-10)


def test_smoothed_uniform_of_scipy_quadrature_is_normalised() -> None:
    """The independent density above is one itself."""
    low, high = math.log(0.1), math.log(10.0)
    total, _ = integrate.quad(
        lambda v: math.exp(_log_lengthscale(v, Priors())), -6, 6, points=[low, high], limit=200
    )
    assert total == pytest.approx(1.0, abs=1e-8)


# The maximum-likelihood objective


PLUG_IN = dataclasses.replace(MODEL, plug_in_likelihood=True)


@pytest.mark.parametrize("seed", range(3))
def test_plug_in_prior_is_flat_inside_its_box(seed: int) -> None:
    vector = np.random.default_rng(seed).uniform(-2, 2, MODEL.size)
    assert _log_prior(vector, CHANGED, PLUG_IN) == 0.0


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("log_variance", math.log(1e-5), math.log(1e5)),
        ("log_noise", math.log(1e-12), math.log(10)),
        ("log_lengthscale[1]", math.log(1e-3), math.log(1e3)),
        ("raw_latent[0,1,1]", -10 * math.sqrt(3), 10 * math.sqrt(3)),
        ("raw_latent[1,3,0]", -10 * math.sqrt(4), 10 * math.sqrt(4)),
    ],
)
def test_plug_in_prior_is_steep_outside_its_box(name: str, low: float, high: float) -> None:
    position, levels = MODEL.names.index(name), {"raw_latent[0,1,1]": 3, "raw_latent[1,3,0]": 4}
    unit = math.sqrt(levels.get(name, 1))
    for edge, outwards in ((low, -1.0), (high, 1.0)):
        vector = np.zeros(MODEL.size)
        vector[position] = edge - 0.01 * outwards
        assert _log_prior(vector, Priors(), PLUG_IN) == 0.0
        vector[position] = edge + 0.5 * outwards
        expected = -0.5 * (0.5 / unit / 0.1) ** 2
        assert _log_prior(vector, Priors(), PLUG_IN) == pytest.approx(expected, rel=1e-9)


# Settings


FIELDS = [field.name for field in dataclasses.fields(Priors)]
POSITIVE = [
    "mean_sd",
    "log_variance_sd",
    "noise_scale",
    "lengthscale_low",
    "lengthscale_high",
    "lengthscale_tail_sd",
]
BAD: list[tuple[str, Any]] = [
    *((name, bad) for name in POSITIVE for bad in (0.0, -1.0)),
    *((name, bad) for name in FIELDS for bad in (math.nan, math.inf, -math.inf)),
    *((name, bad) for name in FIELDS for bad in ("1", None, [1.0], np.array([1.0, 2.0]), 1j)),
    ("noise_floor", -1e-9),
    ("lengthscale_high", 0.1),
    ("lengthscale_high", 0.05),
    ("alpha", 1.0),
    ("alpha", 0.5),
    ("alpha", -2.0),
]


@pytest.mark.parametrize(("name", "bad"), BAD)
def test_bad_value_is_refused_by_name(name: str, bad: Any) -> None:
    priors = dataclasses.replace(Priors(), **{name: bad})
    with pytest.raises(InputError, match=rf"^priors\.{name}: expected ") as caught:
        priors.check()
    assert str(caught.value).endswith(f"got {bad!r}")


def test_lengthscale_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InputError, match=r"lengthscale_high: .*above lengthscale_low"):
        Priors(lengthscale_low=20.0).check()


@pytest.mark.parametrize(
    "priors",
    [
        *SETTINGS.values(),
        Priors(noise_floor=0.0),
        Priors(log_variance_mean=-3.0),
        Priors(lengthscale_high=0.1001),
        Priors(alpha=1.0001),
        Priors(mean_sd=2),
        Priors(alpha=np.float32(3)),
    ],
)
def test_good_values_pass_unchanged(priors: Priors) -> None:
    assert priors.check() is priors


@pytest.mark.parametrize("name", FIELDS)
def test_whole_numbers_mean_what_the_same_floats_mean(name: str) -> None:
    """The log density, prior and likelihood, with a setting given as 2 and as 2.0."""
    from lvgp.model import pack_rows

    rng = np.random.default_rng(0)
    rows = pack_rows(rng.random((6, 2)), np.zeros((6, 2), dtype=int), rng.normal(size=6))
    vector = jnp.asarray(_typical_vector(0))
    density = jax.jit(MODEL.log_density)
    as_float, as_int = (
        float(density(vector, rows, dataclasses.replace(Priors(), **{name: number})))
        for number in (2.0, 2)
    )
    assert as_int == as_float


def test_defaults_are_the_papers() -> None:
    """MODEL.md's list, in the order of the fields."""
    values = (1.0, 0.0, 1.0, 0.01, 1e-6, 0.1, 10.0, 0.1, 2.0)
    assert dataclasses.astuple(Priors()) == values


def test_presets_differ_only_as_they_say() -> None:
    assert set(PRESETS) == {"paper", "noisy"}
    assert Priors.preset("paper") == Priors()
    noisy = Priors.preset("noisy")
    assert dataclasses.replace(noisy, noise_scale=0.01) == Priors()
    assert noisy.noise_scale > 10 * Priors().noise_scale
    for preset in PRESETS.values():
        assert preset.check() is preset


@pytest.mark.parametrize("name", ["papr", "", "Paper"])
def test_unknown_preset_lists_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match=f"'paper', 'noisy', got '{name}'"):
        Priors.preset(name)


def test_priors_are_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Priors().alpha = 3.0  # type: ignore[misc]
    assert hash(Priors()) == hash(PRESETS["paper"])
