# SPDX-License-Identifier: BSD-3-Clause
"""What a listener on the network sees: every packet on loopback to and from a server, with and without a secret."""
import ctypes
import socket
import struct
import subprocess
import threading

import protection
import rdzvtest
from protection import SECRET

KEY, VALUE, RUN = "a-key-to-be-seen", "a-value-to-be-seen", "a-run-to-be-seen"


SO_ATTACH_FILTER = 26


def only_port(port):
    """A filter of the kernel (bpf(4)) that lets TCP over IPv4 from or to the port through: others use loopback, too."""
    rows = [(0x28, 0, 0, 12), (0x15, 0, 8, 0x0800),  # the kind of packet
            (0x30, 0, 0, 23), (0x15, 0, 6, 6),  # the protocol
            (0xB1, 0, 0, 14), (0x48, 0, 0, 14), (0x15, 2, 0, port), (0x48, 0, 0, 16), (0x15, 0, 1, port),
            (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0)]
    return b"".join(struct.pack("HBBI", *row) for row in rows), len(rows)


class Capture:
    """Keeps what is in the packets of one port, until closed."""

    def __init__(self, port):
        self.seen, self.packets = bytearray(), 0
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        except PermissionError:
            rdzvtest.skip("only root can listen to all packets")
        code, count = only_port(port)
        memory = ctypes.create_string_buffer(code)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", count, ctypes.addressof(memory)))
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
            self.packets += 1
            self.seen += packet

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
