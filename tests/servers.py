"""Real servers for tests, on this machine: S3, Azure, Google Cloud Storage and DynamoDB.

Each function is a context manager. It starts a new server on a free port of the loopback interface, with an empty
temporary folder, and stops it at the end of the block, also after an exception. A missing server is installed once into
a cache with a folder for each version. If that fails, the test is skipped with the reason, or fails if the environment
has CI=true.

    with servers.s3() as server:
        deltic.write(server.uri("trips"), data, storage_options=server.storage_options)
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deltic" / "servers"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
# The newest version that runs on Node 20.
AZURITE = "azurite@3.35.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
MOTO = "moto-5.2.5"
MOTO_PACKAGES = ["moto[dynamodb,s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"]
BUCKET = "tables"
ACCESS_KEY = "AKIDELTICTESTS"
SECRET_KEY = "not-a-secret-of-anyone"
# The account that Microsoft publishes for emulators.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 300
INSTALL_SECONDS = 1500


@dataclass
class Server:
    """A running server with one empty bucket."""

    endpoint: str
    """URL of the server, without a trailing slash."""
    base: str
    """URI of the bucket."""
    storage_options: dict[str, str]
    """Storage options to reach it, under names that deltic and delta-rs share."""
    folder: Path
    """The server's temporary folder; its output is in `server.log`."""
    log_store: dict[str, str] = field(default_factory=dict)
    """Storage options for commits through DynamoDB, if the server has it."""
    without: str = ""
    """Characters that this server does not support in keys."""

    def uri(self, name: str) -> str:
        """The root of a table."""
        return f"{self.base}/{name}"


@contextmanager
def s3() -> Iterator[Server]:
    """An S3 server whose conditional put is atomic (Versity S3 Gateway over a folder)."""
    binary = go_program(VERSITYGW)
    with folder() as place:
        for name in ("data", "meta"):
            (place / name).mkdir()
        (place / "data" / BUCKET).mkdir()
        environment = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}

        def command(port: int) -> list[str]:
            general = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
            # Metadata in files, since not every temporary folder supports extended attributes.
            return [str(binary), *general, "posix", "--sidecar", str(place / "meta"), str(place / "data")]

        with running(command, place, environment) as endpoint:
            yield Server(endpoint, f"s3://{BUCKET}", s3_options(endpoint), place)


@contextmanager
def azure(blocks_are_no_file: bool = True) -> Iterator[Server]:
    """Azure Blob Storage (Azurite). `blocks_are_no_file`: a put does not take uncommitted blocks for a file, as in
    Azure (`azurite.js`)."""
    package = npm_package(AZURITE)
    script = package / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with folder() as place:

        def command(port: int) -> list[str]:
            where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(place / "data")]
            # Without --silent, since a test reads the requests from its log.
            preload = ["--require", str(Path(__file__).with_name("azurite.js"))] if blocks_are_no_file else []
            return ["node", *preload, str(script), *where, "--skipApiVersionCheck", "--disableTelemetry"]

        with running(command, place, {}) as endpoint:
            create_azure_container(endpoint)
            options = {
                "azure_storage_account_name": AZURE_ACCOUNT,
                "azure_storage_account_key": AZURE_KEY,
                "azure_storage_endpoint": f"{endpoint}/{AZURE_ACCOUNT}",
                "azure_allow_http": "true",
                "allow_http": "true",
            }
            # It turns a backslash into a slash, as Azure does.
            yield Server(endpoint, f"az://{BUCKET}", options, place, without="\\")


@contextmanager
def gcs() -> Iterator[Server]:
    """Google Cloud Storage: fake-gcs-server behind a proxy for the XML API (`google_storage.py`)."""
    binary = go_program(FAKE_GCS)
    with folder() as place:

        def behind(port: int) -> list[str]:
            # In memory, where both `a` and `a/b` can be files.
            where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
            return [str(binary), *where, "-log-level", "warn"]

        def command(port: int) -> list[str]:
            return [sys.executable, str(Path(__file__).with_name("google_storage.py")), str(port), server]

        with running(behind, place, {}) as server:
            bucket = json.dumps({"name": BUCKET}).encode()
            send("POST", f"{server}/storage/v1/b", bucket, {"Content-Type": "application/json"})
            with running(command, place, {}, "interface.log") as endpoint:
                account = {"gcs_base_url": endpoint, "disable_oauth": True}
                account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
                options = {"google_service_account_key": json.dumps(account), "allow_http": "true"}
                yield Server(endpoint, f"gs://{BUCKET}", options, place)


@contextmanager
def dynamodb() -> Iterator[Server]:
    """S3 and DynamoDB at one address (moto), with the lock table that delta-spark creates."""
    site = pip_folder(MOTO, MOTO_PACKAGES)
    with folder() as place:

        def command(port: int) -> list[str]:
            return [sys.executable, "-c", ONE_BY_ONE, str(port)]

        with running(command, place, {"PYTHONPATH": str(site), "MOTO_IAM_LOAD_MANAGED_POLICIES": "false"}) as endpoint:
            send("PUT", f"{endpoint}/{BUCKET}", b"", {"Authorization": scope("s3")})
            aws_json(endpoint, "CreateTable", LOCK_TABLE)
            lock = {
                "deltic.s3.log_store": "dynamodb",
                "deltic.s3.dynamodb.table": LOCK_TABLE["TableName"],
                "deltic.s3.dynamodb.endpoint": endpoint,
            }
            yield Server(endpoint, f"s3://{BUCKET}", s3_options(endpoint), place, lock)


# moto's conditional put is not atomic: two concurrent requests may both find no item. In DynamoDB it is atomic, so
# requests are executed one by one.
ONE_BY_ONE = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

moto, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def application(environ, start_response):
    with turn:
        return list(moto(environ, start_response))

run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
"""

LOCK_TABLE: dict[str, object] = {
    "TableName": "delta_log",
    "AttributeDefinitions": [
        {"AttributeName": "tablePath", "AttributeType": "S"},
        {"AttributeName": "fileName", "AttributeType": "S"},
    ],
    "KeySchema": [
        {"AttributeName": "tablePath", "KeyType": "HASH"},
        {"AttributeName": "fileName", "KeyType": "RANGE"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


def s3_options(endpoint: str) -> dict[str, str]:
    return {
        "aws_endpoint": endpoint,
        "aws_allow_http": "true",
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "aws_region": "us-east-1",
    }


# --- requests that set up a server ---


def send(method: str, url: str, body: bytes, headers: dict[str, str]) -> bytes:
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        return bytes(response.read())


def scope(service: str) -> str:
    """The header from which moto takes service and account. It checks no signature."""
    return f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20250101/us-east-1/{service}/aws4_request"


def aws_json(endpoint: str, operation: str, body: dict[str, object]) -> dict[str, object]:
    """Execute a DynamoDB operation in moto."""
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Authorization": scope("dynamodb"),
    }
    return dict(json.loads(send("POST", endpoint, json.dumps(body).encode(), headers)))


def create_azure_container(endpoint: str) -> None:
    """Create the container, with a request signed by the account key as Azurite requires."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"{signed}\n{resource}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}",
    }
    # The empty type keeps the client from adding its own, which would have to be signed too.
    url = f"{endpoint}/{AZURE_ACCOUNT}/{BUCKET}?restype=container"
    send("PUT", url, b"", {**headers, "Content-Type": ""})


def azure_shared_access() -> dict[str, str]:
    """Options with a shared access signature, valid until tomorrow, instead of the account key."""
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": tomorrow.strftime("%Y-%m-%dT%H:%M:%SZ")}
    fields |= {"sip": "", "spr": "", "sv": "2019-12-12"}
    text = "".join(f"{value}\n" for value in [AZURE_ACCOUNT, *fields.values()])
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    query = {**{name: value for name, value in fields.items() if value}, "sig": signature}
    return {"azure_storage_sas_token": urllib.parse.urlencode(query)}


# --- processes ---


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="deltic-server-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def running(
    command: Callable[[int], list[str]], place: Path, environment: dict[str, str], log_name: str = "server.log"
) -> Iterator[str]:
    """Start a server; yield its URL once it accepts connections."""
    log = place / log_name
    for _ in range(3):
        # Another process may take the port before the server does. Then the server exits, and another port is tried.
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                ending_with_parent(command(port)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=place,
            )
        try:
            if not accepts(process, port):
                continue
            yield f"http://127.0.0.1:{port}"
            return
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    raise RuntimeError(f"{command(0)[0]} did not start: {log.read_text(errors='replace')[-2000:]}")


def ending_with_parent(command: list[str]) -> list[str]:
    """Wrap a command so that the kernel kills its process when this one ends, even if the tests are killed."""
    if sys.platform != "linux":
        return command
    program = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", program, *command]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return process.poll() is None
    return False


# --- installing ---


def go_program(package: str) -> Path:
    name = package.split("@")[0].split("/")[-1]

    def install(into: Path) -> None:
        environment = {"GOBIN": str(into)}
        run(["go", "install", package], environment)

    return installed(f"{name}-{package.split('@')[1]}", "go", install) / name


def npm_package(package: str) -> Path:
    def install(into: Path) -> None:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional"]
        run(["npm", "install", *options, "--prefix", str(into), package], {})

    return installed(package.replace("@", "-"), "npm", install)


def pip_folder(name: str, packages: list[str]) -> Path:
    """Install packages into their own folder, so that they need not be compatible with those of the tests."""

    def install(into: Path) -> None:
        run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(into), *packages], {})

    tag = f"py{sys.version_info[0]}{sys.version_info[1]}"
    return installed(f"{name}-{tag}", "pip", install)


def installed(name: str, tool: str, install: Callable[[Path], None]) -> Path:
    """The cache folder of one version of a program, installed by the first process that needs it."""
    place = CACHE / name
    if place.exists():
        return place
    if tool != "pip" and shutil.which(tool) is None:
        missing(f"{name} is not installed, and there is no {tool} to install it with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return place
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE) as partial:
            try:
                install(Path(partial) / name)
            except (OSError, subprocess.SubprocessError) as error:
                output = getattr(error, "stderr", None) or error
                missing(f"{name} could not be installed: {str(output).strip().splitlines()[-1:]}")
            (Path(partial) / name).rename(place)
    return place


def run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        env={**os.environ, **environment},
        cwd=CACHE,
    )


def missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
