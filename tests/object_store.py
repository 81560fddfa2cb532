"""An in-process S3 server with its files in a dict, which can fail from any request on.

Signatures are not checked. A listing page has 1,000 names. PUT supports `If-None-Match: *`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE = 1000


class ObjectStore:
    """The files of all buckets by path, and the failures to simulate."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.files: dict[str, tuple[bytes, float]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self.requests = 0
        self.goes_at: int | None = None
        self.does_last = False
        self.now = 1_700_000_000.0
        self.before: Callable[[str, str], None] | None = None
        """Called with method and path before a request is executed, in the request's thread. For a bulk delete it is
        also called once for each file."""
        self.busy: Callable[[str, str], bool] | None = None
        """Called with method and path; if it returns true, the request is answered with 503 and not executed."""
        self.copies_with = 200
        """The status of copy requests; any other than 200 refuses the copy."""
        self.after_listing: Callable[[str], None] | None = None
        """Called with the prefix after a listing is computed and before it is sent."""

    @property
    def options(self) -> dict[str, str]:
        """Storage options to reach the server."""
        return {
            "aws_endpoint": f"http://127.0.0.1:{self.port}",
            "aws_allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
        }

    def go_away(self, at: int | None, does_last: bool = False) -> None:
        """Answer only the next `at` requests, and refuse later ones. `does_last` executes the first refused request."""
        self.requests, self.goes_at, self.does_last = 0, at, does_last

    def put(self, path: str, body: bytes, only_new: bool) -> bool:
        """Store a file; with `only_new` only if none exists."""
        with self.lock:
            if only_new and path in self.files:
                return False
            self.now += 1
            self.files[path] = (body, self.now)
            return True


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: ObjectStore

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        store = self.store
        with store.lock:
            store.requests += 1
            late = -1 if store.goes_at is None else store.requests - store.goes_at
        if late > 1 or (late == 1 and not store.does_last):
            self.answer(403)
            return
        address = urlsplit(self.path)
        path = unquote(address.path).lstrip("/")
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        if store.before is not None:
            for key in deleted(body) if "delete" in query else ():
                store.before("DELETE", f"{path.rstrip('/')}/{key}")
            store.before(self.command, path)
        if store.busy is not None and store.busy(self.command, path):
            self.answer(503)
            return
        status, content, headers = self.act(path, query, body)
        if late == 1:
            status, content, headers = 403, b"", {}
        self.answer(status, content, headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def act(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        store = self.store
        if "list-type" in query:
            listing = self.listing(path, query)
            if store.after_listing is not None:
                store.after_listing(query.get("prefix", ""))
            return 200, listing, {}
        if "delete" in query:
            for key in deleted(body):
                store.files.pop(f"{path.rstrip('/')}/{key}", None)
            done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in deleted(body))
            return 200, f"<DeleteResult>{done}</DeleteResult>".encode(), {}
        if "uploads" in query or "uploadId" in query:
            return self.upload(path, query, body)
        if self.command == "PUT":
            if (source := self.headers.get("x-amz-copy-source")) is not None:
                if store.copies_with != 200:
                    return store.copies_with, b"<Error><Code>AccessDenied</Code></Error>", {}
                body, _ = store.files[unquote(source).lstrip("/")]
            done = store.put(path, body, self.headers.get("If-None-Match") == "*")
            return (200, b"", {"ETag": tag(body)}) if done else (412, b"", {})
        if self.command == "DELETE":
            store.files.pop(path, None)
            return 204, b"", {}
        if path not in store.files:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        content, modified = store.files[path]
        headers = {"ETag": tag(content), "Last-Modified": formatdate(modified, usegmt=True)}
        if (requested := self.headers.get("Range")) is None:
            return 200, content, headers
        first, last = requested.removeprefix("bytes=").split("-")
        start, end = (max(0, len(content) - int(last)), len(content)) if first == "" else (int(first), len(content))
        end = min(end, int(last) + 1) if first != "" and last != "" else end
        if start >= len(content):
            return 416, b"", {}
        return 206, content[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}

    def listing(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        root = bucket.rstrip("/") + "/"
        names = sorted(path.removeprefix(root) for path in list(self.store.files) if path.startswith(root + prefix))
        lines: list[str] = []
        folders: set[str] = set()
        last = ""
        for name in names:
            if name <= after:
                continue
            if len(lines) == PAGE:
                lines.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
                break
            last = name
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
                continue
            content, modified = self.store.files[root + name]
            stamp = datetime.fromtimestamp(modified, timezone.utc)
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{stamp:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                f"<ETag>{escape(tag(content))}</ETag><Size>{len(content)}</Size></Contents>"
            )
        common = [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders)]
        return f"<ListBucketResult>{''.join(lines + common)}</ListBucketResult>".encode()

    def upload(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        store = self.store
        id = query.get("uploadId")
        if id is None:
            id = f"upload-{len(store.uploads)}"
            store.uploads[id] = {}
            tags = f"<Bucket>b</Bucket><Key>{escape(path)}</Key><UploadId>{id}</UploadId>"
            return 200, f"<InitiateMultipartUploadResult>{tags}</InitiateMultipartUploadResult>".encode(), {}
        if self.command == "PUT":
            store.uploads[id][int(query["partNumber"])] = body
            return 200, b"", {"ETag": tag(body)}
        parts = store.uploads.pop(id, {})
        if self.command == "DELETE":
            return 204, b"", {}
        whole = b"".join(parts[number] for number in sorted(parts))
        if not store.put(path, whole, self.headers.get("If-None-Match") == "*"):
            return 412, b"", {}
        result = f"<ETag>{escape(tag(whole))}</ETag>"
        return 200, f"<CompleteMultipartUploadResult>{result}</CompleteMultipartUploadResult>".encode(), {}

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def deleted(body: bytes) -> list[str]:
    """The keys of a bulk delete."""
    return [key.text or "" for key in ElementTree.fromstring(body).iter() if key.tag.endswith("Key")]


def tag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a new server until the end of the block."""
    handler = type("Of", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    # A client that cancels a request closes the connection, which is no error here.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    handler.store = ObjectStore(server.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield handler.store  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
