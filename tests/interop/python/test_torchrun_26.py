# SPDX-License-Identifier: BSD-3-Clause
"""Stock torchrun 2.6 with the plug-in."""
import etcd
import peers
import plugin_jobs
from plugin_stories import Stories


class Torch26(Stories, plugin_jobs.Case):
    version = "2.6"

    def more_stories(self):
        """An agent of 1.13 whose workers failed waits for those of the others to end. And its rendezvous knows waiting
        nodes, not spares."""
        return {"one fails for good": self.check_one_fails_for_good,
                "spare is not needed": self.check_a_spare_is_not_needed}


if __name__ == "__main__":
    etcd.need()
    peers.main()
