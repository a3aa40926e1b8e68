# SPDX-License-Identifier: BSD-3-Clause
"""The agent of examples/agent.c, which is written on the public headers alone."""
import os
import re
import signal

import rdzvtest
from rdzvtest import wait_until

AGENT = rdzvtest.built("examples/agent")
CONF = f"last_call_timeout=0.5,keep_alive_interval={rdzvtest.slow(0.4)},keep_alive_max_attempt=5"


class Agent(rdzvtest.Case):
    def agent(self, name, endpoint, program):
        with open(self.path(name), "w", encoding="utf-8") as output:
            return self.start([AGENT, endpoint, "job", "2", "3", "sh", "-c", program], stdout=output, stderr=output,
                              env={**os.environ, "RDZV_CONF": CONF})

    def output(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def await_world(self, names, size):
        """Waits until the last round of each is of that size, and its worker runs; gives its number."""
        def there():
            rounds = [re.findall(r"^round (\d+): rank (\d) of (\d)\nworker ", self.output(name), re.M) for name in names]
            last = [found[-1] for found in rounds if found and found[-1][2] == str(size)]
            ranks = sorted(rank for _, rank, _ in last)
            return last[0][0] if ranks == [str(rank) for rank in range(size)] and len({n for n, _, _ in last}) == 1 else None
        return wait_until(there, f"a world of {size}: {[self.output(name) for name in names]}")

    def test_it_includes_public_headers_only(self):
        with open(os.path.join(rdzvtest.SOURCE, "examples", "agent.c"), encoding="utf-8") as file:
            self.assertEqual(re.findall(r'#include "|<rdzv/\w+\.h>', file.read()), ["<rdzv/rdzv.h>"])

    def test_rounds_follow_the_nodes_that_come_and_die_and_the_job_ends(self):
        server = self.serve()
        done = self.path("done")
        program = f'echo "worker $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"; until [ -e {done} ]; do sleep 0.05; done'
        agents = [self.agent(name, server.endpoint, program) for name in ("a", "b")]
        self.await_world(("a", "b"), 2)
        third = self.agent("c", server.endpoint, program)
        self.await_world(("a", "b", "c"), 3)
        third.send_signal(signal.SIGKILL)
        third.wait()
        self.await_world(("a", "b"), 2)
        self.assertRegex(self.output("a"), rf"gone: \S+_{third.pid}_0\n")
        with open(done, "w", encoding="utf-8"):
            pass
        self.assertEqual([agent.wait(rdzvtest.DEADLINE) for agent in agents], [0, 0])
        masters = re.findall(r"^worker \d of 2 at (\S+:\d+)$", self.output("a") + self.output("b"), re.M)
        self.assertEqual((len(masters), len(set(masters))), (4, 2))  # two rounds, each with a port of its own
        self.stop(server)

    def test_a_worker_that_fails_ends_the_job(self):
        server = self.serve()
        agents = [self.agent(name, server.endpoint, "exit $RANK") for name in ("a", "b")]
        codes = [agent.wait(rdzvtest.DEADLINE) for agent in agents]
        self.assertIn(1, codes)
        self.assertIn("a worker failed", self.rdzv("status", "--rdzv-endpoint", server.endpoint, "--rdzv-id", "job").stdout)
        self.stop(server)


if __name__ == "__main__":
    rdzvtest.main()
