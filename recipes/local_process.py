"""A real server as a child process: started, ready-checked, logged, and never left behind."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Asks the kernel to end the server with whoever started it, a SIGKILLed test run included, then becomes it.
# 1 is PR_SET_PDEATHSIG; other systems than Linux have no prctl and rely on `atexit` alone.
_DIE_WITH_PARENT = """
import ctypes, os, sys
getattr(ctypes.CDLL(None), "prctl", lambda *_: None)(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
_LOG_LINES_SHOWN = 20


def free_port(host: str = "127.0.0.1") -> int:
    """A port of `host` that nothing listens on.

    Taken from below the range that outgoing connections use, so that a server which is stopped for a
    while finds its port still free.
    """
    for port in random.sample(range(10_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"free_port: 200 random ports of {host} between 10000 and 32000 are all taken")


def cache_folder() -> Path:
    """Where downloads are kept between runs: remote-datapipes in $XDG_CACHE_HOME, or in ~/.cache."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "remote-datapipes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class LocalProcess:
    """A server that runs `command` in `folder`; its output goes to `folder`/NAME.log.

    Args:
        name: what error messages and the log file call it.
        command: program and arguments.
        is_ready: called until it returns True; what it raises as OSError counts as False.
        folder: where it runs and logs. None makes a temporary one, which a clean `stop` removes.
        environment: added to this process's own.
        ready_timeout_s: seconds until a server that does not answer is a failure.

    The thread that starts it must live as long as the server should: on Linux the server ends with it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        is_ready: Callable[[], bool],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.is_ready = is_ready
        self.owns_folder = folder is None
        self.folder = folder or temporary_folder(name)
        self.environment = dict(environment or {})
        self.ready_timeout_s = ready_timeout_s
        self.log_path = self.folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError(f"{self.name}: not started")
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> LocalProcess:
        """Start and wait until it is ready."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start without waiting; several nodes of a cluster come up side by side."""
        atexit.register(self.stop)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *self.command],
                cwd=self.folder,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.ready_timeout_s
        while True:
            if not self.running:
                raise self.failure(f"ended with status {self.process and self.process.returncode}")
            try:
                if self.is_ready():
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                error = self.failure(f"not ready within {self.ready_timeout_s:.0f} s")
                self.kill()
                raise error
            time.sleep(0.02)

    def failure(self, what: str) -> RuntimeError:
        """An error that names the log and shows how it ends. The folder stays, for the log's sake."""
        self.owns_folder = False
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
        return RuntimeError(f"{self.name}: {what}; its log {self.log_path} ends:\n" + "\n".join(lines))

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ask it to end, insist after `timeout_s`, and remove its temporary folder."""
        if self.running:
            self._signal(signal.SIGTERM)
            try:
                self._wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """End it as a crash would; its folder stays, `start` brings it back."""
        if self.running:
            self._signal(signal.SIGKILL)
            self._wait(None)

    def pause(self) -> None:
        """Let it hold its connections and answer nothing, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def __enter__(self) -> LocalProcess:
        return self if self.running else self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def _signal(self, number: int) -> None:
        # The server leads its own process group, so that its helpers end with it.
        os.killpg(self.pid, number)
        if number == signal.SIGTERM:
            os.killpg(self.pid, signal.SIGCONT)

    def _wait(self, timeout_s: float | None) -> None:
        if self.process is not None:
            self.process.wait(timeout_s)


def temporary_folder(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"remote-datapipes-{name}-"))


def wait_for_stop(what: str) -> None:
    """Return at Ctrl-C or a termination signal, so that the servers around it stop cleanly."""
    # Not by a mask and sigwait(): that masks this thread, and an upload's, not yet ended, would take the signal.
    # Ctrl-C's too, which a shell has its background jobs ignore.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    try:
        print(f"# {what}; Ctrl-C stops it", flush=True)
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
