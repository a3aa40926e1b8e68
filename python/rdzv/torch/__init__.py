# SPDX-License-Identifier: BSD-3-Clause
"""rdzv as a rendezvous backend of stock torchrun: torchrun --rdzv-backend rdzv --rdzv-endpoint HOST:PORT ...

torchrun 2.5 and later finds the entry points (group torchrun.handlers). Earlier ones are served by rdzv_torch_hook,
which a .pth file loads. Both end up here. torchrun calls handler_creator at each of its imports: PyTorch and librdzv
are imported when a handler is made, not before.

The private parts of PyTorch that are used, each with care for its absence: the registry's dict (RDZV_REPLACE_C10D).
"""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Creator = Callable[[Any], Any]

REPLACE = "RDZV_REPLACE_C10D"


def create_rdzv(params: Any) -> Any:
    """The creator of --rdzv-backend rdzv."""
    from rdzv.torch.handler import create
    return create(params)


def create_etcd_v3(params: Any) -> Any:
    """The creator of --rdzv-backend etcd-v3."""
    from rdzv.torch.handler import create
    return create(params, "etcd-v3")


def handler_creator() -> Creator:
    """The entry point `rdzv`."""
    replace_c10d()
    return create_rdzv


def etcd_v3_creator() -> Creator:
    """The entry point `etcd-v3`."""
    return create_etcd_v3


def replace_c10d() -> None:
    """With RDZV_REPLACE_C10D=1, --rdzv-backend c10d is served, too."""
    if os.environ.get(REPLACE) != "1":
        return
    from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
    rendezvous_handler_registry._registry["c10d"] = create_rdzv


def register() -> None:
    """For torchrun before 2.5, and for programs without entry points and hook: puts the backends into the registry."""
    from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
    for name, creator in (("rdzv", create_rdzv), ("etcd-v3", create_etcd_v3)):
        if name not in rendezvous_handler_registry._registry:
            rendezvous_handler_registry.register(name, creator)
    replace_c10d()
