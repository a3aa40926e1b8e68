/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules that can be broken on purpose, to show that it is found. The linker sends the calls of a rule here. */
#ifndef RDZV_TESTS_EXPLORE_RULES_H
#define RDZV_TESTS_EXPLORE_RULES_H

#include <stdbool.h>

/* Breaks the rule of that name from here on; NULL: all hold again. False: there is none. */
bool rule_break(const char *name);

#endif
