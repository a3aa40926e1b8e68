# SPDX-License-Identifier: BSD-3-Clause
"""Our rules beside PyTorch's own: on thousands of random states, the same action and an equal state after it."""
import collections
import io
import os
import pickle
import subprocess
import unittest

import peers
import rdzvtest

COUNT = 3000
SEED = int(os.environ.get("RDZV_SEED", "1"))
DRIVER = rdzvtest.built("tests/rules_driver")
CASES = os.path.join(peers.HERE, "rules_cases.py")
ACTIONS_1_13 = {"KEEP_ALIVE", "ADD_TO_PARTICIPANTS", "ADD_TO_WAIT_LIST", "REMOVE_FROM_PARTICIPANTS",
                "REMOVE_FROM_WAIT_LIST", "MARK_RENDEZVOUS_COMPLETE", "MARK_RENDEZVOUS_CLOSED", "SYNC", "ERROR_CLOSED",
                "ERROR_TIMEOUT", "FINISH", "SANITIZE"}
ACTIONS = {"1.13": ACTIONS_1_13,
           "2.6": ACTIONS_1_13 | {"ADD_TO_REDUNDANCY_LIST", "REMOVE_FROM_REDUNDANCY_LIST", "ERROR_GRACEFUL_EXIT"}}


class Node:
    """A stand-in for PyTorch's _NodeDesc, which may not be importable here."""

    def __setstate__(self, attributes):
        self.__dict__.update(attributes)

    def key(self):
        return tuple(sorted(self.__dict__.items()))

    def __hash__(self):
        return hash(self.key()) if self.__dict__ else id(self)

    def __eq__(self, other):
        return self.key() == other.key()

    def __repr__(self):
        return "_".join(str(value) for value in self.__dict__.values())


class State:
    """A stand-in for PyTorch's _RendezvousState."""


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return {"_NodeDesc": Node, "_RendezvousState": State}.get(name) or super().find_class(module, name)


def load(text):
    """The attributes of a pickled state, comparable."""
    attributes = Unpickler(io.BytesIO(bytes.fromhex(text))).load().__dict__
    # A set that was filled before its nodes were is rebuilt.
    return {name: type(value)(value) if isinstance(value, (set, dict)) else value
            for name, value in attributes.items()}


class TestRules(unittest.TestCase):
    """One test for each version of PyTorch."""

    def compare(self, version):
        peers.need(version)
        command = rdzvtest.torch_python(version) + [CASES, str(SEED), str(COUNT)]
        cases = subprocess.run(command, cwd=rdzvtest.SOURCE, stdout=subprocess.PIPE, text=True, check=True).stdout
        questions, expected = zip(*(line.split("\t") for line in cases.splitlines()))
        ours = subprocess.run([DRIVER, version], input="\n".join(questions) + "\n", stdout=subprocess.PIPE, text=True,
                              check=True).stdout.splitlines()
        self.assertEqual((len(ours), len(questions)), (COUNT, COUNT))
        seen = collections.Counter()
        for question, their, our in zip(questions, expected, ours):
            self.compare_one(question, their.split(), our.split())
            seen[their.split()[0]] += 1
        print(f"PyTorch {version}, seed {SEED}:", dict(seen))
        self.assertEqual(set(seen), ACTIONS[version], "every action occurs")

    def compare_one(self, question, their, our):
        with self.subTest(question=question[:question.rindex(" ")], seed=SEED):
            before = load(question.split()[-1])
            self.assertEqual(our[0], their[0], before)
            self.assertEqual(load(our[1]), load(their[1]), (their[0], before))

    def test_rules_are_those_of_torch_1_13(self):
        self.compare("1.13")

    def test_rules_are_those_of_torch_2_6(self):
        self.compare("2.6")


if __name__ == "__main__":
    peers.main()
