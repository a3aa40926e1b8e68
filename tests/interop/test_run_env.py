# SPDX-License-Identifier: BSD-3-Clause
"""Every flag of torchrun, in all its spellings and as a variable: `rdzv run` takes it, and its workers find themselves
with the same environment, arguments and log files."""
import concurrent.futures
import json
import os
import re
import shutil

import peers
import rdzvtest
import torchrun_jobs
from rendezvous_nodes import free_port
from torchrun_jobs import FIRST, SECOND, Case

SCRIPT = os.path.join(peers.HERE, "dump_worker.py")
WORDS = ["--own", "a b", "x${local_rank}y", "-r", "--nnodes=7"]  # a program's own arguments
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # below a folder with a random name
# What each PyTorch does not say: the variable has another name in the other.
NOT_SAID = {"1.13": {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}, "2.6": {"NCCL_ASYNC_ERROR_HANDLING"}}
# --local-addr came with 2.0; our own node has to have the same address.
ONLY_26 = {"local_addr", "local_ranks_filter"}
# Taken by ours, but of no use for a comparison: torchrun wants a plug-in of that name; newer than 2.6.
ONLY_ACCEPTED = {"logs_specs": "default", "event_log_handler": "null", "signals_to_handle": "SIGTERM,SIGUSR2"}


class Launch:
    """One command line: flags with their values, True for those that take none. PORT in them becomes a free port, LOGS
    a folder. `may_differ` names the variables that may have other values."""

    def __init__(self, flags, program=(SCRIPT,), may_differ=(), versions=peers.VERSIONS, more=None):
        self.flags, self.program, self.versions = flags, list(program), versions
        self.may_differ, self.more = set(may_differ), more or {}


def c10d(flags, **more):
    """With c10d 1.13 leaves the workers' store to the worker of rank 0."""
    flags = {"rdzv_backend": "c10d", "rdzv_endpoint": f"{FIRST}:PORT", "rdzv_conf": "is_host=true",
             "local_addr": FIRST, "monitor_interval": "0.1", **flags}
    return Launch(flags, may_differ=["MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"], **more)


LAUNCHES = {
    "c10d": c10d({"nnodes": "1:1", "nproc_per_node": "2", "rdzv_id": "job7", "max_restarts": "2", "role": "trainer",
                  "redirects": "0:1,1:2", "tee": "1:1,0:2", "log_dir": "LOGS"}),
    "range": c10d({"nnodes": "1:2", "rdzv_conf": "is_host=1,last_call_timeout=1,join_timeout=50", "rdzv_id": "r"},
                  more={"OMP_NUM_THREADS": "3", "NCCL_ASYNC_ERROR_HANDLING": "0"}),
    "module": c10d({"module": True, "nproc_per_node": "auto", "log_dir": "LOGS", "tee": "0:1", "redirects": "9:1"},
                   program=["dump_worker"]),
    "no python": c10d({"no_python": True, "nproc_per_node": "cpu"}, program=[rdzvtest.PYTHON, SCRIPT]),
    "run path": c10d({"run_path": True, "start_method": "fork", "nproc_per_node": "2"}),
    "filter": c10d({"nproc_per_node": "3", "tee": "3", "local_ranks_filter": "0,2", "log_dir": "LOGS"},
                   versions=["2.6"]),
    "standalone": Launch({"standalone": True, "nproc_per_node": "2", "local_addr": FIRST, "rdzv_id": "ignored",
                          "redirects": "3", "log_dir": "LOGS"},
                         may_differ=["MASTER_PORT", "TORCHELASTIC_RUN_ID"], versions=["2.6"]),  # 1.13: one fixed port
    "static": Launch({"nnodes": "1", "node_rank": "0", "master_addr": "127.0.0.1", "master_port": "PORT",
                      "nproc_per_node": "2", "rdzv_backend": "static", "monitor_interval": "0.1"}),
    "static by default": Launch({"master_port": "PORT", "rdzv_id": "s", "role": "r", "max_restarts": "1",
                                 "monitor_interval": "0.1"}),
}


# ---- the ways to say a flag ----

def as_words(flags, spell, joined):
    words = []
    for name, value in flags.items():
        flag = "--" + spell(name)
        words += [flag] if value is True else [f"{flag}={value}"] if joined else [flag, value]
    return words


def dashes(flags):
    return as_words(flags, lambda name: name.replace("_", "-"), False), {}


def underscores(flags):
    return as_words(flags, str, True), {}


def letters(flags):
    """-m, -r, -t; the others with underscores, and the value apart."""
    short = {"module": "-m", "redirects": "-r", "tee": "-t"}
    words = []
    for name, value in flags.items():
        words += [short.get(name, f"--{name}")] + ([] if value is True else [value])
    return words, {}


def variables(flags):
    return [], {f"PET_{name.upper()}": "1" if value is True else value for name, value in flags.items()}


def words_over_variables(flags):
    others = {"nproc_per_node", "role", "rdzv_id"} & flags.keys()
    return dashes(flags)[0], {f"PET_{name.upper()}": "7" for name in others}


WAYS = {way.__name__: way for way in (dashes, underscores, letters, variables, words_over_variables)}


class Seen:
    """A launch, and what came of it."""

    def __init__(self, case, name, launch, flags):
        self.folder, self.port = case.path(name.replace(" ", "-")), str(free_port())
        self.logs, self.dumps = (os.path.join(self.folder, each) for each in ("logs", "dumps"))
        self.streams = [os.path.join(self.folder, each) for each in ("stdout", "stderr")]
        os.makedirs(self.dumps)
        self.flags = {flag: value if value is True else value.replace("PORT", self.port).replace("LOGS", self.logs)
                      for flag, value in flags.items()}
        self.environment = torchrun_jobs.environment(DUMP_FOLDER=self.dumps, PYTHONPATH=peers.HERE, TMPDIR=self.folder)
        del self.environment["OMP_NUM_THREADS"]
        self.environment.update(launch.more)
        self.exit_code = None

    def read(self, number):
        with open(self.streams[number], encoding="utf-8", errors="replace") as file:
            return file.read()

    def said(self):
        return self.read(0) + self.read(1)

    def worker(self, path):
        """What it dumped, without what is different in every run."""
        with open(path, encoding="utf-8") as file:
            seen = json.load(file)
        names = {name: value.replace(self.folder, "FOLDER") for name, value in seen["environment"].items()
                 if not name.startswith("PET_")}
        if names["MASTER_PORT"] == self.port:
            names["MASTER_PORT"] = "PORT"
        run_id = re.escape(names["TORCHELASTIC_RUN_ID"])
        names[ERROR_FILE] = re.sub(f"^.*/{run_id}_[^/]+/", "RUN/", names[ERROR_FILE])
        return dict(seen, environment=names)

    def workers(self):
        return {name: self.worker(os.path.join(self.dumps, name)) for name in os.listdir(self.dumps)}

    def shown(self):
        """The workers' lines on the console."""
        lines = [line for number in (0, 1) for line in self.read(number).splitlines()]
        return sorted(line for line in lines if re.search(r"std(out|err) of rank \d+$", line))

    def files(self):
        """The log files of all workers, below the folder of the run, and what is in them."""
        found = {}
        for folder, _, names in os.walk(self.logs):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    found[os.path.relpath(path, self.logs).split(os.sep, 1)[1]] = file.read()
        return found


class Flags(Case):
    maxDiff = None

    def theirs(self, version, name, launch):
        """1.13 has the spelling with underscores only, and does not start without -r and -t; 2.6 gets variables."""
        flags = {flag: value for flag, value in launch.flags.items() if version != "1.13" or flag not in ONLY_26}
        seen = Seen(self, f"{name}-theirs-{version}", launch, flags)
        words, names = underscores(seen.flags) if version == "1.13" else variables(seen.flags)
        if version == "1.13" and "redirects" not in flags:
            words += ["-r", "9:1", "-t", "9:1"]
        agent = torchrun_jobs.Theirs(self, version, seen.streams[1], [*words, *launch.program, *WORDS],
                                     {**seen.environment, **names}, rdzvtest.SOURCE, seen.streams,
                                     launch.flags.get("local_addr", FIRST), None)
        seen.exit_code = agent.exit_code()
        return seen

    def ours(self, way, name, launch):
        seen = Seen(self, f"{name}-ours-{way}", launch, launch.flags)
        words, names = WAYS[way](seen.flags)
        with open(seen.streams[0], "wb") as stdout, open(seen.streams[1], "wb") as stderr:
            process = self.start([rdzvtest.RDZV, "run", *words, *launch.program, *WORDS], stdout=stdout, stderr=stderr,
                                 env={**seen.environment, **names}, cwd=rdzvtest.SOURCE)
        seen.exit_code = process.wait(torchrun_jobs.LONG)
        return seen

    def assert_environment(self, version, launch, theirs, ours):
        """The same variables with the same values but for those that are named."""
        self.assertEqual(set(ours) - set(theirs), NOT_SAID.get(version, set()) - set(launch.more))
        self.assertEqual(set(theirs) - set(ours), set())
        differ = {name for name in theirs if theirs[name] != ours[name]}
        allowed = launch.may_differ - ({"TORCHELASTIC_USE_AGENT_STORE"} if version == "2.6" else set())
        self.assertEqual({name: (theirs[name], ours[name]) for name in differ - allowed}, {})

    def assert_same(self, version, launch, theirs, ours):
        self.assertEqual((theirs.exit_code, ours.exit_code), (0, 0), theirs.said() + ours.said())
        there, here = theirs.workers(), ours.workers()
        self.assertEqual(set(there), set(here))
        self.assertNotEqual(len(here), 0)
        for name, worker in there.items():
            self.assert_environment(version, launch, worker["environment"], here[name]["environment"])
            for what in ("words", "name", "folder") if "run_path" in launch.flags else tuple(worker)[1:]:
                self.assertEqual(worker[what], here[name][what], what)
        self.assertEqual(theirs.shown(), ours.shown())
        if "log_dir" in launch.flags:
            self.assertEqual(theirs.files(), ours.files())

    def check(self, name, launch):
        ours = {way: self.ours(way, name, launch) for way in WAYS}
        for version in torchrun_jobs.those_here():
            theirs = self.theirs(version, name, launch) if version in launch.versions else None
            for way in WAYS if theirs else ():
                with self.subTest(launch=name, torch=version, way=way):
                    self.assert_same(version, launch, theirs, ours[way])

    def test_workers_find_the_same_environment(self):
        for version in torchrun_jobs.those_here():
            torchrun_jobs.run_peer(version)
        self.tell({name: lambda name=name: self.check(name, LAUNCHES[name]) for name in LAUNCHES}, 3)

    def two_nodes(self, version, kinds):
        """A node of each kind, with other roles and numbers of workers; gives what their workers see."""
        name = f"two-{version}-{'-'.join(kinds)}"
        flags = {"nnodes": "2", "rdzv_backend": "c10d", "rdzv_endpoint": f"{FIRST}:{free_port()}", "rdzv_id": "two",
                 "monitor_interval": "0.1"}
        start = {"ours": lambda *of: self.ours("underscores", *of), "theirs": lambda *of: self.theirs(version, *of)}
        pool = concurrent.futures.ThreadPoolExecutor(2)
        nodes = []
        for rank, (kind, addr, workers) in enumerate(zip(kinds, (FIRST, SECOND), ("2", "1"))):
            conf = f"is_host={rank == 0}" + (f",torch_version={version}" if kind == "ours" else "")
            launch = Launch({**flags, "role": f"role{rank}", "nproc_per_node": workers, "rdzv_conf": conf,
                             "local_addr": addr}, may_differ=["MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"])
            nodes.append((kind, launch, pool.submit(start[kind], f"{name}-{rank}", launch)))
        pool.shutdown()
        return [(kind, launch, ended.result()) for kind, launch, ended in nodes]

    def check_two_nodes(self, version):
        """Whoever launches them, the workers of a node see the same."""
        expected = [seen.workers() for _, _, seen in self.two_nodes(version, ("theirs", "theirs"))]
        self.assertEqual([sorted(workers) for workers in expected], [["0.json", "1.json"], ["2.json"]])
        for kinds in (("ours", "theirs"), ("theirs", "ours"), ("ours", "ours")):
            for (kind, launch, seen), there in zip(self.two_nodes(version, kinds), expected):
                with self.subTest(torch=version, kinds=kinds):
                    self.assertEqual(seen.exit_code, 0, seen.said())
                    here = seen.workers()
                    self.assertEqual(set(there), set(here))
                    for name, worker in here.items():
                        self.assert_environment(version if kind == "ours" else None, launch,
                                                there[name]["environment"], worker["environment"])
                    self.assert_one_store(version, kinds, here)

    def assert_one_store(self, version, kinds, workers):
        """Alone, ours serve the workers' store; with others they do as these."""
        expected = str(version != "1.13" or "theirs" not in kinds)
        for worker in workers.values():
            self.assertEqual(worker["environment"]["TORCHELASTIC_USE_AGENT_STORE"], expected)

    def test_nodes_of_both_with_other_roles_and_sizes(self):
        self.tell({version: lambda version=version: self.check_two_nodes(version)
                   for version in torchrun_jobs.those_here()})

    def test_no_flag_is_left_out(self):
        """Of those that torchrun has: each is in a launch."""
        for version in torchrun_jobs.those_here():
            flags = peers.TorchProcess(torchrun_jobs.run_peer(version)).flags()
            tried = {flag: launch.flags[flag] for launch in LAUNCHES.values() for flag in launch.flags}
            for spellings, takes_value, name in flags:
                with self.subTest(torch=version, flag=name):
                    self.assertIn(name, tried.keys() | ONLY_ACCEPTED.keys())
                    self.assertEqual(takes_value, tried.get(name) is not True)
                    self.assertLessEqual(set(spellings), self.spellings(name))

    @staticmethod
    def spellings(name):
        """Those that the ways to say it have."""
        return {word.split("=")[0] for way in WAYS.values() for word in way({name: "v"})[0]}

    def refused(self, launch, way):
        """By ours, and by each PyTorch that is here."""
        for version in torchrun_jobs.those_here():
            theirs = self.theirs(version, f"refused-{way}", launch)
            self.assertNotEqual(theirs.exit_code, 0)
            shutil.rmtree(theirs.folder)
        seen = self.ours(way, "refused", launch)
        self.assertEqual((seen.exit_code, os.listdir(seen.dumps)), (2, []), seen.said())
        self.assertRegex(seen.said(), "^rdzv run: ")
        shutil.rmtree(seen.folder)

    def test_what_torchrun_refuses(self):
        for flags in ({"nproc_per_node": "many"}, {"nnodes": "2:1"}, {"nnodes": "0"}, {"nnodes": "1:2:3"},
                      {"redirects": "7", "tee": "0"}, {"redirects": "0", "tee": "0:1:2"}, {"max_restarts": "x"},
                      {"module": True, "no_python": True}):
            with self.subTest(flags=flags):
                self.refused(Launch({"master_port": "PORT", **flags}, versions=["2.6"]), "underscores")

    def test_the_error_file_of_the_launcher_itself_has_the_first_failure(self):
        """Whoever starts the launcher reads in the file that it has set for it what it reads after torchrun."""
        path, program = self.path("error.json"), self.path("fails.py")
        error = {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "x", "timestamp": "1700000000"}}}
        with open(program, "w", encoding="ascii") as file:
            file.write(f"import json, os, sys\njson.dump({error!r}, open(os.environ['{ERROR_FILE}'], 'w'))\n"
                       "if sys.argv[1] == '-9':\n    os.kill(os.getpid(), 9)\nsys.exit(int(sys.argv[1]))\n")
        for code in (3, -9):
            launch = Launch({"master_port": "PORT", "log_dir": "LOGS"}, program=[program, str(code)],
                            more={ERROR_FILE: path})
            launched = {version: lambda version=version: self.theirs(version, f"error{code}", launch)
                        for version in torchrun_jobs.those_here()}
            for kind, start in {**launched, "ours": lambda: self.ours("underscores", f"error{code}", launch)}.items():
                with self.subTest(kind=kind, code=code):
                    self.assertNotEqual(start().exit_code, 0)
                    with open(path, encoding="utf-8") as file:
                        self.assertEqual(json.load(file), {"message": {**error["message"], "errorCode": code}})
                    os.remove(path)

    def test_flags_that_are_only_accepted(self):
        flags = {**ONLY_ACCEPTED, "standalone": True}
        for way in WAYS:
            words, names = WAYS[way](flags)
            finished = self.rdzv("run", *words, "true", env=torchrun_jobs.environment(**names))
            self.assertEqual(finished.returncode, 0, finished.stderr)
            self.assertIn("--logs-specs has no effect", finished.stderr)


if __name__ == "__main__":
    peers.main()
