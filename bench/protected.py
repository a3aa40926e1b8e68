# SPDX-License-Identifier: BSD-3-Clause
"""TLS 1.3 beside plain connections, for bench/store: two rdzv servers that take turns, one of them with a secret."""
import os
import secrets
from statistics import median

CONNECTIONS, PIPELINES, OPS = (64, 1000), (1, 16), ("set", "get")
LEAST, MOST_BYTES = 0.6, 24 * 1024
IDLE = 1000


def secret_file(folder):
    path = folder / "secret"
    if not path.exists():
        path.write_text(secrets.token_hex(32) + "\n")
        os.chmod(path, 0o600)
    return path


def measure(store, bench, stack, progress):
    """{"cells": …, "bytes": …}: the ratio of both rates in the same rounds, and the memory of an idle connection."""
    flags = ["--secret-file", str(secret_file(bench.folder))]
    plain, guarded = store.start_ours(bench, stack, "plain"), store.start_ours(bench, stack, "TLS", flags)
    cells = {}
    for connections in CONNECTIONS:
        for pipeline in PIPELINES:
            for op in OPS:
                progress(f"TLS beside plain: {op}, {connections} connections, pipeline {pipeline}")
                rounds = [r["servers"] for r in store.measure_rounds(bench, [plain, guarded], op, connections, pipeline)]
                cells[op, connections, pipeline] = {
                    "plain": median(r["plain"]["ops_per_s"] for r in rounds),
                    "tls": median(r["TLS"]["ops_per_s"] for r in rounds),
                    "ratio": median(r["TLS"]["ops_per_s"] / r["plain"]["ops_per_s"] for r in rounds),
                    "plain_us": median(r["plain"]["server_us_per_op"] for r in rounds),
                    "tls_us": median(r["TLS"]["server_us_per_op"] for r in rounds)}
    return {"cells": cells, "bytes": store.measure_memory(bench, flags, IDLE)["heap"]}


def rows(results, rate_text):
    return [[op, str(connections), str(pipeline), rate_text(cell["plain"]), rate_text(cell["tls"]), f"{cell['ratio']:.2f}",
             f"{cell['plain_us']:.2f}", f"{cell['tls_us']:.2f}"]
            for (op, connections, pipeline), cell in results["cells"].items()]


HEAD = ["", "connections", "pipeline", "plain, operations/s", "TLS", "ratio", "server's µs an operation, plain", "TLS"]


def target(results):
    name, cell = min(results["cells"].items(), key=lambda pair: pair[1]["ratio"])
    reached = cell["ratio"] >= LEAST and results["bytes"] <= MOST_BYTES
    return reached, f"lowest {cell['ratio']:.2f} ({name[0]} at {name[1]} × {name[2]}); {results['bytes']:.0f} bytes"
