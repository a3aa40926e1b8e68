/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a rendezvous state, pickle or JSON, from stdin and writes it to stdout, for tests:
 *
 *   state_convert same      as a pickle of the layout it has, the newest of those it may have
 *   state_convert X.Y       as a pickle for that PyTorch
 *   state_convert json      as JSON
 *   state_convert layouts   the first and the last layout that the pickle may have
 *
 * Exit: 0; 1: it cannot be read or written, and stderr says why; 2: usage.
 */
#include "state/pickle/read.h"
#include "state/pickle/write.h"
#include "state_json.h"

#include <stdio.h>

static bool read_all(struct buf *in) {
  size_t got;
  do {
    if (!buf_reserve(in, 1 << 16)) return false;
    got = fread(in->data + in->len, 1, 1 << 16, stdin);
    in->len += got;
  } while (got > 0);
  return !ferror(stdin);
}

static int read_state(const struct buf *in, struct rendezvous_state *state, struct torch_layouts *layouts,
                      rdzv_error *error) {
  const rdzv_bytes bytes = {in->data, in->len};
  return in->len > 0 && in->data[0] == '{' ? state_json_read(bytes, state, error)
                                           : pickle_read(bytes, state, layouts, error);
}

static int write_state(const char *to, const struct rendezvous_state *state, struct torch_layouts layouts,
                       struct buf *out, rdzv_error *error) {
  enum torch_layout layout = layouts.newest;
  if (strcmp(to, "json") == 0) return state_json_write(state, out, error);
  if (strcmp(to, "layouts") == 0) {
    char text[32];
    const int len = snprintf(text, sizeof text, "%s %s\n", torch_traits(layouts.oldest)->version,
                             torch_traits(layouts.newest)->version);
    return buf_append(out, text, (size_t)len) ? 0 : RDZV_E_NO_MEMORY;
  }
  const int result = strcmp(to, "same") == 0 ? 0 : torch_layout_parse(to, &layout, error);
  return result < 0 ? result : pickle_write(state, layout, out, error);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: state_convert same|X.Y|json|layouts\n");
    return 2;
  }
  struct buf in = {0}, out = {0};
  struct rendezvous_state state = STATE_EMPTY;
  struct torch_layouts layouts = {TORCH_1_13, TORCH_NEWEST};
  rdzv_error error = {.message = "stdin cannot be read"};
  int result = read_all(&in) ? read_state(&in, &state, &layouts, &error) : RDZV_E_IO;
  if (result == 0) result = write_state(argv[1], &state, layouts, &out, &error);
  if (result == 0 && fwrite(out.data, 1, out.len, stdout) != out.len) result = RDZV_E_IO;
  if (result < 0) fprintf(stderr, "%s\n", error.message);
  state_free(&state);
  buf_free(&in);
  buf_free(&out);
  return result < 0;
}
