/* SPDX-License-Identifier: BSD-3-Clause */
/* The layouts that PyTorch's pickled state has had. A PyTorch of one layout cannot work with a state of another. */
#ifndef RDZV_STATE_PICKLE_LAYOUT_H
#define RDZV_STATE_PICKLE_LAYOUT_H

#include <rdzv/error.h>
#include <stdbool.h>

/* Each is named after the first version that has it, but the first: what is older has it too. */
enum torch_layout { TORCH_1_13, TORCH_2_0, TORCH_2_3, TORCH_2_6, TORCH_NEWEST = TORCH_2_6 };

struct torch_traits {
  const char *version;  /* "2.3" */
  const char *addr;     /* the name of a node's address attribute */
  bool redundancy_list; /* the state has that attribute */
  bool aware;           /* datetimes say that they are in UTC */
};

const struct torch_traits *torch_traits(enum torch_layout layout);

/* The layout of a version "X.Y" (or "X.Y.Z"). RDZV_E_INVALID: it is no version. */
int torch_layout_parse(const char *version, enum torch_layout *layout, rdzv_error *error);

/* A state without nodes does not show all of its traits: those layouts, and all between them, could be its own. */
struct torch_layouts {
  enum torch_layout oldest, newest;
};

/* The one of them that is nearest to `preferred`. */
enum torch_layout torch_layout_choose(struct torch_layouts possible, enum torch_layout preferred);

#endif
