# SPDX-License-Identifier: BSD-3-Clause
"""A relay between clients and a server that loses, holds and delays bytes where a test wants it to."""
import selectors
import socket
import threading
import time


class Relay:
    """Relays each connection to a server, in a thread of its own. What it does to bytes can be changed at any time:
    cut_after      closes both ends of a connection after so many bytes from its client; None: never
    lose_answers   bytes of the server are dropped, and the client's connection is closed when the first come
    frozen         nothing is relayed and nobody is told of an end: both sides are half-open
    delay          seconds that each piece waits
    refused        closes a connection whose client sends a piece that begins with this byte; None: none does
    """

    def __init__(self, server_port):
        self.server_port = server_port
        self.cut_after, self.lose_answers, self.frozen, self.delay, self.refused = None, False, False, 0.0, None
        self.lost = 0  # answers that were dropped
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.wake_send, self.wake = socket.socketpair()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.silent = set()  # ended while frozen
        self.pairs = {}  # socket -> [peer, is client, bytes from the client]
        self.ended = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self.ended = True
        self.wake_send.send(b"x")
        self.thread.join()
        for one in [*self.pairs, self.listener, self.wake, self.wake_send]:
            one.close()
        self.selector.close()

    def accept(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.server_port))
        count = [0]
        for one, other, is_client in ((client, server, True), (server, client, False)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs[one] = (other, is_client, count)
            self.selector.register(one, selectors.EVENT_READ)

    def drop(self, one):
        other = self.pairs[one][0]
        for end in (one, other):
            if end not in self.silent:
                self.selector.unregister(end)
            self.silent.discard(end)
            del self.pairs[end]
            end.close()

    def relay(self, one):
        other, is_client, count = self.pairs[one]
        try:
            data = one.recv(65536)
        except ConnectionError:
            data = b""
        if self.frozen:  # what comes is gone, as on a line that is dead; so is an end
            if not data:
                self.selector.unregister(one)
                self.silent.add(one)
            return
        if not data or (is_client and data[0] == self.refused):
            self.drop(one)
            return
        if self.delay:
            time.sleep(self.delay)
        if not is_client and self.lose_answers:
            self.lost += 1
            self.drop(one)
            return
        if is_client and self.cut_after is not None and count[0] + len(data) >= self.cut_after:
            data = data[:self.cut_after - count[0]]
            other.sendall(data)
            self.drop(one)
            return
        count[0] += len(data) if is_client else 0
        try:
            other.sendall(data)
        except ConnectionError:
            self.drop(one)

    def run(self):
        while not self.ended:
            for key, _ in self.selector.select():
                if key.fileobj is self.wake:
                    return
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj in self.pairs:
                    self.relay(key.fileobj)
