"""The tests' S3 server in a separate process, with a delay for each request and a table with removed files.

It has its own listing, since that of the tests scans all names for each page.
"""

import re
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from xml.sax.saxutils import escape, unescape

import work_tables
from job import Answer, Job
from work_job import UNCOUNTED

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
BUCKET = "bench"
URI = f"s3://{BUCKET}/table"
LATENCY = 0.020
PAGE = 1_000
KEY = re.compile("<Key>(.*?)</Key>")


@dataclass
class Store:
    """The location of the table, and its storage options."""

    uri: str
    options: dict[str, str]
    pipe: Connection

    def after_vacuum(self, job: Job) -> Answer:
        """The number of remaining data files, among which all files of the table must be."""
        self.pipe.send("names")
        left = {name for name in self.pipe.recv() if "_delta_log" not in name}
        live = {work_tables.removed_path(number) for number in range(work_tables.facts_of(job.uri)["files"])}
        assert live <= left, f"{len(live - left)} files of the table were deleted"
        return {"files": len(left)}


@contextmanager
def process(job: Job, serve: Callable[[str, Connection], None]) -> Iterator[tuple[dict[str, str], Connection]]:
    """A process that runs `serve`, whose memory does not count: its storage options, and a connection to it."""
    spawn = get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(job.uri, there), daemon=True)
    server.start()
    UNCOUNTED.append(server.pid or 0)
    try:
        yield here.recv(), here
    finally:
        here.send("stop")
        server.join()


@contextmanager
def served(job: Job) -> Iterator[Store]:
    """A server with the table of removed files."""
    with process(job, _serve) as (options, pipe):
        yield Store(URI, options, pipe)


def _serve(source: str, pipe: Connection) -> None:
    from object_store import Handler, object_store, tag

    known: list[str] = []

    def listing(self: Handler, bucket: str, query: dict[str, str]) -> bytes:
        """A page of names. All names are sorted again only after changes."""
        root, files = bucket.rstrip("/") + "/", self.store.files
        if len(known) != len(files):
            known[:] = sorted(files)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        lines: list[str] = []
        names = list(known)
        place, last = bisect_right(names, root + max(after, prefix[:-1])), ""
        while place < len(names) and len(lines) < PAGE:
            name = names[place].removeprefix(root)
            place += 1
            if not name.startswith(prefix):
                if name > prefix:
                    place = len(names)
                continue
            folder, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            if found:
                last = prefix + folder + delimiter + "\U0010ffff"
                place = bisect_right(names, root + last)
                lines.append(f"<CommonPrefixes><Prefix>{escape(prefix + folder + delimiter)}</Prefix></CommonPrefixes>")
                continue
            last = name
            if (file := files.get(root + name)) is not None:
                stamp = datetime.fromtimestamp(file[1], timezone.utc)
                lines.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                    f"<ETag>{escape(tag(file[0]))}</ETag><Size>{len(file[0])}</Size></Contents>"
                )
        if place < len(names):
            lines.append(
                f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(last)}</NextContinuationToken>"
            )
        return f"<ListBucketResult>{''.join(lines)}</ListBucketResult>".encode()

    def act(self: Handler, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """A request, later by the delay. A bulk deletion parses its names once, and returns them as S3 does."""
        time.sleep(LATENCY)
        if "delete" not in query:
            return others(self, path, query, body)
        keys = [unescape(key) for key in KEY.findall(body.decode())]
        for key in keys:
            self.store.files.pop(f"{path.rstrip('/')}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}

    others = Handler.act
    Handler.listing, Handler.act = listing, act  # type: ignore[method-assign]
    with object_store() as store:
        root, facts = f"{BUCKET}/table/", work_tables.facts_of(source)
        for number in range(facts["files"] + facts["removed"]):
            store.files[root + work_tables.removed_path(number)] = (b"", work_tables.LONG_AGO)
        for path in Path(source, "_delta_log").iterdir():
            store.files[f"{root}_delta_log/{path.name}"] = (path.read_bytes(), path.stat().st_mtime)
        pipe.send(store.options)
        while pipe.recv() != "stop":
            pipe.send([name.removeprefix(root) for name in list(store.files)])
