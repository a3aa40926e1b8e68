/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plain Python values as JSON. None, bool, int, float, str, list, and a dict whose keys are all str are what JSON calls
 * null, true, 1, 1.0, "", [] and {}. The rest:
 *
 *   {"$tuple": […]}  {"$set": […]}  {"$bytes": "00ff"}  {"$long": "00ff"} (lowest byte first)
 *   {"$float": "nan"} or "inf", "-inf"  {"$dict": [[key, value], …]}
 *
 * A dict is also written as the last if one of its keys begins with '$' or has a zero byte in it.
 */
#ifndef RDZV_TESTS_VALUE_JSON_H
#define RDZV_TESTS_VALUE_JSON_H

#include "state/pickle/pyvalue.h"

#include <jansson.h>
#include <rdzv/error.h>

/* A new reference. NULL: no memory. */
json_t *value_json_write(const struct pyvalue *value);

/* Takes from the budget what it makes. RDZV_E_CORRUPT, RDZV_E_NO_MEMORY; then *value is None. */
int value_json_read(const json_t *json, struct pyvalue_budget *budget, struct pyvalue *value, rdzv_error *error);

#endif
