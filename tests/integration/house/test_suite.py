# SPDX-License-Identifier: BSD-3-Clause
"""How tests are chosen, built and reported: scripts/test-targets, scripts/test-run and scripts/steady."""
import contextlib
import os
import re
import signal
import subprocess

import rdzvtest

CMOCKA = """[ RUN      ] is_well
[       OK ] is_well
[ RUN      ] has_no_rank
[  ERROR   ] --- 0x2 != 0x1
[   LINE   ] --- tests/unit/test_x.c:7: error: Failure!
[  FAILED  ] has_no_rank
[==========] 2 test(s) run.
"""
HANGS = "[ RUN      ] is_well\n[       OK ] is_well\n[ RUN      ] waits\n"
UNITTEST = """import unittest
class Rounds(unittest.TestCase):
    def test_a_round(self):
        self.assertEqual("rank 1", "rank 2", "of the second node")
unittest.main()
"""


def script(name):
    return os.path.join(rdzvtest.SOURCE, "scripts", name)


class Targets(rdzvtest.Case):
    def targets(self, *arguments, folder=rdzvtest.BUILD):
        return subprocess.run([script("test-targets"), folder, *arguments], capture_output=True, text=True, check=False)

    def test_a_test_in_c_needs_its_own_program(self):
        self.assertEqual(self.targets("-R", "unit/base/test_base64$").stdout, "test_base64\n")

    def test_a_program_that_is_not_built_yet(self):
        os.mkdir(self.path("tests"))
        for name in ("CTestTestfile.cmake", "tests/CTestTestfile.cmake"):
            with open(os.path.join(rdzvtest.BUILD, name), encoding="utf-8") as file:
                text = file.read()
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text.replace(rdzvtest.BUILD, self.folder))
        self.assertEqual(self.targets("-R", "unit/base/test_base64$|sim/seeds$", folder=self.folder).stdout, "sim\ntest_base64\n")

    def test_a_python_test_needs_what_it_and_its_modules_ask_for(self):
        for name, needed in (("integration/house/test_docs", ["example_counter", "rdzv_command", "rdzv_shared"]),
                             ("interop/python/test_torchrun_26", ["python_package", "rdzv_command", "rdzv_shared"]),
                             ("chaos/test_run", ["chaos_proxy", "chaos_worker", "rdzv_command", "rdzv_shared"])):
            self.assertEqual(self.targets("-R", f"{name}$").stdout.split(), needed)

    def test_a_name_without_a_test_is_an_error_that_names_a_near_one(self):
        done = self.targets("-R", "house/tset_docs")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no test matches -R house/tset_docs\ntest: there is integration/house/test_docs\n", done.stderr)

    def test_every_target_exists(self):
        """What test-targets prints for all tests can be built."""
        needed = set(self.targets("-R", ".").stdout.split())
        known = subprocess.run(["cmake", "--build", rdzvtest.BUILD, "--target", "help"], capture_output=True, text=True,
                               check=True).stdout
        self.assertEqual(needed - set(re.findall(r"[\w.]+", known)), set())

    def test_python_tests_ask_for_what_is_built(self):
        """A path that is made by hand would not be found by test-targets."""
        by_hand = r"os\.path\.join\(rdzvtest\.BUILD, ?\"|rdzvtest\.BUILD \+ \"/(?!librdzv\.so)"
        for folder, _, names in os.walk(os.path.join(rdzvtest.SOURCE, "tests")):
            for name in (name for name in names if name.endswith(".py") and name != "test_suite.py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.assertNotRegex(file.read(), by_hand, name)


class Case(rdzvtest.Case):
    """Tests of a folder of their own."""

    def write_tests(self, tests):
        with open(self.path("CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            for name, (text, command) in tests.items():
                with open(self.path(name), "w", encoding="utf-8") as output:
                    output.write(text)
                words = " ".join(f'"{word}"' for word in command + [self.path(name)])
                file.write(f"add_test(a/{name} {words})\nset_tests_properties(a/{name} PROPERTIES SKIP_RETURN_CODE 77")
                file.write(" TIMEOUT 2)\n" if name == "hangs" else ")\n")

    def run_tests(self, tests, **variables):
        self.write_tests(tests)
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "RDZV_FAILED")}
        return subprocess.run([script("test-run"), self.folder], capture_output=True, text=True, check=False,
                              env={**environment, **variables}, timeout=rdzvtest.DEADLINE)


class Report(Case):
    def test_what_failed_is_said_in_words_at_the_end(self):
        done = self.run_tests({"c": (CMOCKA, ["sh", "-c", "cat $0; exit 1"]), "hangs": (HANGS, ["sh", "-c", "cat $0; sleep 60"]),
                               "py": (UNITTEST, [rdzvtest.PYTHON]), "well": ("", ["cat"])})
        self.assertEqual(done.returncode, 8)
        said = done.stdout.split("The following tests FAILED:")[1]
        self.assertRegex(said, r"test: a/c: failed after \d+ s\n    FAIL: has_no_rank\n      0x2 != 0x1\n"
                               r"      at tests/unit/test_x\.c:7\n    all of it: ")
        self.assertRegex(said, r"test: a/hangs: (?:timeout|failed) after \d+ s\n    ended in: waits\n    all of it: ")
        self.assertRegex(said, r"test: a/py: failed after \d+ s\n    FAIL: test_a_round .*\n      .*py, line 4\n"
                               r"      AssertionError: 'rank 1' != 'rank 2'\n(.*\n)*?.*of the second node\n")
        self.assertNotIn("a/well", said)
        for name, text in (("c", CMOCKA), ("hangs", HANGS)):
            path = re.search(rf"all of it: (.*/a\.{name}\.txt)\n", said)[1]
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_a_skip_is_a_failure_in_ci_only(self):
        tests = {"skips": ("", ["sh", "-c", "exit 77"])}
        self.assertEqual(self.run_tests(tests).returncode, 0)
        done = self.run_tests(tests, CI="1")
        self.assertEqual((done.returncode, done.stderr), (1, "test: a peer was skipped, which CI does not allow: a/skips\n"))

    def test_what_tests_leave_behind_is_a_failure(self):
        done = self.run_tests({"file": ("", ["sh", "-c", "touch $TMPDIR/forgotten"]), "well": ("", ["sh", "-c", "rm $(mktemp)"])})
        self.assertEqual((done.returncode, done.stdout.split("\n")[-2]), (1, "test: left behind: forgotten"))

    def test_a_process_that_is_left_behind_is_a_failure(self):
        done = self.run_tests({"process": ("", ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $! >$0.pid"])})
        with open(self.path("process.pid"), encoding="ascii") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGKILL)
        self.assertEqual((done.returncode, done.stdout.split("\n")[-2]), (1, f"test: left behind: process {pid}: sleep 60 "))


class Steady(Case):
    def test_which_test_failed_how_often_beside_a_load(self):
        # The first fails when it runs for the second time.
        self.write_tests({"second": (CMOCKA, ["sh", "-c", "mkdir $0.ran 2>/dev/null || { cat $0; exit 1; }"]), "well": ("", ["cat"])})
        done = subprocess.run([script("steady"), "2", "--busy", "1", "--sync", "--built", self.folder, "-R", "a/"], check=False,
                              capture_output=True, text=True, timeout=rdzvtest.DEADLINE)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertRegex(done.stdout, r"steady: run 1 of 2: green \(\d+ s\)\nsteady: run 2 of 2: a/second failed \(\d+ s\)\n"
                                      r"steady: 1 of 2 runs are green\n")
        self.assertTrue(done.stdout.endswith("  failed  test\n       1  a/second (run 2)\n"), done.stdout)
        kept = re.search(r"kept in (.*)\n", done.stdout)[1]
        with open(os.path.join(kept, "run-002", "failed", "a.second.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), CMOCKA)

    def test_the_load_ends_with_it_however_it_ends(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.write_tests({"waits": ("", ["sh", "-c", "echo $$ > $0.pid; exec sleep 600"])})
            steady = self.start([script("steady"), "1", "--busy", "1", "--sync", "--built", self.folder], stdout=subprocess.DEVNULL,
                                env={**os.environ, "TMPDIR": self.folder})
            waits = int(rdzvtest.wait_until(lambda: self.read("waits.pid"), "the test runs"))
            load = [pid for pid in children(steady.pid) if "getppid" in command_of(pid)]
            self.assertEqual(len(load), 2)
            for pid in load:
                self.addCleanup(kill_load, pid)
            steady.send_signal(number)
            steady.wait(rdzvtest.DEADLINE)
            if number == signal.SIGKILL:
                os.kill(waits, signal.SIGKILL)  # ctest then ends, too
            rdzvtest.wait_until(lambda: not any(map(command_of, [waits, *load])), "the load and the test end")
            os.unlink(self.path("waits.pid"))

    def read(self, name):
        with contextlib.suppress(FileNotFoundError), open(self.path(name), encoding="utf-8") as file:
            return file.read().strip()
        return ""


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return list(map(int, file.read().split()))


def kill_load(pid):
    if "getppid" in command_of(pid):
        os.kill(pid, signal.SIGKILL)


def command_of(pid):
    """Empty once it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
        return file.read()
    return ""


if __name__ == "__main__":
    rdzvtest.main()
