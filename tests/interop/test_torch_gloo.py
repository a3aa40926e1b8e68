# SPDX-License-Identifier: BSD-3-Clause
"""A gloo process group of four ranks finds itself through `rdzv serve`, with each PyTorch.

Gloo's own connections differ between the versions, so that a group is of one version.
"""
import peers

RANKS = 4


class EveryGroup:
    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        self.server = self.serve()

    def all_call(self, ranks, name, *arguments):
        for rank in ranks:
            rank.begin(name, *arguments)
        return [rank.finish() for rank in ranks]

    def check_group(self, ranks):
        """Every rank gets what all ranks gave. The group is not left in order: now and then destroy_process_group of
        2.6 waits for ever, with the interpreter's lock, for a thread of its own that wants that lock."""
        expected = (sum(range(1, RANKS + 1)), list(range(RANKS)), 42)
        self.assertEqual(self.all_call(ranks, "collectives"), [expected] * RANKS)
        self.assertEqual(self.all_call(ranks, "pair_sum"), [2, 2] + [None] * (RANKS - 2))

    def join(self, ranks):
        for number, rank in enumerate(ranks):
            rank.begin("join_gloo", number, RANKS)
        for rank in ranks:
            rank.finish()

    def test_over_a_store_that_is_given(self):
        ranks = [self.torch_client(self.version, self.server) for _ in range(RANKS)]
        self.join(ranks)
        self.check_group(ranks)

    def test_twice_over_one_server_under_prefixes(self):
        for attempt in ("first", "second"):
            ranks = [self.torch_client(self.version, self.server) for _ in range(RANKS)]
            self.all_call(ranks, "prefix", attempt)
            self.join(ranks)
            self.check_group(ranks)

    def test_through_the_environment_as_workers_of_torchrun(self):
        ranks = [self.torch(self.version) for _ in range(RANKS)]
        for number, rank in enumerate(ranks):
            rank.begin("join_gloo_as_torchrun_does", self.server.port, number, RANKS)
        for rank in ranks:
            rank.finish()
        self.check_group(ranks)


class Torch113(EveryGroup, peers.Case):
    version = "1.13"


class Torch26(EveryGroup, peers.Case):
    version = "2.6"


if __name__ == "__main__":
    peers.main()
