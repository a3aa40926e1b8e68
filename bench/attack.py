#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client that means no good, beside which bench/store measures what well-behaved ones get.

attack.py NAME PORT DIALECT    prints "ready" when the attack is under way, and goes on until stdin closes

What the server answers is read (but by the slow reader) and not looked at, so the same bytes can be sent to an echo
server. A server that closes the connection, as it may, is attacked again.
"""
import os
import select
import socket
import struct
import sys
import threading
import time

LARGE = 8 << 20
VALIDATE = bytes.fromhex("00cef7853c")
NUMBERS = {"v1": {"set": 0, "get": 2, "wait": 5, "num_keys": 6, "watch_key": 7, "multi_set": 10},
           "v2": {"set": 1, "get": 3, "wait": 6, "num_keys": 7, "multi_set": 11, "list_keys": 17}}
NUMBERS["echo"] = dict(NUMBERS["v2"], watch_key=19)

port, dialect = 0, ""
under_way = threading.Event()


def u64(number):
    return struct.pack("<Q", number)


def sized(data):
    return u64(len(data)) + data


def keys(*names):
    return u64(len(names)) + b"".join(sized(name) for name in names)


def request(op, fields=b""):
    return bytes([NUMBERS[dialect][op]]) + fields


def connect(receive_buffer=None):
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if dialect == "v2":
        sock.sendall(VALIDATE)
    return sock


def drain(sock):
    """Reads in a thread of its own, until the connection ends."""
    def read():
        buffer = bytearray(1 << 20)
        try:
            while sock.recv_into(buffer):
                pass
        except OSError:
            pass
        sock.close()

    threading.Thread(target=read, daemon=True).start()
    return sock


def again_and_again(attack, *arguments):
    """Until the process ends, with a new connection whenever the server closes the last one."""
    while True:
        try:
            attack(*arguments)
        except OSError:
            time.sleep(0.01)


# --- the attacks ---


def wait_and_list():
    """500 000 absent keys waited for, and LIST_KEYS 60 000 times in one segment."""
    for part in range(4):  # as many as one rdzv client may wait for
        sock = drain(connect())
        sock.sendall(request("wait", keys(*(b"%d.%d" % (part, i) for i in range(125000)))))
    lister, segment = drain(connect()), request("list_keys") * 60000
    while True:
        lister.sendall(segment)
        under_way.set()


def watch():
    """100 000 times WATCH_KEY on one key, and then SETs of 8 MB."""
    watcher, setter = drain(connect()), drain(connect())
    watcher.sendall(request("watch_key", sized(b"watched")) * 100000)
    for i in range(10):
        setter.sendall(request("set", sized(b"watched") + sized(bytes([i]) * LARGE)))
        under_way.set()
        time.sleep(0.05)


def wait():
    """1 000 000 WAITs on one key by one connection, and then a SET."""
    waiter, setter = drain(connect()), drain(connect())
    key = b"awaited.%d" % time.monotonic_ns()
    piece = request("wait", keys(key)) * 10000
    try:
        for _ in range(100):
            waiter.sendall(piece)
    finally:
        under_way.set()
        setter.sendall(request("set", sized(key) + sized(b"")))


def list_many():
    """Lists 100 000 keys all the time."""
    sock = drain(connect())
    for first in range(0, 100000, 10000):
        pairs = b"".join(sized(b"some/key/%d" % i) + sized(b"value") for i in range(first, first + 10000))
        sock.sendall(request("multi_set", u64(10000) + pairs))
    while True:
        sock.sendall(request("list_keys") * 10)
        under_way.set()


def read_slowly():
    """Four clients ask for 8 MB 64 times and read 4 KB of it every 10 ms."""
    drain(connect()).sendall(request("set", sized(b"large") + sized(bytes(LARGE))))
    time.sleep(0.2)
    readers = [connect(receive_buffer=4096) for _ in range(4)]
    for sock in readers:
        sock.sendall(request("get", sized(b"large")) * 64)
    under_way.set()
    while True:
        for sock in readers:
            if select.select([sock], [], [], 0)[0] and not sock.recv(4096):
                raise OSError
        time.sleep(0.01)


def write_slowly():
    """100 clients send a SET of 8 MB by a byte every 10 ms."""
    writers = [drain(connect()) for _ in range(100)]
    for i, sock in enumerate(writers):
        sock.sendall(request("set", sized(b"drip/%d" % i) + u64(LARGE)))
    under_way.set()
    while True:
        for sock in writers:
            sock.send(b"x")
        time.sleep(0.01)


def set_large():
    """Two clients set 8 MB all the time."""
    def write():
        sock = drain(connect())
        whole = request("set", sized(b"large/%d" % threading.get_ident()) + sized(bytes(LARGE)))
        while True:
            sock.sendall(whole)
            under_way.set()

    threading.Thread(target=again_and_again, args=(write,), daemon=True).start()
    write()


def connect_often():
    """4000 connects a second."""
    due, each = time.monotonic(), 0.01
    while True:
        for _ in range(40):
            connect().close()
        under_way.set()
        due += each
        time.sleep(max(0, due - time.monotonic()))


ATTACKS = {"wait_and_list": wait_and_list, "watch": watch, "wait": wait, "list_many": list_many,
           "read_slowly": read_slowly, "write_slowly": write_slowly, "set_large": set_large,
           "connect_often": connect_often}


def main():
    global port, dialect
    name, port, dialect = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    threading.Thread(target=again_and_again, args=(ATTACKS[name],), daemon=True).start()
    if under_way.wait(30):
        print("ready", flush=True)
        while os.read(0, 4096):
            pass
    os._exit(0)


if __name__ == "__main__":
    main()
