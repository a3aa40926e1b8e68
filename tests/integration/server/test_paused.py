# SPDX-License-Identifier: BSD-3-Clause
"""A server that was paused while clients of rdzv connected. They asked what it is: its log does not blame them."""
import signal

import protection
import rdzvtest

GREETING = b"\0\xce\xf7\x85\x3c\x0d\xff\xff\xff\xff"


def connections(port):
    """How many connections the server has, accepted or not, in any state but a closed one."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in list(table)[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] in ("01", "08") for row in rows)


class Paused(protection.Case):
    def count_after_a_pause(self, server, text, blamed, *flags):
        """A client connects and asks while the server is stopped. How often has the log that text then, if a stranger that
        sends `blamed` is in it, too?"""
        server.send_signal(signal.SIGSTOP)
        client = self.start([rdzvtest.RDZV, "store", "--endpoint", server.endpoint, *flags, "--timeout", "100", "num-keys"],
                            env=protection.without_variables())
        rdzvtest.wait_until(lambda: connections(server.port) >= 2, "the client asks what the server is")
        server.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(rdzvtest.DEADLINE), 0)
        protection.answer_of(server.port, blamed)
        self.wait_for_line(server, text)
        return self.log_of(server).count(text)

    def test_a_plain_server(self):
        server = self.serve()
        self.assertEqual(self.count_after_a_pause(server, "an unknown operation", b"\xff hello"), 1)
        self.stop(server)

    def test_a_protected_server(self):
        server = self.guarded()
        flags = ["--secret-file", self.secret]
        self.assertEqual(self.count_after_a_pause(server, "it did not start TLS", b"\x05hello", *flags), 1)
        self.stop(server)

    def test_other_questions_of_strangers_are_logged(self):
        server = self.serve()
        protection.answer_of(server.port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        self.wait_for_line(server, "an unknown operation")
        self.stop(server)
        server = self.guarded()
        protection.answer_of(server.port, GREETING + b"\x0d\xfe\xff\xff\xff")  # a client without the secret
        self.wait_for_line(server, "it did not start TLS")
        self.stop(server)


if __name__ == "__main__":
    rdzvtest.main()
