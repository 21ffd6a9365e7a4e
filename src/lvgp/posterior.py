"""The predictive mixture: for draws theta_b, f(w) ~ (1/B) sum_b N(f_b(w), s_b^2(w)).

Everything is computed draw by draw on standardised y and combined in closed form; quantiles invert
the mixture's distribution function exactly. Rows go through in chunks, so memory is bounded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lvgp import compute, exact
from lvgp.errors import (
    NumericalError,
    NumericalWarning,
    warn,
)
from lvgp.infer.convergence import watched_rows
from lvgp.infer.draws import Draws
from lvgp.mixture import Components, mixture_moments, mixture_quantile
from lvgp.model import Conditioned, Model, Parameters, Rows, groups, pack_rows
from lvgp.predictive import Mixture, Query, average_moments, joint_moments, moments, query
from lvgp.priors import Priors
from lvgp.progress import progress_bar
from lvgp.space import Encoded

_CHUNK = 1024
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
_MOST_DRAWS = 1000
_AVERAGES = 32
_CACHED_BYTES = 400e6
_BLOCK_BYTES = 100e6
_MOST_WORKERS = 8
"""Each holds some 50 MB; memory must not grow with the machine."""

Result = TypeVar("Result")


class Summary(NamedTuple):
    """What is said of the mixture at each row."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray


@dataclass(frozen=True)
class Posterior:
    """Draws of the parameters with the training rows they condition on."""

    model: Model
    priors: Priors
    draws: Draws
    training: Encoded
    y: np.ndarray
    """The response, standardised by `y_mean` and `y_scale`."""
    y_mean: float
    y_scale: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the rest: pickles hold NumPy arrays only."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property
    def kept(self) -> np.ndarray:
        """Positions of the draws that predictions are made from: all, or 1000 evenly spaced."""
        return self.draws.thinned(_MOST_DRAWS)

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the draws kept, stacked, in the model's own scales."""
        return self.parameters_at(self.draws.vectors[self.kept])

    def parameters_at(self, vectors: np.ndarray) -> Parameters:
        """Return the parameters at each of the vectors, stacked, in the model's own scales."""
        with compute.scope():
            return jax.tree.map(np.asarray, _parameters(self.model, vectors, self.priors))

    @property
    def noise(self) -> np.ndarray:
        """Noise variance of the draws kept, on standardised y, with what stabilised the fit."""
        return np.asarray(self.parameters.noise) + self.draws.jitter

    @property
    def process_mean(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of mu given each draw kept, on standardised y."""
        with compute.scope():
            blocks = [conditioned for _, conditioned in self._blocks()]
            mean = np.concatenate([np.asarray(block.mean) for block in blocks])
            return mean, np.concatenate([np.asarray(block.mean_variance) for block in blocks])

    @cached_property
    def rows(self) -> Rows:
        """The training rows, packed for computation; to be asked for in double precision."""
        draws = self.draws
        return pack_rows(self.training.x, self.training.t, self.y, draws.jitter, draws.inducing)

    @property
    def watched(self) -> np.ndarray:
        """The training rows whose predictions convergence was judged by."""
        first = groups(self.training.x, self.training.t).first
        return first[watched_rows(len(first))]

    def _blocks(self) -> Iterable[tuple[slice, Conditioned]]:
        """Runs of the draws kept, with the processes conditioned on the training rows.

        Factors are computed once and cached; where they would take too much memory, only a block
        of them exists at a time and each call computes them again.
        """
        if self._is_cached:
            return self._cached_blocks
        size = max(1, int(_BLOCK_BYTES / self._bytes_a_draw))
        starts = range(0, len(self.kept), size)
        runs = (slice(start, min(start + size, len(self.kept))) for start in starts)
        return ((run, self._conditioned(run)) for run in runs)

    @cached_property
    def _cached_blocks(self) -> list[tuple[slice, Conditioned]]:
        everything = slice(0, len(self.kept))
        return [(everything, self._conditioned(everything))]

    def _conditioned(self, run: slice) -> Conditioned:
        """Condition on the training rows; jitter grows until every factor exists."""
        vectors = self.draws.vectors[self.kept[run]]
        for extra in _JITTERS:
            rows = self.rows._replace(jitter=jnp.asarray(self.draws.jitter + extra))
            # the same factors, to the last bit, whoever asks for them first
            with compute.one_blas_thread():
                conditioned = _condition(self.model, vectors, rows, self.priors)
            if np.isfinite(np.asarray(conditioned.weights)).all():
                break
        else:
            raise NumericalError(
                f"the covariance of the training rows is not positive definite, even with "
                f"{extra:g} added to the noise variance. Remove near-duplicate rows, or raise "
                "noise_floor in Priors"
            )
        if extra:
            warn(
                f"the covariance of the training rows needed {extra:g} added to the noise "
                "variance (on the scale of standardised y) before it could be inverted",
                NumericalWarning,
            )
        return conditioned

    @property
    def _is_cached(self) -> bool:
        return len(self.kept) * self._bytes_a_draw <= _CACHED_BYTES

    @cached_property
    def _bytes_a_draw(self) -> int:
        inducing = self.draws.inducing
        if inducing is not None:
            return 16 * len(inducing.x) ** 2
        return 8 * exact.padded_size(len(groups(self.training.x, self.training.t).first)) ** 2

    def over_rows(
        self,
        encoded: Encoded,
        include_noise: bool,
        read: Callable[[Components], Result],
        progress: bool = False,
    ) -> Iterator[tuple[slice, Result]]:
        """Yield runs of rows with what `read` makes of the mixture's components there.

        Components are on the user's scale. Runs are computed side by side on the cores, a few at
        a time: memory stays bounded.
        """
        query = self._query(encoded)
        noise = self.noise[query.sources] if include_noise else np.zeros(1)
        size = _CHUNK if self._is_cached else 8 * _CHUNK
        starts = range(0, len(encoded.x), size)
        runs = [slice(start, min(start + size, len(encoded.x))) for start in starts]

        def compute_run(run: slice) -> Result:
            with compute.scope():
                means, variances = self._moments(query, run)
            sds = np.sqrt(variances + noise[:, None])
            return read(Components(self.y_mean + self.y_scale * means, self.y_scale * sds))

        with compute.scope():
            self._blocks()
        workers = max(1, min(compute.cores(), len(runs), _MOST_WORKERS)) if self._is_cached else 1
        with (
            compute.one_blas_thread(),
            ThreadPoolExecutor(workers) as pool,
            progress_bar("predicting", len(runs), progress and len(runs) > 1) as advance,
        ):
            for first in range(0, len(runs), 2 * workers):
                batch = runs[first : first + 2 * workers]
                for run, result in zip(batch, pool.map(compute_run, batch), strict=True):
                    yield run, result
                    advance()

    def _moments(self, asked: Query, run: slice) -> tuple[np.ndarray, np.ndarray]:
        x, t = compute.padded_batch(asked.x[run]), compute.padded_batch(asked.t[run])
        found = [moments(self.model, mixture, x, t) for mixture in self._parts(asked)]
        rows = run.stop - run.start
        mean, variance = (
            np.concatenate([np.asarray(part) for part in parts])[:, :rows]
            for parts in zip(*found, strict=True)
        )
        return mean, variance

    def _parts(self, asked: Query) -> Iterator[Mixture]:
        """Yield the components block by block, as the compiled programs take them."""
        for block, conditioned in self._blocks():
            part = asked.at((asked.sources >= block.start) & (asked.sources < block.stop))
            parameters = jax.tree.map(lambda array: array[part.sources], self.parameters)  # noqa: B023
            yield Mixture(parameters, conditioned, part.sources - block.start, part.fresh)

    def _query(self, encoded: Encoded) -> Query:
        return query(self.model, self.draws, len(self.kept), self.training, encoded)

    def summary(
        self,
        encoded: Encoded,
        probabilities: np.ndarray,
        include_noise: bool = False,
        progress: bool = False,
    ) -> Summary:
        """Return mean, sd and (rows, probabilities) quantiles of the mixture at each row."""

        def read(components: Components) -> Summary:
            quantiles = np.empty((components.means.shape[1], len(probabilities)))
            for column, probability in enumerate(probabilities):
                quantiles[:, column] = mixture_quantile(components, probability)
            return Summary(*mixture_moments(components), quantiles)

        rows = len(encoded.x)
        found = Summary(np.empty(rows), np.empty(rows), np.empty((rows, len(probabilities))))
        for run, part in self.over_rows(encoded, include_noise, read, progress):
            for whole, values in zip(found, part, strict=True):
                whole[run] = values
        return found

    def mean_and_covariance(self, encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of f over all rows jointly."""
        mean, covariance = np.zeros(len(encoded.x)), np.zeros((len(encoded.x),) * 2)
        query, count = self._query(encoded), 0
        everything = np.arange(len(query.sources))
        for _, draw_mean, draw_covariance in self._joint(query, everything):
            count += 1
            before, mean = mean, mean + (draw_mean - mean) / count
            covariance += draw_covariance + np.outer(draw_mean - before, draw_mean - mean)
        return self.y_mean + self.y_scale * mean, self.y_scale**2 * covariance / count

    def sample(
        self, encoded: Encoded, n_samples: int, seed: int, include_noise: bool = False
    ) -> np.ndarray:
        """Return (rows, n_samples) joint draws of f, or of new responses with noise."""
        rng = np.random.default_rng(seed)
        query = self._query(encoded)
        chosen = rng.integers(len(query.sources), size=n_samples)
        samples = np.empty((len(encoded.x), n_samples))
        for component, mean, covariance in self._joint(query, np.unique(chosen)):
            if include_noise:
                noise = self.noise[query.sources[component]]
                covariance = covariance + noise * np.eye(len(mean))
            columns = np.flatnonzero(chosen == component)
            normals = rng.standard_normal((len(mean), len(columns)))
            samples[:, columns] = mean[:, None] + _square_root(covariance) @ normals
        return self.y_mean + self.y_scale * samples

    def _joint(
        self, query: Query, components: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield chosen components with their joint mean and covariance, on standardised y."""
        rows = len(query.x)
        extra = exact.padded_size(rows) - rows
        x, t = (np.pad(part, ((0, extra), (0, 0))) for part in (query.x, query.t))
        with compute.scope():
            for block, conditioned in self._blocks():
                for component in components:
                    source = query.sources[component]
                    if not block.start <= source < block.stop:
                        continue
                    at = source - block.start
                    one = jax.tree.map(lambda part: part[at], conditioned)  # noqa: B023
                    parameters = jax.tree.map(lambda part: part[source], self.parameters)  # noqa: B023
                    fresh = tuple(normals[component] for normals in query.fresh)
                    found = joint_moments(self.model, parameters, one, fresh, x, t)
                    mean, covariance = (np.asarray(part) for part in found)
                    yield int(component), mean[:rows], covariance[:rows, :rows]

    def averages(
        self, encoded: Encoded, size: int, most: int = 200, progress: bool = False
    ) -> Components:
        """Return, draw by draw, mean and sd of f averaged over each run of `size` rows.

        From at most `most` draws; on the user's scale, a column for each run of rows.
        """
        asked = self._query(encoded)
        chosen = np.unique(np.linspace(0, len(asked.sources) - 1, most).astype(int))
        x, t = (part.reshape(len(part) // size, size, part.shape[1]) for part in (asked.x, asked.t))
        found = []
        with (
            compute.scope(),
            compute.one_blas_thread(),
            progress_bar("averaging", -(-len(x) // _AVERAGES), progress) as advance,
        ):
            for start in range(0, len(x), _AVERAGES):
                runs = slice(start, start + _AVERAGES)
                found.append(self._averages(asked.at(chosen), x[runs], t[runs]))
                advance()
        mean, variance = (np.concatenate(part, axis=1) for part in zip(*found, strict=True))
        sds = np.sqrt(np.maximum(variance, 0.0))
        return Components(self.y_mean + self.y_scale * mean, self.y_scale * sds)

    def _averages(
        self, asked: Query, x: np.ndarray, t: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        spare = [(0, _AVERAGES - len(x)), (0, 0), (0, 0)]
        padded = np.pad(x, spare), np.pad(t, spare)
        found = [average_moments(self.model, mixture, *padded) for mixture in self._parts(asked)]
        mean, variance = (
            np.concatenate([np.asarray(part) for part in parts])[:, : len(x)]
            for parts in zip(*found, strict=True)
        )
        return mean, variance

    def with_draws(self, draws: Draws) -> Posterior:
        """Return the same training rows with other draws."""
        return dataclasses.replace(self, draws=draws)


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """A matrix S with S S' = covariance, which may be singular (rows repeated)."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


@partial(jax.jit, static_argnums=0)
def _parameters(model: Model, vectors: jax.Array, priors: Priors) -> Parameters:
    return jax.vmap(lambda vector: model.parameters(vector, priors))(vectors)


@partial(jax.jit, static_argnums=0)
def _condition(model: Model, vectors: jax.Array, rows: Rows, priors: Priors) -> Conditioned:
    return jax.lax.map(lambda vector: model.condition(vector, rows, priors), vectors)
