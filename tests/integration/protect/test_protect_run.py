# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` with a secret: workers that know nothing of TLS, on machines that are network namespaces, and a stranger on
another machine who tries every port."""
import os
import subprocess
import sys

import machines
import protection
import rdzvtest
import run_nodes
from machines import address
from run_nodes import NEVER

PORT = 29400
# All workers meet in their store; then each runs until it is told to end.
MEETER = f"""
store() {{ {rdzvtest.RDZV} store --endpoint "$MASTER_ADDR:$MASTER_PORT" "$@"; }}
note $ROLE_NAME at $MASTER_ADDR
env | grep -i secret && note a secret is in the environment
store set here$RANK x || exit 11
for rank in $(seq 0 $((WORLD_SIZE - 1))); do store wait here$rank || exit 12; done
note $ROLE_NAME met $WORLD_SIZE
await end
"""
# Tries these ports of an address; prints those that are open, and whether a store answers there without TLS.
SCANNER = """
import socket, sys
sys.path[:0] = sys.argv[2].split(":")
import rawclient
sock = socket.socket()
def is_open(port):
    global sock
    if sock.connect_ex((sys.argv[1], port)) != 0:
        return False  # and the socket can be used again
    sock.close()
    sock = socket.socket()
    return True
def answers(port):
    for said in (rawclient.HELLO, rawclient.request("v1", "num_keys")):
        with socket.create_connection((sys.argv[1], port), timeout=10) as sock:
            try:
                sock.sendall(said)
                sock.shutdown(socket.SHUT_WR)
                if sock.recv(16):
                    return True
            except ConnectionError:
                pass
    return False
for port in range(int(sys.argv[3]), int(sys.argv[4])):
    if is_open(port):
        print(port, "plain" if answers(port) else "closed to strangers")
"""


class Case(run_nodes.Run):
    def setUp(self):
        self.network = machines.Network(2)
        self.addCleanup(self.network.remove)
        super().setUp()
        self.secret = self.path("secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(protection.SECRET + "\n")

    def on(self, number, *flags, backend="c10d"):
        name = f"m{number}"
        words = ["--nnodes", "2", "--rdzv-backend", backend, "--rdzv-endpoint", f"{address(1)}:{PORT}", "--rdzv-id", "job",
                 "--role", name, *flags]
        if backend == "c10d":
            words += ["--rdzv-conf", NEVER]
        else:
            words += ["--node-rank", str(number - 1)]
        return self.launch(name, words, [self.script(MEETER)], prefix=self.network.on(number))

    def scan(self, number, first=1, end=65536):
        """The open ports of a machine, as the hub sees them."""
        done = subprocess.run([*self.network.on(0), sys.executable, "-c", SCANNER, address(number),
                               ":".join(path for path in sys.path if path), str(first), str(end)], capture_output=True,
                              text=True, check=True, timeout=2 * rdzvtest.DEADLINE)
        return dict(line.split(" ", 1) for line in done.stdout.splitlines())

    def finish(self, *nodes):
        self.touch("end")
        for node in nodes:
            self.gone(node)

    def meet(self, *flags, backend="c10d"):
        nodes = [self.on(number, *flags, backend=backend) for number in (1, 2)]
        self.wait_notes("m1 met 2", "m2 met 2", more=True)
        return nodes

    def told(self):
        """The addresses that workers have been told."""
        self.assertNotIn("a secret is in the environment", self.notes())
        return {note.split()[2] for note in self.notes() if " at " in note}


class Ports(Case):
    def test_without_a_secret_the_stores_are_open(self):
        """So the scan finds what is there."""
        nodes = self.meet()
        self.assertEqual(self.scan(1, PORT, PORT + 1), {str(PORT): "plain"})
        self.assertEqual(self.told(), {address(1)})
        self.finish(*nodes)

    def test_with_a_secret_no_plain_port_is_open(self):
        nodes = self.meet("--secret-file", self.secret)
        self.assertEqual(self.told(), {"127.0.0.1"})
        first, second = self.scan(1), self.scan(2)
        self.assertIn(str(PORT), first)
        self.assertEqual(len(first) + len(second), 2)  # the store of the rendezvous, and that of the workers
        self.assertEqual(set(first.values()) | set(second.values()), {"closed to strangers"})
        self.finish(*nodes)

    def test_a_static_rendezvous_is_protected(self):
        nodes = self.meet("--secret-file", self.secret, backend="static")
        self.assertEqual(self.told(), {"127.0.0.1"})
        self.assertEqual(self.scan(1, PORT - 10, PORT + 10), {str(PORT): "closed to strangers"})
        self.finish(*nodes)


class Ways(Case):
    def test_a_direct_master_is_the_machine_of_rank_0(self):
        nodes = self.meet("--secret-file", self.secret, "--direct-master")
        self.assertEqual(len(self.told() & {address(1), address(2)}), 1)
        self.finish(*nodes)

    def test_a_static_rendezvous_has_no_direct_master(self):
        node = self.gone(self.on(1, "--secret-file", self.secret, "--direct-master", backend="static"), 2)
        self.assertIn("cannot reach the protected store of a static rendezvous directly", node.err())

    def test_a_node_with_another_secret_is_not_let_in(self):
        first = self.on(1, "--secret-file", self.secret)
        self.wait_for(lambda: "joining the next round" in first.err(), "the first node waits")
        other = self.path("other")
        with open(os.open(other, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(protection.OTHER + "\n")
        node = self.gone(self.on(2, "--secret-file", other), run_nodes.CONNECT)
        self.assertIn("the server does not accept the secret", node.err())
        first.process.terminate()
        first.process.wait(rdzvtest.DEADLINE)


if __name__ == "__main__":
    machines.need()
    rdzvtest.main()
