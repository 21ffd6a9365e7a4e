"""The response and numeric columns: what is refused, and whether the message helps."""

import decimal
import re
import warnings

import numpy as np
import pandas as pd
import pytest

from lvgp.errors import InputError, InputTypeError
from lvgp.table import check_response, numeric_values

LABELS = ["p", "q", "r", "s"]


@pytest.fixture(autouse=True)
def unexpected_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


TAKEN = {
    "list": [1, 2.5, -3, 4],
    "tuple": (1, 2.5, -3, 4),
    "array": np.array([1, 2.5, -3, 4]),
    "float32": np.array([1, 2.5, -3, 4], dtype=np.float32),
    "objects": np.array([1, 2.5, np.int64(-3), np.float32(4)], dtype=object),
    "series": pd.Series([1, 2.5, -3, 4], index=LABELS, name="G"),
    "series of objects": pd.Series([1, 2.5, -3, 4], dtype=object),
    "Float64": pd.Series([1, 2.5, -3, 4], dtype="Float64"),
    "extension array": pd.array([1, 2.5, -3, 4], dtype="Float64"),
}


@pytest.mark.parametrize("case", TAKEN)
def test_response_comes_back_as_floats(case):
    values = check_response(TAKEN[case], 4)
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 2.5, -3.0, 4.0]


@pytest.mark.parametrize("dtype", [bool, "boolean", "int8", "Int64", "uint8"])
def test_response_of_whole_numbers_or_truth_values(dtype):
    values = check_response(pd.Series([1, 0, 1], dtype=dtype), 3)
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 0.0, 1.0]


def test_response_is_copied_or_left_alone():
    y = np.array([1.0, 2.0, 3.0])
    check_response(y, 3)
    assert y.tolist() == [1.0, 2.0, 3.0]


MISSING = {
    "NaN": np.nan,
    "infinity": np.inf,
    "minus infinity": -np.inf,
    "None": None,
    "NA": pd.NA,
}


@pytest.mark.parametrize("container", ["list", "array", "series", "frame"])
@pytest.mark.parametrize("case", MISSING)
def test_missing_responses_are_counted_and_located(case, container):
    values = [1.0, MISSING[case], 3.0, MISSING[case]]
    y = {
        "list": values,
        "array": np.array(values, dtype=object),
        "series": pd.Series(values, dtype=object),
        "frame": pd.DataFrame({"G": pd.Series(values, dtype=object)}),
    }[container]
    if container == "frame":
        warnings.simplefilter("ignore")  # scikit-learn's, of a column where a row is expected
    with pytest.raises(InputError, match=r"y.*(NaN|inf).*rows 1, 3 \(2 of 4\)"):
        check_response(y, 4)


@pytest.mark.parametrize("dtype", ["float", "object", "Float64"])
def test_rows_of_the_response_are_named_by_its_index(dtype):
    y = pd.Series([1.0, np.nan, 3.0, 2.0], index=LABELS, name="G", dtype=dtype)
    with pytest.raises(InputError, match=r"y \('G'\).*row q \(1 of 4\)"):
        check_response(y, 4)


def test_rows_of_a_response_in_a_frame_are_named_by_its_index():
    y = pd.DataFrame({"G": [1.0, np.nan, 3.0, 2.0]}, index=LABELS)
    with (
        pytest.warns(UserWarning, match="column-vector y"),
        pytest.raises(InputError, match=r"row q \(1 of 4\)"),
    ):
        check_response(y, 4)


def test_long_lists_of_rows_are_shortened():
    y = pd.Series(np.arange(40.0), index=[f"row{k}" for k in range(40)])
    y[10:] = np.nan
    expected = r"rows row10, row11, row12, row13, row14 and 25 more \(30 of 40\)"
    with pytest.raises(InputError, match=expected):
        check_response(y, 40)


NOT_NUMBERS = {
    "text": (["low", "high", "low"], "'low'.*row 0"),
    "numeric text": (["1.5", "2.5", "3.5"], "'1.5'.*row 0"),
    "text in an array": (np.array(["low", "high", "low"]), "'low'.*row 0"),
    "one text among numbers": (pd.Series([1.0, "n/a", 3.0], dtype=object), "'n/a'.*row 1"),
    "one text in a list of numbers": ([1.0, 2.0, "n/a"], "'n/a'.*row 2"),
    "text after a missing value": (pd.Series([None, 2.0, "n/a"], dtype=object), "'n/a'.*row 2"),
    "category": (pd.Series([1, 2, 3], dtype="category"), "category"),
    "dates": (pd.Series(pd.to_datetime(["2020-01-01"] * 3)), "2020"),
    "durations": (np.array([1, 2, 3], dtype="m8[s]"), "expected numbers"),
    "decimals": ([decimal.Decimal(k) for k in range(3)], "Decimal"),
    "dictionaries": ([{}, {}, {}], "expected numbers"),
    "one list among numbers": (pd.Series([1.0, [2.0], 3.0], dtype=object), r"\[2.0\].*row 1"),
}


@pytest.mark.parametrize("case", NOT_NUMBERS)
def test_response_that_is_not_numeric_is_refused_with_value_and_row(case):
    y, message = NOT_NUMBERS[case]
    with pytest.raises(InputError, match=f"^y.*{message}"):
        check_response(y, 3)


COMPLEX = {
    "array": np.array([1 + 2j, 2, 3]),
    "list": [1 + 2j, 2, 3],
    "objects": np.array([1 + 2j, 2, 3], dtype=object),
    "series": pd.Series([1 + 2j, 2, 3]),
    "series of objects": pd.Series([1 + 2j, 2, 3], dtype=object),
}


@pytest.mark.parametrize("case", COMPLEX)
def test_complex_response_is_refused(case):
    with pytest.raises(InputError, match=r"^y.*([Cc]omplex|\(1\+2j\))"):
        check_response(COMPLEX[case], 3)


SHAPES = {
    "two columns": (np.eye(3)[:, :2], r"1-d array.*\(3, 2\)"),
    "frame with two columns": (pd.DataFrame(np.eye(3)[:, :2]), r"1-d array.*\(3, 2\)"),
    "three dimensions": (np.zeros((3, 1, 1)), r"1-d array.*\(3, 1, 1\)"),
    "rows of lists": ([[1.0], [2.0], [3.0]], r"1-d array.*\(3, 1\)"),
    "rows of different length": ([[1.0], [2.0, 3.0], [4.0]], "^y: "),
    "a number": (5.0, r"1-d array.*\(\)"),
    "a dictionary": ({"y": [1, 2, 3]}, "1-d array"),
    "nothing": (None, "y is None"),
    "too short": ([1.0, 2.0], "one value a row, got 2 for 3 rows of X"),
    "too long": ([1.0, 2.0, 3.0, 4.0], "one value a row, got 4 for 3 rows of X"),
    "empty": ([], "one value a row, got 0 for 3 rows of X"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_response_of_another_shape_is_refused(case):
    y, message = SHAPES[case]
    with pytest.raises(InputError, match=message):
        check_response(y, 3)


def test_response_as_one_column_is_taken_with_a_warning():
    for y in (np.array([[1.0], [2.0], [4.0]]), pd.DataFrame({"G": [1.0, 2.0, 4.0]})):
        with pytest.warns(UserWarning, match="column-vector y"):
            assert check_response(y, 3).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("dtype", [float, object, "Float64"])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_fewer_than_three_rows_are_refused(rows, dtype):
    y = pd.Series(np.arange(float(rows)), dtype=dtype)
    with pytest.raises(InputError, match=f"at least 3 rows.*{rows}"):
        check_response(y, rows)


def test_text_response_without_rows_is_refused():
    with pytest.raises(InputError, match=r"^y"):
        check_response(pd.Series([], dtype="str"), 0)


def test_three_rows_are_enough():
    assert len(check_response([1.0, 2.0, 3.0], 3)) == 3


@pytest.mark.parametrize("value", [0, 3.25, -1e9, 1e-100, True])
def test_constant_response_is_refused_with_its_value(value):
    expected = re.escape(f"is constant ({float(value):g} in every row)")
    with pytest.raises(InputError, match=expected):
        check_response(pd.Series([value] * 4, name="G"), 4)


def test_response_constant_up_to_rounding_is_refused():
    with pytest.raises(InputError, match="is constant"):
        check_response([0.3, 0.1 + 0.2, 0.3, 0.3], 4)


def test_response_with_a_small_spread_is_taken():
    check_response([1e6, 1e6 + 1e-3, 1e6], 3)
    check_response([1e-9, 2e-9, 3e-9], 3)


@pytest.mark.parametrize("scale", [1e100, 1e-100])
def test_large_and_small_responses_are_taken(scale):
    values = check_response(scale * np.array([1.0, 2.0, 3.0]), 3)
    np.testing.assert_allclose(values, scale * np.array([1.0, 2.0, 3.0]))


# -- numeric columns -------------------------------------------------------------------------------


def column(values):
    return pd.DataFrame({"x": values}, index=LABELS)


NUMERIC = {
    "float": [1, 2.5, 3, 4],
    "text": ["1", "2.5", "3e0", " 4"],
    "Float64": pd.array([1, 2.5, 3, 4], dtype="Float64"),
    "objects": pd.Series([1, 2.5, np.float32(3), "4"], dtype=object).array,
    "category": pd.Categorical([1, 2.5, 3, 4]),
    "category of text": pd.Categorical(["1", "2.5", "3", "4"]),
}


@pytest.mark.parametrize("case", NUMERIC)
def test_numeric_values(case):
    values = numeric_values(column(NUMERIC[case]), "x")
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 2.5, 3.0, 4.0]


WRONG = {
    "NaN": ([1, np.nan, 3, np.nan], r"column 'x'.*rows q, s \(2 of 4\)"),
    "infinity": ([1, np.inf, 3, -np.inf], r"column 'x'.*rows q, s \(2 of 4\)"),
    "NA": (pd.array([1, None, 3, None], dtype="Int64"), r"column 'x'.*rows q, s \(2 of 4\)"),
    "missing text": (pd.array(["1", None, "3", "4"], dtype="str"), r"'x'.*row q \(1 of 4\)"),
    "text": (["1", "2", "1,5", "x"], "column 'x': expected numbers, got '1,5' in rows r, s"),
    "category of text": (pd.Categorical(["1", "b", "1", "1"]), "'x'.*'b' in row q"),
    "category with a missing value": (pd.Categorical([1, None, 2, 2]), r"'x'.*row q \(1 of 4\)"),
    "category of floats with a missing value": (
        pd.Categorical([1.5, None, 2, 2]),
        r"'x'.*row q \(1 of 4\)",
    ),
    "list": (
        pd.Series([1, [2], 3, 4], dtype=object).array,
        r"column 'x', row 'q'.*\[2\] of type list",
    ),
    "complex": ([1, 2 + 1j, 3, 4], "column 'x'"),
    "dates": (pd.to_datetime(["2020-01-01"] * 4), "column 'x'"),
    "durations": (pd.to_timedelta([1, 2, 3, 4], unit="s"), "column 'x'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_column_that_is_not_numeric_is_refused_with_value_and_rows(case):
    values, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        numeric_values(column(values), "x")


def test_wrong_type_of_value_is_a_type_error_too():
    with pytest.raises(InputTypeError) as caught:
        numeric_values(column(pd.Series([1, {}, 3, 4], dtype=object).array), "x")
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_rows_with_repeated_labels():
    table = pd.DataFrame({"x": [1.0, np.nan, np.inf]}, index=["p", "p", "q"])
    with pytest.raises(InputError, match=r"rows p, q \(2 of 3\)"):
        numeric_values(table, "x")
