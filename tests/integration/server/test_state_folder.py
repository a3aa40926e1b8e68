# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv serve --state-dir` while its folder or its files are deleted, moved or replaced."""
import os
import shutil

import rawclient
import rdzvtest


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.state = self.path("state")
        self.log = self.path("log")

    def durable(self, state=None, **options):
        with open(self.log, "wb") as log:
            return self.serve("--state-dir", state or self.state, stderr=log, **options)

    def logged(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def wait_for_log(self, text):
        rdzvtest.wait_until(lambda: text in self.logged(), f"the log says '{text}'")

    def set(self, server, key="k", value="v"):
        return self.store(server, "--timeout", "3", "set", key, value)

    def assert_refused(self, server, text):
        """A write is refused with that sentence; reads go on."""
        done = self.set(server)
        self.assertEqual(done.returncode, 7, done.stderr)  # RDZV_E_IO
        self.assertIn(text, done.stderr)
        self.assertEqual(self.store(server, "get", "first").stdout, "1\n")

    def started(self):
        server = self.durable()
        self.assertEqual(self.set(server, "first", "1").returncode, 0)
        return server

    def fails_to_start(self, state):
        done = self.rdzv("serve", "--port", "0", "--state-dir", state)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr


class Gone(Case):
    """Writes are refused; the server goes on when everything is back."""

    def test_a_deleted_folder_is_noticed_without_a_write(self):
        server = self.started()
        shutil.rmtree(self.state)
        self.wait_for_log("was deleted or moved")
        self.assertIn(f"the state folder '{self.state}' was deleted or moved", self.logged())
        self.assert_refused(server, "was deleted or moved")
        self.assertEqual(self.logged().count("was deleted or moved"), 1)

    def test_no_write_is_acknowledged_once_it_is_deleted(self):
        server = self.started()
        shutil.rmtree(self.state)
        done = self.set(server)  # at once: before any timer has looked
        self.assertNotEqual(done.returncode, 0)

    def test_a_folder_that_is_moved_away_and_back(self):
        server = self.started()
        os.rename(self.state, self.path("other"))
        self.wait_for_log("was deleted or moved")
        self.assertIn("in use by another server", self.fails_to_start(self.path("other")))
        os.rename(self.path("other"), self.state)
        rdzvtest.wait_until(lambda: self.set(server, "second", "2").returncode == 0, "writes succeed again")
        self.wait_for_log("the state can be written again")
        server.kill()
        server.wait()
        self.assertEqual(self.store(self.durable(), "get", "second").stdout, "2\n")

    def test_a_deleted_database(self):
        server = self.started()
        os.unlink(os.path.join(self.state, "state.db"))
        self.wait_for_log("state.db in")
        self.assert_refused(server, "was deleted or moved")

    def test_a_deleted_log_loses_nothing_when_the_server_stops(self):
        server = self.started()
        os.unlink(os.path.join(self.state, "state.db-wal"))
        self.wait_for_log("state.db-wal in")
        self.assert_refused(server, "was deleted or moved")
        self.stop(server)
        self.assertEqual(self.store(self.durable(), "get", "first").stdout, "1\n")

    def test_another_current_folder_does_not_matter(self):
        """The path may be relative."""
        os.mkdir(self.path("here"))
        server = self.durable(state="state", cwd=self.path("here"))
        self.assertEqual(self.set(server, "first", "1").returncode, 0)
        os.rename(self.path("here/state"), self.path("state"))
        self.wait_for_log("was deleted or moved")


class InFlight(Case):
    """The folder is gone before the server has noticed: a commit fails. No client is left without the reason."""

    UNKNOWN = 5

    def gone_under(self, write, was_accepted):
        """A server whose folder is moved away, and what `write` returned, which the server has accepted before it found
        out. It may look before: then again with another one."""
        for number in range(30):
            self.state, self.log = self.path(f"state{number}"), self.path(f"log{number}")
            server = self.started()
            os.rename(self.state, self.state + ".moved")
            done = write(server)
            if was_accepted(done):
                return server, done
            self.stop(server)
        return self.fail("the server has looked before each write")

    def test_the_write_and_all_that_depends_on_it_are_refused(self):
        server, done = self.gone_under(lambda server: self.store(server, "--timeout", "30", "set", "k", "v"),
                                       lambda done: done.returncode != 7)
        self.assertEqual(done.returncode, self.UNKNOWN, done.stderr)
        self.assertIn("it may or may not have taken effect: refused by the server: the state folder", done.stderr)
        at = ["--rdzv-endpoint", server.endpoint, "--rdzv-conf", "read_timeout=60"]
        for words in (["store", "--endpoint", server.endpoint, "--timeout", "60", "get", "k"],
                      ["store", "--endpoint", server.endpoint, "--timeout", "60", "check", "absent"],
                      ["store", "--endpoint", server.endpoint, "--timeout", "60", "num-keys"],
                      ["status", *at, "--rdzv-id", "job"], ["list", *at],
                      ["join", *at, "--rdzv-id", "job", "--once"]):
            done = self.rdzv(*words)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn("was deleted or moved", done.stderr)
        self.assertEqual(self.store(server, "get", "first").stdout, "1\n")
        os.rename(self.state + ".moved", self.state)
        self.wait_for_log("the state can be written again")
        self.assertEqual(self.store(server, "get", "k").stdout, "v\n")
        self.assertEqual(self.store(server, "num-keys").stdout, "2\n")

    def test_a_join_is_refused(self):
        def join(server):
            return self.rdzv("join", "--once", "--rdzv-endpoint", server.endpoint, "--rdzv-id", "job", "--rdzv-conf",
                             "join_timeout=60,session_keep_alive=30")

        _, done = self.gone_under(join, lambda done: "lost the store" in done.stderr)
        self.assertIn("closing the connection of", self.logged())
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertIn("cannot join the rendezvous: the state folder", done.stderr)

    def test_a_client_of_pytorch_is_closed(self):
        server = self.started()
        with rawclient.Raw(server.port, "v2") as client:
            os.rename(self.state, self.path("other"))
            client.send(rawclient.request("v2", "add"))
            self.assertEqual(client.socket.recv(1), b"")
        self.assertRegex(self.logged(), "closing the connection of .*: the state folder .* was deleted or moved")


class Replaced(Case):
    """Another state is at the path: the server ends, and leaves that one alone."""

    def assert_ended(self, server):
        self.assertEqual(server.wait(rdzvtest.DEADLINE), 6)
        self.assertIn("another state is in", self.logged())

    def test_a_folder_that_was_made_anew_has_one_server(self):
        first, first_log = self.started(), self.log
        shutil.rmtree(self.state)
        self.log = self.path("log of the second")
        second = self.durable()
        self.assertEqual(self.set(second, "new", "2").returncode, 0)
        self.log = first_log
        self.assert_ended(first)
        self.assertTrue(os.path.exists(os.path.join(self.state, "state.db-wal")))  # of the second server
        self.log = self.path("log of the second")
        self.assertEqual(self.set(second, "newer", "3").returncode, 0)
        second.kill()
        second.wait()
        third = self.durable()
        self.assertEqual(self.store(third, "get", "newer").stdout, "3\n")

    def test_an_empty_folder_in_its_place(self):
        """No other state is there: it may come back."""
        server = self.started()
        os.rename(self.state, self.path("other"))
        os.mkdir(self.state)
        self.wait_for_log("was deleted or moved")
        self.assert_refused(server, "was deleted or moved")
        os.rmdir(self.state)
        os.rename(self.path("other"), self.state)
        rdzvtest.wait_until(lambda: self.set(server, "second", "2").returncode == 0, "writes succeed again")

    def test_a_database_that_was_put_in_its_place(self):
        server = self.started()
        database = os.path.join(self.state, "state.db")
        shutil.copy(database, database + ".copy")
        os.replace(database + ".copy", database)
        self.assert_ended(server)

    def test_a_link_that_leads_elsewhere(self):
        os.mkdir(self.path("a"))
        os.mkdir(self.path("b"))
        os.symlink("a", self.state)
        server = self.started()
        shutil.copytree(self.path("a"), self.path("b"), dirs_exist_ok=True)
        os.unlink(self.state)
        os.symlink("b", self.state)
        self.assert_ended(server)


if __name__ == "__main__":
    rdzvtest.main()
