/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct siphash_seed seed = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

/* The vectors of the authors: the bytes 0, 1, 2 … of each length. */
static void test_it_is_siphash_2_4(void **state) {
  (void)state;
  unsigned char data[16];
  for (unsigned char i = 0; i < sizeof data; i++) data[i] = i;
  assert_true(siphash(&seed, data, 0) == 0x726fdb47dd0e0e31);
  assert_true(siphash(&seed, data, 1) == 0x74f839c593dc67fd);
  assert_true(siphash(&seed, data, 8) == 0x93f5f5799a932462);
  assert_true(siphash(&seed, data, 15) == 0xa129ca6149be45e5);
}

/* The same data by SipHash-1-3. */
static void test_the_short_one_is_siphash_1_3(void **state) {
  (void)state;
  unsigned char data[16];
  for (unsigned char i = 0; i < sizeof data; i++) data[i] = i;
  assert_true(siphash_short(&seed, data, 0) == 0xabac0158050fc4dc);
  assert_true(siphash_short(&seed, data, 1) == 0xc9f49bf37d57ca93);
  assert_true(siphash_short(&seed, data, 8) == 0x369095118d299a8e);
  assert_true(siphash_short(&seed, data, 15) == 0xd320d86d2a519956);
}

/* Another seed gives another hash. */
static void test_the_seed_counts(void **state) {
  (void)state;
  const struct siphash_seed other = {{1, 2}};
  assert_true(siphash(&seed, "key", 3) != siphash(&other, "key", 3));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_is_siphash_2_4),
                                     cmocka_unit_test(test_the_short_one_is_siphash_1_3),
                                     cmocka_unit_test(test_the_seed_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
