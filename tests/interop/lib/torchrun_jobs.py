# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of `rdzv run` beside torchrun share: agents of both in one job, and what their workers print."""
import concurrent.futures
import functools
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import peers
import rdzvtest
import rendezvous_nodes
from rendezvous_nodes import free_port

EXAMPLE = os.path.join(rdzvtest.SOURCE, "examples", "gloo_allreduce.py")
PACKAGE = rdzvtest.built("python")  # what a wheel installs
WORKER = os.path.join(peers.HERE, "gloo_worker.py")
FIRST, SECOND, THIRD = "127.0.0.1", "127.0.0.2", "127.0.0.3"  # nodes are ranked by their addresses
LONG = 300.0  # seconds; much longer than anything takes, also on a machine that is not idle
SOON = 120.0  # after the first agent of a job has ended well, for the others
BEGAN, DONE = "begins with", "done after"  # what the example says
SAID = re.compile(r"rank (\d+) of (\d+): attempt (\d+), (begins with|done after) step (\d+)")


@functools.lru_cache(maxsize=None)
def run_peer(version, plugin=False):
    """Starts run_peer.py of that version, for all tests of this file; gives its socket's path. `plugin`: torchrun has
    the backends of the Python package."""
    folder = tempfile.mkdtemp(prefix="rdzv-torch-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    path = os.path.join(folder, "socket")
    process = subprocess.Popen(rdzvtest.torch_python(version) + [os.path.join(peers.HERE, "run_peer.py"), path],
                               cwd=rdzvtest.SOURCE, env=plugin_environment() if plugin else environment(),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(peers.end_torch, process)
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"PyTorch {version} does not start")
    return path


@functools.lru_cache(maxsize=None)
def scratch():
    """The TMPDIR of agents that have none of their own: stock torchrun leaves its log folders there."""
    folder = tempfile.mkdtemp(prefix="rdzv-agents-")
    unittest.addModuleCleanup(shutil.rmtree, folder, True)
    return folder


def environment(**more):
    """For agents of both kinds, and so for their workers; without what a launcher around the tests would say."""
    names = {name: value for name, value in os.environ.items()
             if not name.startswith(("PET_", "TORCHELASTIC_", "TORCH_", "RDZV_LOG"))}
    names.update(GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0", OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="FATAL",
                 PYTHONDONTWRITEBYTECODE="1", PYTHON_EXEC=rdzvtest.PYTHON, TMPDIR=scratch())
    names.update(more)
    return names


def plugin_environment(**more):
    """With the Python package, as it is in a wheel."""
    return environment(RDZV_TEST_PLUGIN="1", PYTHONPATH=f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}", **more)


class Agent:
    """An agent and its workers, which write to one file."""

    def __init__(self, output):
        self.output = output
        self.job = None  # once it is in one

    def others_said(self):
        return self.job.everything_said() if self.job else ""

    def said(self):
        if not os.path.exists(self.output):
            return ""
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return file.read()

    def workers(self, what):
        """(rank, size, attempt, step) of the workers that said so, in order."""
        return [(int(rank), int(size), int(attempt), int(step))
                for rank, size, attempt, said, step in SAID.findall(self.said()) if said == what]

    def await_world(self, size, after=0):
        """Until its workers have begun in a job of so many; gives how often they have begun so far."""
        def began():
            if self.ended():
                raise AssertionError(f"the agent has ended: {self.said()}\n{self.others_said()}")
            sizes = [each[1] for each in self.workers(BEGAN)]
            return len(sizes) if size in sizes[after:] else None

        return rdzvtest.wait_until(began, f"workers begin in a world of {size}", LONG)


class Ours(Agent):
    kind = "ours"

    def __init__(self, case, output, command, **options):
        super().__init__(output)
        with open(output, "ab") as file:
            self.process = case.start([rdzvtest.RDZV, "run", *command], stdin=subprocess.DEVNULL, stdout=file,
                                      stderr=file, **options)

    def ended(self):
        return self.process.poll() is not None

    def exit_code(self, seconds=LONG):
        return self.process.wait(seconds)

    def tell(self, number):
        self.process.send_signal(number)


class Theirs(Agent):
    kind = "theirs"

    def __init__(self, case, version, output, *arguments, plugin=False):
        super().__init__(output)
        self.peer = peers.TorchProcess(run_peer(version, plugin) if plugin else run_peer(version))
        case.addCleanup(self.end)
        self.peer.begin("torchrun", *arguments)

    def ended(self):
        return self.peer.connection.poll()

    def exit_code(self, seconds=LONG):
        rdzvtest.wait_until(self.ended, "torchrun ends", seconds)
        return self.peer.finish()

    def kill(self):
        """Its workers stay."""
        self.peer.kill()

    def end(self):
        if not self.peer.connection.closed:
            self.peer.kill()


class Job:
    """One job of gloo_allreduce.py: where its store is, and what its agents are told. `host` is the kind of agent
    that has the store, "ours" or "theirs"; the first of them has. `shares`: agents of 2.6 serve a store for the workers
    as well, as they do unless told otherwise."""

    def __init__(self, case, version, nodes, host, shares=True, keep_alive=None):
        self.case, self.version, self.nodes, self.host = case, version, nodes, host
        self.keep_alive = self.ours_keep_alive = keep_alive  # of all agents; the second by the options, of ours
        self.run_id = f"{host}-{version}-{free_port()}"
        self.endpoint = f"{FIRST}:{free_port()}"
        self.environment = environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="0" if shares else "1", TMPDIR=case.folder)
        self.program_arguments = ["--checkpoint", self.path("checkpoint"), "--stop-file", self.path("stop")]
        self.program = [WORKER, run_peer(version), EXAMPLE, *self.program_arguments]
        self.last_call = 1
        self.static = False  # instead: the backend in which each agent is given its rank, here in the order of making
        self.agents = []

    def path(self, what):
        return self.case.path(f"{self.run_id}-{what}")

    def conf(self, kind):
        first = not any(agent.kind == kind for agent in self.agents)
        conf = {"is_host": str(kind == self.host and first).lower(), "last_call_timeout": self.last_call}
        if kind == "ours" and self.version == "1.13":
            conf["torch_version"] = "1.13"
        if kind == "ours" and self.ours_keep_alive:
            conf["keep_alive_interval"], conf["keep_alive_max_attempt"] = self.ours_keep_alive
        return ",".join(f"{name}={value}" for name, value in conf.items())

    def flags(self, kind, workers):
        flags = [f"--nnodes={self.nodes}", f"--nproc_per_node={workers}", "--max_restarts=3",
                 f"--rdzv_id={self.run_id}"]
        if self.static:
            addr, port = self.endpoint.split(":")
            return flags + [f"--node_rank={len(self.agents)}", f"--master_addr={addr}", f"--master_port={port}"]
        return flags + ["--rdzv_backend=c10d", f"--rdzv_endpoint={self.endpoint}", f"--rdzv_conf={self.conf(kind)}"]

    def add(self, agent):
        agent.job = self
        self.agents.append(agent)
        return agent

    def ours(self, addr, workers=2):
        agent = Ours(self.case, self.path(f"output-{len(self.agents)}"),
                     [*self.flags("ours", workers), f"--local-addr={addr}", *self.program],
                     env=self.environment, cwd=rdzvtest.SOURCE)
        return self.add(agent)

    def theirs(self, addr, workers=2):
        """Of what happens torchrun hears only when it looks. -r and -t are for 1.13, which with Python 3.11 does not
        start without them."""
        own = ["-r", "9:1", "-t", "9:1"] if self.version == "1.13" else [f"--local-addr={addr}"]
        output = self.path(f"output-{len(self.agents)}")
        agent = Theirs(self.case, self.version, output,
                       [*self.flags("theirs", workers), "--monitor_interval=0.3", *own, *self.program],
                       self.environment, rdzvtest.SOURCE, [output, output], addr, self.keep_alive)
        return self.add(agent)

    def make(self, kind, addr, workers=2):
        return self.ours(addr, workers) if kind == "ours" else self.theirs(addr, workers)

    def stop(self):
        """Has the workers end, all after the same step."""
        with open(self.path("stop"), "w", encoding="ascii"):
            pass

    def everything_said(self):
        return "\n".join(f"---- {agent.kind}\n{agent.said()}" for agent in self.agents)

    def assert_done(self, agents, workers=2):
        """They end in order, with workers of consecutive ranks on each, all of which have done the same steps. Gives
        the attempts that the workers of each were in at the end."""
        case, size = self.case, workers * len(agents)
        rdzvtest.wait_until(lambda: any(agent.ended() for agent in agents), "an agent ends", LONG)
        case.assertEqual([agent.exit_code(SOON) for agent in agents], [0] * len(agents), self.everything_said())
        ends = [agent.workers(DONE)[-workers:] for agent in agents]
        everybody = [each for end in ends for each in end]
        said = self.everything_said()
        case.assertEqual(sorted(each[0] for each in everybody), list(range(size)), said)
        case.assertEqual({each[1] for each in everybody}, {size}, said)
        case.assertEqual(len({each[3] for each in everybody}), 1, said)
        for end in ends:
            ranks = sorted(each[0] for each in end)
            case.assertEqual(ranks, list(range(ranks[0], ranks[0] + workers)), said)
            case.assertEqual(len({each[2] for each in end}), 1, said)
        return [end[0][2] for end in ends]


def ranks_of(agent, workers=2):
    """Those of its workers at the end."""
    return sorted(each[0] for each in agent.workers(DONE)[-workers:])


def those_here():
    return rendezvous_nodes.Case.those_here(peers.VERSIONS)


class Case(peers.Case):
    def tell(self, stories, at_once=4):
        """Tells several stories at the same time: they mostly wait. A story's name is in the test's output."""
        pool = concurrent.futures.ThreadPoolExecutor(at_once)
        ends = {name: pool.submit(story) for name, story in stories.items()}
        pool.shutdown()
        for name, end in ends.items():
            with self.subTest(story=name):
                end.result()
