# SPDX-License-Identifier: BSD-3-Clause
"""What `rdzv join` prints of a round with many participants: their list up to 64, and beyond that how to get it."""
import json
import subprocess

import rdzvtest
from nativeclient import NativeNode

MOST = 64
PATIENT = {"keep_alive": 600000, "grace": 60000, "keep_alive_interval": 600000}


class Many(rdzvtest.Case):
    def round_of(self, count):
        """What one `rdzv join` prints in a round of that many, on stdout and stderr; and what `rdzv status` says then."""
        server = self.serve()
        for i in range(count - 1):
            node = NativeNode(server.port, "job", f"n{i:03}", min_nodes=count, max_nodes=count, **PATIENT)
            self.addCleanup(node.__exit__)
            node.begin()
        flags = ["--rdzv-endpoint", server.endpoint, "--rdzv-id", "job"]
        joined = self.start([rdzvtest.RDZV, "join", *flags, "--rdzv-conf", "keep_alive_interval=600", "--nnodes", str(count), "--local-addr", "last"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        found = json.loads(joined.stdout.readline())
        status = json.loads(self.rdzv("status", *flags, "--json").stdout)
        joined.terminate()
        _, said = joined.communicate(timeout=rdzvtest.DEADLINE)
        self.assertEqual(joined.returncode, 0, said)
        self.assertEqual(found["world_size"], count)
        self.assertEqual([node["rank"] for node in status["nodes"]], list(range(count)))
        return found, said, status

    def test_the_longest_list_is_printed(self):
        found, said, status = self.round_of(MOST)
        self.assertEqual([member["node"] for member in found["members"]], [node["node"] for node in status["nodes"]])
        self.assertEqual(said, "")

    def test_a_longer_one_is_not_and_it_says_where_it_is(self):
        found, said, _ = self.round_of(MOST + 1)
        self.assertIsNone(found["members"])
        self.assertEqual(said, "rdzv join: the round has 65 participants, and lists of more than 64 are not printed: see "
                               "'rdzv status'\n")


if __name__ == "__main__":
    rdzvtest.main()
