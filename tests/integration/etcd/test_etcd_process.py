# SPDX-License-Identifier: BSD-3-Clause
"""etcd as a sidecar, `rdzv etcd start`: what it says when it cannot start, and that nothing is left behind, however it
ends."""
import os
import shutil
import signal
import socket
import stat
import subprocess
import urllib.request

import etcd
import rdzvtest
from rdzvtest import RDZV, wait_until

etcd.need()


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(pid):
    """Zombies, which nobody may reap in a container, are not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("tmp"))
        self.environment = {**os.environ, "TMPDIR": self.path("tmp")}
        for name in "RDZV_ETCD_BINARY", "TORCHELASTIC_ETCD_BINARY_PATH":
            self.environment.pop(name, None)

    def program(self, text, mode=0o755):
        """A program that is no etcd."""
        path = self.path("fake")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, mode)
        return path

    def interpreted(self, interpreter):
        path = self.path("interpreted")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!{interpreter}\n")
        os.chmod(path, 0o755)
        return path

    def run_etcd(self, *options, **environment):
        return self.rdzv("etcd", "start", *options, env={**self.environment, **environment})

    def start_etcd(self, *options, ready=True, environment=None, **popen_options):
        """Starts it, and gives its processes: ours, the guard, etcd."""
        process = self.start([RDZV, "etcd", "start", "--port-file", self.path("port"), *options],
                             env={**self.environment, **(environment or {})}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, **popen_options)
        if ready:
            wait_until(lambda: os.path.exists(self.path("port")) or process.poll() is not None, "the port file")
            self.assertIsNone(process.poll())
        else:
            wait_until(lambda: self.family(process)[1:] and self.family(process)[2:], "etcd is started")
        return process, *self.family(process)[1:]

    @staticmethod
    def family(process):
        family = [process.pid]
        while found := children(family[-1]):
            family.append(found[0])
        return family

    def port(self):
        with open(self.path("port"), encoding="ascii") as file:
            return int(file.read())

    def version(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}/version", timeout=10) as answer:
            return answer.read()

    def assert_nothing_left(self, *pids):
        wait_until(lambda: not any(is_alive(pid) for pid in pids), f"none of {pids} is left")
        wait_until(lambda: not os.listdir(self.path("tmp")), "its folder is removed")

    def assert_refused(self, finished, code, *sentences):
        self.assertEqual((finished.returncode, finished.stdout), (code, ""), finished.stderr)
        for sentence in sentences:
            self.assertRegex(finished.stderr, sentence)
        self.assert_nothing_left()


class CannotStart(Case):
    def test_there_is_no_binary(self):
        os.mkdir(self.path("empty"))
        self.assert_refused(self.run_etcd(PATH=self.path("empty")), 7, "not found in RDZV_ETCD_BINARY")
        none = self.path("none")
        for finished in (self.run_etcd("--binary", none), self.run_etcd(RDZV_ETCD_BINARY=none),
                         self.run_etcd(TORCHELASTIC_ETCD_BINARY_PATH=none)):
            self.assert_refused(finished, 7, f"'{none}' is not an executable program")

    def test_it_is_no_program(self):
        self.assert_refused(self.run_etcd("--binary", self.program("", 0o644)), 7, "is not an executable program")
        self.assert_refused(self.run_etcd("--binary", self.folder), 7, "is not an executable program")
        with open(self.path("text"), "w", encoding="ascii") as file:
            file.write("not a program\n")
        os.chmod(self.path("text"), 0o755)
        self.assert_refused(self.run_etcd("--binary", self.path("text")), 7, "cannot run etcd .*Exec format error")
        self.assert_refused(self.run_etcd("--binary", self.interpreted("/none/sh")), 7, "No such file")

    def test_the_one_named_first_is_taken(self):
        other = self.program("echo the named one; exit 9")
        finished = self.run_etcd(RDZV_ETCD_BINARY=other, TORCHELASTIC_ETCD_BINARY_PATH="/none")
        self.assert_refused(finished, 3, "the named one")

    def test_it_ends(self):
        """Three tries, since it could be the ports; its last lines are told, and not all that it wrote."""
        binary = self.program(f"echo x >> {self.path('tries')}; seq 1000; echo what is wrong >&2; exit 9")
        finished = self.run_etcd("--binary", binary)
        self.assert_refused(finished, 3, "ended with status 9", r"999\|1000\|what is wrong")
        self.assertNotIn("|500|", finished.stderr)
        with open(self.path("tries"), encoding="ascii") as file:
            self.assertEqual(len(file.readlines()), 3)

    def test_a_signal_ends_it(self):
        self.assert_refused(self.run_etcd("--binary", self.program("kill -SEGV $$")), 3, "was killed by signal 11")

    def test_it_never_answers(self):
        binary = self.program(f"echo still thinking; echo $$ > {self.path('pid')}; exec sleep 600")
        finished = self.run_etcd("--binary", binary, "--timeout", "1")
        self.assert_refused(finished, 4, "did not answer within 1000 ms", "still thinking")
        with open(self.path("pid"), encoding="ascii") as file:
            self.assertFalse(is_alive(int(file.read())))

    def test_it_answers_nonsense(self):
        """On its port is somebody who speaks no HTTP."""
        binary = self.program(
            'for last in "$@"; do [ "$before" = --listen-client-urls ] && url=$last; before=$last; done\n'
            'exec /usr/bin/python3 -c "import socket, sys; s = socket.create_server((\'127.0.0.1\', '
            'int(sys.argv[1].rsplit(\':\')[-1]))); [s.accept()[0].send(b\'what?\') for _ in iter(int, 1)]" $url')
        self.assert_refused(self.run_etcd("--binary", binary, "--timeout", "2"), 4, "did not answer within 2000 ms")

    def test_told_to_end_before_it_answers(self):
        process, *others = self.start_etcd("--binary", self.program("exec sleep 600"), ready=False)
        process.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(10), (0, -signal.SIGTERM))
        self.assert_nothing_left(*others)

    def test_the_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            finished = self.run_etcd("--port", str(port), "--timeout", "20")
            self.assert_refused(finished, 7, f"cannot bind 127.0.0.1:{port}: Address already in use")

    def test_the_port_is_that_of_another_etcd(self):
        """Which answers, but is not ours."""
        finished = self.run_etcd("--port", str(etcd.shared().port), "--timeout", "20")
        self.assert_refused(finished, 7, "Address already in use")

    def test_the_data_folder_cannot_be_written(self):
        with open(self.path("file"), "w", encoding="ascii") as file:
            file.write("mine")
        finished = self.run_etcd("--data-dir", self.path("file"), "--timeout", "20")
        self.assert_refused(finished, 3, "ended with status", "error listing data dir")
        with open(self.path("file"), encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")

    def test_its_line_cannot_be_written(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            process = self.start([RDZV, "etcd", "start"], stdout=full, stderr=subprocess.PIPE, text=True, env=self.environment)
        self.assertEqual(process.stderr.readline(), "rdzv etcd: cannot write to stdout: No space left on device\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(rdzvtest.DEADLINE), 7)

    def test_there_is_no_room_for_a_folder_of_its_own(self):
        finished = self.run_etcd(TMPDIR=self.path("none"))
        self.assert_refused(finished, 7, f"cannot create a directory for etcd in '{self.path('none')}'")

    def test_the_name_of_the_temporary_folder_is_too_long(self):
        """It is said, and no other folder is taken instead."""
        finished = self.run_etcd(TMPDIR="/" + "x" * 300)
        self.assert_refused(finished, 7, "cannot create a directory for etcd in '/xxx", "File name too long")
        self.assert_refused(self.run_etcd(TMPDIR="/tmp" + "/." * 4000), 7, "File name too long")

    def test_its_log_cannot_be_written(self):
        finished = self.run_etcd("--log", self.path("none/log"))
        self.assert_refused(finished, 7, f"cannot write '{self.path('none/log')}': No such file or directory")

    def test_what_it_wrote_last_is_told_to_the_end(self):
        """However long what stands before is."""
        text = "x" * 300
        binary = self.program(f"for i in $(seq 20); do echo {text} $i; done; echo the very last; exit 1")
        self.assert_refused(self.run_etcd("--binary", binary), 3, r"its last lines: .*x 20\|the very last$")

    def test_usage(self):
        for options in (("--no-such",), ("stop",), ("start", "start"), ("start", "--port", "x"), (),
                        ("start", "--port", "65536"), ("start", "--port", "-1"), ("start", "--port", "4294967297")):
            self.assertEqual(self.rdzv("etcd", *options).returncode, 2, options)
        self.assertEqual(self.rdzv("etcd", "--help").returncode, 0)


class Ends(Case):
    def test_sigterm(self):
        """It says where it is; the port file goes, and so does the folder of its own."""
        process, guard, server = self.start_etcd()
        self.assertEqual(process.stdout.readline(), f"rdzv: etcd is at 127.0.0.1:{self.port()}\n")
        self.assertIn(b"etcdserver", self.version())
        self.assertEqual(len(os.listdir(self.path("tmp"))), 1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(process.stderr.read(), "")
        self.assertFalse(is_alive(guard) or is_alive(server))
        self.assertFalse(os.path.exists(self.path("port")))
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_a_data_folder_that_was_given_is_kept(self):
        for expected in None, b"kept":
            process, *_ = self.start_etcd("--data-dir", self.path("data"), "--log", self.path("log"))
            url = f"http://127.0.0.1:{self.port()}/v2/keys/k"
            if expected:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    self.assertIn(expected, answer.read())
            else:
                urllib.request.urlopen(urllib.request.Request(url, b"value=kept", method="PUT"), timeout=10).close()
            self.assertEqual(os.listdir(self.path("tmp")), [])
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(20), 0)
            self.assertTrue(stat.S_ISDIR(os.stat(self.path("data")).st_mode))
        self.assertGreater(os.path.getsize(self.path("log")), 0)

    def test_it_does_not_end_when_told(self):
        """SIGKILL helps, after a while, for a stopped one too."""
        process, guard, server = self.start_etcd()
        os.kill(server, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assert_nothing_left(guard, server)

    def test_a_script_around_etcd_ends_with_what_it_runs(self):
        """Also where neither ends when told."""
        script = self.program(
            f'trap "" TERM HUP; sleep 600 & {shutil.which("etcd")} "$@" & while :; do wait; done')
        process, guard, shell, *_ = self.start_etcd("--binary", script)
        others = [guard, shell, *children(shell)]
        self.assertEqual(len(others), 4)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assert_nothing_left(*others)

    def test_told_twice(self):
        """The second signal does not wait for etcd's end, but etcd ends all the same."""
        process, guard, server = self.start_etcd()
        os.kill(server, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not os.path.exists(self.path("port")), "it has heard the first")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(4), -signal.SIGTERM)
        self.assert_nothing_left(guard, server)

    def test_the_guard_is_told_to_end(self):
        process, guard, server = self.start_etcd()
        os.kill(guard, signal.SIGTERM)
        self.assertEqual(process.wait(20), 7)
        self.assertRegex(process.stderr.read(), "etcd (exited with status|was killed by signal 15)")
        self.assert_nothing_left(guard, server)

    def test_etcd_is_killed(self):
        process, guard, server = self.start_etcd()
        os.kill(server, signal.SIGKILL)
        self.assertEqual(process.wait(20), 7)
        self.assertRegex(process.stderr.read(), "etcd was killed by signal 9")
        self.assertFalse(os.path.exists(self.path("port")))
        self.assert_nothing_left(guard)

    def test_etcd_ends_by_itself(self):
        """Its status is told, whatever it does with the one who waits for it."""
        script = self.program(f'{shutil.which("etcd")} "$@" & trap "kill $!; exit 5" USR1; while :; do wait; done')
        process, guard, shell, server = self.start_etcd("--binary", script)
        os.kill(shell, signal.SIGUSR1)
        self.assertEqual(process.wait(20), 7)
        self.assertIn("etcd exited with status 5", process.stderr.read())
        self.assert_nothing_left(guard, shell, server)

    def test_sigchld_is_ignored(self):
        """Nobody can be waited for then; the end of etcd is heard of all the same, and so is ours."""
        ignore = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
        for whom, code in ("server", 7), ("us", 0), ("us at once", -signal.SIGKILL):
            process, guard, server = self.start_etcd(**ignore)
            os.kill(server if whom == "server" else process.pid,
                    signal.SIGTERM if whom == "us" else signal.SIGKILL)
            self.assertEqual(process.wait(20), code, whom)
            self.assert_nothing_left(guard, server)
            if code < 0:
                os.unlink(self.path("port"))
        finished = self.rdzv("etcd", "start", "--binary", self.program("echo bad; exit 3"), env=self.environment,
                             **ignore)
        self.assert_refused(finished, 3, "ended with status 3", "bad")

    def test_we_are_killed(self):
        process, guard, server = self.start_etcd()
        process.kill()
        process.wait()
        self.assert_nothing_left(guard, server)

    def test_we_are_killed_before_it_answers(self):
        process, *others = self.start_etcd("--binary", self.program("exec sleep 600"), ready=False)
        process.kill()
        process.wait()
        self.assert_nothing_left(*others)

    def test_the_guard_is_killed(self):
        process, guard, server = self.start_etcd()
        os.kill(guard, signal.SIGKILL)
        self.assertEqual(process.wait(20), 7)
        self.assertRegex(process.stderr.read(), "signal 9")
        self.assert_nothing_left(server)

    def test_the_port_file_cannot_be_written(self):
        finished = self.run_etcd("--port-file", self.path("none/port"))
        self.assertEqual(finished.returncode, 7)
        self.assertIn("none/port", finished.stderr)
        self.assert_nothing_left()


class Surroundings(Case):
    def test_variables_for_another_etcd(self):
        """They change nothing; what is no flag of etcd is handed on."""
        process, _, server = self.start_etcd(environment={
            "ETCD_NAME": "other", "ETCD_DATA_DIR": self.path("other"), "ETCD_LISTEN_CLIENT_URLS": "http://127.0.0.1:1",
            "ETCD_INITIAL_CLUSTER": "other=http://127.0.0.1:2", "ETCD_CONFIG_FILE": self.path("none"),
            "ETCD_UNSUPPORTED_ARCH": "any", "GOMAXPROCS": "1"})
        with open(f"/proc/{server}/environ", encoding="utf-8") as file:
            variables = dict(line.split("=", 1) for line in file.read().split("\0") if line)
        self.assertEqual([name for name in variables if name.startswith("ETCD_")], ["ETCD_UNSUPPORTED_ARCH"])
        self.assertEqual(variables["GOMAXPROCS"], "1")
        self.assertIn(b"etcdserver", self.version())
        self.assertFalse(os.path.exists(self.path("other")))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)

    def test_the_temporary_folder_has_a_long_name(self):
        folder = os.path.join(self.path("tmp"), *["x" * 200] * 5)
        os.makedirs(folder)
        process, *others = self.start_etcd(environment={"TMPDIR": folder})
        self.assertEqual(len(os.listdir(folder)), 1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(os.listdir(folder), [])
        shutil.rmtree(os.path.join(self.path("tmp"), "x" * 200))
        self.assert_nothing_left(*others)

    def assert_standard_ones(self, server):
        found = rdzvtest.descriptors(server)
        self.assertEqual(found[0], "/dev/null")
        self.assertTrue(found[1].endswith("/log") and found[1] == found[2], found)
        return found

    def test_no_descriptor_of_ours_is_handed_on(self):
        ours = os.open(self.path("ours"), os.O_CREAT | os.O_RDWR)
        self.addCleanup(os.close, ours)
        high = os.dup2(ours, 900)
        self.addCleanup(os.close, high)
        process, guard, server = self.start_etcd(pass_fds=[ours, high])
        self.assertIn(self.path("ours"), rdzvtest.descriptors(process.pid).values())
        for pid in guard, server:
            self.assertNotIn(self.path("ours"), rdzvtest.descriptors(pid).values())
        found = self.assert_standard_ones(server)
        lines = {name for name in rdzvtest.descriptors(guard).values() if name.startswith("socket:")}
        self.assertEqual(len(lines), 1)
        self.assertFalse(lines & set(found.values()))

    def test_stdin_stdout_and_stderr_are_closed(self):
        process = self.start(["/bin/sh", "-c", f"exec {RDZV} etcd start --port-file {self.path('port')} <&- >&- 2>&-"],
                             env=self.environment)
        wait_until(lambda: os.path.exists(self.path("port")) or process.poll() is not None, "the port file")
        self.assertIn(b"etcdserver", self.version())
        _, guard, server = self.family(process)
        self.assert_standard_ones(server)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assert_nothing_left(guard, server)


class Several(Case):
    def test_at_the_same_time(self):
        """Each has ports of its own."""
        processes = []
        for i in range(3):
            command = [RDZV, "etcd", "start", "--port-file", self.path(f"port-{i}")]
            processes.append(self.start(command, env=self.environment, stdout=subprocess.DEVNULL))
        ports = set()
        for i in range(3):
            wait_until(lambda i=i: os.path.exists(self.path(f"port-{i}")), "the port file")
            with open(self.path(f"port-{i}"), encoding="ascii") as file:
                ports.add(int(file.read()))
        self.assertEqual(len(ports), 3)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        self.assertEqual([process.wait(20) for process in processes], [0, 0, 0])
        self.assertEqual(os.listdir(self.path("tmp")), [])


if __name__ == "__main__":
    rdzvtest.main()
