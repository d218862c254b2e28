"""Trials and findings in the formats other programs read."""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from terminalbench.files import encode_json
from terminalbench.index.results import Results, Table
from terminalbench.report.junit import junit_xml

type Format = Literal["csv", "json", "parquet", "junit"]


def export_trials(results: Results, batches: Sequence[str | None], form: Format) -> bytes:
    """The trials of some batches (`None`: of all); a row a planned trial and a superseded try."""
    tables = [results.trials(batch) for batch in batches]
    table = Table(tables[0].columns, [row for found in tables for row in found])
    if form == "junit":
        name = ", ".join(dict.fromkeys(row["batch"] for row in table)) or str(results.root.name)
        return junit_xml(name, table.rows)
    return encode_table(table, form)


def encode_table(table: Table, form: Literal["csv", "json", "parquet"]) -> bytes:
    """A table as CSV (empty is unknown), JSON (null is unknown) or Parquet."""
    if form == "json":
        return encode_json([dict(row) for row in table])
    if form == "csv":
        return csv_bytes(list(table.columns), [[row[name] for name in table.columns] for row in table])
    arrow = table.to_arrow()
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(arrow, stream)
    return stream.getvalue()


def csv_bytes(head: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Rows as CSV; truths are `true` and `false`, unknown is empty, bytes are text."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([[_field(value) for value in row] for row in rows])
    return stream.getvalue().encode("utf-8", "replace")


def _field(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    # A spreadsheet would run it as a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "@") else value
