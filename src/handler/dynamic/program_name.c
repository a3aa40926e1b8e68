/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/program_name.h"

#include "base/buf.h"
#include "base/error.h"
#include "store/store.h"

#include <string.h>

int program_name_check(rdzv_store *store, const rdzv_params *params, rdzv_error *error) {
  rdzv_value found;
  if (!params->program || !*params->program || strcmp(params->run_id, UNNAMED_RUN) != 0) return 0;
  const rdzv_bytes own = rdzv_str(params->program);
  const deadline until = deadline_after(rdzv_store_get_timeout(store));
  int result;
  do {
    result = rdzv_store_compare_set(store, rdzv_str("torch.rendezvous." UNNAMED_RUN ".program"), rdzv_str(""), own,
                                    &found, error);
  } while (store_try_again(store, result, until));
  if (result < 0) return error_prefix(error, result, "cannot find out which program the rendezvous is for");
  const bool same = bytes_equal(rdzv_value_bytes(&found), own);
  if (!same)
    error_set(
        error, RDZV_E_INVALID,
        "program '%s' uses this rendezvous, and ours is '%s': a job at an endpoint that others use needs a run id "
        "of its own (--rdzv-id)",
        bytes_quote(rdzv_value_bytes(&found)).text, params->program);
  rdzv_value_free(&found);
  return same ? 0 : RDZV_E_INVALID;
}
