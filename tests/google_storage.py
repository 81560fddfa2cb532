"""A proxy that translates Google Cloud Storage's XML API, which object_store uses, to the JSON API of fake-gcs-server.

The XML API of fake-gcs-server answers PUT with 400, and its listings support neither a start offset nor pages. Its JSON
API supports both, and checks the precondition of an upload under a lock. The proxy keeps only the parts of unfinished
multipart uploads.

    python google_storage.py PORT http://127.0.0.1:PORT_OF_THE_SERVER
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape, unescape

uploads: dict[str, dict[int, bytes]] = {}
connections = threading.local()


def text(name: str, value: object) -> str:
    return f"<{name}>{escape(str(value))}</{name}>"


class Handler(BaseHTTPRequestHandler):
    """Translates one XML request into one JSON request."""

    protocol_version = "HTTP/1.1"
    # With Nagle's algorithm the body of a response would wait until its head is acknowledged.
    disable_nagle_algorithm = True
    server_address: str

    def serve(self) -> None:
        address = urlsplit(self.path)
        _, bucket, *rest = address.path.split("/", 2)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not rest:
            self.list(bucket, query)
        elif "uploads" in query or "uploadId" in query:
            self.upload(bucket, unquote(rest[0]), query, body)
        elif self.command in ("GET", "HEAD"):
            self.read(f"/download/storage/v1/b/{bucket}/o/{quote(unquote(rest[0]), safe='')}?alt=media")
        elif "x-goog-copy-source" in self.headers:
            # The server's own copy operation ignores preconditions.
            source = unquote(self.headers["x-goog-copy-source"]).removeprefix(f"{bucket}/")
            answer, body = self.ask("GET", f"/download/storage/v1/b/{bucket}/o/{quote(source, safe='')}?alt=media")
            if answer.status == 200:
                self.answer_put(bucket, unquote(rest[0]), body, "CopyObjectResult")
            else:
                self.answer(answer.status)
        elif self.command == "PUT":
            self.answer_put(bucket, unquote(rest[0]), body, "")
        else:
            answer, _ = self.ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(unquote(rest[0]), safe='')}")
            self.answer(204 if answer.status == 200 else answer.status)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request to the server, on this thread's connection."""
        if not hasattr(connections, "server"):
            connections.server = http.client.HTTPConnection(self.server_address, timeout=60)
        headers = {name: self.headers[name] for name in ("Range", "If-Match", "If-None-Match") if name in self.headers}
        connections.server.request(method, target, body, headers)
        answer = connections.server.getresponse()
        return answer, answer.read()

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204 and "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read(self, target: str) -> None:
        answer, body = self.ask(self.command, target)
        names = ("ETag", "Last-Modified", "Content-Range", "Content-Length", "Content-Type", "X-Goog-Generation")
        self.answer(answer.status, body, {name: answer.headers[name] for name in names if name in answer.headers})

    def list(self, bucket: str, query: dict[str, str]) -> None:
        names = {"prefix": "prefix", "delimiter": "delimiter", "max-keys": "maxResults"}
        names |= {"start-after": "startOffset", "continuation-token": "pageToken"}
        parameters = urlencode({ours: query[name] for name, ours in names.items() if name in query})
        answer, body = self.ask("GET", f"/storage/v1/b/{bucket}/o?{parameters}")
        if answer.status != 200:
            self.answer(answer.status, body)
            return
        listed: dict[str, Any] = json.loads(body)
        lines = [text("NextContinuationToken", listed["nextPageToken"])] if "nextPageToken" in listed else []
        for item in listed.get("items", []):
            # `startOffset` of the JSON API is inclusive, `start-after` is exclusive.
            if item["name"] != query.get("start-after"):
                # In whole seconds, as HEAD returns it.
                time = re.sub(r"\.\d+", "", item["updated"])
                tags = {"Key": item["name"], "LastModified": time, "ETag": f'"{item["etag"]}"', "Size": item["size"]}
                lines.append("<Contents>" + "".join(map(text, tags, tags.values())) + "</Contents>")
        for prefix in listed.get("prefixes", []):
            lines.append("<CommonPrefixes>" + text("Prefix", prefix) + "</CommonPrefixes>")
        self.answer_xml(f"<ListBucketResult>{''.join(lines)}</ListBucketResult>")

    def answer_xml(self, body: str, headers: dict[str, str] | None = None) -> None:
        self.answer(200, body.encode(), {"Content-Type": "application/xml", **(headers or {})})

    def answer_put(self, bucket: str, name: str, body: bytes, tag: str) -> None:
        """Upload a file under the request's precondition; answer with an XML element `tag` that holds the ETag."""
        parameters = {"uploadType": "media", "name": name}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            parameters["ifGenerationMatch"] = generation
        answer, body = self.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(parameters)}", body)
        if answer.status != 200:
            self.answer(answer.status, body)
            return
        made = json.loads(body)
        etag = f'"{made["etag"]}"'
        headers = {"ETag": etag, "x-goog-generation": made["generation"]}
        self.answer_xml(f"<{tag}>{text('ETag', etag)}</{tag}>" if tag else "", headers)

    def upload(self, bucket: str, name: str, query: dict[str, str], body: bytes) -> None:
        """Multipart upload: collect the parts, and upload the file as one on completion."""
        id = query.get("uploadId")
        if id is None:
            uploads[id := uuid.uuid4().hex] = {}
            result = "InitiateMultipartUploadResult"
            self.answer_xml(f"<{result}>{text('UploadId', id)}</{result}>")
        elif id not in uploads:
            self.answer(404)
        elif self.command == "PUT":
            uploads[id][int(query["partNumber"])] = body
            self.answer(200, headers={"ETag": f'"{query["partNumber"]}"'})
        elif self.command == "DELETE":
            del uploads[id]
            self.answer(204)
        else:
            numbers = re.findall(r"<PartNumber>(\d+)</PartNumber>", unescape(body.decode()))
            parts = uploads.pop(id)
            whole = b"".join(parts[int(number)] for number in numbers)
            self.answer_put(bucket, name, whole, "CompleteMultipartUploadResult")


if __name__ == "__main__":
    Handler.server_address = urlsplit(sys.argv[2]).netloc
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler, bind_and_activate=False)
    server.request_queue_size = 128
    server.daemon_threads = True
    server.server_bind()
    server.server_activate()
    server.serve_forever()
