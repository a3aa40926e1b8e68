# SPDX-License-Identifier: BSD-3-Clause
"""A worker that writes what it was given to $DUMP_FOLDER/<rank>.json, a line to stdout and one to stderr."""
import json
import os
import sys


def dump():
    rank, folder = os.environ["RANK"], os.environ["DUMP_FOLDER"]
    seen = {"environment": dict(os.environ), "words": sys.argv, "name": __name__, "folder": os.getcwd(),
            "unbuffered": sys.stdout.write_through}
    with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(seen, file)
    sys.stdout.write(f"stdout of rank {rank}\n")
    sys.stderr.write(f"stderr of rank {rank}\n")
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    dump()
