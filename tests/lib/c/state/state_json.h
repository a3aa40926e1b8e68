/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state as JSON, for ourselves and for people:
 *
 *   {"round": 0, "complete": false, "closed": false, "deadline": null,
 *    "participants": [{"node": {"addr": "host", "pid": 1, "local_id": 0}, "rank": 0,
 *                      "last_heartbeat": "2026-11-15T20:00:00.000000Z"}],
 *    "wait_list": [{"node": …, "last_heartbeat": …}], "redundancy_list": […]}
 *
 * last_heartbeat is null where there is none. Those who have one and are in no list are in a fourth, "last_heartbeats",
 * which is there only if somebody is in it. Whatever else the object has are attributes that are not PyTorch's; values
 * that JSON has no form for are objects of one member whose name begins with '$': see value_json.h.
 */
#ifndef RDZV_TESTS_STATE_JSON_H
#define RDZV_TESTS_STATE_JSON_H

#include "base/buf.h"
#include "state/state.h"

enum { STATE_JSON_MAX_BYTES = 16 << 20 };

/* Fills *state, which is not looked at before. RDZV_E_CORRUPT: it is no such JSON, the sentence says why;
 * RDZV_E_NO_MEMORY, which jansson sometimes takes for the other. Then *state is as it was. */
int state_json_read(rdzv_bytes json, struct rendezvous_state *state, rdzv_error *error);

/* Puts one line, without its end, behind what is in `out`; equal states give the same bytes. On failure `out` has what
 * it had. RDZV_E_NO_MEMORY; RDZV_E_INVALID: a time is before the year 1 or after 9999; RDZV_E_LIMIT: it would be longer
 * than state_json_read takes. */
int state_json_write(const struct rendezvous_state *state, struct buf *out, rdzv_error *error);

#endif
