# SPDX-License-Identifier: BSD-3-Clause
"""What the linker and the compiler were told to do against exploits is in the built files."""
import platform
import re
import subprocess
import unittest

import rdzvtest

FILES = [rdzvtest.RDZV, rdzvtest.BUILD + "/librdzv.so"]


def read(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=rdzvtest.DEADLINE).stdout


class Hardening(rdzvtest.Case):
    def test_relocations_are_read_only(self):
        """Full RELRO: all addresses are bound at the start, and their tables are read-only from then on."""
        for file in FILES:
            self.assertIn("GNU_RELRO", read("readelf", "-lW", file))
            self.assertRegex(read("readelf", "-dW", file), r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW")

    def test_position_independent_and_no_executable_stack(self):
        for file in FILES:
            self.assertRegex(read("readelf", "-hW", file), r"Type:\s+DYN")
            self.assertRegex(read("readelf", "-lW", file), r"GNU_STACK.* RW ")

    @unittest.skipUnless(platform.machine() == "x86_64", "the instructions are those of x86-64")
    def test_control_flow_and_stack_probes(self):
        """Functions begin with endbr64, and large frames are probed page by page."""
        code = read("objdump", "-d", "--no-show-raw-insn", rdzvtest.BUILD + "/librdzv.so")
        exported = re.findall(r"<(rdzv_\w+)>:\n[^\n]*?:\s+(\w+)", code)
        self.assertGreater(len(exported), 50)
        self.assertEqual([name for name, first in exported if first != "endbr64"], [])
        self.assertRegex(code, r"(orq?|movq?) +\$0x0,(0x0)?\(%rsp\)")


if __name__ == "__main__":
    rdzvtest.main()
