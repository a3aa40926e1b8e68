/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/layout.h"

#include "base/buf.h"
#include "base/error.h"

#include <string.h>

static const struct torch_traits traits[] = {
    [TORCH_1_13] = {.version = "1.13", .addr = "fqdn"},
    [TORCH_2_0] = {.version = "2.0", .addr = "addr"},
    [TORCH_2_3] = {.version = "2.3", .addr = "addr", .redundancy_list = true},
    [TORCH_2_6] = {.version = "2.6", .addr = "addr", .redundancy_list = true, .aware = true},
};

const struct torch_traits *torch_traits(enum torch_layout layout) { return &traits[layout]; }

/* One to four digits; -1 for anything else. */
static int number(const char **text) {
  int result = 0, digits = 0;
  for (; **text >= '0' && **text <= '9' && digits < 5; (*text)++, digits++) result = result * 10 + (**text - '0');
  return digits >= 1 && digits <= 4 ? result : -1;
}

int torch_layout_parse(const char *version, enum torch_layout *layout, rdzv_error *error) {
  const char *rest = version;
  const int major = number(&rest);
  const int minor = major >= 0 && *rest++ == '.' ? number(&rest) : -1;
  const bool ends = minor >= 0 && (*rest == '\0' || (*rest == '.' && (rest++, number(&rest)) >= 0 && *rest == '\0'));
  if (!ends)
    return error_set(error, RDZV_E_INVALID, "'%s' is not a version of PyTorch such as '2.6'",
                     bytes_quote(rdzv_str(version)).text);
  if (major < 2)
    *layout = TORCH_1_13;
  else if (major > 2 || minor >= 6)
    *layout = TORCH_2_6;
  else
    *layout = minor >= 3 ? TORCH_2_3 : TORCH_2_0;
  return 0;
}

enum torch_layout torch_layout_choose(struct torch_layouts possible, enum torch_layout preferred) {
  if (preferred < possible.oldest) return possible.oldest;
  return preferred > possible.newest ? possible.newest : preferred;
}
