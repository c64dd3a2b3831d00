"""Run the suites of `suites.yaml` with Great Expectations: in memory, without output or analytics.

Great Expectations skips nulls; a column that names a fault is expected to be null. Importing it loads 1,900 modules, so
those that no suite uses are deferred until their first use.
"""

import contextlib
import functools
import gc
import importlib.util
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.components.core.files import load_yaml
from ratchet.components.trajectories.terminal_rendering import single_line

from ..parquet_tables import ColumnLists
from .quality_report import ExpectationResult

if TYPE_CHECKING:
    import great_expectations as gx
    import pyarrow as pa


class LazyModuleFinder:
    """Import finder that loads the given modules with `importlib.util.LazyLoader` and leaves all others to later
    finders.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the module's specification with a lazy loader; None for a module that is not deferred or does not
        exist.
        """
        spec = PathFinder.find_spec(name, path) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Within this context, defer the import of the given modules and disable garbage collection."""
    finder = LazyModuleFinder(names)
    collecting = gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if collecting:
            gc.enable()


Item = TypeVar("Item")

MIN_LISTED_ROWS = 20
"""Number of failing rows that are always listed, however large their share."""
LISTED_SHARE = 0.2
"""Maximum share of failing rows up to which all of them are listed."""


def import_while_collecting(results: Iterable[Item]) -> list[Item]:
    """Return all results of the workers. Great Expectations is imported after the first, while the workers compute the
    others, which saves seconds.
    """
    iterator = iter(results)
    first = list(islice(iterator, 1))
    _import()
    return first + list(iterator)


def _import() -> None:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # Importing altair and scipy.stats costs a second, and no suite uses them. The loader must be lazy from the first import
    # on: a deferred module in `sys.modules` is loaded as soon as another module imports it.
    with deferred_imports("altair", "scipy.stats"):
        import great_expectations

    logging.getLogger(great_expectations.__name__).setLevel(logging.ERROR)


def run_expectations(
    table: "ColumnLists | pa.Table",
    suite: "gx.ExpectationSuite",
    *,
    key: str = "episode_id",
    max_listed_share: float = LISTED_SHARE,
) -> list[ExpectationResult]:
    """Return the results of every expectation, in the suite's order. Failing rows are named by the column `key`, in
    order.

    Every expectation is validated once. The failing rows are all listed only if they are at most the share
    `max_listed_share`, or at most MIN_LISTED_ROWS; of more, the first MIN_LISTED_ROWS are.
    """
    _import()
    import pandas as pd

    frame = pd.DataFrame(table) if isinstance(table, dict) else table.to_pandas()
    batch = _batch_definition().get_batch({"dataframe": frame})
    limit = max(MIN_LISTED_ROWS, int(max_listed_share * len(frame)))
    results = batch.validate(suite, result_format=_format(limit, key)).results
    return [
        _finding(expectation, result, suite.name, key, limit)
        for expectation, result in zip(suite.expectations, results, strict=True)
    ]


@functools.cache
def _batch_definition() -> Any:
    """Return the definition of a batch that is a whole table."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    # One context per process: each change to a context writes its whole configuration as YAML, which takes 30 ms.
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return (
        context.data_sources.add_pandas("tables")
        .add_dataframe_asset("table")
        .add_batch_definition_whole_dataframe("all")
    )


def _format(limit: int, key: str) -> dict[str, Any]:
    """Return the result format that lists at most `limit` failing rows by the column `key`."""
    return {
        "result_format": "SUMMARY",
        "unexpected_index_column_names": [key],
        "partial_unexpected_count": limit,
        "include_unexpected_rows": False,
    }


def _finding(expectation: Any, result: Any, suite: str, key: str, limit: int) -> ExpectationResult:
    details = result.result
    rows = details.get("partial_unexpected_index_list") or []
    if int(details.get("unexpected_count") or 0) > limit:
        rows = rows[:MIN_LISTED_ROWS]
    severity = expectation.severity
    reason = expectation.meta["reason"]
    # An exception proves nothing about the rows: it is critical, whatever the severity of the expectation.
    if result.exception_info.get("raised_exception"):
        severity, reason = "critical", f"the check raised an exception ({result.exception_info['exception_message']})"
    column, observed = getattr(expectation, "column", None), details.get("observed_value")
    named = sorted({(single_line(str(row[key])), _value_text(row.get(column))) for row in rows})
    values = tuple(value for _, value in named)
    return ExpectationResult(
        name=expectation.meta["name"],
        type=expectation.expectation_type,
        column=column,
        severity=getattr(severity, "value", str(severity)),
        reason=reason,
        success=bool(result.success),
        failing=int(details.get("unexpected_count") or 0),
        # A number of numpy, which is no JSON, as a Python number.
        observed=observed.item() if hasattr(observed, "item") else observed,
        rows=tuple(row for row, _ in named),
        values=values if column != key and any(values) else (),
        suite=suite,
    )


def _value_text(value: Any) -> str:
    """Return the value in a failing row as text; an empty text for null, NaN and booleans, which add nothing to the
    reason.
    """
    if value is None or isinstance(value, bool) or type(value).__name__ in ("bool_", "bool") or value != value:
        return ""
    # One line without control characters: values come from logs, and end up in errors and terminals.
    return single_line(f"{value:g}" if isinstance(value, float) else str(value))


SUITES = Path(__file__).with_name("suites.yaml")


def declared_suite(declared: str, name: str | None = None, **params: Any) -> "gx.ExpectationSuite":
    """Return the suite `declared` of `suites.yaml`, called `name` if given. `params` replace the `{name}` placeholders;
    an expectation with a parameter that is None or empty is left out.
    """
    import great_expectations as gx

    expectations = [_expectation(declaration, params) for declaration in _flatten(declared, _declarations())]
    return gx.ExpectationSuite(
        name=name or declared, expectations=[expectation for expectation in expectations if expectation is not None]
    )


@functools.cache
def _declarations() -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = load_yaml(SUITES.read_bytes(), quick=True)
    return lists


def _flatten(name: str, lists: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the expectations of a list, and of the lists that it names."""
    for entry in lists[name]:
        yield from _flatten(entry, lists) if isinstance(entry, str) else (entry,)


def _expectation(declared: dict[str, Any], params: dict[str, Any]) -> Any:
    """Return an expectation of Great Expectations; None if a parameter of it is None or empty."""
    from great_expectations import expectations

    fixed = {"name", "severity", "expect", "reason"}
    values = {name: _fill_in(value, params) for name, value in declared.items() if name not in fixed}
    if any(value is None or value == [] for value in values.values()):
        return None
    meta = {"name": declared["name"], "reason": declared["reason"].format(**params)}
    return getattr(expectations, f"Expect{declared['expect']}")(severity=declared["severity"], meta=meta, **values)


def _fill_in(value: Any, params: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_fill_in(element, params) for element in value]
    if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}":
        parameter = params[value[1:-1]]
        return list(parameter) if isinstance(parameter, tuple) else parameter
    return value
