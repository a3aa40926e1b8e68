# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` that is told to stop, or is killed: its workers end, and what they have started."""
import os
import re
import resource
import shutil
import signal
import time
import unittest

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


def cgroup_folder():
    """Of this process, in the hierarchy of v2; None: there is none."""
    path = re.search(r"(?m)^0::(/.*)$", run_nodes.text_of("/proc/self/cgroup"))
    mount = re.search(r"(?m)^\S+ \S+ \S+ / (\S+) .* - cgroup2 ", run_nodes.text_of("/proc/self/mountinfo"))
    return mount.group(1) + path.group(1) if mount and path else None


def can_make_cgroup():
    return cgroup_folder() is not None and os.access(cgroup_folder(), os.W_OK)


def cgroups_of(pid):
    """Those that an agent has made."""
    return [name for name in os.listdir(cgroup_folder()) if name.startswith(f"rdzv-{pid}-")]


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
        self.wait_for(lambda: not self.marked(), "the guard is gone, too")

    def test_kill_9_leaves_no_temporary_folder_but_for_output(self):
        text = 'echo {} >"$TORCHELASTIC_ERROR_FILE"; echo said; note ready; forever'
        for flags, left in ((), 0), (("--redirects", "1"), 1), (("--log-dir", self.path("tmp/logs")), 1):
            with self.subTest(flags):
                node = self.alone(text, *flags)
                self.wait_notes("ready")
                guard = node.guard()
                self.assertEqual(len(self.temporary()), 1)
                node.process.kill()
                self.wait_for(lambda pid=guard: not is_alive(pid), "the guard has ended")
                self.assertEqual(len(self.temporary()), left, self.temporary())
                shutil.rmtree(self.path("tmp"))
                os.mkdir(self.path("tmp"))
                os.remove(self.path("notes"))

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

    def test_a_guard_that_is_killed_is_replaced_and_the_next_one_knows_all(self):
        node = self.alone(FAMILY, "--nproc-per-node", "2")
        pids = self.family(2)
        for _ in range(2):
            guard = node.guard()
            os.kill(guard, signal.SIGKILL)
            self.wait_for(lambda guard=guard: node.guard() != guard, "there is another guard")
        self.assertTrue(all(map(is_alive, pids)))  # which ends nobody
        self.wait_for(lambda: node.err().count("the workers' guard was killed and is replaced by process") == 2, "both are told of")
        node.process.kill()
        self.assert_all_gone(pids)

    def test_without_a_guard_the_kernel_kills_the_workers_at_least(self):
        node = self.alone("note pid $$; exec sleep 1000", "--nproc-per-node", "2")
        self.wait_for(lambda: len(self.notes()) == 2, "both run")
        pids = [int(note.split()[1]) for note in self.notes()]
        guard = node.guard()
        node.signal(signal.SIGSTOP)  # so that it makes no other
        os.kill(guard, signal.SIGKILL)
        self.wait_for(lambda: not is_alive(guard), "the guard is gone")
        node.process.kill()
        self.assert_all_gone(pids)
        for name in cgroups_of(node.pid) if can_make_cgroup() else ():  # which nobody is there to remove
            os.rmdir(os.path.join(cgroup_folder(), name))

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


class Daemons(Case):
    """What a worker has started outlives its worker in a session of its own."""
    NO_CGROUP = ["unshare", *([] if os.getuid() == 0 else ["-r"]), "-m", "sh", "-c",
                 'umount -R -l /sys/fs/cgroup; exec "$@"', "sh"]
    # Two in sessions of their own whose parents are gone, one of them without our environment.
    START = """
    : >>"$T/notes"
    (setsid sh -c 'echo pid $$ >>"$T/notes"; exec sleep 1000' &)
    (setsid env -i sh -c 'echo pid $$ >>"$0"; exec sleep 1000' "$T/notes" &)
    while [ "$(grep -c pid "$T/notes")" -lt 2 ]; do sleep 0.02; done
    """

    def tearDown(self):
        """Those without our environment are not found by it."""
        for note in self.notes():
            pid = int(note.split()[1]) if note.startswith("pid ") else 0
            if pid and run_nodes.name_of(pid) == "sleep":
                os.kill(pid, signal.SIGKILL)
        super().tearDown()

    def daemons(self, count=2):
        def there():
            found = [int(note.split()[1]) for note in self.notes() if note.startswith("pid ")]
            return len(found) == count and found

        return self.wait_for(there, f"{count} daemons")

    def test_they_end_with_success(self):
        for prefix in ((), self.NO_CGROUP):
            with self.subTest(prefix):
                node = self.gone(self.alone(self.START, prefix=prefix))
                self.assertEqual([pid for pid in self.daemons() if is_alive(pid)], [])
                self.assertIn("killed 2 processes that workers left behind", node.err())
            os.remove(self.path("notes"))

    def test_they_end_with_a_failure(self):
        self.gone(self.alone(self.START + "exit 3"), 3)
        self.assertEqual([pid for pid in self.daemons() if is_alive(pid)], [])

    def test_they_end_before_the_next_attempt_begins(self):
        text = f"""
        if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then {self.START} exit 1; fi
        for pid in $(sed -n 's/pid //p' "$T/notes"); do kill -0 $pid 2>/dev/null && note lives; done; exit 0"""
        self.gone(self.alone(text, "--max-restarts", "1"))
        self.assertNotIn("lives", self.notes())

    def test_they_end_with_a_signal(self):
        node = self.alone(self.START + "note ready; forever")
        self.wait_notes("ready", more=True)
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)
        self.assertEqual([pid for pid in self.daemons() if is_alive(pid)], [])

    @unittest.skipUnless(can_make_cgroup(), "no cgroup can be made here")
    def test_kill_9_takes_them_where_a_cgroup_can_be_made(self):
        node = self.alone(self.START + "note ready; forever")
        self.wait_notes("ready", more=True)
        node.process.kill()
        node.process.wait()
        self.assert_all_gone(self.daemons())

    def test_kill_9_takes_those_with_our_environment_anywhere(self):
        node = self.alone(self.START + "note ready; forever", prefix=self.NO_CGROUP)
        self.wait_notes("ready", more=True)
        with_ours, without = sorted(self.daemons(), key=lambda pid: self.mark not in run_nodes.environment_of(pid))
        node.process.kill()
        node.process.wait()
        self.assert_all_gone([with_ours])
        os.kill(without, signal.SIGKILL)  # rdzv-run(1) says so

    def test_whoever_was_only_handed_the_environment_is_not_touched(self):
        """As a job that was submitted by a worker and is run by somebody else."""
        node = self.alone('note "$TORCHELASTIC_ERROR_FILE"; ' + self.START + "note ready; forever")
        notes = self.wait_notes("ready", more=True)
        other = self.start(["sleep", "1000"], env={"TORCHELASTIC_ERROR_FILE": notes[0]}, start_new_session=True)
        guard = node.guard()
        node.process.kill()
        node.process.wait()
        self.wait_for(lambda: not is_alive(guard), "the guard has done its work")
        self.assertIsNone(other.poll())
        self.assert_all_gone(self.daemons())

    def test_those_that_end_by_themselves_are_not_left_as_zombies(self):
        node = self.alone("for i in 1 2 3 4 5; do (true &) ; done; note ready; await end")
        self.wait_notes("ready")
        self.wait_for(lambda: node.events("AGENT", "RUNNING"), "the agent knows its worker")
        known = [node.guard(), *[event["pid"] for event in node.events("WORKER", "STARTED")]]
        self.wait_for(lambda: sorted(run_nodes.children_of(node.pid)) == sorted(known), "only the worker is left")
        self.touch("end")
        self.gone(node)

    def test_nor_where_a_worker_is_one(self):
        node = self.alone("[ $RANK = 0 ] && exit 0; for i in 1 2 3; do (true &) ; done; note ready; await end",
                          "--nproc-per-node", "2")
        self.wait_notes("ready")
        self.wait_for(lambda: node.events("WORKER", "SUCCEEDED"), "one has ended")
        known = [node.guard(), *[event["pid"] for event in node.events("WORKER", "STARTED")]]
        self.wait_for(lambda: sorted(run_nodes.children_of(node.pid)) == sorted(known), "only the workers are left")
        self.touch("end")
        self.gone(node)

    @unittest.skipUnless(can_make_cgroup(), "no cgroup can be made here")
    def test_no_cgroup_is_left(self):
        node = self.alone("note ready; await end")
        self.wait_notes("ready")
        self.assertEqual(len(cgroups_of(node.pid)), 1)
        self.touch("end")
        self.gone(node)
        self.assertEqual(cgroups_of(node.pid), [])
        killed = self.alone(FAMILY, name="killed")
        self.family(1)
        self.assertEqual(len(cgroups_of(killed.pid)), 1)
        killed.process.kill()
        self.wait_for(lambda: not cgroups_of(killed.pid), "the guard removes it")


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
        self.assertIn("stopped by SIGTERM: stopping 2 workers; a second signal kills at once\n", node.err())

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
        self.assert_within(before, 25)  # not the usual 30 s
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


class Suspended(Case):
    """Ctrl-Z on a terminal, and fg."""
    # Not a loop of the shell: a shell whose child is stopped before it has begun is not stopped, but waits (state "D").
    COUNTS = """note pid $$; exec "$PYTHON_EXEC" -c '
import time
with open("'"$T/count$RANK"'", "w", buffering=1) as file:
    while True:
        print(file=file)
        time.sleep(0.01)'"""

    def size(self, rank):
        return len(run_nodes.text_of(self.path(f"count{rank}")))

    def test_the_workers_stop_and_go_on_with_the_agent(self):
        node = self.alone(self.COUNTS, "--nproc-per-node", "2", process_group=0)
        self.wait_for(lambda: self.size(0) and self.size(1), "both count")
        workers = [int(note.split()[1]) for note in self.notes()]
        os.killpg(node.pid, signal.SIGTSTP)
        stopped = [node.pid, *workers]
        # A shell whose child was stopped before its exec waits for that child: "D".
        self.wait_for(lambda: all(run_nodes.state_of(pid) in ("T", "D") for pid in stopped), "all are stopped")
        before = [self.size(rank) for rank in range(2)]
        os.killpg(node.pid, signal.SIGCONT)
        self.wait_for(lambda: all(self.size(rank) > before[rank] for rank in range(2)), "both count again")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)

    def test_without_job_control_nothing_happens(self):
        """Nobody could let it go on."""
        node = self.alone(self.COUNTS, start_new_session=True)
        self.wait_for(lambda: self.size(0), "it counts")
        node.signal(signal.SIGTSTP)
        before = self.size(0)
        self.wait_for(lambda: self.size(0) > before + 5, "it goes on to count")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)

    def test_it_may_be_a_signal_that_ends(self):
        node = self.alone(self.COUNTS, "--signals-to-handle", "SIGTSTP", "--shutdown-timeout", "0.1")
        self.wait_for(lambda: self.size(0), "it counts")
        node.signal(signal.SIGTSTP)
        self.gone(node, 128 + signal.SIGTSTP)

    def test_while_it_waits_for_others(self):
        self.serve_store()
        node = self.node("a", "2", self.script("note ran"), conf=NEVER, process_group=0)
        self.wait_for(lambda: node.events("AGENT", "RENDEZVOUS"), "it joins")
        os.killpg(node.pid, signal.SIGTSTP)
        self.wait_for(lambda: run_nodes.state_of(node.pid) == "T", "it is stopped")
        os.killpg(node.pid, signal.SIGCONT)
        self.wait_for(lambda: run_nodes.state_of(node.pid) == "S", "it goes on")
        node.signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGTERM)


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
