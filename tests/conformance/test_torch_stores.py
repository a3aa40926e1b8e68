# SPDX-License-Identifier: BSD-3-Clause
"""cases.txt on PyTorch's own stores, which shows that the cases are right, and on its clients of our server."""
import rdzvtest
from test_conformance import VIEWS, Conformance


class TorchOnOurs(Conformance):
    def test_torch113(self):
        self.torch("1.13", self.our_server(), "--tags", "ours")

    def test_torch26(self):
        self.torch("2.6", self.our_server(), "--tags", "ours")


class Torch113(Conformance):
    version = "1.13"

    def test_hash(self):
        self.torch(self.version, "hash")

    def test_hash_in_a_view(self):
        self.torch(self.version, "hash", *VIEWS)

    def test_file(self):
        self.torch(self.version, "file:" + self.path("store"))

    def test_tcp(self):
        self.torch(self.version, "tcp")

    def test_tcp_in_a_view(self):
        self.torch(self.version, "tcp", *VIEWS)


class Torch26(Torch113):
    version = "2.6"


if __name__ == "__main__":
    if not rdzvtest.has_torch113() and not rdzvtest.has_torch26():
        rdzvtest.skip("there is neither PyTorch 1.13 nor 2.6")
    rdzvtest.main()
