# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own clients, which know one address, at servers that take over from each other: what they see at a standby,
and behind an address that moves with the active server. docs/operations.md tells it to users."""
import etcd
import peers
import servers
from peers import TorchError
from relay import Relay


def setUpModule():
    etcd.need()


class EveryClient:
    """What holds for both versions."""

    version = refused = closed = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        self.group = servers.Group(self, etcd.shared(), prefix=f"/{self.id()}")
        self.active, self.standby = self.group.start(2)

    def client(self, server, **keywords):
        return self.torch_client(self.version, server, **keywords)

    def test_a_standby_closes_the_connection(self):
        self.group.await_standby(self.standby)
        with self.assertRaises(TorchError) as caught:
            self.client(self.standby, timeout=2).get("k")
        self.assertRegex(caught.exception.text, self.refused)

    def test_behind_an_address_that_moves(self):
        """A connection ends with its server, as with any server that ends; a new client finds all that was set."""
        address = Relay(self.active.port)
        self.addCleanup(address.close)
        address.endpoint = f"127.0.0.1:{address.port}"
        before = self.client(address)
        before.set("k", "v")
        self.assertEqual(before.add("n", 5), 5)
        self.servers.remove(self.active)  # it is not to end in order
        self.active.kill()
        self.group.await_active(self.standby)
        with self.assertRaises(TorchError) as caught:
            before.get("k")
        self.assertRegex(caught.exception.text, self.closed)
        address.server_port = self.standby.port
        after = self.client(address)
        self.assertEqual(after.get("k"), b"v")
        self.assertEqual(after.add("n", 1), 6)


class Torch113(EveryClient, peers.Case):
    """Fails at the first request. A connection whose end it has not noticed yet fails in one of two ways."""

    version, refused, closed = "1.13", "^Connection reset by peer", "^(Broken pipe|Connection reset by peer)"


class Torch26(EveryClient, peers.Case):
    """Tries again at a standby until its timeout."""

    version, refused, closed = "2.6", "^failed to recv, got 0 bytes", "^(failed to recv|sendBytes failed)"


if __name__ == "__main__":
    peers.main()
