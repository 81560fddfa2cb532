"""An S3 server with very many old files below a table. It generates their names in listings, and stores only the log.

It runs in a separate process. Each folder of the table lists the files of the log first, then the old ones.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import work_tables
from job import Answer, Job
from work_store import BUCKET, PAGE, URI, Store, process

# Old files for each removed file of the log.
EACH = 500
OLD = re.compile(rb"<Key>table/p=\d+/q-\d+\.parquet</Key>")


class SimulatedStore(Store):
    """The location of the table, and its storage options."""

    def after_vacuum(self, job: Job) -> Answer:
        """The number of remaining files."""
        self.pipe.send("deleted")
        deleted, others = self.pipe.recv()
        assert not others, f"{others} files were deleted that are not old"
        facts = work_tables.facts_of(job.uri)
        return {"files": facts["files"] + facts["removed"] * EACH - deleted}


@contextmanager
def served(job: Job) -> Iterator[SimulatedStore]:
    """A server with the table and its old files."""
    with process(job, _serve) as (options, pipe):
        yield SimulatedStore(URI, options, pipe)


def _serve(source: str, pipe: Connection) -> None:
    from object_store import Handler, object_store

    facts = work_tables.facts_of(source)
    count = facts["folders"]
    live, old = facts["files"] // count, facts["removed"] * EACH // count
    folders = sorted(f"table/p={folder}/" for folder in range(count))
    described = "<LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>e</ETag><Size>0</Size>"
    # Numbers of deleted data files: old ones, and others.
    deleted = [0, 0]

    def page(folder: str, first: int) -> list[str]:
        """A page of names in a folder, from a position on."""
        number = int(folder.removeprefix("table/p=").removesuffix("/"))
        places = range(first, min(first + PAGE, live + old))
        return [
            f"table/{work_tables.removed_path(number + count * place)}"
            if place < live
            else f"{folder}q-{place - live:08}.parquet"
            for place in places
        ]

    def listing(self: Handler, bucket: str, query: dict[str, str]) -> bytes:
        """A page of one folder, whose token is the folder and a position; for the root its folders."""
        prefix, token = query.get("prefix", ""), query.get("continuation-token", "")
        if prefix.startswith("table/_delta_log"):
            return others(self, bucket, query)
        if "delimiter" in query and prefix == "table/":
            names = [f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders]
            return f"<ListBucketResult>{''.join(names)}</ListBucketResult>".encode()
        within = [folder for folder in folders if folder.startswith(prefix) and folder >= query.get("start-after", "")]
        if not within:
            return b"<ListBucketResult></ListBucketResult>"
        folder, _, place = (token or f"{within[0]} 0").partition(" ")
        names = page(folder, int(place))
        lines = [f"<Contents><Key>{name}</Key>{described}</Contents>" for name in names]
        following = int(place) + len(names)
        if following < live + old:
            token = f"{folder} {following}"
        else:
            later = [name for name in within if name > folder]
            token = f"{later[0]} 0" if later else ""
        if token:
            lines.append(f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>")
        return f"<ListBucketResult>{''.join(lines)}</ListBucketResult>".encode()

    def act(self: Handler, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Count deleted files, and return their names, as S3 does."""
        if "delete" not in query:
            return rest(self, path, query, body)
        keys = body.count(b"<Key>table/p=")
        found = len(OLD.findall(body))
        deleted[0] += found
        deleted[1] += keys - found
        content = b"".join(b"<Deleted>%b</Deleted>" % key for key in re.findall(rb"<Key>[^<]*</Key>", body))
        return 200, b"<DeleteResult>%b</DeleteResult>" % content, {}

    others, rest = Handler.listing, Handler.act
    Handler.listing, Handler.act = listing, act  # type: ignore[method-assign]
    with object_store() as store:
        for file in Path(source, "_delta_log").iterdir():
            store.files[f"{BUCKET}/table/_delta_log/{file.name}"] = (file.read_bytes(), file.stat().st_mtime)
        pipe.send(store.options)
        while pipe.recv() != "stop":
            pipe.send(deleted)
