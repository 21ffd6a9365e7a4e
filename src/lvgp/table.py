"""A table or response as checked pandas and NumPy values; errors name column, row and value."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from lvgp.errors import (
    InputError,
    InputTypeError,
    warn,
)

_SHOWN = 5


def as_table(X: Any) -> tuple[pd.DataFrame, bool]:
    """Return X as a DataFrame and whether it came with column names."""
    if isinstance(X, pd.DataFrame):
        table, named = X, True
        duplicated = list(dict.fromkeys(X.columns[X.columns.duplicated()]))
        if duplicated:
            raise InputError(f"X: column names occur more than once: {duplicated}; rename them")
        wrong = [name for name in X.columns if not isinstance(name, str | numbers.Integral)]
        if wrong:
            raise InputTypeError(f"X: column names must be strings or integers, got {wrong}")
    else:
        table, named = _array_table(X), False
    if table.shape[1] == 0:
        raise InputError(
            f"X: found array with 0 feature(s) (shape={table.shape}) while a minimum of 1 is "
            "required."
        )
    return table, named


def _array_table(X: Any) -> pd.DataFrame:
    if hasattr(X, "toarray") or hasattr(X, "todense"):
        raise InputTypeError("X: sparse data is not supported; pass X.toarray()")
    if isinstance(X, pd.Series):
        raise InputError("X: expected a table, got one column; pass it as column.to_frame()")
    array = _as_array(X, "X")
    if array.ndim != 2:
        raise InputError(
            f"X: expected a 2-d table (rows x columns), got an array of shape {array.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row"
        )
    names = [f"x{position}" for position in range(array.shape[1])]
    return pd.DataFrame(array, columns=names).infer_objects()


def _as_array(values: Any, name: str) -> np.ndarray:
    """Return rows as an array; lists keep the kind of each value, masked values are missing."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(object), np.nan)
    try:
        array = np.array(values, dtype=object if isinstance(values, list | tuple) else None)
    except ValueError:
        raise InputError(f"{name}: rows have different lengths") from None
    if np.iscomplexobj(array):
        raise InputError(f"{name}: Complex data not supported; give real numbers or categories")
    return array


def column_keys(
    table: pd.DataFrame, named: bool, mapping: Mapping[Hashable, Any], option: str
) -> Iterable[tuple[Hashable, Any]]:
    """Yield the items of an option keyed by column, positions turned into names for arrays."""
    if not isinstance(mapping, Mapping):
        raise InputError(f"{option}: expected {{column: ...}}, got {mapping!r}")
    for key, value in mapping.items():
        name = f"x{key}" if not named and isinstance(key, numbers.Integral) else key
        if name not in table.columns:
            raise InputError(f"{option}: no column {key!r}; the table has {list(table.columns)}")
        yield name, value


def is_number_column(column: pd.Series) -> bool:
    """Whether a column holds numbers: not categories, not truth values, not text."""
    if isinstance(column.dtype, pd.CategoricalDtype) or types.is_bool_dtype(column):
        return False
    if column.dtype == object:
        return all(_is_number(value) or _is_missing(value) for value in column)
    return types.is_numeric_dtype(column) and not types.is_complex_dtype(column)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def _is_missing(value: Any) -> bool:
    return np.ndim(value) == 0 and bool(pd.isna(value))


def wrong_value(name: str, label: Hashable, value: Any) -> InputTypeError:
    """Return the error for a value that is neither text nor a real number."""
    return InputTypeError(
        f"{name}, row {label!r}: argument must be a string or a number, got {value!r} of type "
        f"{type(value).__name__}"
    )


def numeric_values(table: pd.DataFrame, name: Hashable) -> np.ndarray:
    """Return a column as finite floats, or say which rows are not numbers."""
    column = table[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == object or not (
        types.is_numeric_dtype(column) or types.is_string_dtype(column)
    ):
        for label, value in column.items():
            if not (_is_missing(value) or isinstance(value, numbers.Real | str)):
                raise wrong_value(f"column {name!r}", label, value)
    elif types.is_complex_dtype(column):
        raise InputError(f"column {name!r}: Complex data not supported; give real numbers")
    missing = column.isna().to_numpy()
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    text = np.isnan(values) & ~missing
    if text.any():
        raise InputError(
            f"column {name!r}: expected numbers, got {column[text].iloc[0]!r} in "
            f"{rows_text(table, text)}; mend the cells, or list the column in categorical=[...]"
        )
    check_present(table, name, ~np.isfinite(values))
    return values


def check_present(table: pd.DataFrame, name: Hashable, wrong: np.ndarray) -> None:
    """Refuse a column with missing values, given which rows lack one."""
    if wrong.any():
        raise InputError(
            f"column {name!r}: NaN, missing or infinite (inf) values in {rows_text(table, wrong)} "
            f"({int(wrong.sum())} of {len(table)}); fill them in or leave those rows out"
        )


def rows_text(table: pd.DataFrame, chosen: np.ndarray) -> str:
    """Return e.g. "rows 3, 7, 9" with the table's own row labels, shortened."""
    labels = [str(label) for label in table.index[chosen]]
    more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return f"row{'s' * (len(labels) > 1)} {', '.join(labels[:_SHOWN])}{more}"


def check_response(y: Any, rows: int) -> np.ndarray:
    """Return the response as a float array, or say what is wrong with it."""
    series = _response_series(y)
    name = f"y ({series.name!r})" if series.name is not None else "y"
    if len(series) != rows:
        raise InputError(
            f"{name}: expected one value a row, got {len(series)} for {rows} rows of X"
        )
    if not (is_number_column(series) or types.is_bool_dtype(series)):
        _refuse_response(name, series)
    if rows < 3:
        raise InputError(f"{name}: a model needs at least 3 rows, got n_samples = {rows}")
    values = numeric_values(pd.DataFrame({name: series}), name)
    largest = float(np.abs(values).max())
    if (values == values[0]).all():
        raise InputError(_constant(name, values))
    if not largest < 1e150 or 0 < largest < 1e-150:
        raise InputError(
            f"{name}: values as {'large' if largest > 1 else 'small'} as {largest:g} cannot be "
            "computed with; change the unit"
        )
    if np.ptp(values) <= 1e-13 * largest:
        raise InputError(_constant(name, values))
    return values


def _constant(name: str, values: np.ndarray) -> str:
    return f"{name}: is constant ({values[0]:g} in every row), so there is nothing to model"


def _response_series(y: Any) -> pd.Series:
    if y is None:
        raise InputError("y: requires y to be passed, but the target y is None")
    if getattr(y, "ndim", 1) == 2 and np.shape(y)[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warn(
            "A column-vector y was passed when a 1d array was expected; its only column is used",
            DataConversionWarning,
        )
        y = y.iloc[:, 0] if isinstance(y, pd.DataFrame) else np.ravel(y)
    if isinstance(y, pd.Series):
        return y.infer_objects()
    if isinstance(y, pd.api.extensions.ExtensionArray):
        return pd.Series(y)
    array = _as_array(y, "y")
    if array.ndim != 1:
        raise InputError(f"y: expected a 1-d array, got an array of shape {array.shape}")
    return pd.Series(array).infer_objects()


def _refuse_response(name: str, series: pd.Series) -> None:
    """Name the first value of the response that is not a number."""
    for label, value in series.items():
        if not (_is_number(value) or _is_missing(value)) or series.dtype != object:
            raise InputError(
                f"{name}: expected numbers, got {value!r} (dtype {series.dtype}) in row {label!r}; "
                "the target column must be numeric"
            )
    raise InputError(f"{name}: expected numbers, got dtype {series.dtype} and no rows")
