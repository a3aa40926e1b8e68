# SPDX-License-Identifier: BSD-3-Clause
"""Stock torchrun 1.13 with the plug-in."""
import etcd
import peers
import plugin_jobs
from plugin_stories import Stories


class Torch113(Stories, plugin_jobs.Case):
    version = "1.13"


if __name__ == "__main__":
    etcd.need()
    peers.main()
