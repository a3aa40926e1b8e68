# SPDX-License-Identifier: BSD-3-Clause
"""The TCPStore exchanges that test_wire_bytes.py sends and expects, as tables.

A Scene is played on a fresh server. Its rows are (connection, what it sends, what it must be answered), in this order:
no row begins before the one above is done. After each row the runner sends one more answered request on that
connection, so that a row also says that nothing else was answered: an open WAIT is a row with no answer.

The notation: pairs of hexadecimal digits are those bytes, 'text' is its u64 length and its bytes, #5 is an i64 or u64.
"closed" at the end of an answer: the server closes the connection. " | " stands between answers that are both right.

`peers` are those who answer so: ours, and the PyTorch servers whose real answers prove the table. What the facts
give as different from server to server is a scene for each.
"""
from dataclasses import dataclass
from typing import List, Optional, Tuple

ALL_V2 = ("ours", "2.6")
ALL_V1 = ("ours", "1.13")
OURS = ("ours",)  # and, where nothing else is said, PyTorch with libuv, or newer than any that is packaged


@dataclass
class Scene:
    title: str
    rows: List[Tuple[str, str, str]]
    peers: Optional[tuple] = None  # all of the dialect
    greets: bool = True            # each connection begins with the greeting of its dialect


V2_GREETING = ("00 ce f7 85 3c 0d 85 62 00 00", "85 62 00 00")
V2_SETTLE = ("0d 5e 77 1e 00", "5e 77 1e 00")  # PING

V2 = [
    Scene("the greeting as 2.6's client was seen to send it, then ADD init/", [
        ("a", "00 ce f7 85 3c 0d 85 62 00 00", "85 62 00 00"),
        ("a", "04 'init/' #1", "#1"),
    ], greets=False),
    Scene("a client of 2.2 to 2.4 sends no PING", [
        ("a", "00 ce f7 85 3c 04 'init/' #1", "#1"),
    ], greets=False),
    Scene("PING is echoed at any time", [
        ("a", "0d 01 02 03 04", "01 02 03 04"),
        ("a", "0d ff ff ff ff", "ff ff ff ff"),
        ("a", "0d 00 00 00 00", "00 00 00 00"),
    ]),
    Scene("VALIDATE twice closes", [("a", "00 ce f7 85 3c", "closed")]),
    Scene("a wrong magic closes", [("a", "00 ce f7 85 3d 0d 85 62 00 00", "closed")], greets=False),
    Scene("an operation that does not exist closes that connection only", [
        ("a", "01 '/k' 'v'", ""),
        ("a", "13", "closed"),
        ("b", "ff", "closed"),
        ("c", "80", "closed"),
        ("d", "03 '/k'", "'v'"),
    ]),
    Scene("2.6 without libuv has neither queues nor LIST_KEYS nor BARRIER", [
        ("a", "0e", "closed"), ("b", "0f", "closed"), ("c", "10", "closed"),
        ("d", "11", "closed"), ("e", "12", "closed"),
    ], peers=("2.6",)),

    # ---- values ----
    Scene("SET and GET: any bytes, the empty key, the empty value", [
        ("a", "01 '/k' 'value'", ""),
        ("a", "03 '/k'", "'value'"),
        ("b", "03 '/k'", "'value'"),
        ("b", "01 '/k' ''", ""),
        ("a", "03 '/k'", "''"),
        ("a", r"01 '' '\x00\xff\n'", ""),
        ("b", "03 ''", r"'\x00\xff\n'"),
        ("a", r"01 '\x00' 'zero' 03 '\x00'", "'zero'"),
    ]),
    Scene("GET of an absent key gives an empty value, as with libuv", [
        ("a", "03 '/k'", "''"),
        ("a", "0a #3 '/k' '/l' '/k'", "'' '' ''"),
    ], peers=OURS),
    Scene("GET of an absent key closes at 2.6 without libuv", [
        ("a", "03 '/k'", "closed"),
        ("b", "01 '/l' 'v' 0a #2 '/l' '/k'", "'v' closed"),
    ], peers=("2.6",)),
    Scene("ADD keeps decimal text and reads it as strtoll does", [
        ("a", "04 '/n' #0", "#0"),
        ("a", "03 '/n'", "'0'"),
        ("a", "04 '/n' #-2", "#-2"),
        ("a", "03 '/n'", "'-2'"),
        ("a", "01 '/n' ' +12xyz' 04 '/n' #1", "#13"),
        ("a", "03 '/n'", "'13'"),
        ("a", "01 '/n' '0x10' 04 '/n' #1", "#1"),
        ("a", r"01 '/n' '7\x008' 04 '/n' #1", "#8"),
        ("a", "01 '/n' '9223372036854775807' 04 '/n' #1", "#-9223372036854775808"),
        ("a", "03 '/n'", "'-9223372036854775808'"),
        ("a", "04 '/n' #-1", "#9223372036854775807"),
    ]),
    Scene("ADD to what is no number closes and changes nothing", [
        ("a", "01 '/n' 'x'", ""), ("a", "04 '/n' #1", "closed"), ("z", "03 '/n'", "'x'"),
        ("b", "01 '/n' ''", ""), ("b", "04 '/n' #1", "closed"), ("z", "03 '/n'", "''"),
        ("c", "01 '/n' '9223372036854775808'", ""), ("c", "04 '/n' #0", "closed"),
        ("z", "03 '/n'", "'9223372036854775808'"),
    ]),
    Scene("APPEND", [
        ("a", "09 '/k' 'a'", ""),
        ("a", "09 '/k' ''", ""),
        ("b", "09 '/k' 'b' 03 '/k'", "'ab'"),
    ]),
    Scene("MULTI_SET and MULTI_GET, in order, of none, of one key twice", [
        ("a", "0b #3 '/a' '1' '/b' '2' '/a' '3'", ""),
        ("b", "0a #3 '/b' '/a' '/b'", "'2' '3' '2'"),
        ("b", "0b #0 0a #0", ""),
        ("b", "07", "#2"),
    ]),
    Scene("COMPARE_SET, line by line of its table", [
        ("a", "02 '/k' 'x' 'new'", "'x'"),
        ("a", "05 #1 '/k'", "01"),
        ("a", "02 '/k' '' 'one'", "'one'"),
        ("b", "02 '/k' 'one' 'two'", "'two'"),
        ("a", "02 '/k' 'one' 'three'", "'two'"),
        ("a", "02 '/k' '' 'three'", "'two'"),
        ("a", "02 '/k' 'two' 'two'", "'two'"),
        ("a", "02 '/k' 'two' ''", "''"),
        ("a", "02 '/k' '' 'again'", "'again'"),
        ("b", "03 '/k'", "'again'"),
    ]),
    Scene("DELETE_KEY", [
        ("a", "08 '/k'", "#0"),
        ("a", "01 '/k' ''", ""),
        ("b", "08 '/k'", "#1"),
        ("b", "08 '/k'", "#0"),
        ("a", "05 #1 '/k'", "01"),
    ]),
    Scene("GETNUMKEYS counts init/", [
        ("a", "07", "#0"),
        ("a", "04 'init/' #1", "#1"),
        ("a", "01 '/k' 'v' 07", "#2"),
        ("b", "08 '/k' 07", "#1 #1"),
    ]),
    Scene("CHECK", [
        ("a", "05 #0", "00"),
        ("a", "05 #1 '/k'", "01"),
        ("b", "01 '/k' ''", ""),
        ("a", "05 #2 '/k' '/k'", "00"),
        ("a", "05 #2 '/k' '/l'", "01"),
        ("a", "05 #2 '/l' '/k'", "01"),
    ]),

    # ---- waiting ----
    Scene("WAIT of what is there, and of nothing, ends at once", [
        ("a", "06 #0", "00"),
        ("a", "01 '/k' '' 06 #2 '/k' '/k'", "00"),
    ]),
    Scene("SET, ADD, APPEND and MULTI_SET end a WAIT, with one byte", [
        ("a", "06 #1 '/s'", ""), ("z", "01 '/s' 'v'", ""), ("a", "", "00"),
        ("a", "06 #1 '/n'", ""), ("z", "04 '/n' #1", "#1"), ("a", "", "00"),
        ("a", "06 #1 '/p'", ""), ("z", "09 '/p' 'v'", ""), ("a", "", "00"),
        ("a", "06 #1 '/m'", ""), ("z", "0b #2 '/l' '' '/m' ''", ""), ("a", "", "00"),
    ]),
    Scene("WAIT for several keys ends with the last; a key named twice is fine; all waiters are told", [
        ("a", "06 #3 '/x' '/y' '/x'", ""),
        ("b", "06 #2 '/y' '/x'", ""),
        ("z", "01 '/y' ''", ""), ("a", "", ""), ("b", "", ""),
        ("z", "01 '/y' ''", ""), ("a", "", ""), ("b", "", ""),
        ("z", "01 '/x' ''", ""), ("a", "", "00"), ("b", "", "00"),
    ]),
    Scene("WAIT counts: a key that was there meanwhile counts though it was deleted", [
        ("a", "06 #2 '/x' '/y'", ""),
        ("z", "01 '/x' '' 08 '/x'", "#1"), ("a", "", ""),
        ("z", "01 '/y' ''", ""), ("a", "", "00"),
        ("a", "05 #1 '/x'", "01"),
    ]),
    Scene("DELETE_KEY and a COMPARE_SET that fails end no WAIT", [
        ("a", "06 #1 '/k'", ""),
        ("z", "08 '/k'", "#0"), ("a", "", ""),
        ("z", "02 '/k' 'x' 'y'", "'x'"), ("a", "", ""),
        ("z", "01 '/k' ''", ""), ("a", "", "00"),
    ]),
    Scene("a COMPARE_SET that sets ends a WAIT, as with libuv", [
        ("a", "06 #1 '/k'", ""), ("z", "02 '/k' '' 'v'", "'v'"), ("a", "", "00"),
    ], peers=OURS),
    Scene("a COMPARE_SET that sets ends no WAIT at 2.6 without libuv", [
        ("a", "06 #1 '/k'", ""), ("z", "02 '/k' '' 'v'", "'v'"), ("a", "", ""),
    ], peers=("2.6",)),
    Scene("CANCEL_WAIT answers with and without a WAIT; the key then sends nothing", [
        ("a", "0c", "01"),
        ("a", "06 #1 '/k'", ""),
        ("a", "0c", "01"),
        ("z", "01 '/k' ''", ""), ("a", "", ""),
        ("a", "0c", "01"),
    ]),
    Scene("CANCEL_WAIT crosses with the end of the WAIT: 0, then 1", [
        ("a", "06 #1 '/k'", ""),
        ("z", "01 '/k' ''", ""),
        ("a", "0c", "00 01"),
        ("a", "06 #1 '/k' 0c", "00 01"),
    ]),
    Scene("other requests are answered while a WAIT is open", [
        ("a", "06 #1 '/k' 04 '/n' #3 03 '/n'", "#3 '3'"),
        ("a", "01 '/k' '' 03 '/n'", "00 '3'"),
    ]),

    # ---- queues: 2.8 with libuv ----
    Scene("QUEUE_PUSH, QUEUE_POP, QUEUE_LEN: first in, first out; queues are no keys", [
        ("a", "10 '/q'", "#0"),
        ("a", "0f '/q'", "#0"),
        ("a", "0e '/q' 'one'", ""),
        ("b", "0e '/q' ''", ""),
        ("b", "10 '/q'", "#2"),
        ("a", "07 11", "#0 #0"),
        ("a", "0f '/q'", "#2 'one'"),
        ("a", "0f '/q'", "#1 ''"),
        ("a", "0f '/q'", "#0"),
    ], peers=OURS),
    Scene("a queue that is not empty is there for CHECK and WAIT", [
        ("a", "0e '/q' 'v'", ""),
        ("b", "05 #1 '/q' 06 #1 '/q'", "00 00"),
        ("b", "0f '/q'", "#1 'v'"),
        ("a", "05 #1 '/q'", "01"),
        ("a", "06 #1 '/q'", ""), ("b", "0e '/q' 'w'", ""), ("a", "", "00"),
    ], peers=OURS),
    Scene("QUEUE_PUSH wakes the oldest waiter only", [
        ("a", "06 #1 '/q'", ""), ("b", "06 #1 '/q'", ""), ("c", "06 #1 '/q'", ""),
        ("z", "0e '/q' '1'", ""), ("a", "", "00"), ("b", "", ""), ("c", "", ""),
        ("z", "0e '/q' '2'", ""), ("a", "", ""), ("b", "", "00"), ("c", "", ""),
        ("z", "0e '/q' '3'", ""), ("a", "", ""), ("b", "", ""), ("c", "", "00"),
    ], peers=OURS),
    Scene("a queue and a key of one name are two things", [
        ("a", "01 '/q' 'value' 0e '/q' 'item'", ""),
        ("a", "03 '/q' 10 '/q' 07", "'value' #1 #1"),
        ("b", "08 '/q'", "#1"),
        ("b", "05 #1 '/q'", "00"),
        ("b", "0f '/q'", "#1 'item'"),
        ("b", "05 #1 '/q'", "01"),
    ], peers=OURS),
    Scene("without the faults of PyTorch's queues: a woken waiter is not woken again, and a key ends a mixed WAIT", [
        ("a", "06 #1 '/q'", ""), ("z", "0e '/q' '1'", ""), ("a", "", "00"),
        ("a", "06 #1 '/k'", ""), ("z", "0e '/q' '2'", ""), ("a", "", ""),
        ("z", "01 '/k' ''", ""), ("a", "", "00"),
        ("a", "06 #2 '/q' '/l'", ""), ("z", "01 '/l' ''", ""), ("a", "", "00"),
    ], peers=OURS),

    # ---- LIST_KEYS, BARRIER: main ----
    Scene("LIST_KEYS gives the keys with what stands before them, in no order", [
        ("a", "11", "#0"),
        ("a", "04 'init/' #1 11", "#1 #1 'init/'"),
        ("b", "01 '/job/k' 'v' 0e '/q' 'item' 11", "#2 'init/' '/job/k' | #2 '/job/k' 'init/'"),
    ], peers=OURS),
    Scene("BARRIER wakes all when the count is reached; who comes later passes", [
        ("a", "12 '/b' #3", ""), ("b", "12 '/b' #3", ""), ("a", "", ""),
        ("c", "12 '/b' #3", "00"), ("a", "", "00"), ("b", "", "00"),
        ("d", "12 '/b' #3", "00"),
        ("d", "03 '/b' 07", "'4' #1"),
        ("a", "12 '/one' #1", "00"), ("a", "12 '/none' #0", "00"),
    ], peers=OURS),
    Scene("SET or ADD on its key ends a BARRIER", [
        ("a", "12 '/b' #9", ""), ("z", "01 '/b' '5'", ""), ("a", "", "00"),
        ("a", "12 '/b' #9", ""), ("z", "04 '/b' #1", "#7"), ("a", "", "00"),
    ], peers=OURS),
    Scene("a BARRIER that was canceled stays counted", [
        ("a", "12 '/b' #2", ""), ("a", "0c", "01"),
        ("b", "12 '/b' #2", "00"), ("a", "", ""),
    ], peers=OURS),
    Scene("of several BARRIERs only the one that fills the count ends a WAIT for its key", [
        ("a", "06 #1 '/b'", ""), ("b", "12 '/b' #2", ""), ("a", "", ""),
        ("c", "12 '/b' #2", "00"), ("b", "", "00"), ("a", "", "00"),
    ], peers=OURS),
    Scene("BARRIER on what is no number closes and changes nothing", [
        ("a", "01 '/b' 'x'", ""), ("a", "12 '/b' #1", "closed"), ("z", "03 '/b'", "'x'"),
    ], peers=OURS),
]

V1_SETTLE = ("04 #1 '/~'", "01")  # CHECK of a key that is never there

V1 = [
    Scene("the question by which our client finds 1.x: a CHECK of the empty key", [
        ("a", "04 #1 ''", "01"),
        ("a", "03 '/n' #1", "#1"),
    ], peers=("1.13",)),
    Scene("our server answers it as no server of PyTorch does, where it is the first request, and goes on", [
        ("a", "04 #1 ''", "72"),
        ("a", "04 #1 ''", "01"),
        ("b", "00 '' '' 04 #1 ''", "00"),
        ("c", "04 #2 '' ''", "00"),
        ("d", "04 #1 '/'", "01"),
    ], peers=("ours",)),
    Scene("SET and GET", [
        ("a", "00 '/k' 'value'", ""),
        ("a", "02 '/k'", "'value'"),
        ("b", "02 '/k'", "'value'"),
        ("b", "00 '' ''", ""),
        ("a", "02 ''", "''"),
        ("a", r"00 '/b' '\x00\xff\n' 02 '/b'", r"'\x00\xff\n'"),
    ]),
    Scene("COMPARE_SET, line by line of its table", [
        ("a", "01 '/k' 'x' 'new'", "'x'"),
        ("a", "04 #1 '/k'", "01"),
        ("a", "01 '/k' '' 'one'", "'one'"),
        ("b", "01 '/k' 'one' 'two'", "'two'"),
        ("a", "01 '/k' 'one' 'three'", "'two'"),
        ("a", "01 '/k' 'two' ''", "''"),
        ("a", "01 '/k' '' 'again'", "'again'"),
        ("b", "02 '/k'", "'again'"),
    ]),
    Scene("GET of an absent key closes", [
        ("a", "02 '/k'", "closed"),
        ("b", "04 #1 '/k'", "01"),
    ]),
    Scene("ADD", [
        ("a", "03 'init/' #1", "#1"),
        ("a", "03 '/n' #-2 02 '/n'", "#-2 '-2'"),
        ("a", "00 '/n' ' 12xyz' 03 '/n' #1 02 '/n'", "#13 '13'"),
        ("a", "00 '/n' '9223372036854775807' 03 '/n' #1", "#-9223372036854775808"),
    ]),
    Scene("ADD to what is no number closes and changes nothing", [
        ("a", "00 '/n' 'x'", ""), ("a", "03 '/n' #1", "closed"), ("z", "02 '/n'", "'x'"),
        ("b", "00 '/n' ''", ""), ("b", "03 '/n' #1", "closed"), ("z", "02 '/n'", "''"),
    ]),
    Scene("CHECK", [
        ("a", "04 #0", "00"),
        ("a", "00 '/k' '' 04 #2 '/k' '/k'", "00"),
        ("a", "04 #2 '/k' '/l'", "01"),
    ]),
    Scene("WAIT", [
        ("a", "05 #0", "00"),
        ("a", "05 #1 '/s'", ""), ("z", "00 '/s' 'v'", ""), ("a", "", "00"),
        ("a", "05 #1 '/n'", ""), ("z", "03 '/n' #1", "#1"), ("a", "", "00"),
        ("a", "05 #3 '/x' '/y' '/x'", ""), ("b", "05 #1 '/x'", ""),
        ("z", "00 '/x' ''", ""), ("b", "", "00"), ("a", "", ""),
        ("z", "08 '/x' 00 '/y' ''", "#1"), ("a", "", "00"),
        ("a", "05 #1 '/k'", ""), ("z", "08 '/k' 01 '/k' 'x' 'y'", "#0 'x'"), ("a", "", ""),
    ]),
    Scene("a COMPARE_SET that sets ends a WAIT", [
        ("a", "05 #1 '/k'", ""), ("z", "01 '/k' '' 'v'", "'v'"), ("a", "", "00"),
    ], peers=OURS),
    Scene("a COMPARE_SET that sets ends no WAIT at 1.13", [
        ("a", "05 #1 '/k'", ""), ("z", "01 '/k' '' 'v'", "'v'"), ("a", "", ""),
    ], peers=("1.13",)),
    Scene("GETNUMKEYS and DELETE_KEY", [
        ("a", "06", "#0"),
        ("a", "03 'init/' #1 00 '/k' 'v' 06", "#1 #2"),
        ("b", "08 '/k' 08 '/k' 06", "#1 #0 #1"),
    ]),
    Scene("WATCH_KEY tells created, updated, deleted; a COMPARE_SET that fails tells nothing", [
        ("a", "07 '/k'", "03"),
        ("z", "00 '/k' '1'", ""), ("a", "", "01 '/k' '' '1'"),
        ("z", "00 '/k' '1'", ""), ("a", "", "00 '/k' '1' '1'"),
        ("z", "03 '/k' #1", "#2"), ("a", "", "00 '/k' '1' '2'"),
        ("z", "01 '/k' '2' '3'", "'3'"), ("a", "", "00 '/k' '2' '3'"),
        ("z", "01 '/k' '2' '4'", "'3'"), ("a", "", ""),
        ("z", "08 '/k'", "#1"), ("a", "", "02 '/k' '3' ''"),
        ("z", "08 '/k'", "#0"), ("a", "", ""),
        ("z", "00 '/l' ''", ""), ("a", "", ""),
        ("z", "01 '/k' '' 'new'", "'new'"), ("a", "", "01 '/k' '' 'new'"),
    ]),
    Scene("WATCH_KEY of a key that is there, by two; ADD creates too", [
        ("z", "00 '/k' 'v'", ""),
        ("a", "07 '/k'", "03"), ("b", "07 '/k' 07 '/n'", "03 03"),
        ("z", "00 '/k' 'w'", ""), ("a", "", "00 '/k' 'v' 'w'"), ("b", "", "00 '/k' 'v' 'w'"),
        ("z", "03 '/n' #5", "#5"), ("a", "", ""), ("b", "", "01 '/n' '' '5'"),
    ]),
    Scene("an operation that does not exist closes that connection only", [
        ("a", "00 '/k' 'v'", ""),
        ("a", "0c", "closed"),
        ("b", "ff", "closed"),
        ("c", "02 '/k'", "'v'"),
    ]),
    Scene("2.1's MULTI_GET, MULTI_SET and CANCEL_WAIT", [
        ("a", "0a #2 '/a' '1' '/b' '2' 09 #3 '/b' '/a' '/b'", "'2' '1' '2'"),
        ("a", "05 #1 '/k'", ""), ("a", "0b", "01"),
        ("z", "00 '/k' ''", ""), ("a", "", ""),
        ("a", "09 #1 '/absent'", "closed"),
    ], peers=OURS),
]
