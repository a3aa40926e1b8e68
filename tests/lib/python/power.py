# SPDX-License-Identifier: BSD-3-Clause
"""What a disk may have after a power loss, from a log of tests/lib/write_log.c: all that was synced, and of what was
written since, any sectors."""
import os
import shutil
import struct

SECTOR = 512


class File:
    def __init__(self):
        self.safe = bytearray()  # as it was when it was synced last
        self.later = []  # (offset, bytes), or (length, None): cut to that length
        self.is_there, self.is_gone = False, False  # for good; perhaps

    def sync(self):
        for offset, data in self.later:
            put(self.safe, offset, data)
        self.later, self.is_there, self.is_gone = [], True, False

    def after(self, luck, lies):
        """Its bytes; None: it is not there. `lies`: a sync has saved nothing."""
        if (not self.is_there or self.is_gone) and luck.random() < 0.5:
            return None
        found = bytearray() if lies else bytearray(self.safe)
        reached = luck.choice((0, 0.5, 0.9))
        for offset, data in [] if lies else self.later:
            if data is None:
                if luck.random() < reached:
                    put(found, offset, None)
                continue
            for at in range(0, len(data), SECTOR):
                if luck.random() < reached:
                    put(found, offset + at, data[at:at + SECTOR])
        return bytes(found)


def put(content, offset, data):
    if data is None:
        del content[offset:]
    elif len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is not None:
        content[offset:offset + len(data)] = data


def record(kind, name, data=b"", offset=0):
    """As write_log.c writes it."""
    return struct.pack("<cB", kind.encode(), len(name)) + name.encode() + struct.pack("<qq", offset, len(data)) + data


def read(log):
    """The files, by name."""
    with open(log, "rb") as file:
        text = file.read()
    files, at = {}, 0
    while at < len(text):
        kind, size = chr(text[at]), text[at + 1]
        name = text[at + 2:at + 2 + size].decode()
        at += 2 + size
        offset, length = struct.unpack_from("<qq", text, at)
        at += 16
        if kind == "s" and not name:
            for gone in [each for each in files if files[each].is_gone]:
                del files[gone]
            continue
        file = files.setdefault(name, File())
        if kind == "w":
            file.later.append((offset, text[at:at + length]))
            at += length
        elif kind == "t":
            file.later.append((offset, None))
        elif kind == "u":
            file.is_gone = True
        else:
            file.sync()
    return files


def image(log, left, folder, luck, lies=False):
    """Makes the folder as it may be. `left`: as the process has left it, for what it has mapped and so was not logged."""
    os.mkdir(folder, 0o700)
    for name, file in read(log).items():
        content = file.after(luck, lies)
        if content is not None:
            with open(os.path.join(folder, name), "wb") as out:
                out.write(content)
    for name in ("mark", "reserve"):
        if os.path.exists(os.path.join(left, name)):
            shutil.copy(os.path.join(left, name), folder)
