# SPDX-License-Identifier: BSD-3-Clause
"""torchrun of a PyTorch 2 that is built without libuv, as Debian's is: it asks for it all the same, and fails.

torch_run.py ARG...    the arguments of torchrun
"""
import functools

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend
from torch.distributed.run import main

c10d_rendezvous_backend.TCPStore = functools.partial(TCPStore, use_libuv=False)
main()
