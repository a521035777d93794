"""The local servers start, serve, stop, leave nothing behind and name their log when they fail."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from recipes.local_process import LocalProcess
from recipes.servers import put_folder, s3_server


def test_both_servers_hold_the_same_objects(s3, rclone_s3):
    for server in (s3, rclone_s3):
        listing = server.client().list_objects_v2(Bucket="imagenet", Prefix="train/")["Contents"]
        assert [item["Key"] for item in listing] == server.keys("train/")
        key = server.keys()[0]
        body = server.client().get_object(Bucket="imagenet", Key=key)["Body"].read()
        assert body == (server.folder / key).read_bytes()


def test_a_crashed_server_comes_back_with_its_objects_and_stop_leaves_nothing(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "one.bin").write_bytes(b"1")
    with s3_server() as server:
        assert put_folder(server, tmp_path, bucket="some-bucket", prefix="x/") == 1
        server.restart()
        body = server.client().get_object(Bucket="some-bucket", Key="x/a/b/one.bin")["Body"].read()
        process = psutil.Process(server.pid)
        home = server.log_path.parent
    assert body == b"1"
    assert not process.is_running()
    assert not home.exists()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(server.endpoint_url.rpartition(":")[2])), timeout=1)


def test_a_server_that_cannot_start_names_its_log_and_shows_its_end(tmp_path):
    command = [sys.executable, "-c", "print('the port is taken'); raise SystemExit(3)"]
    server = LocalProcess("broken", command, is_ready=lambda: False, folder=tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)broken: ended with status 3; its log .*the port is taken") as caught:
        server.start()
    assert str(server.log_path) in str(caught.value)
    assert server.log_path.exists()


def test_a_server_that_never_answers_is_ended_in_time(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    server = LocalProcess("silent", command, is_ready=lambda: False, folder=tmp_path, ready_timeout_s=0.3)
    with pytest.raises(RuntimeError, match="silent: not ready within 0 s"):
        server.start()
    assert not server.running


def test_a_server_ends_with_a_run_that_was_killed(tmp_path):
    script = """
import os, pathlib, signal, sys
from recipes.local_process import LocalProcess
command = [sys.executable, "-c", "import time; time.sleep(60)"]
server = LocalProcess("orphan", command, is_ready=lambda: True, folder=pathlib.Path(sys.argv[1]))
print(server.start().pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=30)
    assert ended.returncode == -9
    pid = int(ended.stdout)
    if psutil.pid_exists(pid):
        psutil.Process(pid).wait(timeout=10)


def test_the_command_line_prints_what_a_shell_needs(samples):
    command = [sys.executable, "recipes/servers.py", "rclone", "--put", str(samples)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
        process.terminate()
        assert process.wait(timeout=20) == 0
    assert lines[0].startswith("# 60 files")
    names = [line.split()[1].partition("=")[0] for line in lines[1:5]]
    assert names == ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"]


@pytest.mark.parametrize("each", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_waits_for_it_whichever_thread_it_reaches(each):
    script = """
import threading, time
from recipes.local_process import wait_for_stop
for _ in range(8):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
wait_for_stop("ready")
print("stopped")
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "# ready; Ctrl-C stops it\n"
        process.send_signal(each)
        try:
            assert process.communicate(timeout=20)[0] == "stopped\n"
        finally:
            process.kill()
    assert process.returncode == 0
