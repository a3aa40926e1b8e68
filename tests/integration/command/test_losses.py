# SPDX-License-Identifier: BSD-3-Clause
"""Whatever warns that a store is lost also says when it is back, at the same level."""
import json
import subprocess

import rdzvtest
from rdzvtest import free_port, wait_until
from relay import Relay

NODE_QUERY = 139  # docs/wire.md


class Losses(rdzvtest.Case):
    def serve_at(self, port):
        server = self.start([rdzvtest.RDZV, "serve", "--port", str(port)], stdout=subprocess.DEVNULL)
        wait_until(lambda: self.rdzv("store", "--endpoint", f"127.0.0.1:{port}", "num-keys").returncode == 0, "it serves")
        return server

    def run_beside(self, name, *arguments):
        """A command that logs warnings; gives what it has said so far."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as stderr:
            self.start([rdzvtest.RDZV, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)

        def said():
            with open(path, encoding="utf-8") as file:
                return file.read()
        return said

    def check_node(self, *conf):
        port = free_port()
        server = self.serve_at(port)
        said = self.run_beside("node-" + "-".join(conf), "join", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job",
                               "--nnodes", "2", "--log-level", "warning", "--rdzv-conf", ",".join(("is_host=false", *conf)))
        wait_until(lambda: "waiting for nodes" in said(), "the node has joined")
        server.kill()
        server.wait()
        wait_until(lambda: "lost the store of the rendezvous" in said(), "the node warns")
        self.serve_at(port)
        wait_until(lambda: "warning: the store of the rendezvous is back after" in said(), f"it says when that is over: {said()}")

    def test_the_store_of_a_node(self):
        for mode in "native", "swap":
            with self.subTest(mode):
                self.check_node(f"mode={mode}")

    def test_a_list_of_participants_that_cannot_be_had_is_not_an_empty_one(self):
        relay = Relay(self.serve().port)
        self.addCleanup(relay.close)
        relay.refused = NODE_QUERY
        node = self.rdzv("join", "--rdzv-endpoint", f"127.0.0.1:{relay.port}", "--rdzv-id", "job", "--once", "--rdzv-conf",
                         f"is_host=false,read_timeout={rdzvtest.slow(2)}")
        self.assertEqual((node.returncode, json.loads(node.stdout)["members"]), (0, None), node.stderr)
        self.assertIn("rdzv join: cannot get the participants of round 0: ", node.stderr)

    def test_a_store(self):
        port = free_port()
        endpoint = f"127.0.0.1:{port}"
        said = self.run_beside("store", "store", "--endpoint", endpoint, "--timeout", "300", "wait", "key")
        wait_until(lambda: f"cannot connect to '{endpoint}' yet" in said(), "it warns")
        self.serve_at(port)
        wait_until(lambda: f"warning: connected to '{endpoint}' after" in said(), f"it says when that is over: {said()}")


if __name__ == "__main__":
    rdzvtest.main()
