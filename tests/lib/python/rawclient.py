# SPDX-License-Identifier: BSD-3-Clause
"""A client of the wire that can misbehave: requests as bytes, in the three dialects, sent whole, cut or not at all."""
import select
import socket
import struct
import time

DEADLINE = 60.0
VALIDATE = bytes.fromhex("00cef7853c")
HELLO = VALIDATE + bytes.fromhex("0dffffffff")

NUMBERS = {
    "v1": {"set": 0, "compare_set": 1, "get": 2, "add": 3, "check": 4, "wait": 5, "num_keys": 6, "watch_key": 7,
           "delete_key": 8},
    "v2": {"set": 1, "compare_set": 2, "get": 3, "add": 4, "check": 5, "wait": 6, "num_keys": 7, "delete_key": 8,
           "append": 9, "multi_get": 10, "multi_set": 11, "cancel_wait": 12, "ping": 13, "queue_push": 14,
           "queue_pop": 15, "queue_len": 16, "list_keys": 17, "barrier": 18},
}
NUMBERS["rdzv"] = dict(NUMBERS["v2"], get_wait=128, queue_pop_wait=129, get_version=130, compare_set_version=131,
                       wait_changed=132, session=133)


def u64(number):
    return struct.pack("<Q", number & (2**64 - 1))


def sized(data):
    return u64(len(data)) + data


def keys(*names):
    return u64(len(names)) + b"".join(sized(name) for name in names)


# One request of each operation, its fields only.
SAMPLES = {
    "set": sized(b"/h") + sized(b"hostile"), "compare_set": sized(b"/h") + sized(b"a") + sized(b"b"),
    "get": sized(b"/h"), "add": sized(b"/hn") + u64(1), "check": keys(b"/h", b"/i"), "wait": keys(b"/h", b"/i"),
    "num_keys": b"", "watch_key": sized(b"/h"), "delete_key": sized(b"/h"), "append": sized(b"/h") + sized(b"tail"),
    "multi_get": keys(b"/h", b"/i"), "multi_set": u64(1) + sized(b"/h") + sized(b"v"), "cancel_wait": b"",
    "ping": b"\1\2\3\4", "queue_push": sized(b"/hq") + sized(b"item"), "queue_pop": sized(b"/hq"),
    "queue_len": sized(b"/hq"), "list_keys": b"", "barrier": sized(b"/hb") + u64(1000), "get_wait": keys(b"/h"),
    "queue_pop_wait": sized(b"/hq"), "get_version": sized(b"/h"),
    "compare_set_version": sized(b"/h") + u64(0) + sized(b"v"), "wait_changed": sized(b"/h") + u64(0),
    "session": sized(bytes(16)) + u64(1) + u64(1),
}


def request(dialect, op, fields=None):
    return bytes([NUMBERS[dialect][op]]) + (SAMPLES[op] if fields is None else fields)


class Raw:
    """A connection that has greeted in its dialect; None: one that has said nothing."""

    def __init__(self, port, dialect=None, receive_buffer=None):
        self.dialect = dialect
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if dialect == "v2":
            self.send(VALIDATE)
        if dialect == "rdzv":
            self.send(HELLO)
            answer = self.receive(12)
            assert answer[:4] == b"rdz\1", answer

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Leaves with a reset instead of an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, op, fields=None):
        self.send(request(self.dialect, op, fields))

    def receive(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)

    def receive_value(self):
        return self.receive(struct.unpack("<Q", self.receive(8))[0])

    def receive_status(self):
        """Our dialect: 0, or the code and the sentence of a refusal."""
        status = self.receive(1)[0]
        return 0 if status == 0 else (-status, self.receive_value().decode())

    def is_closed(self):
        """By the server, without an answer."""
        if not select.select([self.socket], [], [], 0)[0]:
            return False
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except ConnectionResetError:
            return True

    def wait_closed(self, seconds=DEADLINE):
        """Waits until the server closes, passing over what it still says; gives how long that took."""
        began = time.monotonic()
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 20):
                if time.monotonic() - began > seconds:
                    raise TimeoutError
        except ConnectionError:
            pass
        except TimeoutError:
            raise AssertionError(f"the server did not close within {seconds} s") from None
        return time.monotonic() - began


class Client(Raw):
    """A well-behaved one: checked set, get, add, wait in any dialect."""

    def done(self):
        if self.dialect == "rdzv":
            status = self.receive_status()
            if status != 0:
                raise AssertionError(f"refused: {status}")

    def set(self, key, value):
        self.ask("set", sized(key) + sized(value))
        if self.dialect == "rdzv":
            self.done()

    def get(self, key):
        self.ask("get", sized(key))
        self.done()
        return self.receive_value()

    def check(self, *names):
        self.ask("check", keys(*names))
        self.done()
        return self.receive(1) == b"\0"

    def add(self, key, delta):
        self.ask("add", sized(key) + u64(delta))
        self.done()
        return struct.unpack("<q", self.receive(8))[0]

    def num_keys(self):
        self.ask("num_keys")
        self.done()
        return struct.unpack("<q", self.receive(8))[0]

    def delete(self, key):
        self.ask("delete_key", sized(key))
        self.done()
        return struct.unpack("<q", self.receive(8))[0] == 1

    def begin_wait(self, *names):
        self.ask("wait", keys(*names))

    def end_wait(self):
        status = self.receive(1)
        if status != b"\0":
            raise AssertionError(f"wait was answered with {status!r}")
