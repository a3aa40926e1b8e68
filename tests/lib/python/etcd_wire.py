# SPDX-License-Identifier: BSD-3-Clause
"""An etcd that is broken or hostile, and a proxy before a real one that loses what it is told to lose."""
import http.client
import socket
import ssl
import threading

CLOSE_AFTER, CLOSE_BEFORE = "close after", "close before"


class Server:
    """Accepts connections and has each served by a thread; ends with close(). With a context it speaks TLS."""

    def __init__(self, context=None):
        self.context = context
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        self.url = f"http{'s' if context else ''}://{self.endpoint}"
        self.requests, self.connections, self.threads = [], [], []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self.run, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def run(self, connection):
        if self.context:
            try:
                connection = self.context.wrap_socket(connection, server_side=True)
            except (OSError, ssl.SSLError):  # what the test is about, on their side
                return
            self.connections.append(connection)
        with connection, connection.makefile("rb") as stream:
            try:
                while request := self.read(stream):
                    self.requests.append(request)
                    if not self.answer(connection, *request):
                        return
            except OSError:
                pass

    @staticmethod
    def read(stream):
        """(method, path, headers, body), or None at the end."""
        first = stream.readline().decode("latin-1").split()
        if len(first) != 3:
            return None
        headers = http.client.parse_headers(stream)
        return first[0], first[1], headers, stream.read(int(headers.get("Content-Length", 0)))

    def answer(self, connection, method, path, headers, body):
        """False: the connection is closed."""
        raise NotImplementedError

    def close(self):
        self.ended.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join()


def message(status, body=b"", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "X-Etcd-Index: 7", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Broken(Server):
    """Answers everything with the same bytes, or lets `answer_with` write them: it gets the connection and the path,
    and says whether the connection stays."""

    def __init__(self, answer_with, context=None):
        self.answer_with = answer_with
        super().__init__(context)

    def answer(self, connection, method, path, headers, body):
        if callable(self.answer_with):
            return self.answer_with(self, connection, path)
        connection.sendall(self.answer_with)
        return True


class Proxy(Server):
    """Passes requests on to a real etcd. `rule` is asked for each, with method, path and body: None passes it on,
    CLOSE_AFTER has etcd do it and tells nobody, CLOSE_BEFORE does neither, bytes are the answer, an Event waits for it
    first."""

    def __init__(self, port, rule=lambda method, path, body: None):
        self.target, self.rule = port, rule
        super().__init__()

    def answer(self, connection, method, path, headers, body):
        rule = self.rule(method, path, body)
        if rule == CLOSE_BEFORE:
            return False
        if isinstance(rule, bytes):
            connection.sendall(rule)
            return False
        if isinstance(rule, threading.Event):
            while not rule.wait(0.05) and not self.ended.is_set():
                pass
        etcd = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        self.connections.append(connection)
        try:
            etcd.request(method, path, body or None, {"Content-Type": headers["Content-Type"]} if body else {})
            self.connections.append(etcd.sock)
            got = etcd.getresponse()
            index = got.headers.get("X-Etcd-Index", "0")
            data = got.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            etcd.close()
        if rule == CLOSE_AFTER:
            return False
        connection.sendall(f"HTTP/1.1 {got.status} X\r\nContent-Length: {len(data)}\r\nX-Etcd-Index: {index}\r\n\r\n"
                           .encode() + data)
        return True
