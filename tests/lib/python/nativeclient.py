# SPDX-License-Identifier: BSD-3-Clause
"""A native node as bytes: it joins, resumes, leaves, and can do each of them wrong. docs/wire.md describes them."""
import os
import struct
from collections import namedtuple

from rawclient import HELLO, NUMBERS, Raw, sized, u64

NUMBERS["rdzv"].update(node_join=134, node_resume=135, node_leave=136, node_close=137, node_beat=138, node_query=139)

JOINED, RESUMED, LEFT, CLOSED, BEAT, NEWS, STATUS, MEMBERS = range(1, 9)
NATIVE_PING = bytes.fromhex("0dfdffffff")
SOMEONE_WAITS, SOMEONE_LEFT, SOMEONE_DIED, IS_CLOSED, EVICTED = (1 << bit for bit in range(4, 9))
TORCH, SWAP, NATIVE = range(3)  # ways
E_TIMEOUT, E_PROTOCOL, E_LIMIT, E_STALE, E_IN_USE, E_CLOSED = -3, -8, -11, -16, -17, -20
QUERY_STATUS = 2**64 - 1
DEFAULTS = {"min_nodes": 1, "max_nodes": 1, "join_timeout": 600000, "last_call_timeout": 30000, "close_timeout": 30000,
            "heartbeat_timeout": 5000, "keep_alive_interval": 5000, "keep_alive_max_attempt": 3}

Joined = namedtuple("Joined", "number round rank world_size flags master_node master_addr master_port ranks")
News = namedtuple("News", "what round waiting gone nodes warning")
Status = namedtuple("Status", "exists complete closed layout round call_left reason nodes min_nodes max_nodes ended_us ended_by")
Node = namedtuple("Node", "addr pid local_id rank kinds way heard_ms trip_us")
Refusal = namedtuple("Refusal", "code op number text")


def text(value):
    data = value.encode()
    return struct.pack("<H", len(data)) + data + b"\0"


class Take:
    """Takes fields off a message."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, count):
        self.at += count
        assert self.at <= len(self.data), self.data
        return self.data[self.at - count:self.at]

    def u8(self):
        return self.bytes(1)[0]

    def i64(self):
        return struct.unpack("<q", self.bytes(8))[0]

    def text(self):
        data = self.bytes(struct.unpack("<H", self.bytes(2))[0])
        assert self.u8() == 0
        return data.decode()

    def short(self):
        number = shift = 0
        while True:
            byte = self.u8()
            number |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return number

    def signed(self):
        number = self.short()
        return number >> 1 if number % 2 == 0 else -(number >> 1) - 1

    def nodes(self, with_sight):
        nodes, addr = [], b""
        for _ in range(self.short()):
            common = self.short()
            addr = addr[:common] + self.bytes(self.short())
            pid, local_id, rank, traits = self.signed(), self.signed(), self.signed(), self.u8()
            sight = (self.signed(), self.signed()) if with_sight else (-1, -1)
            nodes.append(Node(addr.decode(), pid, local_id, rank, traits & 7, traits >> 3, *sight))
        return nodes

    def end(self):
        assert self.at == len(self.data), self.data[self.at:]


def decode(kind, body):
    take = Take(body)
    if kind == JOINED:
        fixed = [take.i64() for _ in range(4)]
        flags = take.u8()
        master = [take.text(), take.text(), take.i64()]
        result = Joined(*fixed, flags, *master, [take.i64() for _ in range(5)] if flags & 8 else None)
    elif kind == RESUMED:
        result = take.i64()
    elif kind == NEWS:
        fixed = [take.i64() for _ in range(4)]
        result = News(*fixed, [(take.text(), take.i64(), take.i64()) for _ in range(take.u8())],
                      take.text())
    elif kind == STATUS:
        flags, layout = take.u8(), take.u8()
        fixed = [take.signed(), take.signed(), take.text()]
        more = [take.signed(), take.signed(), take.signed(), take.text()]
        result = Status(flags & 1 > 0, flags & 2 > 0, flags & 4 > 0, layout, *fixed, take.nodes(True), *more)
    elif kind == MEMBERS:
        result = take.signed(), take.nodes(False)
    else:
        result = None
    take.end()
    return result


class Session:
    """What a node is beyond its connection."""

    def __init__(self, addr, pid=1, local_id=0, token=None):
        self.addr, self.pid, self.local_id = addr, pid, local_id
        self.token = token or os.urandom(16)
        self.epoch = 0
        self.number = 0

    def encode(self):
        return text(self.addr) + struct.pack("<qq", self.pid, self.local_id) + self.token + u64(self.epoch)


def join_request(run_id, session, keep_alive=2000, grace=300, rank_order=0, layout=3, first_round=0, master=("", 0),
                 workers=("", 0, 0), **settings):
    values = dict(DEFAULTS, **settings)
    value = text(run_id) + session.encode() + struct.pack("<Qqq", session.number, keep_alive, grace)
    value += struct.pack("<8q", *(values[name] for name in DEFAULTS)) + bytes([rank_order, 3, layout])
    value += u64(first_round) + text(master[0]) + u64(master[1])
    value += text(workers[0]) + struct.pack("<qq", *workers[1:])
    return bytes([134]) + sized(value)


class NodeConn(Raw):
    """A connection of our dialect that has greeted as a native node does."""

    def __init__(self, port, greeting=True, receive_buffer=None):
        super().__init__(port, receive_buffer=receive_buffer)
        self.dialect = "rdzv"
        if greeting:
            self.send(HELLO + NATIVE_PING)
            answer = self.receive(17)
            assert answer[:4] == b"rdz\1" and answer[12:] == b"\0nat\1", answer

    def message(self):
        """(kind, what it says); for a refusal (0, Refusal)."""
        status = self.receive(1)[0]
        value = self.receive_value()
        if status == 0:
            return value[0], decode(value[0], value[1:])
        op = value[0] if value and value[0] >= 134 else None
        number = int.from_bytes(value[1:9], "little") if op else None
        return 0, Refusal(-status, op, number, value[9 if op else 0:].decode())

    def expect(self, kind):
        """The next message, which must be of that kind."""
        got, message = self.message()
        assert got == kind, f"{message!r} of kind {got} instead of kind {kind}"
        return message

    def refused(self, code, op=None, number=None):
        refusal = self.expect(0)
        assert refusal.code == code and (op is None or refusal.op == op), refusal
        assert number is None or refusal.number == number, refusal
        return refusal.text

    def join(self, run_id, session, **options):
        """Asks, without waiting for the answer."""
        self.send(join_request(run_id, session, **options))

    def resume(self, run_id, session):
        self.send(bytes([135]) + sized(text(run_id) + session.encode()))

    def leave(self):
        self.ask("node_leave", b"")
        while (kind := self.message()[0]) != LEFT:
            assert kind == NEWS, kind

    def beat(self, answer=False, trip_us=0):
        self.ask("node_beat", u64(1 << 63 if answer else trip_us))

    def close_run(self, run_id, reason=""):
        self.ask("node_close", sized(run_id.encode()) + sized(reason.encode()))

    def query(self, run_id, number=QUERY_STATUS):
        self.ask("node_query", sized(run_id.encode()) + u64(number))


class NativeNode:
    """A session and its connection."""

    def __init__(self, port, run_id, name, **options):
        self.port, self.run_id, self.options = port, run_id, options
        self.session = Session(name)
        self.conn = None
        self.conns = []  # all of them, the last one last

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for conn in self.conns:
            conn.close()

    def connect(self, port=None):
        self.conn = NodeConn(port or self.port)
        self.conns.append(self.conn)
        self.session.epoch += 1
        return self.conn

    def begin(self):
        """Joins anew."""
        self.session.number += 1
        if not self.conn:
            self.connect()
        self.conn.join(self.run_id, self.session, **self.options)
        return self

    def again(self):
        """Sends the same join by a new connection."""
        self.connect().join(self.run_id, self.session, **self.options)
        return self

    def joined(self):
        return self.conn.expect(JOINED)
