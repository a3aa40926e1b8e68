# SPDX-License-Identifier: BSD-3-Clause
"""Where the output of `rdzv run`'s workers goes, what is left in files, and what it says itself."""
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import termios

import rdzvtest
import run_nodes
from run_nodes import IO, USAGE, text_of

BOTH = 'echo "out $RANK"; echo "err $RANK" >&2'


class Case(run_nodes.Run):
    def run_folder(self, logs=None):
        """The one that the only run has made."""
        logs = logs or os.path.join(self.path("tmp"), *self.temporary())
        name, = os.listdir(logs)
        return os.path.join(logs, name)

    def log(self, rank, name, attempt=0, logs=None):
        return text_of(os.path.join(self.run_folder(logs or self.path("logs")), f"attempt_{attempt}", str(rank), name))

    def quiet(self, text, *flags, **options):
        """Nothing but what the workers write is on stderr."""
        return self.run_alone(text, "--log-level", "off", "--nproc-per-node", "2", *flags, **options)


class Redirects(Case):
    def test_without_a_word_all_is_shown_as_it_is(self):
        node = self.quiet(BOTH)
        self.assertEqual(sorted(node.out().split("\n")), ["", "out 0", "out 1"])
        self.assertEqual(sorted(node.err().split("\n")), ["", "err 0", "err 1"])

    def test_each_value_takes_its_streams(self):
        for value in range(4):
            with self.subTest(value):
                logs = self.path(f"logs{value}")
                node = self.quiet(BOTH, "--redirects", str(value), "--log-dir", logs)
                for bit, name, shown in ((1, "out", node.out()), (2, "err", node.err())):
                    in_file = "".join(self.log(rank, f"std{name}.log", logs=logs) for rank in range(2) if value)
                    there, not_there = (in_file, shown) if value & bit else (shown, in_file)
                    self.assertEqual(sorted(there.split("\n")), ["", f"{name} 0", f"{name} 1"])
                    self.assertEqual(not_there, "")

    def test_a_map_is_for_some(self):
        node = self.quiet(BOTH, "--redirects", "1:3", "--log-dir", self.path("logs"))
        self.assertEqual((node.out(), node.err()), ("out 0\n", "err 0\n"))
        self.assertEqual((self.log(1, "stdout.log"), self.log(1, "stderr.log")), ("out 1\n", "err 1\n"))

    def test_tee_writes_and_shows_with_a_prefix(self):
        node = self.quiet(BOTH, "--tee", "3", "--role", "trainer", "--log-dir", self.path("logs"))
        self.assertEqual(sorted(node.out().split("\n")), ["", "[trainer0]:out 0", "[trainer1]:out 1"])
        self.assertEqual(sorted(node.err().split("\n")), ["", "[trainer0]:err 0", "[trainer1]:err 1"])
        self.assertEqual((self.log(0, "stdout.log"), self.log(1, "stderr.log")), ("out 0\n", "err 1\n"))

    def test_tee_goes_before_redirects(self):
        node = self.quiet(BOTH, "--tee", "0:1", "--redirects", "3", "--log-dir", self.path("logs"))
        self.assertEqual((node.out(), node.err()), ("[default0]:out 0\n", ""))
        self.assertEqual((self.log(0, "stdout.log"), self.log(0, "stderr.log")), ("out 0\n", "err 0\n"))

    def test_the_prefix_may_be_another(self):
        node = self.quiet("echo here", "--tee", "1",
                          env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${local_rank}/${rank} of ${role_name} $x> "})
        self.assertEqual(sorted(node.out().split("\n")), ["", "0/0 of default $x> here", "1/1 of default $x> here"])

    def test_the_rank_of_the_prefix_is_that_of_all_nodes(self):
        self.serve_store()
        worker = self.script("echo here $RANK")
        for node in [self.node(name, "2", worker, "--tee", "1", "--nproc-per-node", "2") for name in "ab"]:
            self.gone(node)
        lines = (self.nodes[0].out() + self.nodes[1].out()).split()
        self.assertEqual(sorted(line for line in lines if line.startswith("[")),
                         sorted(f"[{node.name}{rank}]:here" for node in self.nodes
                                for rank in map(int, re.findall(r"here (\d)", node.out()))))
        self.assertEqual(sorted(re.findall(r"here (\d)", " ".join(lines))), list("0123"))

    def test_the_filter_hides_but_keeps(self):
        node = self.quiet(BOTH, "--tee", "3", "--local-ranks-filter", "1", "--log-dir", self.path("logs"))
        self.assertEqual((node.out(), node.err()), ("[default1]:out 1\n", "[default1]:err 1\n"))
        self.assertEqual((self.log(0, "stdout.log"), self.log(0, "stderr.log")), ("out 0\n", "err 0\n"))

    def test_the_filter_hides_what_goes_to_no_file_too(self):
        node = self.quiet(BOTH, "--local-ranks-filter", "0")
        self.assertEqual((node.out(), node.err()), ("out 0\n", "err 0\n"))

    def test_who_is_hidden_and_fails_is_heard_of(self):
        node = self.run_alone('[ $RANK = 0 ] && forever; echo sorry >&2; exit 3', "--nproc-per-node", "2",
                              "--local-ranks-filter", "0", code=3)
        self.assertEqual(node.err().count("sorry"), 1)
        self.assertIn("    | sorry\n", node.err())

    def test_lines_are_never_torn(self):
        text = """exec awk -v r="$RANK" 'BEGIN { s = sprintf("%200s", ""); gsub(" ", "x" r, s);
        for (i = 0; i < 3000; i++) printf "%d:%d:%s.\\n", r, i, substr(s, 1, (i * 37) % 400) }'"""
        node = self.run_alone(text, "--nproc-per-node", "6", "--tee", "3", "--log-level", "off")
        seen = [0] * 6
        for line in node.out().split("\n")[:-1]:
            found = re.fullmatch(r"\[default(\d)\]:(\d):(\d+):((?:x\d)*x?)\.", line)
            self.assertTrue(found, line)
            rank = int(found.group(1))
            self.assertEqual((int(found.group(2)), int(found.group(3))), (rank, seen[rank]))
            self.assertEqual(found.group(4), (f"x{rank}" * 200)[:seen[rank] * 37 % 400])
            seen[rank] += 1
        self.assertEqual(seen, [3000] * 6)

    def test_a_last_line_without_an_end_is_ended(self):
        node = self.quiet("printf 'no end'", "--tee", "1")
        self.assertEqual(sorted(node.out().split("\n")), ["", "[default0]:no end", "[default1]:no end"])

    def test_what_is_no_text_comes_out_as_it_went_in(self):
        node = self.quiet(r"printf '\377\000\376\n' >&2")
        with open(node.err_path, "rb") as file:
            self.assertEqual(file.read(), b"\xff\x00\xfe\n" * 2)

    def test_on_a_terminal_stderr_is_the_terminal(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        text = "for fd in 1 2; do if [ -t $fd ]; then note $fd yes; else note $fd no; fi; done"
        node = self.alone(text, "--log-level", "off", stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.gone(node)
        self.wait_notes("1 yes", "2 yes")


class Filters(Case):
    WORKER = """
    echo "apple pie $RANK"; echo "an orange"; echo "a pear"; printf 'last, apple'
    echo "an error, apple" >&2; echo "an error, pear" >&2"""

    def filtered(self, *flags, code=0, text=WORKER):
        """The lines of each filtered file, sorted, by its path below the run."""
        logs = self.path("logs")
        self.run_alone(text, "--nproc-per-node", "2", "--log-dir", logs, *flags, code=code)
        run, = os.listdir(logs)
        found = {name: sorted(text_of(os.path.join(logs, run, name)).splitlines())
                 for name in self.files_below(os.path.join(logs, run)) if "filtered" in name}
        shutil.rmtree(logs)
        return found

    def test_lines_with_one_of_the_texts_of_all_workers_are_written_again(self):
        found = self.filtered("--tee", "3", "--duplicate-stdout-filters", "apple,orange", "--duplicate-stderr-filters", "r,, p")
        self.assertEqual(found, {
            "attempt_0/filtered_stdout.log": [f"[default{rank}]:{line}" for rank in range(2)
                                              for line in ("an orange", f"apple pie {rank}", "last, apple")],
            "attempt_0/filtered_stderr.log": ["[default0]:an error, pear", "[default1]:an error, pear"]})

    def test_only_what_is_shown(self):
        flags = "--duplicate-stdout-filters", "apple"
        self.assertEqual(self.filtered("--redirects", "3", *flags), {})
        self.assertEqual(self.filtered("--tee", "2", *flags), {})
        self.assertEqual(self.filtered("--tee", "1:1", *flags),
                         {"attempt_0/filtered_stdout.log": ["[default1]:apple pie 1", "[default1]:last, apple"]})
        self.assertEqual(self.filtered("--tee", "1", "--local-ranks-filter", "0", *flags),
                         {"attempt_0/filtered_stdout.log": ["[default0]:apple pie 0", "[default0]:last, apple"]})

    def test_each_attempt_has_its_own(self):
        text = 'echo "apple $TORCHELASTIC_RESTART_COUNT"; [ $RANK = 1 ] || forever; exit 3'
        found = self.filtered("--tee", "1", "--max-restarts", "1", "--duplicate-stdout-filters", "apple", code=3, text=text)
        self.assertEqual(sorted(found), ["attempt_0/filtered_stdout.log", "attempt_1/filtered_stdout.log"])
        for attempt in range(2):
            self.assertIn(f"[default1]:apple {attempt}", found[f"attempt_{attempt}/filtered_stdout.log"])


class FullDisk(Case):
    """There is room for 64 KiB where the files go."""
    MOUNT = ["unshare", *([] if os.getuid() == 0 else ["-r"]), "-m", "sh", "-c",
             'mount -t tmpfs -o size=64k none "$0" && exec "$@"']

    def check(self, *flags, end=0, code=IO):
        os.mkdir(self.path("small"))
        text = f"head -c 100000 /dev/zero | tr '\\0' x; note written; exit {end}"
        node = self.launch("a", ["--standalone", *flags, "--log-dir", self.path("small")], [self.script(text)],
                           prefix=[*self.MOUNT, self.path("small")])
        self.gone(node, code)
        self.wait_notes("written")
        return node

    def check_lines(self, node):
        """Gives the last line."""
        name = r"'\S*/attempt_0/0/stdout\.log': No space left on device"
        self.assertEqual(len(re.findall(r"error: cannot write to '\S*/stdout\.log': No space left", node.err())), 1)
        lost, = re.findall(r"error: (\d+) bytes of a worker's output are lost: " + name, node.err())
        self.assertIn(int(lost), range(100000 - 65536, 100000))
        last = node.err().splitlines()[-1]
        self.assertRegex(last, rf"{lost} bytes of the workers' output are lost: {name}")
        return last

    def test_redirects_tell_what_is_lost_and_the_exit_code_too(self):
        self.assertRegex(self.check_lines(self.check("--redirects", "1")), r"^rdzv run: \d+ bytes")

    def test_tee_tells_what_is_lost_and_the_exit_code_too(self):
        self.assertRegex(self.check_lines(self.check("--tee", "1")), r"^rdzv run: \d+ bytes")

    def test_a_failure_keeps_its_exit_code_and_its_report_has_the_loss(self):
        node = self.check("--redirects", "1", end=5, code=5)
        self.assertIn("rdzv run: FAILED", node.err())
        self.assertRegex(self.check_lines(node), r"^  \d+ bytes")

    def test_as_json(self):
        report = json.loads(self.check("--redirects", "1", "--json-log").err().splitlines()[-1])
        self.assertEqual((report["state"], report["level"]), ("SUCCEEDED", "error"))
        self.assertIn(report["lost_bytes"], range(100000 - 65536, 100000))
        self.assertIn("stdout.log': No space left on device", report["lost_to"])


class Files(Case):
    def test_the_folder_of_a_run_has_its_name(self):
        logs = self.path("logs")
        for _ in range(2):
            self.launch("a", ["--log-dir", logs, "--rdzv-id", "my/job", "--redirects", "1", "--nnodes", "1",
                              "--master-port", str(run_nodes.free_port())], ["true"])
            self.gone(self.nodes[-1])
        names = os.listdir(logs)
        self.assertEqual(len(names), 2)  # the second one did not write into the first one's
        for name in names:
            self.assertRegex(name, r"^my_job_\w{6}$")
            self.assertEqual(self.files_below(os.path.join(logs, name)), ["attempt_0/0/stdout.log"])

    def test_the_temporary_folder_is_removed_after_success(self):
        self.quiet('echo x >"$TORCHELASTIC_ERROR_FILE" && note there')
        self.wait_notes("there", "there")
        self.assertEqual(self.temporary(), [])

    def test_output_that_was_asked_for_is_kept_and_named(self):
        for flag, value in (("--redirects", "1"), ("--tee", "3"), ("--tee", "0:1")):
            with self.subTest(f"{flag} {value}"):
                node = self.run_alone("echo found", flag, value)
                folder = self.run_folder()
                self.assertEqual(text_of(os.path.join(folder, "attempt_0/0/stdout.log")), "found\n")
                begins, ends = (f"the workers' output {verb} '{folder}'\n" for verb in ("goes to files in", "is in"))
                self.assertLess(node.err().index(begins), node.err().index("started 1 worker"))
                self.assertLess(node.err().index("all workers are done"), node.err().index(ends))
                shutil.rmtree(os.path.dirname(folder))

    def test_a_failure_without_files_leaves_and_names_no_folder(self):
        node = self.run_alone("exit 1", code=1)
        self.assertEqual(self.temporary(), [])
        self.assertNotIn("files of this run", node.err())

    def test_an_error_file_is_kept_after_a_failure_and_empty_folders_are_not(self):
        node = self.run_alone("[ $RANK = 0 ] && forever; echo '{}' >$TORCHELASTIC_ERROR_FILE; exit 1",
                              "--nproc-per-node", "2", code=1)
        folder = self.run_folder()
        self.assertEqual(os.listdir(os.path.join(folder, "attempt_0")), ["1"])
        self.assertIn(f"  files of this run: {folder}\n", node.err())

    def test_no_empty_folder_is_left_in_a_log_dir(self):
        logs = self.path("logs")
        for code in (0, 1):
            node = self.run_alone(f"exit {code}", "--log-dir", logs, code=code)
            self.assertEqual(os.listdir(logs), [])
            self.assertNotIn(logs, node.err())

    def test_the_temporary_folder_is_kept_after_a_failure_and_named(self):
        node = self.run_alone("echo found; exit 1", "--redirects", "3", code=1)
        folder = self.run_folder()
        self.assertIn(f"  files of this run: {folder}\n", node.err())
        self.assertEqual(text_of(os.path.join(folder, "attempt_0/0/stdout.log")), "found\n")

    def test_after_a_signal_too_what_was_asked_for_is_kept(self):
        for flags in ((), ("--redirects", "3")):
            with self.subTest(flags):
                self.touch("notes")
                node = self.alone("note ready; forever", *flags)
                self.wait_notes("ready")
                node.signal(signal.SIGTERM)
                self.gone(node, 128 + signal.SIGTERM)
                self.assertEqual(len(self.temporary()), 1 if flags else 0)
                self.assertEqual("the workers' output is in" in node.err(), bool(flags))
                os.remove(self.path("notes"))

    def test_with_dev_null_there_are_no_files(self):
        node = self.quiet(BOTH + '; note "<$TORCHELASTIC_ERROR_FILE>"', "--redirects", "1", "--log-dir", "/dev/null")
        self.assertEqual((node.out(), sorted(node.err().split())), ("", ["0", "1", "err", "err"]))
        self.wait_notes("<>", "<>")
        self.assertEqual(self.temporary(), [])

    def test_a_log_dir_that_is_a_file_is_refused(self):
        node = self.run_alone("note ran", "--log-dir", __file__, code=USAGE)
        self.assertIn("not a folder", node.err())

    def test_a_folder_that_cannot_be_used_is_told_before_the_node_joins(self):
        for flags, env, name in ((["--log-dir", "/proc/no/such"], {}, "--log-dir is '/proc/no/such': cannot create the log folder '/proc/no'"),
                                 (["--log-dir", "/proc"], {}, "--log-dir is '/proc': cannot create the log folder '/proc/"),
                                 ([], {"TMPDIR": "/proc"}, "TMPDIR is '/proc': cannot create the log folder '/proc/"),
                                 (["--tee", "3"], {"TMPDIR": "/no/such"}, "TMPDIR is '/no/such': cannot create the log folder")):
            with self.subTest(flags=flags, env=env):
                node = self.run_alone("note ran", *flags, env=env, code=IO)
                self.assertIn(f"rdzv run: {name}", node.err())
                self.assertEqual((self.notes(), node.events()), ([], []))

    def test_an_error_file_of_before_is_not_taken_for_a_new_one(self):
        """Two rounds without a restart have the same folder."""
        self.serve_store()
        text = """note up
        [ $WORLD_SIZE = 1 ] && echo '{"message": {"message": "of before", "extraInfo": {}}}' >$TORCHELASTIC_ERROR_FILE
        if [ $ROLE_NAME = a ] && [ $WORLD_SIZE = 2 ]; then await fail; exit 5; fi; forever"""
        first = self.node("a", "1:2", self.script(text))
        before = self.wait_world(first)
        self.wait_notes("up")
        second = self.node("b", "1:2", self.script(text))
        self.wait_world(first, second, after=before)
        self.touch("fail")
        self.gone(first, 5)
        self.gone(second, 5)
        self.assertNotIn("of before", first.err())


class Said(Case):
    """What it says itself."""

    def test_each_line_of_the_json_log_is_an_object_and_so_is_the_report(self):
        node = self.run_alone("exit 6", "--json-log", "--log-level", "debug", code=6)
        lines = [json.loads(line) for line in node.err().splitlines()]
        report, = [line for line in lines if "failures" in line]
        for line in lines:
            self.assertTrue(line is report or sorted(line) == ["host", "level", "message", "pid", "time"], line)
        self.assertEqual((report["state"], report["level"]), ("FAILED", "error"))
        failure, = report["failures"]
        self.assertEqual((failure["rank"], failure["exit_code"], failure["signal"]), (0, 6, 0))

    def test_a_report_with_what_is_no_text_is_json_all_the_same(self):
        node = self.run_alone(r"printf '\377\n' >&2; kill -9 $$", "--json-log", "--redirects", "2", code=137)
        report = json.loads(node.err().splitlines()[-1])
        self.assertEqual((report["failures"][0]["exit_code"], report["failures"][0]["signal"]), (137, 9))

    def test_after_success_there_is_no_report(self):
        node = self.run_alone("exit 0", "--json-log")
        self.assertNotIn("FAILED", node.err())
        for line in node.err().splitlines():
            json.loads(line)

    def test_log_levels(self):
        self.assertEqual(self.run_alone("exit 0", "--log-level", "warning").err(), "")
        self.assertRegex(self.run_alone("exit 0").err(), r"(?m)^\d{4}-\S+Z \S+ rdzv run\[\d+\]: info: round 0: node 0 of 1, ")

    def test_the_event_log_tells_all_in_order(self):
        node = self.run_alone("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 9", "--max-restarts", "1")
        agent = [event["state"] for event in node.events("AGENT")]
        self.assertEqual([state for state in agent if state != "STOPPING"],
                         2 * ["RENDEZVOUS", "STARTING", "RUNNING"] + ["BARRIER", "SUCCEEDED"])
        workers = node.events("WORKER")
        self.assertEqual([(one["state"], one["exit_code"], one["restart_count"]) for one in workers],
                         [("STARTED", 0, 0), ("FAILED", 9, 0), ("STARTED", 0, 1), ("SUCCEEDED", 0, 1)])
        for event in node.events():
            self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertTrue({"run_id", "host", "pid", "round", "message"} <= set(event), event)
        self.assertEqual([event["time"] for event in node.events("AGENT")],
                         sorted(event["time"] for event in node.events("AGENT")))

    def test_an_event_log_on_a_full_disk_is_named_once(self):
        done = self.rdzv("run", "--standalone", "--log-level", "off", "--event-log", "/dev/full", "--no-python", "true")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "rdzv run: events are lost: cannot write to the event log '/dev/full': No space left "
                                      "on device\n")

    def test_the_event_log_is_appended_to(self):
        path = self.path("events")
        for _ in range(2):
            self.run_alone("exit 0", "--event-log", path)
        events = [json.loads(line) for line in text_of(path).splitlines()]
        states = [event["state"] for event in events if event["source"] == "AGENT"]
        self.assertEqual(states.count("SUCCEEDED"), 2)

    def test_an_event_log_that_cannot_be_opened_is_told_before_anything_runs(self):
        node = self.run_alone("note ran", "--event-log", self.path("no/such/folder"), code=IO)
        self.assertIn("cannot open the event log", node.err())
        self.assertEqual(self.notes(), [])

    def test_a_terminal_shows_who_is_there_while_it_waits(self):
        self.serve_store()
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        os.set_blocking(ours, False)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        shown = []

        def text():
            try:
                shown.append(os.read(ours, 65536).decode(errors="replace"))
            except OSError:  # nothing new
                pass
            return "".join(shown)

        worker = self.script("exit 0")
        first = self.node("a", "2", worker, stderr=theirs, env={"TERM": "xterm"})
        os.close(theirs)
        self.wait_for(lambda: re.search(r"1 joined, min 2, max 2, 1 more needed: 127\.0\.0\.1_\d+_0", text()),
                      "it says who is there")
        self.gone(self.node("b", "2", worker))
        self.gone(first)
        for found in re.finditer(r"\d{4}-\d\d-\d\dT\S+Z \w+:", text()):  # no log line begins behind another text
            self.assertTrue(text()[:found.start()].endswith(("\n", "\033[K")) or not found.start(), text())


if __name__ == "__main__":
    rdzvtest.main()
