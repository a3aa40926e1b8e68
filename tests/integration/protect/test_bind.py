# SPDX-License-Identifier: BSD-3-Clause
"""Where a node that serves the store listens, on a machine (a network namespace) with two addresses."""
import subprocess

import machines
import rdzvtest
from machines import address

PORT, SECOND = 29400, "10.77.0.101"
ALL = "this process listens on all its addresses"


class Bind(rdzvtest.Case):
    def setUp(self):
        self.network = machines.Network(1)
        self.addCleanup(self.network.remove)
        super().setUp()
        machines.run("ip", "-n", self.network.namespace(1), "address", "add", f"{SECOND}/24", "dev", "eth0")

    def node(self, host, *flags):
        """Starts a node that serves at that host; what it says until it does."""
        node = self.start([*self.network.on(1), rdzvtest.RDZV, "join", "--rdzv-endpoint", f"{host}:{PORT}", "--rdzv-id", "j",
                           "--nnodes", "2", "--log-level", "info", *flags], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
        said = []
        for line in node.stderr:
            said.append(line)
            if "this process serves the store" in line:
                return "".join(said)
        self.fail("".join(said))

    def reaches(self, host, machine=0):
        """Can a process on that machine (0: the hub) connect there?"""
        code = f"import socket; socket.create_connection(({host!r}, {PORT}), 10)"
        return subprocess.run([*self.network.on(machine), rdzvtest.PYTHON, "-c", code], capture_output=True,
                              check=False).returncode == 0

    def test_an_address_is_listened_on_alone(self):
        said = self.node(address(1))
        self.assertIn(f"on {address(1)}:{PORT}", said)
        self.assertNotIn(ALL, said)
        self.assertTrue(self.reaches(address(1)))
        self.assertFalse(self.reaches(SECOND))
        self.assertFalse(self.reaches("127.0.0.1", machine=1))

    def test_a_name_of_one_address_is_listened_on_alone(self):
        self.network.name_hosts(1, f"127.0.0.1 localhost\n{SECOND} head.example\n")
        self.assertIn(f"on {SECOND}:{PORT}", self.node("head.example"))
        self.assertTrue(self.reaches(SECOND))
        self.assertFalse(self.reaches(address(1)))

    def test_a_name_that_is_loopback_here_is_listened_on_everywhere(self):
        """Debian's 127.0.1.1: others know the machine by an address that it cannot tell."""
        self.network.name_hosts(1, "127.0.0.1 localhost\n127.0.1.1 machine1.invalid\n")
        self.assertIn(ALL, self.node("machine1.invalid"))
        self.assertTrue(self.reaches(SECOND))
        self.assertTrue(self.reaches(address(1)))

    def test_a_name_of_several_addresses_is_listened_on_everywhere(self):
        self.network.name_hosts(1, f"127.0.0.1 localhost\n{SECOND} head.example\n{address(1)} head.example\n")
        self.assertIn(ALL, self.node("head.example"))
        self.assertTrue(self.reaches(SECOND))
        self.assertTrue(self.reaches(address(1)))

    def test_option_bind_goes_before_what_was_found(self):
        self.network.name_hosts(1, "127.0.0.1 localhost\n127.0.1.1 machine1.invalid\n")
        said = self.node("machine1.invalid", "--rdzv-conf", f"bind={SECOND}")
        self.assertIn(f"on {SECOND}:{PORT}", said)
        self.assertNotIn(ALL, said)
        self.assertFalse(self.reaches(address(1)))

    def test_all_addresses_can_be_named(self):
        self.assertNotIn(ALL, self.node("0.0.0.0", "--rdzv-conf", "is_host=true"))
        self.assertTrue(self.reaches(SECOND))


if __name__ == "__main__":
    machines.need()
    rdzvtest.main()
