/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of refusals is total: every code has a status, and every status a code. */
#include "unit.h"
#include "wire/refusal.h"

#define CODE(name, number, class_, text) RDZV_E_##name,
static const int all[] = {RDZV_ERROR_LIST(CODE)};

static bool is_code(int number) {
  for (size_t i = 0; i < COUNT_OF(all); i++)
    if (all[i] == number) return true;
  return false;
}

static void every_code_has_a_status_that_is_no_answer(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    const int expected = all[i] == RDZV_E_INVALID ? RDZV_E_PROTOCOL : all[i];
    assert_int_equal(wire_status_of(all[i]), -expected);
    assert_true(wire_status_of(all[i]) > WIRE_BYTE_CANCELED);
    assert_code(wire_code_of(wire_status_of(all[i])), expected);
  }
}

static void what_is_no_code_is_sent_as_a_broken_protocol(void **state) {
  (void)state;
  static const int none[] = {0, 1, 42, -22, -100, -255, -256, -257, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < COUNT_OF(none); i++) assert_int_equal(wire_status_of(none[i]), -RDZV_E_PROTOCOL);
}

static void every_status_has_a_code(void **state) {
  (void)state;
  for (int status = 0; status <= UINT8_MAX; status++) {
    const int code = wire_code_of((uint8_t)status), told = wire_refusal_code((uint8_t)status);
    const bool is_known = is_code(-status) && status > WIRE_BYTE_CANCELED;
    assert_code(code, is_known ? -status : RDZV_E_PROTOCOL);
    assert_code(told, code == RDZV_E_TIMEOUT ? RDZV_E_CONNECTION : code == RDZV_E_CANCELED ? RDZV_E_PROTOCOL : code);
  }
}

static void a_refusal_is_read_as_it_was_put(void **state) {
  (void)state;
  struct wire_writer out = {0};
  struct wire_refusal refusal;
  wire_put_refusal(&out, RDZV_E_NO_SPACE, "no space is left");
  assert_int_equal(out.buf.data[0], -RDZV_E_NO_SPACE);
  assert_true(wire_read_refusal((rdzv_bytes){out.buf.data + 9, out.buf.len - 9}, &refusal));
  assert_int_equal(refusal.asked, -1);
  assert_bytes(refusal.text, "no space is left");
  out.buf.len = 0;
  wire_put_native_refusal(&out, WIRE_OP_NODE_QUERY, 7, RDZV_E_INVALID, "no such round");
  assert_int_equal(out.buf.data[0], -RDZV_E_PROTOCOL);
  assert_true(wire_read_refusal((rdzv_bytes){out.buf.data + 9, out.buf.len - 9}, &refusal));
  assert_int_equal(refusal.asked, WIRE_OP_NODE_QUERY);
  assert_int_equal(refusal.number, 7);
  assert_bytes(refusal.text, "no such round");
  for (size_t len = 1; len < 9; len++) assert_false(wire_read_refusal((rdzv_bytes){out.buf.data + 9, len}, &refusal));
  assert_true(wire_read_refusal((rdzv_bytes){0}, &refusal));
  assert_int_equal(refusal.text.len, 0);
  buf_free(&out.buf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_a_status_that_is_no_answer),
      cmocka_unit_test(what_is_no_code_is_sent_as_a_broken_protocol),
      cmocka_unit_test(every_status_has_a_code),
      cmocka_unit_test(a_refusal_is_read_as_it_was_put),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
