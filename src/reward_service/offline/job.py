"""One run of offline scoring: everything is checked first, then scored, then written."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from reward_service.client import RequestRefused, RewardClient, RewardRequest, ScoreResponse
from reward_service.errors import ConfigError
from reward_service.offline.folder import open_folder
from reward_service.offline.items import ORIGINAL, Recipe, RowProblem
from reward_service.offline.journal import Entry, Journal
from reward_service.offline.output import ENDINGS, write_output
from reward_service.offline.parquet import ParquetSource
from reward_service.offline.rows import Columns, Source, Survey, Values, fingerprint, open_table
from reward_service.offline.tally import Tally

# Refusals that one item of a request may have caused; servers differ in what they let an item cost.
_ITEM_STATUSES = frozenset({400, 413, 422})
_INPUT_ENDINGS = (".jsonl", ".csv", ".parquet")

Row = tuple[int, str, Values]


@dataclass(frozen=True)
class ScoreJob:
    """What to score.

    input: JSONL, CSV, Parquet, or a folder. output: ``.jsonl`` or ``.parquet``. rewards: asked of every row.
    batch_size: rows per request. concurrency: requests at once. resume: go on from the journal beside the
    output. retry_failed: score rows with an error again. image_format: ``original``, or the client's.
    """

    input: Path
    output: Path
    rewards: tuple[str, ...]
    columns: Columns = field(default_factory=Columns)
    batch_size: int = 32
    concurrency: int = 4
    resume: bool = True
    retry_failed: bool = False
    image_format: str = ORIGINAL

    @property
    def reencode(self) -> bool:
        """Whether pictures are decoded here, because the client encodes them anew."""
        return self.image_format != ORIGINAL

    @property
    def journal_path(self) -> Path:
        """Beside the output."""
        return self.output.with_name(self.output.name + ".journal")


def prepare(job: ScoreJob) -> Prepared:
    """Check the job and open its journal; raises ConfigError for everything that can be known beforehand.

    Reads the input once. No service is needed yet, nor at all when nothing is left to score.
    """
    _check_paths(job)
    source = _open_source(job.input)
    survey = _survey(source, job.rewards)
    if not survey.count:
        raise ConfigError(f"{job.input}: no rows; give at least one picture")
    columns = job.columns.resolve(survey.kinds, job.input)
    header = {"rewards": sorted(job.rewards), "columns": vars(columns), "image_format": job.image_format}
    if job.resume and job.output.exists() and not job.journal_path.exists():
        raise ConfigError(
            f"{job.output} exists without its journal {job.journal_path.name}, so it is from another run; "
            "choose another output, or replace it with --no-resume"
        )
    journal = Journal(job.journal_path, header, resume=job.resume, retry_failed=job.retry_failed)
    try:
        return Prepared(job, source, survey, columns, journal)
    except BaseException:
        journal.close()
        raise


class Prepared:
    """A checked job with its open journal; a context manager. pending: rows that are left to score."""

    def __init__(self, job: ScoreJob, source: Source, survey: Survey, columns: Columns, journal: Journal) -> None:
        self.job = replace(job, columns=columns)
        self.source = source
        self.total = survey.count
        self._survey = survey
        self._journal = journal
        self._recipe = Recipe(columns, source.base, job.rewards, job.reencode)
        self.pending = self.total - self._unchanged()

    def score(self, client: RewardClient, advance: Callable[[int, int], None]) -> None:
        """Score what is pending; ``advance(rows, failed)`` follows each batch, in one thread at a time.

        Raises ClientError when the service is lost. What is recorded by then stays recorded.
        """
        batches = _batched(self._pending_rows(), self.job.batch_size)
        taking = threading.Lock()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                with taking:
                    batch = next(batches, None)
                if batch is None:
                    return
                entries = self._score_batch(client, batch)
                self._journal.record(entries)
                with taking:
                    advance(len(entries), sum(bool(entry.errors) for entry in entries))

        with ThreadPoolExecutor(self.job.concurrency, thread_name_prefix="score") as pool:
            futures = [pool.submit(work) for _ in range(self.job.concurrency)]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                # The other threads end with their requests; Ctrl-C lands here too.
                stop.set()
                client.close()
                raise

    def tally(self) -> Tally:
        """What the journal amounts to."""
        return Tally.of(self._journal.entries(), self.job.rewards, self.total)

    def write(self, tally: Tally, keep: set[int] | None = None) -> dict[int, Values]:
        """Write the output; returns the input rows whose index is in *keep*."""
        return write_output(self.job.output, self.source, self._survey, self._journal, tally, keep=keep or ())

    def close(self) -> None:
        """Release the journal."""
        self._journal.close()

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _unchanged(self) -> int:
        """How many rows are done; raises ConfigError when one of them, or their number, has changed."""
        if self._journal.rows > self.total:
            raise ConfigError(
                f"{self.job.input}: {self._journal.rows} rows were scored, now it has {self.total}; {_START_OVER}"
            )
        if not self._journal.rows:
            return 0
        done = 0
        for index, values in enumerate(islice(self.source.rows(), self._journal.rows)):
            entry = self._journal.get(index)
            if entry is not None and entry.fingerprint != fingerprint(values):
                raise ConfigError(
                    f"{self.job.input}: row {index} (the first is 0) has changed since it was scored; {_START_OVER}"
                )
            done += self._journal.is_done(index)
        return done

    def _pending_rows(self) -> Iterator[Row]:
        for index, values in enumerate(self.source.rows()):
            if not self._journal.is_done(index):
                yield index, fingerprint(values), values

    def _score_batch(self, client: RewardClient, batch: Sequence[Row]) -> list[Entry]:
        entries: list[Entry] = []
        sendable: list[tuple[Row, RewardRequest]] = []
        for row in batch:
            try:
                sendable.append((row, self._recipe.request(row[2])))
            except RowProblem as problem:
                entries.append(self._failed(row, str(problem)))
        return entries + self._send(client, sendable)

    def _send(self, client: RewardClient, sendable: Sequence[tuple[Row, RewardRequest]]) -> list[Entry]:
        """One request; halves when it is refused for what an item of it may have caused."""
        if not sendable:
            return []
        try:
            answer = client.score_detailed([request for _, request in sendable])
        except (RequestRefused, ValueError, TypeError) as error:
            if isinstance(error, RequestRefused) and error.status not in _ITEM_STATUSES:
                raise
            if len(sendable) == 1:
                return [self._failed(sendable[0][0], str(error))]
            middle = len(sendable) // 2
            return self._send(client, sendable[:middle]) + self._send(client, sendable[middle:])
        return [_entry(row, answer, position) for position, (row, _) in enumerate(sendable)]

    def _failed(self, row: Row, message: str) -> Entry:
        return Entry(row[0], row[1], {}, dict.fromkeys(self.job.rewards, message))


_START_OVER = "choose another output, or start over with --no-resume"


def _entry(row: Row, answer: ScoreResponse, position: int) -> Entry:
    return Entry(row[0], row[1], answer.results[position], answer.errors[position])


def _batched(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while batch := list(islice(rows, size)):
        yield batch


def _check_paths(job: ScoreJob) -> None:
    if job.output.suffix.lower() not in ENDINGS:
        raise ConfigError(f"output {job.output}: the ending must be {' or '.join(ENDINGS)}")
    if not job.input.exists():
        raise ConfigError(f"input {job.input}: no such file or folder")
    if job.input.is_file() and job.input.suffix.lower() not in _INPUT_ENDINGS:
        endings = ", ".join(_INPUT_ENDINGS)
        raise ConfigError(f"input {job.input}: give a folder, or a file that ends in {endings}")
    if not job.output.parent.is_dir():
        raise ConfigError(f"output {job.output}: the folder {job.output.parent} does not exist; create it")
    if job.output.exists() and job.output.samefile(job.input):
        raise ConfigError(f"output {job.output} is the input; choose another name")
    parquet = [path for path in (job.input, job.output) if path.suffix.lower() == ".parquet"]
    if parquet and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"{parquet[0]}: Parquet needs pyarrow; pip install 'reward-service[data]'")


def _open_source(path: Path) -> Source:
    if path.is_dir():
        return open_folder(path)
    return ParquetSource(path) if path.suffix.lower() == ".parquet" else open_table(path)


def _survey(source: Source, rewards: Sequence[str]) -> Survey:
    survey = Survey()
    ours = tuple(f"{reward}." for reward in rewards)
    for values in source.rows():
        new = values.keys() - survey.kinds.keys()
        taken = sorted(name for name in new if name.startswith(ours))
        if taken:
            raise ConfigError(
                f"{source.path}: it has a column {taken[0]!r} already, which this run would write; rename or drop it"
            )
        survey.add(values)
    return survey
