"""The file a fitted model is saved in: arrays and JSON, never code.

One line of text, `lvgp-model <format version> sha256=<hex> bytes=<n>`, then n bytes of a plain
NumPy archive (.npz) with the arrays and, under "manifest", the JSON text of everything else.
Reading unpickles nothing; a file that is cut short, altered or from a newer version is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lvgp.errors import ModelFileError
from lvgp.files import write_bytes
from lvgp.infer.draws import Convergence, Draws, Optimization, Sampling, Variational
from lvgp.kernels import KERNELS
from lvgp.model import Model
from lvgp.posterior import Posterior
from lvgp.priors import Priors
from lvgp.space import Column, Dropped, Encoded, Qualitative, Quantitative, Space
from lvgp.sparse import RULES, Inducing

FORMAT = 1
_HEADER = re.compile(rb"lvgp-model (\d+) sha256=([0-9a-f]{64}) bytes=(\d+)\n")
_LONGEST_HEADER = 200
_MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    zipfile.BadZipFile,
    RecursionError,
)
_HISTORIES: dict[str, type] = {
    "optimization": Optimization,
    "sampling": Sampling,
    "variational": Variational,
}
_HISTORY_PARTS: dict[str, type] = {"convergence": Convergence}
_COLUMN_KINDS: dict[str, type[Column]] = {
    "quantitative": Quantitative,
    "qualitative": Qualitative,
    "dropped": Dropped,
}


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a file holds: the columns, the fitted posterior and the estimator's options."""

    space: Space
    posterior: Posterior
    options: dict[str, Any]
    version: str
    """The version of the library that wrote it."""
    response: str | None = None
    """The name of the response."""


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write the file at once: either the whole of it is there afterwards, or nothing changed."""
    target = Path(path)
    payload = _payload(saved)
    digest = hashlib.sha256(payload).hexdigest()
    header = f"lvgp-model {FORMAT} sha256={digest} bytes={len(payload)}\n".encode()
    write_bytes(target, header + payload)


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a file that `write` made, or say why it cannot be trusted."""
    target = Path(path)
    try:
        content = target.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{target}: cannot be read: {error.strerror}") from None
    header = _HEADER.match(content[:_LONGEST_HEADER])
    if header is None:
        raise ModelFileError(f"{target}: not a saved lvgp model")
    version, digest, size = int(header[1]), header[2].decode(), int(header[3])
    if not 1 <= version <= FORMAT:
        raise ModelFileError(
            f"{target}: has format version {version}, this library reads up to {FORMAT}; "
            "update lvgp to read it"
        )
    payload = content[header.end() :]
    if len(payload) < size:
        raise ModelFileError(
            f"{target}: truncated, {len(payload)} of {size} bytes are there; copy or save it again"
        )
    if len(payload) != size or hashlib.sha256(payload).hexdigest() != digest:
        raise ModelFileError(f"{target}: was altered after saving (its checksum does not match)")
    try:
        return _restore(payload)
    except _MALFORMED as error:
        raise ModelFileError(f"{target}: its contents do not form a model ({error})") from error


def _payload(saved: Saved) -> bytes:
    posterior, draws = saved.posterior, saved.posterior.draws
    manifest = {
        "version": saved.version,
        "response": saved.response,
        "options": {name: _tagged(value) for name, value in saved.options.items()},
        "columns": [_column_state(column) for column in saved.space.columns],
        "named": saved.space.named,
        "model": dataclasses.asdict(posterior.model),
        "priors": dataclasses.asdict(posterior.priors),
        "y_mean": posterior.y_mean,
        "y_scale": posterior.y_scale,
        "method": draws.method,
        "seed": draws.seed,
        "jitter": draws.jitter,
    }
    arrays = {
        "x": posterior.training.x,
        "t": posterior.training.t,
        "y": posterior.y,
        "vectors": draws.vectors,
        "log_densities": draws.log_densities,
    }
    if draws.inducing is not None:
        arrays["inducing.x"] = np.asarray(draws.inducing.x)
        for column, weights in enumerate(draws.inducing.weights):
            arrays[f"inducing.weights.{column}"] = np.asarray(weights)
    for part in _HISTORIES:
        manifest[part] = _history_state(getattr(draws, part), f"{part}.", arrays)
    encoded = json.dumps(manifest, default=_plain).encode()
    arrays["manifest"] = np.frombuffer(encoded, dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _restore(payload: bytes) -> Saved:
    with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    manifest = json.loads(arrays["manifest"].tobytes())
    model = manifest["model"]
    draws = Draws(
        method=manifest["method"],
        vectors=arrays["vectors"],
        log_densities=arrays["log_densities"],
        seed=manifest["seed"],
        jitter=manifest["jitter"],
        inducing=_inducing_from(arrays, len(model["n_levels"])),
        **{
            part: _history_from(kind, manifest[part], f"{part}.", arrays)
            for part, kind in _HISTORIES.items()
        },
    )
    posterior = Posterior(
        model=Model(**_tuples(model)),
        priors=Priors(**manifest["priors"]),
        draws=draws,
        training=Encoded(arrays["x"], arrays["t"]),
        y=arrays["y"],
        y_mean=manifest["y_mean"],
        y_scale=manifest["y_scale"],
    )
    space = Space(tuple(_column_from(state) for state in manifest["columns"]), manifest["named"])
    _check_fit(space, posterior)
    options = {name: _untagged(value) for name, value in manifest["options"].items()}
    response = manifest.get("response")
    if not isinstance(response, str | None):
        raise ValueError(f"the response's name is {response!r}")
    return Saved(space, posterior, options, manifest["version"], response)


def _inducing_from(arrays: Mapping[str, np.ndarray], columns: int) -> Inducing | None:
    if "inducing.x" not in arrays:
        return None
    weights = tuple(arrays[f"inducing.weights.{column}"] for column in range(columns))
    return Inducing(arrays["inducing.x"], weights)


def _history_state(value: Any, prefix: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a dataclass as JSON can hold it; its arrays go to `arrays`, named by `prefix`."""
    if value is None:
        return None
    state = {}
    for field in dataclasses.fields(value):
        part, name = getattr(value, field.name), prefix + field.name
        if isinstance(part, np.ndarray):
            arrays[name] = part
        elif dataclasses.is_dataclass(part):
            state[field.name] = _history_state(part, f"{name}.", arrays)
        else:
            state[field.name] = part
    return state


def _history_from(kind: type, state: Any, prefix: str, arrays: Mapping[str, np.ndarray]) -> Any:
    if state is None:
        return None
    state = _tuples(state)
    for name, part in state.items():
        if isinstance(part, dict):
            state[name] = _history_from(_HISTORY_PARTS[name], part, f"{prefix}{name}.", arrays)
    own = {name[len(prefix) :]: part for name, part in arrays.items() if name.startswith(prefix)}
    return kind(**state, **{name: part for name, part in own.items() if "." not in name})


def _check_fit(space: Space, posterior: Posterior) -> None:
    """Refuse parts that do not belong together: they would fail, or mislead, when predicting."""
    model, (x, t, _), vectors = posterior.model, posterior.training, posterior.draws.vectors
    counts = (len(space.quantitative), tuple(len(c.levels) for c in space.qualitative))
    fits = {
        "kernel": model.kernel in KERNELS,
        "method": posterior.draws.method in {"map", "mle", "bayes", "vi"},
        "columns": counts == (model.n_quantitative, model.n_levels),
        "draws": vectors.ndim == 2 and vectors.shape[1] == model.size and vectors.dtype == float,
        "x": x.shape == (len(posterior.y), model.n_quantitative) and x.dtype == float,
        "t": t.shape == (len(posterior.y), len(model.n_levels)) and t.dtype.kind == "i",
        "y": posterior.y.ndim == 1 and posterior.y.dtype == float,
    }
    fits["inducing points"] = _inducing_fits(model, posterior.draws.inducing)
    sampling = posterior.draws.sampling
    if sampling is not None:
        fits["chains"] = sampling.acceptance.ndim == 2 and sampling.acceptance.size == len(vectors)
    fits["levels"] = fits["t"] and bool(((t >= 0) & (t < np.array(model.n_levels, int))).all())
    wrong = [part for part, holds in fits.items() if not holds]
    if wrong:
        raise ValueError(f"these parts do not fit the rest: {', '.join(wrong)}")


def _inducing_fits(model: Model, inducing: Inducing | None) -> bool:
    if inducing is None or model.approximation is None:
        return inducing is None and model.approximation is None
    shapes = [part.shape for part in (inducing.x, *inducing.weights)]
    points = len(inducing.x)
    expected = [(points, width) for width in (model.n_quantitative, *model.n_levels)]
    return model.approximation in RULES and shapes == expected


def _column_state(column: Column) -> dict[str, Any]:
    kind = next(kind for kind, cls in _COLUMN_KINDS.items() if isinstance(column, cls))
    return {"kind": kind, **dataclasses.asdict(column)}


def _column_from(state: dict[str, Any]) -> Column:
    fields = _tuples({name: value for name, value in state.items() if name != "kind"})
    return _COLUMN_KINDS[state["kind"]](**fields)


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists only; the frozen values hold tuples."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}


def _tagged(value: Any) -> Any:
    """Return an option as JSON can hold it, kinds that JSON lacks marked by name.

    Mappings become pairs because JSON would turn integer keys (column names) into strings.
    """
    if isinstance(value, Mapping):
        return {"pairs": [[key, _tagged(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_tagged(item) for item in value]}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_tagged(item) for item in value]
    return value


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_untagged(item) for item in value["tuple"])
    return {key: _untagged(item) for key, item in value["pairs"]}


def _plain(value: Any) -> Any:
    """A NumPy number as the Python number it stands for."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot save {value!r} of type {type(value).__name__}")
