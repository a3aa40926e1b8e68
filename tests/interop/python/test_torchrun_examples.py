# SPDX-License-Identifier: BSD-3-Clause
"""The Python examples do what their comments say."""
import os
import re
import signal
import subprocess

import peers
import plugin_jobs
import rdzvtest
import torchrun_jobs
from torchrun_jobs import FIRST, SECOND

EXAMPLES = os.path.join(rdzvtest.SOURCE, "examples")


class Elastic(rdzvtest.Case):
    def said(self, number):
        with open(self.path(f"out{number}"), encoding="utf-8") as file:
            return file.read()

    def test_nodes_go_on_without_one_that_is_killed(self):
        endpoint = self.serve().endpoint
        environment = dict(os.environ, PYTHONPATH=torchrun_jobs.PACKAGE, PYTHONDONTWRITEBYTECODE="1")
        nodes = []
        for number in range(3):
            with open(self.path(f"out{number}"), "w", encoding="utf-8") as out:
                nodes.append(self.start([rdzvtest.PYTHON, os.path.join(EXAMPLES, "elastic.py"), endpoint, "job", "1:3",
                                         "60"], stdout=out, stderr=subprocess.STDOUT, env=environment))
        for number in range(3):
            rdzvtest.wait_until(lambda number=number: "of 3 in round" in self.said(number), "a world of 3")
        nodes[2].send_signal(signal.SIGKILL)
        self.assertEqual([node.wait(rdzvtest.DEADLINE) for node in nodes[:2]], [0, 0], self.said(0) + self.said(1))
        said = self.said(0) + self.said(1)
        self.assertIn("of 2 in round", said)
        self.assertRegex(said, r"step 60: \d nodes")
        for size, total in re.findall(r"step \d+: (\d) nodes, total (\d+)", said):
            self.assertEqual(int(total), int(size) * (int(size) + 1) // 2)


class Ddp(plugin_jobs.Case):
    version = "1.13"

    def test_a_job_under_torchrun(self):
        job = plugin_jobs.PluginJob(self, self.version, 2, self.endpoint())
        job.program = [*job.program[:2], os.path.join(EXAMPLES, "ddp_torchrun.py"), "--checkpoint", self.path("model.pt"),
                       "--steps", "20"]
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        self.assertEqual([agent.exit_code() for agent in agents], [0, 0], job.everything_said())
        losses = set(re.findall(r"rank \d of 4: done after step 20, loss", job.everything_said()))
        self.assertEqual(len(losses), 4, job.everything_said())


if __name__ == "__main__":
    peers.main()
