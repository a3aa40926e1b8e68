/* SPDX-License-Identifier: BSD-3-Clause */
/* The classes that a pickled state is made of, and all that can be done with them. Private to the pickle reader. */
#ifndef RDZV_STATE_PICKLE_CLASS_H
#define RDZV_STATE_PICKLE_CLASS_H

#include "state/pickle/machine.h"

struct pickle_node {
  bool built;
  bool fqdn; /* the address was called so */
  rdzv_bytes addr;
  int64_t pid;
  int64_t local_id;
};

/* The attributes are a dict's: names and values by turns. */
struct pickle_state {
  bool built;
  struct pickle_items attributes;
};

/* Each makes what an opcode of that name does, out of what the machine has taken off its stack. */
bool pickle_global(struct pickle_machine *machine, rdzv_bytes module, rdzv_bytes name, struct pickle_value *result);
bool pickle_newobj(struct pickle_machine *machine, struct pickle_value class_, struct pickle_value arguments,
                   struct pickle_value *result);
bool pickle_reduce(struct pickle_machine *machine, struct pickle_value callable, struct pickle_value arguments,
                   struct pickle_value *result);
bool pickle_build(struct pickle_machine *machine, struct pickle_value object, struct pickle_value attributes);

#endif
