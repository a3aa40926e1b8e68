# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch job under `rdzv run` on etcd v3: three nodes, which lose the leader of the etcd cluster and one of
themselves, and finish."""
import signal

import etcd
import peers
import rdzvtest
import torchrun_jobs
from torchrun_jobs import BEGAN, FIRST, SECOND, THIRD, Case, Job

LEASE = rdzvtest.slow_int(10 if rdzvtest.SANITIZED else 5)


class OnEtcd(Job):
    """A job of our agents whose rendezvous is a cluster of etcd."""

    def __init__(self, case, version, nodes, endpoints):
        super().__init__(case, version, nodes, "ours")
        self.endpoint = endpoints

    def flags(self, kind, workers):
        return [f"--nnodes={self.nodes}", f"--nproc_per_node={workers}", "--max_restarts=3", f"--rdzv_id={self.run_id}",
                "--rdzv_backend=etcd-v3", f"--rdzv_endpoint={self.endpoint}",
                f"--rdzv_conf=last_call_timeout=1,lease_time={LEASE}"]


class Leader(Case):
    version = "1.13"

    def setUp(self):
        super().setUp()
        etcd.need()
        peers.need(self.version)
        torchrun_jobs.run_peer(self.version)

    def test_the_leader_of_etcd_and_one_node_are_lost_and_the_job_finishes(self):
        cluster = etcd.start_cluster(self.addCleanup)
        job = OnEtcd(self, self.version, "2:3", cluster.endpoints)
        job.program += ["--steps", "1000000", "--pause", "0.02"]
        agents = [job.ours(addr, workers=1) for addr in (FIRST, SECOND, THIRD)]
        before = [agent.await_world(3) for agent in agents]
        cluster.kill_leader()
        agents[2].tell(signal.SIGKILL)
        for agent, begun in zip(agents[:2], before):
            agent.await_world(2, begun)
        job.stop()
        job.assert_done(agents[:2], workers=1)
        steps = [each[3] for each in agents[0].workers(BEGAN)]
        self.assertEqual(steps, sorted(steps))


if __name__ == "__main__":
    rdzvtest.main()
