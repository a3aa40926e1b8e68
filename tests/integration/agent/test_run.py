# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` on one node: what workers are given, how they can end, restarts, the closing report."""
import json
import os
import re
import resource
import signal
import socket
import subprocess
from datetime import datetime

import rdzvtest
import run_nodes
from run_nodes import IO, YES, is_alive
from rdzvtest import wait_until


class Ends(run_nodes.Run):
    """How a job of one node ends, and what is said of it."""

    def test_success_says_nothing_but_log_lines_and_leaves_nothing(self):
        node = self.run_alone("echo done $RANK; exit 0", "--nproc-per-node", "3")
        self.assertEqual(sorted(node.out().split()), ["0", "1", "2", "done", "done", "done"])
        self.assertNotIn("FAILED", node.err())
        self.assertEqual(self.temporary(), [])

    def test_the_exit_code_of_the_worker_is_passed_on_and_the_report_names_it(self):
        text = 'if [ $RANK = 1 ]; then for i in 1 2 3; do echo "bad $i" >&2; done; exit 42; fi; forever'
        node = self.run_alone(text, "--nproc-per-node", "2", code=42)
        report = node.err()[node.err().index("rdzv run: FAILED"):]
        self.assertRegex(report, r"first failure: rank 1 \(local rank 1\) on " + re.escape(socket.gethostname()))
        self.assertRegex(report, r"pid \d+: exit code 42, at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\n")
        self.assertIn("  its last lines on stderr:\n    | bad 1\n    | bad 2\n    | bad 3\n", report)
        self.assertNotIn("rank 0", report)  # which was stopped
        self.assertIn("restarts used: 0", report)

    def test_a_worker_that_a_signal_ends_gives_128_more_and_its_name(self):
        for name, number in (("SEGV", 11), ("KILL", 9), ("RTMIN", 34)):
            with self.subTest(name):
                node = self.run_alone(f"ulimit -c 0; kill -{number} $$; forever", code=128 + number, name=name)
                self.assertRegex(node.err(), rf"first failure: rank 0 .*: signal {number} \(SIG{name}")

    def test_only_the_last_lines_are_kept_of_much(self):
        text = "i=0; while [ $i -lt 3000 ]; do echo \"line number $i of many\"; i=$((i+1)); done >&2; exit 1"
        node = self.run_alone(text, "--log-level", "error", code=1)
        self.assertIn("line number 0 of many\n", node.err())  # it was shown
        kept = re.findall(r"    \| line number (\d+) of many\n", node.err())
        self.assertEqual(kept, [str(number) for number in range(3000 - len(kept), 3000)])
        self.assertIn(len(kept), range(5, 100))

    def test_the_last_lines_are_also_known_where_stderr_goes_to_a_file(self):
        node = self.run_alone("echo in the file >&2; exit 1", "--redirects", "3", code=1)
        self.assertEqual(node.err().count("in the file"), 1)
        self.assertIn("    | in the file\n", node.err())

    def test_the_message_of_the_error_file_is_in_the_report(self):
        message = {"message": {"message": "ValueError: no such\nthing", "extraInfo": {"timestamp": "1700000000"}}}
        text = f"cat >\"$TORCHELASTIC_ERROR_FILE\" <<'END'\n{json.dumps(message)}\nEND\nexit 1"
        node = self.run_alone(text, code=1)
        self.assertIn("  message:\n    ValueError: no such\n    thing\n", node.err())
        self.assertRegex(node.err(), r"error file: .*/attempt_0/0/error.json\n")
        self.assertIn("at 2023-11-14T22:13:20.000000Z", node.err())

    def test_a_broken_error_file_does_no_harm(self):
        for text in ("", "{", "[]", '{"message": 3}', '{"message": {"message": null}}', "\\377\\376"):
            with self.subTest(text):
                node = self.run_alone(f"printf '%b' '{text}' >\"$TORCHELASTIC_ERROR_FILE\"; exit 5", code=5)
                self.assertIn("exit code 5", node.err())

    def test_a_program_that_is_not_there_names_the_step_and_nobody_is_left(self):
        node = self.launch("a", ["--standalone", "--nproc-per-node", "3", "--no-python"], ["./not-there"])
        self.gone(node, IO)
        self.assertEqual("rdzv run: cannot start './not-there': No such file or directory\n", node.err())

    def test_a_program_that_may_not_be_executed_says_so(self):
        path = self.path("plain")
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n")
        node = self.gone(self.launch("a", ["--standalone", "--no-python"], [path]), IO)
        self.assertIn(f"cannot start '{path}': not executable (chmod +x '{path}'?)\n", node.err())

    def test_when_one_of_many_cannot_start_those_before_it_are_killed(self):
        program = self.script("note started $LOCAL_RANK; forever", "worker-${local_rank}")
        os.rename(program, self.path("worker-0"))
        node = self.launch("a", ["--standalone", "--nproc-per-node", "2", "--no-python"],
                           [f"{self.folder}/worker-${{local_rank}}"])
        self.gone(node, IO)
        self.assertIn("worker-1': exec: No such file", node.err())
        self.assertEqual(self.marked(), [])

    def test_failures_of_the_same_moment_are_all_in_the_report(self):
        text = "note here; await go; exit $((10 + RANK))"
        node = self.alone(text, "--nproc-per-node", "3")
        self.wait_notes(*["here"] * 3)
        self.wait_for(lambda: node.events("AGENT", "RUNNING"), "it knows them all")
        workers = [event["pid"] for event in node.events("WORKER", "STARTED")]
        node.signal(signal.SIGSTOP)  # stopped, it cannot look; when it goes on, all have ended long since
        self.touch("go")
        self.wait_for(lambda: not any(map(is_alive, workers)), "all workers have ended")
        node.signal(signal.SIGCONT)
        self.assertIn(node.process.wait(rdzvtest.DEADLINE), (10, 11, 12))
        self.assertEqual(sorted(set(re.findall(r"exit code (1\d)", node.err()))), ["10", "11", "12"])
        self.assertEqual(len(node.events("WORKER", "FAILED")), 3)


class ErrorFile(run_nodes.Run):
    """A launcher above us has set TORCHELASTIC_ERROR_FILE for us, as torchrun for its workers."""

    def run_with_file(self, text, code, *flags):
        path = self.path("error.json")
        with open(path, "w", encoding="ascii") as file:
            file.write("of before")
        node = self.alone(text, *flags, env={"TORCHELASTIC_ERROR_FILE": path})
        self.gone(node, code)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_the_first_failure_is_left_there_with_its_code(self):
        message = {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "x", "timestamp": "1700000000"}}}
        text = f"""if [ $RANK = 0 ]; then forever; fi
        cat >"$TORCHELASTIC_ERROR_FILE" <<'END'\n{json.dumps(message)}\nEND\nexit 3"""
        found = self.run_with_file(text, 3, "--nproc-per-node", "2")
        message["message"]["errorCode"] = 3
        self.assertEqual(found, message)

    def test_a_worker_that_leaves_no_file_is_told_of_too(self):
        found = self.run_with_file("kill -9 $$", 137)
        self.assertEqual(found["message"]["errorCode"], -9)
        self.assertIn("SIGKILL", found["message"]["message"])
        self.assertTrue(found["message"]["extraInfo"]["timestamp"].isdigit())

    def test_an_error_of_ours_is_left_there(self):
        found = self.run_with_file("exit 0", IO, "--log-dir", "/proc/no/such")
        self.assertIn("/proc/no", found["message"]["message"])

    def test_success_leaves_it_alone(self):
        path = self.path("error.json")
        self.run_alone("[ \"$TORCHELASTIC_ERROR_FILE\" != \"$T/error.json\" ]", env={"TORCHELASTIC_ERROR_FILE": path})
        self.assertFalse(os.path.exists(path))

    def test_a_file_that_cannot_be_written_is_told(self):
        node = self.run_alone("exit 4", code=4, env={"TORCHELASTIC_ERROR_FILE": "/proc/no/such"})
        self.assertIn("cannot write the error file '/proc/no/such': No such file or directory", node.err())


class Restarts(run_nodes.Run):
    def test_all_are_started_again_and_the_job_recovers(self):
        text = """
        note $RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS
        if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi
        if [ $RANK = 0 ]; then await ready; exit 3; fi
        trap 'note stopped; exit 0' TERM; : >"$T/ready"; forever"""
        node = self.run_alone(text, "--nproc-per-node", "2", "--max-restarts", "4")
        self.wait_notes("0 0 4", "1 0 4", "stopped", "0 1 4", "1 1 4")
        self.assertNotIn("FAILED", node.err())
        self.assertEqual([event["round"] for event in node.events("AGENT", "RUNNING")], [0, 1])

    def test_when_the_restarts_are_used_up_the_last_failure_counts(self):
        node = self.run_alone("note $TORCHELASTIC_RESTART_COUNT; exit $((20 + TORCHELASTIC_RESTART_COUNT))",
                              "--max-restarts", "2", code=22)
        self.wait_notes("0", "1", "2")
        self.assertIn("restarts used: 2", node.err())

    def test_the_report_tells_of_every_attempt(self):
        text = '''
        [ $RANK = $TORCHELASTIC_RESTART_COUNT ] || forever
        if [ $RANK = 2 ]; then kill -9 $$; fi
        echo "ValueError: number $RANK" >&2; exit $((20 + RANK))'''
        node = self.run_alone(text, "--nproc-per-node", "3", "--max-restarts", "2", code=137)
        _, _, attempts = node.err().partition("\n  failed attempts:\n")
        lines = re.findall(rf"    (\d) at (\d{{4}}-\S+Z): rank (\d) on {re.escape(socket.gethostname())}: (.*)\n", attempts)
        self.assertEqual([(attempt, rank, why) for attempt, _, rank, why in lines],
                         [("0", "0", "exit code 20: ValueError: number 0"), ("1", "1", "exit code 21: ValueError: number 1"),
                          ("2", "2", "signal 9 (SIGKILL)")])
        self.assertEqual(sorted(time for _, time, _, _ in lines), [time for _, time, _, _ in lines])

    def test_a_job_that_recovers_tells_of_every_attempt_too(self):
        text = "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; echo 'no luck' >&2; exit 5"
        node = self.run_alone(text, "--max-restarts", "2")
        last = node.err().splitlines()[-2:]
        for number, line in enumerate(last):
            self.assertRegex(line, rf"info: attempt {number} failed at \S+Z: rank 0 on \S+: exit code 5: no luck$")

    def test_the_report_as_json_has_every_attempt(self):
        node = self.run_alone("exit $((20 + TORCHELASTIC_RESTART_COUNT))", "--max-restarts", "1", "--json-log", code=21)
        report = json.loads(node.err().splitlines()[-1])
        self.assertEqual([(one["attempt"], one["rank"], one["exit_code"]) for one in report["attempts"]],
                         [(0, 0, 20), (1, 0, 21)])
        self.assertEqual(report["failures"][0]["attempt"], 1)

    def test_a_crash_loop_backs_off_and_says_so(self):
        node = self.run_alone("exit 3", "--max-restarts", "4", code=3)
        starts = [datetime.fromisoformat(event["time"]) for event in node.events("AGENT", "STARTING")]
        gaps = [(after - before).total_seconds() for before, after in zip(starts, starts[1:])]
        for gap, least in zip(gaps, (0, 0.1, 0.2, 0.4), strict=True):
            self.assertGreaterEqual(gap, least, gaps)
        said = re.findall(r"restart (\d) of 4 in (\S+) s: workers failed (\d) times in a row", node.err())
        self.assertEqual(said, [("2", "0.1", "2"), ("3", "0.2", "3"), ("4", "0.4", "4")])

    def test_a_restart_leaves_no_key_in_the_store(self):
        node = self.alone("[ $TORCHELASTIC_RESTART_COUNT = 3 ] || exit 3; note here; await end", "--max-restarts", "3")
        self.wait_notes("here")
        self.wait_for(lambda: len(node.events("AGENT", "RUNNING")) == 4, "the agent knows that")
        endpoint = re.search(r"at c10d tcp (\S+)", node.err())[1]
        keys = self.rdzv("store", "--endpoint", endpoint, "keys").stdout.split()
        self.assertEqual(len(keys), 1, keys)  # the state of the rendezvous
        self.touch("end")
        self.gone(node)

    def test_a_signal_ends_the_wait_before_a_restart(self):
        node = self.alone("exit 3", "--max-restarts", "100")
        self.wait_for(lambda: "restart 5 of 100 in 0.8 s" in node.err(), "it waits before a restart")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)

    def test_a_program_that_is_gone_at_a_restart_is_a_failed_attempt(self):
        node = self.run_alone('rm "$0"; exit 3', "--max-restarts", "2", code=127)
        self.assertRegex(node.err(), r"FAILED: cannot start '.*worker\.sh': exec: No such file .*; restarts used: 2\n")
        self.assertRegex(node.err(), r"first failure: rank 0 \(local rank 0\) on [^,:]*: exit code 127, at .*\n"
                                     r"  message:\n    cannot start '")
        self.assertEqual(len(node.events("AGENT", "STARTING")), 3)
        self.assertEqual([event["exit_code"] for event in node.events("WORKER", "FAILED")][-2:], [127, 127])

    def test_a_program_that_comes_back_is_restarted(self):
        node = self.alone('[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; mv "$0" "$T/away"; exit 3',
                          "--max-restarts", "100")
        self.wait_for(lambda: "cannot start" in node.err(), "a restart fails")
        os.rename(self.path("away"), self.path("worker.sh"))
        self.gone(node)

    def test_each_attempt_has_files_of_its_own(self):
        logs = self.path("logs/of/the job")
        self.run_alone("echo out; echo err >&2; exit 1", "--max-restarts", "1", "--nproc-per-node", "2", "--redirects",
                       "3", "--log-dir", logs, code=1)
        run, = os.listdir(logs)
        found = self.files_below(os.path.join(logs, run))
        for attempt in range(2):
            for rank in range(2):
                for name in ("stdout.log", "stderr.log"):
                    self.assertIn(f"attempt_{attempt}/{rank}/{name}", found)

    def test_no_zombie_is_left_from_the_attempt_before(self):
        text = """
        note $TORCHELASTIC_RESTART_COUNT
        [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1
        await go"""
        node = self.alone(text, "--nproc-per-node", "4", "--max-restarts", "1")
        self.wait_for(lambda: self.notes().count("1") == 4, "the second attempt runs")
        self.wait_for(lambda: len(node.events("AGENT", "RUNNING")) == 2, "the agent knows that, too")
        children = run_nodes.children_of(node.pid)
        self.assertEqual(len(children), 5, [run_nodes.name_of(child) for child in children])  # and the guard
        self.assertEqual([run_nodes.state_of(child) for child in children if not is_alive(child)], [])
        self.touch("go")
        self.gone(node)

    def test_the_second_attempt_cannot_read_what_the_first_wrote_to_the_store(self):
        text = f"""
        store() {{ {rdzvtest.RDZV} store --endpoint $MASTER_ADDR:$MASTER_PORT "$@"; }}
        if store exists key; then note there; else note clean; fi
        store set key value; exit 1"""
        self.run_alone(text, "--max-restarts", "1", code=1)
        self.wait_notes("clean", "clean")


class Given(run_nodes.Run):
    """What a worker finds when it starts."""

    def test_its_environment(self):
        self.run_alone("env >\"$T/env$RANK\"", "--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "7")
        for rank in range(2):
            with open(self.path(f"env{rank}"), encoding="utf-8") as file:
                found = dict(line.rstrip("\n").partition("=")[::2] for line in file)
            expected = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0,
                        "GROUP_WORLD_SIZE": 1, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 2, "ROLE_NAME": "trainer",
                        "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 7, "OMP_NUM_THREADS": 1,
                        "TORCHELASTIC_USE_AGENT_STORE": "True", "NCCL_ASYNC_ERROR_HANDLING": 1,
                        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "MASTER_ADDR": "127.0.0.1"}
            self.assertEqual({name: found.get(name) for name in expected},
                             {name: str(value) for name, value in expected.items()})
            self.assertIn(int(found["MASTER_PORT"]), range(1, 65536))
            self.assertTrue(found["TORCHELASTIC_RUN_ID"])
            self.assertTrue(found["TORCHELASTIC_ERROR_FILE"].endswith(f"/attempt_0/{rank}/error.json"))

    def test_what_the_user_has_set_of_omp_and_nccl_stays(self):
        self.run_alone("note $OMP_NUM_THREADS $NCCL_ASYNC_ERROR_HANDLING $TORCH_NCCL_ASYNC_ERROR_HANDLING",
                       "--nproc-per-node", "2",
                       env={"OMP_NUM_THREADS": "5", "NCCL_ASYNC_ERROR_HANDLING": "0",
                            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"})
        self.wait_notes("5 0 3", "5 0 3")

    def test_the_store_of_the_workers_answers_where_the_environment_says(self):
        text = f"""
        store() {{ {rdzvtest.RDZV} store --endpoint $MASTER_ADDR:$MASTER_PORT "$@"; }}
        if [ $RANK = 0 ]; then store set key value; else store wait key && note $(store get key); fi"""
        self.run_alone(text, "--nproc-per-node", "2")
        self.wait_notes("value")

    def test_no_descriptor_but_the_standard_ones(self):
        with open(self.path("secret"), "w", encoding="ascii") as secret:
            node = self.launch("a", ["--standalone", "--nproc-per-node", "3", "--tee", "3"],
                               ["ls", "-l", "/proc/self/fd"], pass_fds=[secret.fileno()])
            self.gone(node)
        found = re.findall(r"\[default(\d)\]:.* (\d+) -> (.*)", node.out())
        for rank in "012":
            numbers = [number for worker, number, _ in found if worker == rank]
            self.assertEqual(numbers, ["0", "1", "2", "3"], found)  # the last one is the folder that it reads
        self.assertEqual({target.startswith("/proc/") for _, number, target in found if number == "3"}, {True})

    def test_the_limit_on_descriptors_is_raised_for_the_agent_and_not_for_workers(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1000))

        self.run_alone("note $(ulimit -Sn) $(ulimit -Hn); grep 'open files' /proc/$PPID/limits >\"$T/agent\"",
                       preexec_fn=lower)
        self.wait_notes("100 1000")
        self.assertRegex(run_nodes.text_of(self.path("agent")), r"Max open files +1000 +1000")

    def test_no_signal_is_blocked_and_none_ignored_that_we_were_not_started_to_ignore(self):
        def ignored(text):
            return int(re.search(r"SigIgn:\t(\w+)", text)[1], 16) & ~(3 << 31)  # but for two of the C library's own

        usual = subprocess.run(["cat", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
        self.run_alone("cat /proc/self/status >\"$T/signals\"")
        found = run_nodes.text_of(self.path("signals"))
        self.assertEqual(ignored(found), ignored(usual))
        self.assertIn("SigBlk:\t" + "0" * 16, found)

    def test_a_session_and_a_process_group_of_its_own(self):
        self.run_alone("set -- $(cat /proc/$$/stat); note $(($$ == $5)) $(($$ == $6))", "--nproc-per-node", "2")
        self.wait_notes("1 1", "1 1")

    def test_stdin_is_ours(self):
        node = self.alone("cat", "--log-level", "off", stdin=subprocess.PIPE)
        node.process.stdin.write(b"what was typed\n")
        node.process.stdin.close()
        self.gone(node)
        self.assertEqual(node.out(), "what was typed\n")

    def test_its_folder_is_ours(self):
        self.run_alone("note $(pwd)", cwd=self.path("tmp"))
        self.wait_notes(os.path.realpath(self.path("tmp")))


class Stopping(run_nodes.Run):
    """Workers that do not end by themselves."""

    def test_who_ignores_sigterm_is_killed_after_the_time_with_all_it_has_started(self):
        text = """
        if [ $RANK = 0 ]; then await ready; exit 3; fi
        trap 'note heard' TERM
        (trap '' TERM; while :; do sleep 0.1; done) &
        note pids $$ $!
        : >"$T/ready"
        while :; do sleep 0.1; done"""
        node = self.run_alone(text, "--nproc-per-node", "2", "--shutdown-timeout", "0.7", code=3)
        notes = self.notes()
        self.assertIn("heard", notes)
        self.assertIn("1 worker", node.err())
        pids = [int(pid) for note in notes if note.startswith("pids") for pid in note.split()[1:]]
        self.assertEqual([pid for pid in pids if is_alive(pid)], [])

    def test_who_ends_on_sigterm_has_time_to(self):
        text = """
        if [ $RANK = 0 ]; then await ready; exit 3; fi
        trap 'sleep 0.3; note saved; exit 0' TERM; : >"$T/ready"; forever & wait"""
        self.run_alone(text, "--nproc-per-node", "2", code=3)
        self.wait_notes("saved")

    def test_what_a_worker_leaves_running_goes_when_all_are_done(self):
        text = "sleep 1000 & note $!; exit 0"
        self.run_alone(text, code=YES)
        pid, = map(int, self.notes())
        wait_until(lambda: not is_alive(pid), "the worker's child is gone")

    def test_a_worker_that_closes_its_output_is_not_taken_for_ended(self):
        self.run_alone("exec >/dev/null 2>&1 <&-; note closed; sleep 0.2; note end", "--tee", "3")
        self.wait_notes("closed", "end")

    def test_a_child_that_holds_the_output_does_not_hold_the_agent(self):
        text = """
        setsid sh -c 'echo $$ >>"$T/notes"; : >"$T/held"; exec sleep 1000' &
        await held; echo said >&2; exit 7"""
        node = self.run_alone(text, "--tee", "3", code=7)
        self.assertFalse(is_alive(int(self.notes()[0])))
        self.assertIn("    | said\n", node.err())


if __name__ == "__main__":
    rdzvtest.main()
