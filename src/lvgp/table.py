"""A table or response as checked pandas and NumPy values; errors name column, row and value."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from lvgp.errors import InputError, InputTypeError

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
    array = np.asarray(X)
    if np.iscomplexobj(array):
        raise InputError("X: Complex data not supported; give real numbers or categories")
    if array.ndim != 2:
        raise InputError(
            f"X: expected a 2-d table (rows x columns), got an array of shape {array.shape}. "
            "Reshape your data: X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row"
        )
    names = [f"x{position}" for position in range(array.shape[1])]
    return pd.DataFrame(array, columns=names).infer_objects()


def column_keys(
    table: pd.DataFrame, named: bool, mapping: Mapping[Hashable, Any], option: str
) -> Iterable[tuple[Hashable, Any]]:
    """Yield the items of an option keyed by column, positions turned into names for arrays."""
    for key, value in mapping.items():
        name = f"x{key}" if not named and isinstance(key, numbers.Integral) else key
        if name not in table.columns:
            raise InputError(f"{option}: no column {key!r}; the table has {list(table.columns)}")
        yield name, value


def is_number_column(column: pd.Series) -> bool:
    """Whether a column holds numbers: not categories, not truth values, not text."""
    if isinstance(column.dtype, pd.CategoricalDtype) or types.is_bool_dtype(column):
        return False
    if types.is_numeric_dtype(column):
        return True
    if column.dtype != object:
        return False
    return all(
        value is None
        or (isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_))
        for value in column
    )


def numeric_values(table: pd.DataFrame, name: Hashable) -> np.ndarray:
    """Return a column as finite floats, or say which rows are not numbers."""
    column = table[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    for position, value in enumerate(column if column.dtype == object else ()):
        if not (value is None or isinstance(value, numbers.Real | str)):
            raise InputTypeError(
                f"column {name!r}, row {table.index[position]!r}: argument must be a string or a "
                f"number, got {value!r} of type {type(value).__name__}"
            )
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    text = np.isnan(values) & ~column.isna().to_numpy()
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
    if y is None:
        raise InputError("y: requires y to be passed, but the target y is None")
    if getattr(y, "ndim", 1) == 2 and np.shape(y)[1] == 1:
        from sklearn.utils import column_or_1d

        y = column_or_1d(y, warn=True)
    series = y if isinstance(y, pd.Series) else pd.Series(_response_array(y))
    name = f"y ({series.name!r})" if series.name is not None else "y"
    if len(series) != rows:
        raise InputError(
            f"{name}: expected one value a row, got {len(series)} for {rows} rows of X"
        )
    table = pd.DataFrame({name: series.infer_objects()})
    if not is_number_column(table[name]) and not types.is_bool_dtype(table[name]):
        raise InputError(
            f"{name}: expected numbers, got {series.iloc[0]!r} (dtype {series.dtype}) in row "
            f"{series.index[0]!r}; the target column must be numeric"
        )
    if rows < 3:
        raise InputError(f"{name}: a model needs at least 3 rows, got n_samples = {rows}")
    values = numeric_values(table, name)
    if np.ptp(values) <= 1e-13 * np.abs(values).max():
        raise InputError(
            f"{name}: is constant ({values[0]:g} in every row), so there is nothing to model"
        )
    return values


def _response_array(y: Any) -> np.ndarray:
    array = np.asarray(y)
    if np.iscomplexobj(array):
        raise InputError("y: Complex data not supported; give real numbers")
    if array.ndim != 1:
        raise InputError(f"y: expected a 1-d array, got an array of shape {array.shape}")
    return array


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
