# SPDX-License-Identifier: BSD-3-Clause
"""What a listener on the network sees: every packet on loopback to and from a server, with and without a secret."""
import socket
import struct
import subprocess
import threading

import protection
import rdzvtest
from protection import SECRET

KEY, VALUE, RUN = "a-key-to-be-seen", "a-value-to-be-seen", "a-run-to-be-seen"


class Capture:
    """Keeps what is in the packets of one port, until closed."""

    def __init__(self, port):
        self.port, self.seen, self.packets = port, bytearray(), 0
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        except PermissionError:
            rdzvtest.skip("only root can listen to all packets")
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.over = False
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while True:
            try:
                packet = self.socket.recv(1 << 17)
            except TimeoutError:
                if self.over:
                    return
                continue
            header = 14 + 4 * (packet[14] & 15)
            if packet[14 + 9] != 6 or self.port not in struct.unpack(">HH", packet[header:header + 4]):
                continue
            self.packets += 1
            self.seen += packet[header:]

    def close(self):
        self.over = True
        self.thread.join()
        self.socket.close()
        return bytes(self.seen)


class Seen(protection.Case):
    def use(self, server, *flags):
        """Writes, reads, and a round of two nodes; returns what a listener has seen of it."""
        capture = Capture(server.port)
        self.assertEqual(self.store(server, *flags, "set", KEY, VALUE).returncode, 0)
        self.assertEqual(self.store(server, *flags, "get", KEY).stdout, VALUE + "\n")
        words = [rdzvtest.RDZV, "join", "--rdzv-endpoint", server.endpoint, "--rdzv-id", RUN, "--nnodes", "2", *flags]
        nodes = [self.start([*words, "--", "true"], env=protection.without_variables(), stdout=subprocess.DEVNULL)
                 for _ in range(2)]
        for node in nodes:
            self.assertEqual(node.wait(rdzvtest.DEADLINE), 0)
        self.stop(server)
        seen = capture.close()
        self.assertGreater(capture.packets, 20)
        return seen

    def test_without_a_secret_everything_is_seen(self):
        """So the next test looks at the right packets."""
        seen = self.use(self.serve())
        for text in (KEY, VALUE, RUN):
            self.assertIn(text.encode(), seen)

    def test_with_a_secret_nothing_is_seen(self):
        seen = self.use(self.guarded(), "--secret-file", self.secret)
        key = protection.derive(SECRET, b"rdzv psk 1", 32)
        for text in (KEY.encode(), VALUE.encode(), RUN.encode(), SECRET.encode(), key, key.hex().encode()):
            self.assertNotIn(text, seen)


if __name__ == "__main__":
    rdzvtest.main()
