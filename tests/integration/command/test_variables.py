# SPDX-License-Identifier: BSD-3-Clause
"""What all commands share: one spelling of a flag, its older one, and the variables of the environment."""
import os
import subprocess

import rdzvtest

YES, NO, USAGE, CONNECT = range(4)
NAMES = ("RDZV_ENDPOINT", "RDZV_SECRET_FILE", "RDZV_STATE_ETCD", "RDZV_LOG")
# A store that is there, and a run that is not.
COMMANDS = (["status", "--rdzv-id", "x"], ["list"], ["reset", "--rdzv-id", "x"], ["store", "check", "x"])


class Variables(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def tearDown(self):
        self.stop(self.server)
        super().tearDown()

    def with_variables(self, words, **variables):
        kept = {name: value for name, value in os.environ.items() if name not in NAMES and not name.startswith("PET_")}
        return self.rdzv(*words, env={**kept, **variables})

    def test_every_client_takes_the_endpoint_in_three_ways(self):
        for command, *rest in COMMANDS:
            for flags, variables in ((["--rdzv-endpoint", self.server.endpoint], {}),
                                     (["--endpoint", self.server.endpoint], {}),
                                     ([], {"RDZV_ENDPOINT": self.server.endpoint})):
                with self.subTest(command, flags=flags):
                    done = self.with_variables([command, *flags, *rest], **variables)
                    self.assertEqual(done.returncode, NO, done.stderr)

    def test_a_node_and_a_job_meet_at_the_store_of_the_variable(self):
        for words in (["join", "--once", "--rdzv-id", "a"],
                      ["run", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.1", "--rdzv-id", "a2", "true"],
                      ["run", "--rdzv-backend=c10d", "--rdzv-id", "a3", "true"],
                      ["close", "--rdzv-id", "a"]):
            done = self.with_variables(words, RDZV_ENDPOINT=self.server.endpoint)
            self.assertEqual(done.returncode, YES, done.stderr)
        listed = self.with_variables(["list"], RDZV_ENDPOINT=self.server.endpoint).stdout
        self.assertEqual([line.split()[0] for line in listed.splitlines()], ["ID", "a", "a2", "a3"])

    def test_a_job_without_a_shared_store_does_not_use_it(self):
        done = self.with_variables(["run", "--standalone", "true"], RDZV_ENDPOINT="no-such-host.invalid:1")
        self.assertEqual((done.returncode, "RDZV_ENDPOINT" in done.stderr), (YES, False), done.stderr)
        done = self.with_variables(["run", "--master-port", str(rdzvtest.free_port()), "true"],
                                   RDZV_ENDPOINT="no-such-host.invalid:1")
        self.assertEqual(done.returncode, YES, done.stderr)
        self.assertIn("RDZV_ENDPOINT has no effect: backend static has no store", done.stderr)

    def test_a_flag_wins_over_the_variable(self):
        for command, *rest in COMMANDS:
            done = self.with_variables([command, "--rdzv-endpoint", self.server.endpoint, *rest],
                                       RDZV_ENDPOINT="no-such-host.invalid:1")
            self.assertEqual(done.returncode, NO, done.stderr)
        done = self.with_variables(["run", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.1", "true"],
                                   RDZV_ENDPOINT="no-such-host.invalid:1", PET_RDZV_ENDPOINT=self.server.endpoint)
        self.assertEqual(done.returncode, YES, done.stderr)
        done = self.with_variables(["store", "--file", self.path("store"), "check", "x"], RDZV_ENDPOINT=self.server.endpoint)
        self.assertEqual(done.returncode, NO, done.stderr)

    def test_an_error_names_the_source_of_the_value(self):
        for words, variables, part in (
            (["list"], {"RDZV_ENDPOINT": "host:1x"}, "invalid endpoint 'host:1x': the port is not a number (from RDZV_ENDPOINT)"),
            (["list", "--endpoint", "host:1x"], {}, "the port is not a number (from --rdzv-endpoint)"),
            (["store", "check", "x"], {"RDZV_ENDPOINT": "host:1x"}, "(from RDZV_ENDPOINT)"),
            (["list"], {"RDZV_LOG": "loud"}, "invalid value 'loud' for RDZV_LOG: expected off|error|warning|info|debug\n"),
            (["store", "check", "x"], {"RDZV_LOG": "loud"}, "invalid value 'loud' for RDZV_LOG"),
            (["etcd", "start"], {"RDZV_LOG": "loud"}, "invalid value 'loud' for RDZV_LOG"),
            (["list", "--log-level", "loud"], {"RDZV_LOG": "info"}, "invalid value 'loud' for --log-level"),
            (["serve", "--port=0"], {"RDZV_STATE_ETCD": "ftp://a"}, "invalid value for RDZV_STATE_ETCD: the scheme"),
            (["list", "--rdzv-endpoint", self.server.endpoint], {"RDZV_SECRET_FILE": "/nonexistent/secret"},
             "No such file or directory (from RDZV_SECRET_FILE)")):
            with self.subTest(words, **variables):
                done = self.with_variables(words, **variables)
                self.assertNotIn(done.returncode, (YES, NO), done.stdout)
                self.assertIn(part, done.stderr)

    def test_the_level_of_the_log(self):
        for variables, flags, shown in (({"RDZV_LOG": "warning"}, [], False), ({}, [], True), ({"RDZV_LOG": ""}, [], True),
                                        ({"RDZV_LOG": "off"}, ["--log-level", "info"], True)):
            done = self.with_variables(["run", "--standalone", *flags, "true"], **variables)
            self.assertEqual((done.returncode, "started 1 worker" in done.stderr), (YES, shown), done.stderr)

    def test_the_level_of_the_log_of_a_store(self):
        get = ["--rdzv-endpoint", self.server.endpoint, "--timeout", str(rdzvtest.slow(4)), "get", "no"]
        for variables, flags, shown in (({}, [], True), ({"RDZV_LOG": "off"}, [], False)):
            done = self.with_variables(["store", *flags, *get], **variables)
            self.assertEqual("info: waiting" in done.stderr, shown, done.stderr)

    def test_help_shows_one_spelling(self):
        for command in ("run", "join", "status", "close", "list", "reset", "store"):
            text = subprocess.run([rdzvtest.RDZV, command, "--help"], capture_output=True, text=True, check=True).stdout
            self.assertIn("  --rdzv-endpoint HOST:PORT ", text)
            self.assertNotIn("--endpoint", text)
            self.assertIn("$RDZV_ENDPOINT", text)


if __name__ == "__main__":
    rdzvtest.main()
