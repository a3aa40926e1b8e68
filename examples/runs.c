/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the runs that a store knows, or removes one of them: runs HOST:PORT [RUN_ID] */
#include <rdzv/rdzv.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: runs HOST:PORT [RUN_ID]\n"), 2;
  const rdzv_params params = {.size = sizeof params, .endpoint = argv[1], .run_id = argc > 2 ? argv[2] : NULL};
  rdzv_error error;
  int result;
  if (params.run_id) {
    size_t keys = 0;
    result = rdzv_runs_remove(&params, &keys, &error);
    if (result == 0) printf("removed %zu keys\n", keys);
  } else {
    rdzv_value *ids;
    size_t count;
    result = rdzv_runs_list(&params, &ids, &count, &error);
    if (result == 0) {
      for (size_t i = 0; i < count; i++) {
        char id[256];
        rdzv_printable(rdzv_value_bytes(&ids[i]), id, sizeof id); /* an id comes from others */
        puts(id);
      }
      rdzv_values_free(ids, count);
    }
  }
  if (result < 0) fprintf(stderr, "runs: %s: %s\n", rdzv_error_name(result), error.message);
  return result < 0 ? 1 : 0;
}
