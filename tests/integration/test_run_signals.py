# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` that is told to stop, or is killed: its workers end, and what they have started."""
import os
import re
import resource
import signal
import time

import rdzvtest
import run_nodes
from run_nodes import NEVER, is_alive

# A worker with a child and a grandchild, all of which hear no SIGTERM; their ids are noted.
FAMILY = """
trap '' TERM INT
sh -c 'sleep 1000 & echo pid $! >>"$T/notes"; wait' &
note pid $!
note pid $$
while :; do sleep 0.1; done
"""
LISTENER = """
trap 'note heard TERM; exit 0' TERM
trap 'note heard INT; exit 0' INT
trap 'note heard HUP; exit 0' HUP
trap 'note heard USR1; exit 0' USR1
note ready
while :; do sleep 0.02; done
"""


class Case(run_nodes.Run):
    def family(self, count):
        """The ids that so many workers of that kind have noted."""
        def there():
            found = [int(note.split()[1]) for note in self.notes() if note.startswith("pid ")]
            return len(found) == 3 * count and found

        return self.wait_for(there, f"{count} workers with their children")

    def assert_all_gone(self, pids):
        self.wait_for(lambda: not any(map(is_alive, pids)), f"{pids} are gone")


class Killed(Case):
    """The agent's process dies without a word."""

    def test_kill_9_takes_the_workers_and_what_they_have_started(self):
        node = self.alone(FAMILY, "--nproc-per-node", "2")
        pids = self.family(2)
        node.process.kill()
        node.process.wait()
        self.assert_all_gone(pids)
        self.assertEqual(self.marked(), [])  # nor is the guard

    def test_kill_9_while_workers_are_stopped_takes_them_too(self):
        text = "if [ $RANK = 1 ]; then await ready; exit 1; fi; " + FAMILY
        text = text.replace("note pid $$", 'note pid $$; : >"$T/ready"')
        node = self.alone(text, "--nproc-per-node", "2")
        pids = self.family(1)
        self.wait_for(lambda: node.events("AGENT", "STOPPING"), "it stops its workers")
        node.process.kill()
        self.assert_all_gone(pids)

    def test_kill_9_in_the_second_attempt_takes_those_of_the_second(self):
        text = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 1; fi;" + FAMILY
        node = self.alone(text, "--max-restarts", "1")
        pids = self.family(1)
        node.process.kill()
        self.assert_all_gone(pids)

    def test_kill_9_while_workers_are_started_takes_what_those_have_started(self):
        """Whoever has had no time to tell the guard of a worker is not needed for that."""
        for i in range(8):
            text = f"(trap '' TERM; exec sleep 1000) & note {i}; exec sleep 1000"
            node = self.alone(text, "--nproc-per-node", "24", name=f"n{i}")
            self.wait_for(lambda i=i: str(i) in self.notes(), "the first one runs")
            node.process.kill()
            node.process.wait()
            self.wait_for(lambda: not self.marked(), "nobody is left")

    def test_a_crash_is_as_good(self):
        node = self.alone("ulimit -c 0;" + FAMILY, preexec_fn=no_core)
        pids = self.family(1)
        node.signal(signal.SIGABRT)
        node.process.wait()
        self.assert_all_gone(pids)

    def test_without_the_guard_the_kernel_kills_the_workers_at_least(self):
        node = self.alone("note pid $$; exec sleep 1000", "--nproc-per-node", "2")
        self.wait_for(lambda: len(self.notes()) == 2, "both run")
        pids = [int(note.split()[1]) for note in self.notes()]
        guard = node.guard()
        os.kill(guard, signal.SIGKILL)
        self.wait_for(lambda: not is_alive(guard), "the guard is gone")
        self.assertTrue(all(map(is_alive, pids)))  # which ends nobody
        node.process.kill()
        self.assert_all_gone(pids)

    def test_the_guard_that_is_killed_is_not_missed_by_a_job_that_ends_well(self):
        node = self.alone("note ready; await go; [ $TORCHELASTIC_RESTART_COUNT = 1 ]", "--max-restarts", "1")
        self.wait_notes("ready")
        os.kill(node.guard(), signal.SIGKILL)
        self.touch("go")
        self.gone(node)
        self.wait_notes("ready", "ready")

    def test_the_guard_ends_by_no_other_signal(self):
        node = self.alone(FAMILY)
        pids = self.family(1)
        guard = node.guard()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(guard, number)
        node.process.kill()
        self.assert_all_gone(pids)


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Told(Case):
    """The agent is told to stop."""

    def check(self, number, heard, *flags):
        node = self.alone(LISTENER, "--nproc-per-node", "2", *flags)
        self.wait_notes("ready", "ready")
        node.signal(number)
        self.gone(node, 128 + number)
        self.wait_notes("ready", "ready", f"heard {heard}", f"heard {heard}")
        self.assertNotIn("FAILED", node.err())
        self.assertEqual(node.events("AGENT")[-1]["state"], "LEFT")
        return node

    def test_sigterm_is_passed_on(self):
        node = self.check(signal.SIGTERM, "TERM")
        self.assertIn("told to stop by SIGTERM", node.err())

    def test_sigint_is_passed_on(self):
        self.check(signal.SIGINT, "INT")

    def test_sighup_is_passed_on(self):
        self.check(signal.SIGHUP, "HUP")

    def test_signals_to_handle_may_be_others(self):
        self.check(signal.SIGUSR1, "USR1", "--signals-to-handle", "SIGUSR1,SIGTERM")

    def test_a_signal_that_is_not_to_be_handled_ends_the_agent_and_the_workers_are_killed(self):
        node = self.alone(FAMILY, "--signals-to-handle", "SIGTERM")
        pids = self.family(1)
        node.signal(signal.SIGHUP)
        self.gone(node, -signal.SIGHUP)
        self.assert_all_gone(pids)

    def test_a_signal_that_was_ignored_before_us_stays_so(self):
        node = self.alone(LISTENER.replace("trap 'note heard HUP; exit 0' HUP", ""),
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_notes("ready")
        node.signal(signal.SIGHUP)  # nohup rdzv run …
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.wait_notes("ready", "heard TERM")

    def test_twice_kills_at_once(self):
        node = self.alone(FAMILY, "--nproc-per-node", "2", "--shutdown-timeout", "1000")
        pids = self.family(2)
        node.signal(signal.SIGINT)
        self.wait_for(lambda: node.events("AGENT", "STOPPING"), "it stops its workers")
        self.assertTrue(all(map(is_alive, pids)))
        node.signal(signal.SIGINT)
        self.gone(node, 128 + signal.SIGINT)
        self.assertNotIn("cannot be killed", node.err())
        self.assertEqual(len(node.events("WORKER", "STOPPED")), 2)
        self.assert_all_gone(pids)

    def test_two_of_one_moment_kill_at_once(self):
        node = self.alone(FAMILY, "--shutdown-timeout", "1000")
        pids = self.family(1)
        node.signal(signal.SIGSTOP)
        node.signal(signal.SIGINT)
        node.signal(signal.SIGTERM)
        node.signal(signal.SIGCONT)
        self.assertIn(node.process.wait(rdzvtest.DEADLINE), (128 + signal.SIGINT, 128 + signal.SIGTERM))
        self.assertNotIn("cannot be killed", node.err())
        self.assert_all_gone(pids)

    def test_after_the_time_they_are_killed(self):
        node = self.alone(FAMILY, "--shutdown-timeout", "0.5")
        pids = self.family(1)
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.assert_all_gone(pids)

    def test_no_time_at_all_kills_them_at_once(self):
        node = self.alone(FAMILY, "--shutdown-timeout", "0")
        pids = self.family(1)
        before = time.monotonic()
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - before, 25)  # not the usual 30 s
        self.assert_all_gone(pids)

    def test_a_stopped_worker_is_ended_too(self):
        text = 'note pid $$; kill -STOP $$; forever'
        node = self.alone(text, "--shutdown-timeout", "0.5")
        self.wait_for(self.notes, "it runs")
        pid = int(self.notes()[0].split()[1])
        self.wait_for(lambda: run_nodes.state_of(pid) == "T", "it is stopped")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.assert_all_gone([pid])

    def test_no_restart_after_a_signal(self):
        node = self.alone("note ready; trap 'exit 5' TERM; while :; do sleep 0.02; done", "--max-restarts", "9")
        self.wait_notes("ready")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.wait_notes("ready")

    def test_while_it_waits_for_others(self):
        self.serve_store()
        node = self.node("a", "2", self.script("note ran"), conf=NEVER)
        flags = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", self.RUN_ID, "--rdzv-conf", NEVER]
        self.wait_for(lambda: '"participants":1' in self.rdzv("status", *flags, "--json").stdout.replace(" ", ""),
                      "it has joined")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.assertEqual(self.notes(), [])
        self.assertIn('"participants":0', self.rdzv("status", *flags, "--json").stdout.replace(" ", ""))

    def test_before_it_has_found_the_store(self):
        node = self.node("a", "2", self.script("note ran"), endpoint=f"127.0.0.1:{run_nodes.free_port()}",
                         conf=NEVER + ",is_host=false")
        self.wait_for(lambda: self.handles(node, signal.SIGTERM), "it takes signals")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)

    @staticmethod
    def handles(node, number):
        blocked = re.search(r"SigBlk:\t(\w+)", run_nodes.text_of(f"/proc/{node.pid}/status"))
        return blocked and int(blocked.group(1), 16) >> (number - 1) & 1


class Stuck(Case):
    """Nobody reads what it writes."""

    def test_a_reader_that_does_not_read_does_not_hold_it_after_two_signals(self):
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        text = "note pid $$; while :; do echo 0123456789012345678901234567890123456789; done"
        node = self.alone(text, "--tee", "3", "--shutdown-timeout", "0.5", stdout=write)
        os.close(write)
        self.wait_for(self.notes, "it runs")
        pid = int(self.notes()[0].split()[1])
        self.wait_for(lambda: run_nodes.state_of(pid) == "S", "the pipes are full")
        node.signal(signal.SIGTERM)
        self.wait_for(lambda: not is_alive(pid), "the worker is gone")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)

    def test_a_reader_that_is_gone_is_no_reason_to_end(self):
        read, write = os.pipe()
        text = "await go; echo one; echo two >&2; note end"
        node = self.alone(text, "--tee", "3", stdout=write, stderr=write)
        os.close(write)
        os.close(read)
        self.touch("go")
        self.gone(node)
        self.wait_notes("end")


if __name__ == "__main__":
    rdzvtest.main()
