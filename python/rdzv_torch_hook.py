# SPDX-License-Identifier: BSD-3-Clause
"""Loaded by rdzv-torch.pth at the start of each interpreter. Registers rdzv when PyTorch's registries are imported: the
backends of torchrun before 2.5, and rdzv:// for init_process_group. It imports nothing until then, and never raises.
"""
import sys

RENDEZVOUS = "torch.distributed.elastic.rendezvous"
SCHEMES = "torch.distributed.rendezvous"


def _registered(name):
    """After the module was executed."""
    try:
        if name == RENDEZVOUS:
            import rdzv.torch
            rdzv.torch.register()
        else:
            import rdzv.torch.init_method  # registers itself
    except Exception as error:  # PyTorch must work without us
        import logging
        logging.getLogger("rdzv").warning("rdzv cannot be registered with PyTorch: %s", error)


class _Finder:
    """Finds nothing itself: the modules of the two registries are found by the others, and their loaders watched."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != RENDEZVOUS and name != SCHEMES:
            return None
        try:
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path, target) if finder is not _Finder else None
                if spec is not None:
                    return _watch(spec, name)
        except Exception:
            pass
        return None


def _watch(spec, name):
    loader = spec.loader
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        _registered(name)

    loader.exec_module = exec_module
    return spec


if not any(finder is _Finder for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder)
