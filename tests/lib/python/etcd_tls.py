# SPDX-License-Identifier: BSD-3-Clause
"""An etcd behind TLS, with authorities and certificates made for the test."""
import functools
import ssl
import unittest

import etcd
from certificates import authority, issued

NOBODY = "nobody"


def client():
    return issued("right", "client", "DNS:client")


@functools.lru_cache(maxsize=None)
def server(name="server", names="IP:127.0.0.1", days=2, mutual=True):
    """An etcd with such a certificate, which wants one of ours if `mutual`."""
    cert, key = issued("right", name, names, days)
    options = ["--cert-file", cert, "--key-file", key]
    if mutual:
        options += ["--client-cert-auth", "--trusted-ca-file", authority().cert]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*client())
    return etcd.start(unittest.addModuleCleanup, options, scheme="https", context=context)
