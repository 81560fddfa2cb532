"""The arguments and the result of a case: the table, the question, and copies for writes."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

Answer = dict[str, int]
# Members of an answer that must be equal for all engines that return them.
COMPARED = ("version", "columns", "files", "bytes", "rows", "sum")


@dataclass(frozen=True)
class Question:
    """A range of one column, including both ends. Dates are strings."""

    column: str
    low: int | str
    high: int | str

    @property
    def sql(self) -> str:
        if isinstance(self.low, str):
            return f"{self.column} = DATE '{self.low}'"
        return f"{self.column} >= {self.low} AND {self.column} <= {self.high}"


@dataclass(frozen=True)
class Job:
    """One run of a case."""

    uri: str
    files: int
    scratch: Path
    by_day: bool = False
    typed: bool = False
    # Whether the run must answer, even if that takes much longer than what is measured.
    is_asked: bool = True

    @property
    def question(self) -> Question:
        """A question with a thousandth of the files: a day, or a range of events."""
        return Question("p_date", "2022-05-16", "2022-05-16") if self.by_day else self._events(400)

    @property
    def other_question(self) -> Question:
        """Another thousandth by the same column."""
        return Question("p_date", "2022-08-01", "2022-08-01") if self.by_day else self._events(600)

    def _events(self, place: int) -> Question:
        return Question("event_id", place * self.files, (place + 1) * self.files - 1)


def copy_of_log(job: Job) -> str:
    """A table with the same log. Large files are links, since files of a log are never modified."""
    source, copy = Path(job.uri, "_delta_log"), job.scratch / "copy" / "_delta_log"
    for path in sorted(source.rglob("*")):
        target = copy / path.relative_to(source)
        if path.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            os.link(path, target)
        else:
            shutil.copy2(path, target)
    return str(copy.parent)


def add_a_commit(uri: str, job: Job) -> None:
    """Commit as another writer: add a file that matches both questions, and remove one."""
    newest = max(Path(uri, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    removed = next(action["add"] for action in actions if "add" in action)
    events = {"event_id": job.question.low if not job.by_day else 0}
    stats = {"numRecords": 1, "minValues": events, "maxValues": events, "nullCount": {"event_id": 0}}
    added = {**removed, "path": removed["path"].replace("part-", "part-9"), "size": 77, "stats": json.dumps(stats)}
    added.pop("deletionVector", None)
    if job.by_day:
        added["partitionValues"] = {"p_date": job.question.low}
    gone = {name: removed[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in removed}
    gone |= {"deletionTimestamp": 1_760_000_000_000, "dataChange": True, "extendedFileMetadata": True}
    lines = [json.dumps(action) + "\n" for action in ({"commitInfo": {}}, {"add": added}, {"remove": gone})]
    newest.with_name(f"{int(newest.stem) + 1:020}.json").write_text("".join(lines))
