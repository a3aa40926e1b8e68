# SPDX-License-Identifier: BSD-3-Clause
"""The command line of `rdzv run`: spellings, variables, what program is run and how, and what is refused."""
import json
import os
import re
import signal
import subprocess

import rdzvtest
import run_nodes
from run_nodes import IO, USAGE, YES

# Every flag that torchrun takes, with a value that does no harm to one node.
FLAGS = {
    "nnodes": "1", "nproc-per-node": "1", "rdzv-backend": "c10d", "rdzv-endpoint": "", "rdzv-id": "",
    "rdzv-conf": "join_timeout=60", "standalone": None, "max-restarts": "0", "monitor-interval": "5",
    "start-method": "fork", "role": "r", "no-python": None, "log-dir": "logs", "redirects": "0", "tee": "0",
    "local-ranks-filter": "0", "node-rank": "0", "master-addr": "127.0.0.1", "master-port": "29500",
    "local-addr": "127.0.0.1", "logs-specs": "default", "event-log-handler": "null", "signals-to-handle": "SIGTERM",
    "shutdown-timeout": "30", "duplicate-stdout-filters": "a,b", "duplicate-stderr-filters": "a",
    "virtual-local-rank": None, "numa-binding": "node", "log-line-prefix-template": "[${rank}]",
}


class Case(run_nodes.Run):
    def run_words(self, *words, env=None, code=YES, **options):
        """`rdzv run` with these words; gives what it wrote, and its end must be that."""
        done = self.rdzv("run", *words, env=self.environment(**(env or {})), stdin=subprocess.DEVNULL,
                         cwd=self.folder, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def file(self, name, text, mode=0o644):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path


class Spelling(Case):
    def words_of(self, name, dash, glued):
        chosen = {"rdzv-endpoint": self.server.endpoint, "rdzv-id": f"{dash}{glued}"}
        value = chosen.get(name, FLAGS[name])
        flag = "--" + name.replace("-", dash)
        if value is None:
            return [flag]
        return [f"{flag}={value}"] if glued else [flag, value]

    def test_each_flag_with_both_spellings(self):
        self.serve_store()
        for dash, glued in (("-", False), ("_", False), ("-", True), ("_", True)):
            words = [word for name in FLAGS if name != "standalone" for word in self.words_of(name, dash, glued)]
            self.run_words(*words, "true")

    def test_letters(self):
        for words in (["-r", "1", "-t", "2"], ["-r1", "-t2"], ["-r", "0:1", "-t0:2"]):
            with self.subTest(words):
                done = self.run_words("--standalone", "--log-level", "off", *words, "sh", "-c", "echo o; echo err >&2")
                self.assertEqual((done.stdout, done.stderr), ("", "[default0]:err\n"))

    def test_flags_behind_the_program_are_its_own(self):
        done = self.run_words("--standalone", "--log-level=off", "echo", "--nnodes", "-m", "--", "--help")
        self.assertEqual(done.stdout, "--nnodes -m -- --help\n")

    def test_two_dashes_end_our_own(self):
        done = self.run_words("--standalone", "--log-level=off", "--", "echo", "--", "x")
        self.assertEqual(done.stdout, "-- x\n")

    def test_the_last_of_two_counts(self):
        done = self.run_words("--standalone", "--log-level=off", "--role", "a", "--role=b", "--no-python", "sh", "-c",
                              "echo $ROLE_NAME")
        self.assertEqual(done.stdout, "b\n")

    def test_the_help_names_every_flag(self):
        text = self.run_words("--help").stdout
        for name in [*FLAGS, "module", "run-path", "exit-barrier-timeout", "event-log", "json-log"]:
            self.assertRegex(text, rf"(?m)^  (-\w, )?--{name}\b")
        for group in ("nodes and workers", "the rendezvous", "the program", "stopping", "output"):
            self.assertIn(f"\n{group}:\n", text)


    def test_the_beginning_of_a_name_will_do(self):
        for words in (["--nproc-per=2"], ["--nproc_p", "2"], ["--nproc-per-node=2"]):
            with self.subTest(words):
                done = self.run_words("--stand", "--log-le=off", *words, "sh", "-c", "echo $WORLD_SIZE")
                self.assertEqual(done.stdout, "2\n2\n")


class Backend(Case):
    """Which rendezvous it is, where none is named: as torchrun reads it."""
    SHOW = ["sh", "-c", "echo $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID"]

    def first_line(self, *words, **options):
        done = self.run_words(*words, *self.SHOW, **options)
        return done.stderr.splitlines()[0], done.stdout.strip()

    def test_an_endpoint_and_a_fixed_number_of_nodes_is_static(self):
        said, shown = self.first_line("--rdzv-endpoint", "127.0.0.1:0")
        port = re.search(r"rendezvous 'none' at static 127\.0\.0\.1:(\d+); this node is ", said)[1]
        self.assertEqual(shown, f"0 127.0.0.1:{port} none")

    def test_a_range_is_c10d(self):
        said, _ = self.first_line("--nnodes=1:2", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-conf=last_call_timeout=0.1")
        self.assertRegex(said, r"rendezvous 'none' at c10d tcp 127\.0\.0\.1:[1-9]\d+ ")

    def test_a_job_of_one_node_waits_for_no_others_and_names_its_store_once(self):
        done = self.run_words("--standalone", "true")
        self.assertRegex(done.stderr, r" at c10d tcp 127\.0\.0\.1:\d+ \(rdzv\), served by this process; this node is ")
        self.assertIn("info: the workers of this node are done\n", done.stderr)

    def test_plain_jobs_run_beside_each_other(self):
        worker = self.script("note $MASTER_PORT; await end")
        jobs = [self.launch(name, ["--nproc-per-node", "1"], [worker]) for name in ("first", "second")]
        self.wait_for(lambda: len(self.notes()) == 2, "both run")
        self.assertEqual(len(set(self.notes())), 2)
        self.touch("end")
        for job in jobs:
            self.gone(job)

    def test_a_plain_job_takes_the_port_that_is_given(self):
        port = str(run_nodes.free_port())
        show = "--log-level=off", "sh", "-c", "echo $MASTER_PORT"
        self.assertEqual(self.run_words(*show, env={"MASTER_PORT": port}).stdout, f"{port}\n")
        self.assertEqual(self.run_words("--master-port", port, *show, env={"MASTER_PORT": "1"}).stdout, f"{port}\n")
        self.assertEqual(self.run_words(*show, env={"PET_MASTER_PORT": port}).stdout, f"{port}\n")
        done = self.run_words(*show, env={"MASTER_PORT": "none"}, code=USAGE)
        self.assertIn("invalid value 'none' for MASTER_PORT", done.stderr)

    def test_a_plain_job_in_a_worker_has_a_port_of_its_own(self):
        done = self.run_words("--log-level=off", "sh", "-c",
                              f'echo $MASTER_PORT; exec {rdzvtest.RDZV} run --log-level=off sh -c "echo \\$MASTER_PORT"')
        self.assertEqual(len(set(done.stdout.split())), 2, done.stdout)

    def test_port_0_as_pytorchs_documentation_has_it(self):
        """Several jobs on one machine, at the same time."""
        worker = self.script("note $1 $RANK/$WORLD_SIZE; await end")
        flags = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1", "--nproc-per-node=2"]
        nodes = [self.launch(name, flags, [worker, name]) for name in "ab"]
        self.wait_notes("a 0/2", "a 1/2", "b 0/2", "b 1/2")
        ports = {re.search(r"at c10d tcp 127\.0\.0\.1:([1-9]\d+) ", node.err())[1] for node in nodes}
        self.assertEqual(len(ports), 2)
        self.touch("end")
        for node in nodes:
            self.gone(node)

    def test_the_node_that_serves_says_the_port_that_others_need(self):
        worker = self.script("note $RANK/$WORLD_SIZE")
        flags = ["--rdzv-backend=c10d", "--nnodes=2", "--rdzv-id=job"]
        first = self.launch("first", [*flags, "--rdzv-endpoint=127.0.0.1:0"], [worker])
        port = self.wait_for(lambda: re.search(r"at c10d tcp 127\.0\.0\.1:(\d+) ", first.err()), "it says the port")[1]
        self.gone(self.launch("second", [*flags, f"--rdzv-endpoint=127.0.0.1:{port}"], [worker]))
        self.gone(first)
        self.wait_notes("0/2", "1/2")

    def test_a_standalone_job_can_be_asked(self):
        node = self.launch("node", ["--standalone"], [self.script("note x; await end")])
        self.wait_notes("x")
        found = re.search(r"rendezvous '(\w+)' at c10d tcp ([\d.:]+) ", node.err().splitlines()[0])
        done = self.rdzv("status", "--rdzv-id", found[1], "--rdzv-endpoint", found[2], "--json")
        self.assertEqual(json.loads(done.stdout)["run_id"], found[1], done.stderr)
        self.touch("end")
        self.gone(node)

    def test_a_node_rank_that_was_not_said_is_noticed(self):
        node = self.launch("node", ["--nnodes=2", "--rdzv-endpoint=127.0.0.1:0"], [self.script("")])
        self.wait_for(lambda: "--rdzv-backend=c10d assigns the ranks" in node.err(), "a warning")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)


class Variables(Case):
    def test_pet_variables_are_defaults(self):
        env = {"PET_STANDALONE": "1", "PET_NPROC_PER_NODE": "2", "PET_ROLE": "r", "PET_MAX_RESTARTS": "4",
               "PET_LOG_LEVEL": "off"}
        done = self.run_words("sh", "-c", "echo $WORLD_SIZE $ROLE_NAME $TORCHELASTIC_MAX_RESTARTS", env=env)
        self.assertEqual(done.stdout, "2 r 4\n" * 2)

    def test_flags_go_before_them(self):
        env = {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "r"}
        done = self.run_words("--standalone", "--nproc-per-node=1", "sh", "-c", "echo $WORLD_SIZE $ROLE_NAME", env=env)
        self.assertEqual(done.stdout, "1 r\n")

    def test_a_flag_is_off_by_zero(self):
        self.file("x.py", "print('by Python')\n")
        for value, expected, code in (("0", "by Python\n", YES), ("1", "", IO)):
            done = self.run_words("--standalone", "x.py", env={"PET_NO_PYTHON": value}, code=code)
            self.assertEqual(done.stdout, expected)

    def test_a_switch_is_a_number(self):
        done = self.run_words("true", env={"PET_STANDALONE": "yes"}, code=USAGE)
        self.assertEqual(done.stderr, "rdzv run: invalid value 'yes' for PET_STANDALONE: expected 0 or 1\n")

    def test_a_wrong_one_is_named(self):
        done = self.run_words("--standalone", "true", env={"PET_MAX_RESTARTS": "many"}, code=USAGE)
        self.assertIn("invalid value 'many' for PET_MAX_RESTARTS", done.stderr)
        for name, value in (("NNODES", "x"), ("NPROC_PER_NODE", "many"), ("RDZV_CONF", "join_timeout=x"),
                            ("SIGNALS_TO_HANDLE", "SIGKILL"), ("REDIRECTS", "9")):
            with self.subTest(name):
                done = self.run_words("--standalone", "true", env={f"PET_{name}": value}, code=USAGE)
                self.assertIn(f"(from the environment: PET_{name}='{value}')", done.stderr)

    def test_one_that_a_flag_overrides_is_not_looked_at(self):
        done = self.run_words("--standalone", "--max-restarts=2", "--log-level=off", "sh", "-c",
                              "echo $TORCHELASTIC_MAX_RESTARTS", env={"PET_MAX_RESTARTS": "many"})
        self.assertEqual(done.stdout, "2\n")


class Program(Case):
    """What runs PROGRAM: Python, or nobody."""

    def show(self, *words, **options):
        return self.run_words("--standalone", "--log-level", "off", *words, **options).stdout

    def test_a_script_of_pythons_by_its_name(self):
        self.file("x.py", "import sys; print(sys.argv, sys.stdout.write_through)\n")
        self.assertEqual(self.show("x.py", "a", "b c"), "['x.py', 'a', 'b c'] True\n")  # -u

    def test_one_that_can_be_executed_is_still_pythons(self):
        self.file("x.py", "#!/bin/sh\nprint('by Python')\n", 0o755)
        self.assertEqual(self.show("x.py"), "by Python\n")

    def test_a_file_that_cannot_be_executed_is_pythons(self):
        self.file("train", "print('by Python')\n")
        self.assertEqual(self.show("train"), "by Python\n")

    def test_a_program_is_executed_by_itself(self):
        self.assertEqual(self.show("echo", "found in PATH"), "found in PATH\n")
        self.assertEqual(self.show("/bin/echo", "by its path"), "by its path\n")
        self.file("here", "#!/bin/sh\necho here\n", 0o755)
        self.assertEqual(self.show("./here"), "here\n")

    def test_no_python_executes_whatever_it_is(self):
        self.file("x.py", "#!/bin/sh\necho by its first line\n", 0o755)
        self.assertEqual(self.show("--no-python", "./x.py"), "by its first line\n")

    def test_a_module(self):
        self.file("a_module.py", "import sys; print(__name__, sys.argv[1:])\n")
        env = {"PYTHONPATH": self.folder}
        for flag in ("-m", "--module"):
            self.assertEqual(self.show(flag, "a_module", "--x", env=env), "__main__ ['--x']\n")

    def test_run_path_runs_any_file_by_python(self):
        self.file("tool", "#!/bin/sh\nimport sys; print('by Python', sys.argv[1:])\n", 0o755)
        self.assertEqual(self.show("--run-path", "tool", "x"), "by Python ['x']\n")

    def test_which_python(self):
        self.file("x.py", "")
        self.file("my python", "#!/bin/sh\necho \"$@\"\n", 0o755)
        self.assertEqual(self.show("x.py", "y", env={"PYTHON_EXEC": self.path("my python")}), "-u x.py y\n")
        done = self.run_words("--standalone", "x.py", env={"PYTHON_EXEC": "no-such-python"}, code=IO)
        self.assertIn("cannot start 'no-such-python': not found in PATH (PYTHON_EXEC names Python's interpreter)\n",
                      done.stderr)

    def cannot(self, says, *words, **options):
        """It is said before anything else: no store is there to be joined."""
        flags = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-conf=is_host=false"]
        done = self.run_words(*flags, *words, code=IO, **options)
        self.assertEqual(done.stderr, f"rdzv run: cannot start {says}\n")

    def test_what_cannot_be_started_is_found_before_it_joins(self):
        self.file("plain", "#!/bin/sh\n")
        self.file("binary", "\177ELF")
        self.file("here", "#!/bin/sh\n", 0o755)
        self.file("lost", "#!/no/such/shell -x\n", 0o755)
        self.file("env", "#!/usr/bin/env no-such-shell\n", 0o755)
        self.file("windows", "#!/bin/sh\r\n", 0o755)
        self.cannot("'no-such-program': not found in PATH", "no-such-program")
        self.cannot("'here': not found in PATH (did you mean './here'?)", "here")
        self.cannot("'./no-such': No such file or directory", "./no-such")
        self.cannot("'no-such.py': No such file or directory", "no-such.py")
        self.cannot("'./': is a directory", "--no-python", "./")
        os.mkdir(self.path("empty"))
        self.cannot("'./empty': a folder without __main__.py", "./empty")
        self.file("shell.sh", "echo it has no first line for an interpreter\n")
        self.cannot("'./shell.sh': not executable (chmod +x './shell.sh'?) (--run-path runs it with Python)", "./shell.sh")
        run_path = " (--run-path runs it with Python)"
        self.cannot(f"'./plain': not executable (chmod +x './plain'?){run_path}", "./plain")
        self.cannot(f"'./binary': not executable (chmod +x './binary'?){run_path}", "./binary")
        self.cannot("'./lost': cannot use the interpreter '/no/such/shell' of its first line: No such file or directory", "./lost")
        self.cannot("'./env': the interpreter 'no-such-shell' of its first line is not in PATH", "./env")
        self.cannot("'./windows': its first line ends with a carriage return (convert its Windows line endings)", "./windows")

    def test_what_can_be_started_in_other_ways_is_left_alone(self):
        self.file("by_env", "#!/usr/bin/env -S sh -e\necho by env\n", 0o755)
        self.assertEqual(self.show("./by_env"), "by env\n")
        self.file("no_line", "echo by the shell\n", 0o755)
        self.assertEqual(self.show("./no_line"), "by the shell\n")
        self.file("script", "#!/usr/bin/python3\nprint('by Python')\n")
        self.assertEqual(self.show("script"), "by Python\n")
        os.mkdir(self.path("folder"))
        self.file("folder/__main__.py", "print('a folder')\n")
        self.assertEqual(self.show("folder"), "a folder\n")

    def test_a_missing_module_hints_at_the_interpreter(self):
        self.file("x.py", "import no_such_module\n")
        hint = f"  hint: is the module installed for {rdzvtest.PYTHON}? (PYTHON_EXEC names another interpreter)\n"
        for words in (["x.py"], ["-m", "no_such_module"]):
            with self.subTest(words):
                done = self.run_words("--standalone", *words, code=1, env={"PYTHON_EXEC": rdzvtest.PYTHON})
                self.assertIn(hint, done.stderr)
        done = self.run_words("--standalone", "sh", "-c", "echo \"No module named 'x'\" >&2; exit 1", code=1)
        self.assertNotIn("hint", done.stderr)  # that was not Python

    def test_the_hint_has_the_path_of_the_interpreter(self):
        """Which python3 of PATH is it? Only where a module is missing."""
        os.mkdir(self.path("bin"))
        os.symlink(rdzvtest.PYTHON, self.path("bin/python3"))
        env = {"PATH": f"{self.path('bin')}:{os.environ['PATH']}", "PYTHON_EXEC": ""}
        for program, is_hinted in (("import no_such_module", True), ("from os import no_such_name", True),
                                   ("raise SystemExit(1)", False), ("raise ValueError('x')", False)):
            with self.subTest(program):
                self.file("x.py", program + "\n")
                done = self.run_words("--standalone", "x.py", code=1, env=env)
                self.assertEqual(f"  hint: is the module installed for {self.path('bin/python3')}?" in done.stderr, is_hinted)
                self.assertEqual("hint" in done.stderr, is_hinted, done.stderr)

    def test_a_virtual_local_rank(self):
        words = ["--virtual-local-rank", "--nproc-per-node=2", "sh", "-c",
                 "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES ${local_rank}"]
        for variable, gpus in ((None, ("0", "1")), ("5,GPU-7", ("5", "GPU-7"))):
            env = {"CUDA_VISIBLE_DEVICES": variable} if variable else None
            self.assertEqual(sorted(self.show(*words, env=env).splitlines()), [f"0 0 2 {gpus[0]} 0", f"1 0 2 {gpus[1]} 1"])

    def test_numa_binding(self):
        show = "grep", "Cpus_allowed_list", "/proc/self/status"
        allowed = sorted(os.sched_getaffinity(0))
        for mode in ("node", "socket", "exclusive", "core-complex"):
            with self.subTest(mode):
                done = self.run_words("--standalone", "--log-level=warning", "--numa-binding", mode, *show)
                self.assertEqual(done.stderr, "")
                first = int(re.search(r"\d+", done.stdout)[0])
                self.assertIn(first, allowed)
        many = str(len(allowed) + 1)
        done = self.run_words("--standalone", "--numa-binding", "exclusive", "--nproc-per-node", many, "true", code=USAGE)
        self.assertRegex(done.stderr, r"cannot bind local rank \d+ to processors: NUMA node \d+ has \d+ cores for \d+ workers")

    def test_the_prefix_of_lines(self):
        done = self.run_words("--standalone", "--log-level=off", "--tee=1", "--log-line-prefix-template=<${rank}> ",
                              "echo", "x")
        self.assertEqual(done.stdout, "<0> x\n")

    def test_the_local_rank_in_its_arguments(self):
        text = self.show("--nproc-per-node", "2", "echo", "rank=${local_rank}", "${local_rank}${local_rank}")
        self.assertEqual(sorted(text.splitlines()), ["rank=0 00", "rank=1 11"])

    def test_arguments_may_be_anything(self):
        words = ["", " ", "*", "a\nb", "é", "$HOME", "%s%n", "\\"]
        self.assertEqual(self.show("printf", "<%s>", *words), "".join(f"<{word}>" for word in words))

    def test_a_worker_for_each_processor(self):
        for value in ("cpu", "auto"):
            text = self.show("--nproc-per-node", value, "echo", "x", env={"CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(text, "x\n" * os.sysconf("SC_NPROCESSORS_ONLN"))


class Refused(Case):
    def refuse(self, *words, says, env=None, code=USAGE):
        with self.subTest(words):
            done = self.run_words(*words, env=env, code=code)
            self.assertIn(says, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("rdzv run: "), done.stderr)
            self.assertEqual(done.stdout, "")

    def test_plug_ins_for_logs_are_refused(self):
        """torchrun fails, too, where it does not know the name."""
        self.refuse("--standalone", "--logs-specs", "mine", "true",
                    says="invalid value 'mine' for --logs-specs: expected default")

    def test_without_a_program(self):
        self.refuse("--standalone", says="no program given")
        self.refuse(says="no program given")
        self.refuse("--", says="no program given")

    def test_what_is_no_flag(self):
        self.refuse("--no-such", "true", says="unknown flag '--no-such' (see 'rdzv run --help')")
        self.refuse("-x", "true", says="unknown flag '-x' (see 'rdzv run --help')")
        self.refuse("--n=1", "true", says="ambiguous flag '--n': it could be --nnodes, --nproc-per-node, --node-rank, --numa-binding, --no-python\n")
        self.refuse("--=1", "true", says="unknown flag '--'")
        self.refuse("--nnodes", says="flag '--nnodes' needs a value")
        self.refuse("--standalone=1", "true", says="takes no value")

    def test_numbers(self):
        for value in ("0", "-1", "2:1", "1:", ":2", "1:2:3", "x", "1.5", "", "99999999999999999999", "1 "):
            self.refuse("--nnodes", value, "true",
                        says=f"invalid value '{value}' for --nnodes: expected MIN or MIN:MAX, with 1 <= MIN <= MAX")
        for value in ("x", "", "1.5", "99999999999999999999"):
            self.refuse("--max-restarts", value, "true", says=f"invalid value '{value}' for --max-restarts")
        self.refuse("--standalone", "--max-restarts", "-1", "true", says="invalid value '-1' for --max-restarts")
        for value in ("0", "-2", "many", "gpus", "4097"):
            self.refuse("--standalone", "--nproc-per-node", value, "true", says=f"invalid value '{value}' for --nproc-per-node")
        for flag in ("--shutdown-timeout", "--exit-barrier-timeout"):
            for value in ("-1", "x", "inf", "nan", "1e30"):
                self.refuse(flag, value, "true", says=f"invalid value '{value}' for {flag}")

    def test_gpus_where_there_are_none(self):
        self.refuse("--standalone", "--nproc-per-node", "gpu", "true", says="no visible GPU",
                    env={"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""})

    def test_streams_and_signals(self):
        self.refuse("--standalone", "--redirects", "4", "true", says="invalid value '4' for --redirects")
        self.refuse("--standalone", "-t", "0:x", "true", says="invalid value '0:x' for --tee")
        self.refuse("--standalone", "--local-ranks-filter", "a", "true", says="invalid value 'a' for --local-ranks-filter")
        for name in ("SIGKILL", "SIGSTOP", "NOSUCH", "SIG", "9", "SIGTERM,,SIGINT"):
            self.refuse("--standalone", "--signals-to-handle", name, "true", says="for --signals-to-handle: not a signal that can be handled")
        self.refuse("--numa-binding", "near", "true", says="expected node|socket|exclusive|core-complex")
        self.refuse("--log-level", "loud", "true", says="invalid value 'loud' for --log-level")
        self.refuse("--start-method", "foo", "true", says="invalid value 'foo' for --start-method: expected spawn|fork|forkserver")
        self.refuse("--monitor-interval", "foo", "true", says="invalid value 'foo' for --monitor-interval")

    def test_the_rendezvous(self):
        self.refuse("--rdzv-backend", "no-such", "--rdzv-endpoint", "localhost", "true", says="no-such")
        self.refuse("--rdzv-endpoint", "localhost:99999", "true", says="99999")
        c10d = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost"]
        self.refuse(*c10d, "--rdzv-conf", "join_timeout", "true", says="join_timeout")
        self.refuse(*c10d, "--rdzv-conf", "join_timeout=x", "true", says="join_timeout")
        self.refuse(*c10d, "--rdzv-conf", "join_timeot=1", "true", says="did you mean 'join_timeout'?")
        self.refuse("--standalone", "--rdzv-conf", "join_timeout=x", "true", says="join_timeout")
        self.refuse("--rdzv-backend", "c10d", "--rdzv-endpoint", "192.0.2.1:0", "true",
                    says="port 0 is for the node that serves")
        self.refuse("--log-level", "off", "--nnodes", "2", "--node-rank", "2", "true", says="--node-rank is '2': there are 2 nodes")
        self.refuse("--log-level", "off", "--nnodes", "2", "--node-rank", "-1", "true", says="invalid value '-1' for --node-rank:")
        self.refuse("--log-level", "off", "--nnodes", "2", "--rdzv-conf", "rank=2", "true", says="option 'rank' is '2'")
        self.refuse("--nnodes", "2", "--master-port", "70000", "true", says="invalid value '70000' for --master-port: expected 0 to 65535")
        self.refuse("true", env={"PET_MASTER_PORT": "70000"}, says="--master-port: expected 0 to 65535 (from the environment: PET_MASTER_PORT='70000')")
        self.refuse("true", env={"MASTER_PORT": "abc"}, says="invalid value 'abc' for MASTER_PORT: expected 0 to 65535")

    def test_a_module_cannot_be_executed(self):
        self.refuse("--standalone", "-m", "--no-python", "x", says="cannot be used together")

    def test_a_role_that_is_too_long(self):
        self.refuse("--standalone", "--role", "r" * 64, "true", says="for --role: it is too long")
        self.run_words("--standalone", "--role", "r" * 63, "true")

    def test_a_loopback_endpoint_for_several_machines(self):
        """Each would take it for itself, and wait for the others for ever."""
        for endpoint in ("localhost:29400", "127.0.0.1", "[::1]:29400"):
            for variable in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PBS_NUM_NODES"):
                self.refuse("--nnodes", "2", "--node-rank=0", "--rdzv-endpoint", endpoint, "true", env={variable: "2"},
                            says=f"the endpoint '{endpoint}' is a loopback address, but {variable} says")
        self.refuse("--nnodes", "2", "--rdzv-backend=c10d", "--rdzv-endpoint", "localhost", "--local-addr", "192.0.2.1", "true",
                    says="the local address says")
        self.refuse("--nnodes", "2", "true", env={"SLURM_NNODES": "2"}, says="the endpoint '127.0.0.1:29500'")

    def test_a_loopback_endpoint_for_one_machine_is_fine(self):
        self.serve_store()
        for words, env in ((["--nnodes", "1:2"], {"SLURM_NNODES": "2"}), (["--nnodes", "1"], {"SLURM_NNODES": "1"})):
            self.run_words("--rdzv-backend=c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", words[1], "--rdzv-conf",
                           "last_call_timeout=0.1", *words, "true", env=env)


class Sentences(Case):
    """What is taken, and has no effect, is said."""

    def test_flags_that_make_no_sense_here(self):
        for flag, value in (("--monitor-interval", "0.1"), ("--start-method", "spawn"), ("--logs-specs", "default"),
                            ("--event-log-handler", "console")):
            with self.subTest(flag):
                done = self.run_words("--standalone", flag, value, "true")
                self.assertRegex(done.stderr, rf"info: {flag} has no effect: \S+ ")

    def test_filters_of_output_that_is_not_shown(self):
        for flag in ("--duplicate-stdout-filters", "--duplicate-stderr-filters"):
            with self.subTest(flag):
                done = self.run_words("--standalone", flag, "a", "true")
                self.assertIn(f"warning: {flag} has no effect: only output of --tee is filtered", done.stderr)
                done = self.run_words("--standalone", flag, "a", "--tee", "3", "true")
                self.assertNotIn("no effect", done.stderr)

    def test_output_of_other_streams_and_ranks(self):
        tee, many = "only output of --tee is filtered", ["--nproc-per-node", "10"]
        for words, text in (
            (["--tee", "1", "--duplicate-stderr-filters", "x"], f"--duplicate-stderr-filters has no effect: {tee}"),
            (["--tee", "0:1,0:2", "--duplicate-stderr-filters", "x"], None),
            (["--tee", "3", "--log-dir", "/dev/null", "--duplicate-stdout-filters", "x"],
             "--duplicate-stdout-filters has no effect: --log-dir /dev/null keeps no files"),
            (["--log-line-prefix-template", "X"], "--log-line-prefix-template has no effect: only lines of --tee have a prefix"),
            (["--log-line-prefix-template", "X", "--tee", "0:1"], None),
            (["--local-ranks-filter", "0,9"], "local rank 9 of --local-ranks-filter has no effect: there is 1 worker"),
            (["--local-ranks-filter", "0,9", *many], None),
            (["--tee", "5:1"], "local rank 5 of --tee has no effect: there is 1 worker"),
            (["--redirects", "12:1", *many], "local rank 12 of --redirects has no effect: there are 10 workers")):
            with self.subTest(words):
                done = self.run_words("--standalone", *words, "true")
                self.assertEqual(re.findall("warning: (.*)", done.stderr), [text] if text else [])

    def test_a_prefix_of_the_environment_is_no_flag(self):
        done = self.run_words("--standalone", "true", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "X"})
        self.assertNotIn("no effect", done.stderr)

    def test_a_rendezvous_that_has_no_use_for_it(self):
        static, direct = ["--rdzv-backend", "static"], "without a secret workers reach their store directly"
        for words, text in (
            (["--standalone", "--direct-master"], f"--direct-master has no effect: {direct}"),
            ([*static, "--direct-master"], f"--direct-master has no effect: {direct}"),
            (["--standalone", "--local-addr", "h"], "--local-addr has no effect: --standalone uses its own store and id"),
            ([*static, "--local-addr", "h"], "--local-addr has no effect: backend static uses the address of rank 0")):
            with self.subTest(words):
                self.assertEqual(re.findall("warning: (.*)", self.run_words(*words, "true").stderr), [text])
        port = str(rdzvtest.free_port())
        nodes = [self.launch(rank, [*static, "--nnodes", "1:2", "--node-rank", rank, "--master-port", port], ["true"])
                 for rank in "01"]
        for node in nodes:
            self.gone(node)
            self.assertIn("warning: MIN of --nnodes has no effect: backend static waits for all MAX nodes\n", node.err())

    def test_a_node_rank_for_a_backend_that_gives_ranks(self):
        self.serve_store()
        done = self.run_words("--rdzv-backend=c10d", "--rdzv-endpoint", self.server.endpoint, "--node-rank", "1", "true")
        self.assertIn("warning: --node-rank has no effect", done.stderr)

    def test_what_standalone_leaves_no_room_for(self):
        for flag, value in (("--nnodes", "2"), ("--rdzv-backend", "etcd"), ("--rdzv-endpoint", "localhost"),
                            ("--rdzv-id", "x"), ("--node-rank", "1"), ("--master-addr", "h"), ("--master-port", "1")):
            with self.subTest(flag):
                done = self.run_words("--standalone", flag, value, "true")
                self.assertRegex(done.stderr, rf"warning: {flag} has no effect: --standalone ")

    def test_what_the_backend_leaves_no_room_for(self):
        self.serve_store()
        c10d = ["--rdzv-backend=c10d", "--rdzv-endpoint", self.server.endpoint]
        static = ["--rdzv-endpoint", "localhost:0"]
        for words, flag in ((c10d, "--master-addr"), (c10d, "--master-port"), (static, "--master-port")):
            with self.subTest(flag):
                done = self.run_words(*words, f"--rdzv-id={flag}", flag, "1", "true")
                self.assertRegex(done.stderr, rf"warning: {flag} has no effect: ")

    def test_options_of_the_rendezvous_that_torchrun_ignores(self):
        done = self.run_words("--standalone", "--rdzv-conf", "timeout=900,frobnicate=1", "true")
        self.assertEqual(done.stderr.count("warning: option 'timeout' does not apply to this backend and has no effect "
                                           "(did you mean 'join_timeout'?)"), 1, done.stderr)
        self.assertEqual(done.stderr.count("warning: option 'frobnicate' is unknown and has no effect"), 1, done.stderr)

    def test_nothing_is_said_without_them(self):
        self.assertNotIn("no effect", self.run_words("--standalone", "true").stderr)


if __name__ == "__main__":
    rdzvtest.main()
