/* SPDX-License-Identifier: BSD-3-Clause */
/* The opcodes of pickle that a state is made of, under the names of Python's pickletools, and the names it uses. */
#ifndef RDZV_STATE_PICKLE_OP_H
#define RDZV_STATE_PICKLE_OP_H

enum pickle_op {
  OP_PROTO = 0x80,
  OP_FRAME = 0x95,
  OP_STOP = '.',
  OP_MARK = '(',
  OP_POP = '0',
  OP_POP_MARK = '1',

  OP_NONE = 'N',
  OP_NEWTRUE = 0x88,
  OP_NEWFALSE = 0x89,
  OP_BININT = 'J',
  OP_BININT1 = 'K',
  OP_BININT2 = 'M',
  OP_LONG1 = 0x8a,
  OP_LONG4 = 0x8b,
  OP_BINFLOAT = 'G',
  OP_SHORT_BINUNICODE = 0x8c,
  OP_BINUNICODE = 'X',
  OP_BINUNICODE8 = 0x8d,
  OP_SHORT_BINBYTES = 'C',
  OP_BINBYTES = 'B',
  OP_BINBYTES8 = 0x8e,

  OP_EMPTY_TUPLE = ')',
  OP_TUPLE = 't',
  OP_TUPLE1 = 0x85,
  OP_TUPLE2 = 0x86,
  OP_TUPLE3 = 0x87,
  OP_EMPTY_LIST = ']',
  OP_APPEND = 'a',
  OP_APPENDS = 'e',
  OP_EMPTY_DICT = '}',
  OP_SETITEM = 's',
  OP_SETITEMS = 'u',
  OP_EMPTY_SET = 0x8f,
  OP_ADDITEMS = 0x90,

  OP_BINPUT = 'q',
  OP_LONG_BINPUT = 'r',
  OP_MEMOIZE = 0x94,
  OP_BINGET = 'h',
  OP_LONG_BINGET = 'j',

  OP_GLOBAL = 'c',
  OP_STACK_GLOBAL = 0x93,
  OP_NEWOBJ = 0x81,
  OP_REDUCE = 'R',
  OP_BUILD = 'b',
};

#define PICKLE_TORCH_MODULE "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
#define PICKLE_STATE_CLASS "_RendezvousState"
#define PICKLE_NODE_CLASS "_NodeDesc"

#endif
