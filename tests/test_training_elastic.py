"""Machines that come and go while a run goes on: torchrun's elastic agents, one of them killed in mid-epoch."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchrun import Torchrun

from recipes import distrib_train_from_file
from recipes.local_process import free_port
from recipes.sample_images import write_sample_images

IMAGES = 480
OPTIONS = "-a resnet10 --image-size 32 -b 4 --workers 0 --epochs 100 -p 5 --checkpoint-freq 5 --no-accel"
# torchrun waits 30 s for more machines and 15 s for one that went silent, by default.
QUICK = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=4"
# With torchrun's shared store a machine that comes later waits a minute for an address that nobody repeats, and fails.
STORE_OF_ITS_OWN = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TIMEOUT_S = 120


class Job:
    """A run of several agents, one process each, as several machines would have them; they share a log."""

    def __init__(self, folder: Path) -> None:
        self.images = write_sample_images(folder / "images", classes=4, images=IMAGES, val_images=4, size=(40, 40))
        self.folder = folder
        self.log_path = folder / "log"
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.agents: list[Torchrun] = []

    def add_agent(self) -> Torchrun:
        launcher = ["--nnodes=1:3", "--nproc-per-node=1"]
        launcher += ["--local-addr=127.0.0.1", "--max-restarts=5", "--monitor-interval=0.1"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=elastic"]
        # By its address alone, every agent of one machine would take itself for the host.
        meeting += ["--rdzv-conf", f"{QUICK},is_host={not self.agents}"]
        recipe = [distrib_train_from_file.__file__, f"--data={self.images}", *OPTIONS.split()]
        command = [*launcher, *meeting, *recipe, "--output-dir", str(self.folder / "run")]
        agent = Torchrun(command, self.log_path, environment=STORE_OF_ITS_OWN)
        self.agents.append(agent)
        return agent

    @property
    def output(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern: str, since: int = 0) -> re.Match[str]:
        """The first match in what was printed after the first `since` characters."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := re.compile(pattern).search(self.output, since)) is None:
            assert self.agents[0].poll() is None and time.monotonic() < deadline, self.output
            time.sleep(0.02)
        return found

    def kill(self, agent: Torchrun) -> None:
        """The machine is gone: agent and training process, with no chance to clean up."""
        for process in [*agent.children(recursive=True), agent]:
            process.kill()
        agent.wait(TIMEOUT_S)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    for agent in job.agents:
        if agent.poll() is None:
            job.kill(agent)


def test_a_run_outlives_a_killed_machine_and_takes_in_a_new_one(job):
    job.add_agent()  # keeps the appointments, so it is not the one to go
    second = job.add_agent()
    joined = job.wait_for("on 2 x CPU")
    step = job.wait_for(r"Epoch: \[(\d+)\]\[ *(\d+)/(\d+)\]", joined.end())

    job.kill(second)
    alone = job.wait_for("on 1 x CPU", step.end())
    resumed = job.wait_for(r"Resumed from .*: epoch (\d+), (\d+) of 480 images done", alone.end())
    place = (int(resumed[1]), int(resumed[2]))
    assert place >= (int(step[1]), 0) and place > (0, 0)
    goes_on = job.wait_for(r"Epoch: \[(\d+)\]\[ *(\d+)/120\]", resumed.end())
    assert (int(goes_on[1]), 4 * int(goes_on[2])) > place

    job.add_agent()
    together = job.wait_for("on 2 x CPU", goes_on.end())
    resumed = job.wait_for(r"Resumed from .*: epoch (\d+), (\d+) of 480 images done", together.end())
    assert (int(resumed[1]), int(resumed[2])) >= place
    # The epoch in which it came, from its first sample to its last, by one process and then by two.
    # What fills no last batch of two processes is left out, and said to be.
    account = rf"epoch {resumed[1]}: (\d+) samples expected, each seen once, 0 skipped(?:, (\d+) left out)?"
    seen = job.wait_for(account, resumed.end())
    assert int(seen[1]) + int(seen[2] or 0) == 480 and int(seen[1]) > int(resumed[2])
    job.wait_for(r" \* Acc@1 .* \(4 images\)", resumed.end())
    for epoch in range(int(resumed[1])):
        assert re.search(rf"epoch {epoch}: \d+ samples expected, each seen once, 0 skipped", job.output)
    assert "account is wrong" not in job.output
