"""Parquet in and out, a thousand rows at a time. Needs pyarrow (the `data` extra)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_service.errors import ConfigError
from reward_service.offline.rows import Values, kind_of, to_json

# Few enough that rows with embedded pictures fit into memory.
_ROWS_READ = 64
_ROWS_PER_GROUP = 1000


@dataclass(frozen=True)
class ParquetSource:
    """A Parquet file; raises ConfigError when it is none."""

    path: Path

    @property
    def base(self) -> Path:
        """The file's folder."""
        return self.path.parent

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return self._open().schema_arrow

    def rows(self) -> Iterator[Values]:
        """See `Source.rows`."""
        for batch in self._open().iter_batches(batch_size=_ROWS_READ):
            yield from batch.to_pylist()

    def _open(self) -> Any:
        import pyarrow
        from pyarrow.parquet import ParquetFile

        try:
            return ParquetFile(self.path)
        except pyarrow.ArrowInvalid as error:
            raise ConfigError(f"{self.path}: not a Parquet file ({error}); check its ending") from error


class ParquetWriter:
    """Writes rows whose input columns have the types of *schema*, or those of the survey's *kinds*."""

    def __init__(self, path: Path, kinds: Mapping[str, str], schema: Any, score_columns: Mapping[str, str]) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter as Target

        self._types = _types()
        # A column of nulls only is text: Parquet readers stumble over the null type.
        fields = [(name, self._types[kind]) for name, kind in kinds.items()]
        inputs = list(schema) if schema is not None else [pyarrow.field(*field) for field in fields]
        scores = [pyarrow.field(name, self._types[kind]) for name, kind in score_columns.items()]
        self._as_json = [name for name, kind in kinds.items() if kind == "json"] if schema is None else []
        self._schema = pyarrow.schema([*inputs, *scores])
        self._table = pyarrow.Table
        self._target = Target(path, self._schema)
        self._rows: list[Values] = []

    def write(self, values: Values) -> None:
        """Add a row; missing columns are null."""
        for name in self._as_json:
            if values.get(name) is not None and kind_of(values[name]) != "text":
                values[name] = to_json(values[name]).decode()
        self._rows.append(values)
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Complete the file."""
        if self._rows:
            self._flush()
        self._target.close()

    def _flush(self) -> None:
        self._target.write_table(self._table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


def _types() -> dict[str, Any]:
    import pyarrow

    return {
        "null": pyarrow.string(),
        "bool": pyarrow.bool_(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "text": pyarrow.string(),
        "json": pyarrow.string(),
    }
