# SPDX-License-Identifier: BSD-3-Clause
"""The TCPStore protocol byte for byte, on raw sockets: wire_table.py's exchanges with `rdzv serve` and, where a
packaged PyTorch server has the operation, with that one too, so that the real peer proves the table.

Each scene is played three times: row by row, byte by byte, and with all that a connection sends in a row as one
segment.
"""
import re
import socket
import struct
import unittest

import peers
from wire_table import ALL_V1, ALL_V2, V1, V1_SETTLE, V2, V2_GREETING, V2_SETTLE

SILENCE = 15.0  # an answer that has not come by then will not


def wire(notation):
    """The bytes that the notation of wire_table.py stands for."""
    out = b""
    for text, number, digits, wrong in re.findall(r"('[^']*')|#(-?\d+)|((?:[0-9a-f]{2})+)|(\S)", notation):
        if wrong:
            raise ValueError(f"what is {wrong!r} in {notation!r}?")
        if text:
            value = text[1:-1].encode().decode("unicode_escape").encode("latin-1")
            out += struct.pack("<Q", len(value)) + value
        elif number:
            out += struct.pack("<q" if int(number) < 0 else "<Q", int(number))
        else:
            out += bytes.fromhex(digits)
    return out


class Wire:
    """One connection. `between`, if given, is done after each byte that is sent."""

    def __init__(self, port, bytewise, between):
        self.socket = socket.create_connection(("127.0.0.1", port), SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bytewise, self.between = bytewise, between
        self.open = True

    def send(self, data):
        pieces = [data[i:i + 1] for i in range(len(data))] if self.bytewise else [data]
        for piece in pieces:
            self.socket.sendall(piece)
            if self.between:
                self.between()

    def receive(self, count):
        """So many bytes, or fewer where the server closes."""
        data = b""
        try:
            while len(data) < count and (more := self.socket.recv(count - len(data))):
                data += more
        except ConnectionError:
            pass
        except TimeoutError:
            raise TimeoutError(f"the server is silent after [{data.hex(' ')}]") from None
        return data

    def exchange(self, data, answer):
        """Sends; gives what is answered, and whether it is what was to be."""
        closes = answer.endswith("closed")
        right = [wire(each) for each in answer.replace("closed", "").split("|")]
        try:
            self.send(data)
        except ConnectionError:
            if not closes:
                raise
        found = self.receive(len(right[0]) + (1 if closes else 0))
        self.open = not closes
        return found, found in right

    def close(self):
        self.socket.close()


class Player:
    """Plays scenes against one server."""

    def __init__(self, case, port, settle, greeting, mode, waits_between):
        self.case, self.port, self.settle, self.greeting = case, port, settle, greeting
        self.bytewise, self.pipelined = mode == "bytewise", mode == "pipelined"
        self.connections = {}
        self.other = None
        if self.bytewise and waits_between:
            self.other = Wire(port, False, None)  # the server answers it: so it has read what was sent before
            self.exchange(self.other, wire(self.greeting[0]), self.greeting[1])

    def exchange(self, connection, data, answer):
        found, right = connection.exchange(data, answer)
        self.case.assertTrue(right, f"sent {data.hex(' ')}\nanswered {found.hex(' ')}\nexpected {answer}")

    def round_trip(self):
        self.exchange(self.other, wire(self.settle[0]), self.settle[1])

    def connection(self, name, greets):
        """The connection of that name, and what a new one must say and be answered first."""
        if name in self.connections:
            return self.connections[name], ("", "")
        between = self.round_trip if self.other else None
        self.connections[name] = Wire(self.port, self.bytewise, between)
        return self.connections[name], self.greeting if greets else ("", "")

    def row(self, scene, name, sends, answer):
        connection, first = self.connection(name, scene.greets)
        if first[0] and not self.pipelined:
            self.exchange(connection, wire(first[0]), first[1])
            first = ("", "")
        closes = answer.endswith("closed")
        last = ("", "") if closes else self.settle
        data = b"".join(map(wire, (first[0], sends, last[0])))
        alternatives = [f"{first[1]} {each} {last[1]}" for each in answer.split("|")]
        self.exchange(connection, data, "|".join(alternatives).strip())

    def play(self, scene):
        for row in merged(scene.rows) if self.pipelined else scene.rows:
            self.row(scene, *row)
        for connection in self.connections.values():
            if connection.open:
                self.check_silence(connection)

    def check_silence(self, connection):
        """It was answered all that it was to be, and nothing more."""
        self.exchange(connection, wire(self.settle[0]), self.settle[1])
        connection.socket.setblocking(False)
        with self.case.assertRaises(BlockingIOError):
            connection.socket.recv(1)

    def close(self):
        for connection in [*self.connections.values(), *([self.other] if self.other else [])]:
            connection.close()


def merged(rows):
    """Rows of one connection that follow each other become one."""
    out = []
    for name, sends, answer in rows:
        if out and out[-1][0] == name and "|" not in out[-1][2] + answer:
            out[-1] = (name, f"{out[-1][1]} {sends}", f"{out[-1][2]} {answer}".strip())
        else:
            out.append((name, sends, answer))
    return out


class Dialect:
    """The scenes of one dialect against each of its servers."""

    scenes = settle = greeting = everybody = version = None

    def play_all(self, peer, mode, fresh_server):
        played = 0
        for scene in self.scenes:
            if peer not in (scene.peers or self.everybody):
                continue
            with self.subTest(scene.title, peer=peer, mode=mode):
                player = Player(self, fresh_server(), self.settle, self.greeting, mode, peer == "ours")
                self.addCleanup(player.close)
                player.play(scene)
                player.close()
            played += 1
        self.assertGreater(played, 5)

    def fresh_server_of_ours(self):
        while self.servers:
            self.stop(self.servers.pop())
        return self.serve(stderr=self.log).port

    def play_ours(self, mode):
        with open(self.path("log"), "wb") as self.log:  # the refusals that the scenes provoke
            self.play_all("ours", mode, self.fresh_server_of_ours)

    def play_real(self, mode):
        torch = self.torch(self.version)
        self.play_all(self.version, mode, lambda: torch.tcp(0, master=True))

    def test_ours_row_by_row(self):
        self.play_ours("rows")

    def test_ours_byte_by_byte(self):
        self.play_ours("bytewise")

    def test_ours_pipelined(self):
        self.play_ours("pipelined")

    def test_pytorch_row_by_row(self):
        self.play_real("rows")

    def test_pytorch_byte_by_byte(self):
        self.play_real("bytewise")

    def test_pytorch_pipelined(self):
        self.play_real("pipelined")


class DialectV1(Dialect, peers.Case):
    scenes, settle, greeting, everybody, version = V1, V1_SETTLE, ("", ""), ALL_V1, "1.13"


class DialectV2(Dialect, peers.Case):
    scenes, settle, greeting, everybody, version = V2, V2_SETTLE, V2_GREETING, ALL_V2, "2.6"

    def check_splits(self, port, between):
        data, answer = wire(V2_GREETING[0]), wire(V2_GREETING[1])
        for at in range(1, len(data)):
            connection = Wire(port, False, between)
            self.addCleanup(connection.close)
            connection.send(data[:at])
            connection.send(data[at:])
            self.assertEqual(connection.receive(len(answer)), answer, f"split at {at}")
            connection.close()

    def test_the_greeting_may_be_split_anywhere(self):
        port = self.serve().port
        other = Wire(port, False, None)  # the server answers it: so it has read what was sent before
        self.addCleanup(other.close)
        self.assertTrue(other.exchange(wire(V2_GREETING[0]), V2_GREETING[1])[1])
        self.check_splits(port, lambda: self.assertTrue(other.exchange(wire(V2_SETTLE[0]), V2_SETTLE[1])[1]))

    def test_the_greeting_of_pytorch_may_be_split_anywhere(self):
        self.check_splits(self.torch_server(self.version).port, None)


class BothDialects(peers.Case):
    def test_both_share_the_keys_of_one_port(self):
        port = self.serve().port
        old, new = Wire(port, False, None), Wire(port, False, None)
        self.addCleanup(old.close)
        self.addCleanup(new.close)
        for connection, sends, answer in (
                (new, *V2_GREETING), (new, "01 '/new' '2' 07", "#1"), (old, "02 '/new'", "'2'"),
                (old, "00 '/old' '1' 06", "#2"), (new, "03 '/old'", "'1'"), (new, "06 #1 '/k' 07", "#2"),
                (old, "00 '/k' ''", ""), (new, "", "00"), (old, "07 '/w'", "03"), (new, "09 '/w' 'v'", ""),
                (old, "", "01 '/w' '' 'v'"), (new, "0b #1 '/w' 'x'", ""), (old, "", "00 '/w' 'v' 'x'")):
            found, right = connection.exchange(wire(sends), answer)
            self.assertTrue(right, f"{sends}: {found.hex(' ')}")


class Notation(unittest.TestCase):
    """The notation stands for the bytes that were seen on a real wire."""

    def test_an_add_as_it_was_seen(self):
        self.assertEqual(wire("04 'init/' #1").hex(" "),
                         "04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00")

    def test_a_negative_number_and_a_list(self):
        self.assertEqual(wire(r"06 #2 '/x' '\x00' #-2").hex(" "),
                         "06 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 78 01 00 00 00 00 00 00 00 00 "
                         "fe ff ff ff ff ff ff ff")


if __name__ == "__main__":
    peers.main()
