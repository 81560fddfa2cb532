"""Locations of tables and storage options, in Python."""

import http.server
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from log_files import Log, add

import deltic

ROW = pa.table({"a": [1]})
SCHEMA = pa.schema([("a", pa.int64())])


def test_a_home_folder_is_expanded_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert deltic.Table("~/t").uri == str(tmp_path / "home" / "t")
    assert deltic.Table("./~/t").uri == str(tmp_path / "~" / "t")
    assert deltic.Table(Path("~/t")).uri == str(tmp_path / "~" / "t")
    deltic.write("~/t", ROW)
    assert (tmp_path / "home" / "t" / "_delta_log").is_dir()
    assert not (tmp_path / "~").exists()
    with pytest.raises(deltic.InvalidInputError, match="no user of this machine"):
        deltic.Table("~nobody-of-this-name/t")


def test_invalid_locations_have_specific_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri, advice in [
        ("main.sales.flights", "catalog"),
        ("/data/*/flights", "not a pattern"),
        ("C:\\data\\flights", "Windows path"),
        ("", "empty"),
        ("s3://", "no bucket"),
    ]:
        with pytest.raises(deltic.InvalidInputError, match=advice):
            deltic.Table(uri)
    for uri, advice in [("dbfs:/t", "abfss://"), ("hdfs://host/t", "mount")]:
        with pytest.raises(deltic.UnsupportedFeatureError, match=advice):
            deltic.Table(uri)
    (tmp_path / "main.sales.flights").mkdir()
    assert deltic.Table("main.sales.flights").uri == str(tmp_path / "main.sales.flights")


def test_the_environment_is_checked_as_options_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value, why in [
        ("AWS_ENDPOINT_URL", "localhost:9000", "http:// or https://"),
        ("AWS_SECRET_ACCESS_KEY", "HIDDEN\nx", "control character"),
        ("AWS_REGION", "eu/HIDDEN", "letters"),
        ("AWS_ALLOW_HTTP", "HIDDEN", "'true' or 'false'"),
        ("AWS_PROFILE", "nobody", "no profile 'nobody'"),
    ]:
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            with pytest.raises(deltic.InvalidInputError, match=why) as caught:
                deltic.Table("s3://bucket/t").snapshot()
            assert name in str(caught.value)
            assert "HIDDEN" not in str(caught.value)


@pytest.mark.slow
def test_files_in_other_stores_are_not_requested(tmp_path: Path) -> None:
    paths = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        uri = str(tmp_path / "t")
        deltic.create(uri, SCHEMA)
        path = f"http://127.0.0.1:{server.server_port}/latest/meta-data/"
        Log(uri).commit(1, [add(path)])
        with pytest.raises(deltic.UnsupportedFeatureError, match="allow_foreign_paths"):
            deltic.Table(uri).scan().to_arrow()
        assert paths == []
        # The same for a change file.
        fed = str(tmp_path / "fed")
        deltic.create(fed, SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
        change = {"path": path, "partitionValues": {}, "size": 9000, "dataChange": False}
        Log(fed).commit(1, [{"cdc": change}])
        with pytest.raises(deltic.UnsupportedFeatureError, match="allow_foreign_paths"):
            deltic.Table(fed).changes(1, 1).to_arrow()
        assert paths == []
        options = {"allow_foreign_paths": "true", "allow_http": "true"}
        with pytest.raises(deltic.DelticError):
            deltic.Table(uri, options).scan().to_arrow()
        assert len(paths) > 0
        before = len(paths)
        with pytest.raises(deltic.DelticError):
            deltic.Table(fed, options).changes(1, 1).to_arrow()
        assert len(paths) > before
    finally:
        server.shutdown()
