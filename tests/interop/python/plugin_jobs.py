# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of stock torchrun with the plug-in, at a server or an etcd of their own."""
import os
import re
import signal

import peers
import rdzvtest
import torchrun_jobs
from torchrun_jobs import BEGAN, Theirs

ROUND = re.compile(r"Rendezvous complete for workers")


class Plugin(Theirs):
    """torchrun with --rdzv-backend rdzv."""

    kind = "plugin"

    def __init__(self, case, version, output, *arguments):
        super().__init__(case, version, output, *arguments, plugin=True)

    def tell(self, number):
        os.kill(self.peer.process_id, number)

    def is_rank_0(self):
        """Were its last workers to begin those of rank 0?"""
        began = self.workers(BEGAN)
        return bool(began) and began[-1][0] < 2


class PluginJob(torchrun_jobs.Job):
    """One job whose store is served by itself: by `rdzv serve` at `endpoint`, or by etcd."""

    def __init__(self, case, version, nodes, endpoint, backend="rdzv", restarts=3, conf=None, **variables):
        super().__init__(case, version, nodes, "nobody")
        self.endpoint, self.backend, self.restarts, self.more = endpoint, backend, restarts, conf or {}
        self.environment.update(PYTHONPATH=torchrun_jobs.plugin_environment()["PYTHONPATH"], **variables)
        self.program[1] = torchrun_jobs.run_peer(version, True)

    def conf(self, kind, addr=None):
        conf = {} if self.backend == "etcd-v3" else {"is_host": "false"}
        conf.update(last_call_timeout=1, **self.more)
        if kind == "ours" and self.version == "1.13":
            conf["torch_version"] = "1.13"
        if kind == "plugin" and self.version == "1.13":  # has no --local-addr
            conf["local_addr"] = addr
        return ",".join(f"{name}={value}" for name, value in conf.items())

    def command(self, kind, addr, workers):
        backend = self.backend if kind == "plugin" or self.backend == "etcd-v3" else "c10d"
        flags = [f"--nnodes={self.nodes}", f"--nproc_per_node={workers}", f"--max_restarts={self.restarts}",
                 f"--rdzv_id={self.run_id}", f"--rdzv_backend={backend}", f"--rdzv_endpoint={self.endpoint}",
                 f"--rdzv_conf={self.conf(kind, addr)}"]
        if kind == "ours":
            return [*flags, f"--local-addr={addr}", *self.program]
        own = ["-r", "9:1", "-t", "9:1"] if self.version == "1.13" else [f"--local-addr={addr}"]
        return [*flags, *own, *([] if kind == "plugin" else ["--monitor_interval=0.3"]), *self.program]

    def agent(self, kind, addr, workers=2):
        output = self.path(f"output-{len(self.agents)}")
        words = self.command(kind, addr, workers)
        if kind == "ours":
            agent = torchrun_jobs.Ours(self.case, output, words, env=self.environment, cwd=rdzvtest.SOURCE)
        else:
            make = Plugin if kind == "plugin" else lambda *rest: Theirs(*rest, plugin=True)
            agent = make(self.case, self.version, output, words, self.environment, rdzvtest.SOURCE, [output, output],
                         addr, None)
        return self.add(agent)

    def plugin(self, addr, workers=2):
        return self.agent("plugin", addr, workers)


class Case(torchrun_jobs.Case):
    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        torchrun_jobs.run_peer(self.version, True)

    def endpoint(self):
        return self.serve().endpoint


__all__ = ["Case", "Plugin", "PluginJob", "signal"]
