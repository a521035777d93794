"""The OpenAPI description is complete: what it promises is all that the service does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from service_fixtures import ask

from recipes.local_service import dataset_service

# 507 is the right answer to an upload of 300 TB; every other status past 499 is a fault.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "507"]
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_nothing_that_fits_the_description_breaks_the_service(tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    (tmp_path / "root" / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "root" / "pets" / "cat" / "1.txt").write_bytes(b"1")
    with dataset_service(tmp_path / "root") as service:
        command = [str(Path(sys.executable).with_name("st")), "--config-file", "schemathesis.toml", "run"]
        command += [f"{service.url}/openapi.json", "--checks", CHECKS, "--max-examples", "6", "--seed", "1"]
        command += ["--generation-database", "none", "--suppress-health-check", "all", "--no-color"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | {"CI": "1"})
        assert done.returncode == 0, done.stdout[-6000:]
        assert "ERROR" not in service.log()
        assert ask(service.url, path="/healthz").json() == {"status": "ok"}


def test_every_call_is_described_in_words(service):
    api = ask(service.url, path="/openapi.json").json()
    calls = [call for methods in api["paths"].values() for call in methods.values()]
    assert len(calls) >= 20
    assert all(call["summary"] and "422" not in call["responses"] for call in calls)
    page = ask(service.url, path="/docs").body.decode()
    assert all(path.replace("&", "&amp;") in page for path in api["paths"])
