/* SPDX-License-Identifier: BSD-3-Clause */
#include "datetime_text.h"

#include <stdio.h>
#include <string.h>

bool datetime_format(int64_t time, char text[DATETIME_TEXT + 1]) {
  uint8_t at[DATETIME_PACKED];
  if (!datetime_pack(time, at)) return false;
  char wide[160]; /* what seven numbers of any size could need: the compiler does not know that they are small */
  snprintf(wide, sizeof wide, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", at[0] << 8 | at[1], at[2], at[3], at[4], at[5],
           at[6], at[7] << 16 | at[8] << 8 | at[9]);
  memcpy(text, wide, DATETIME_TEXT);
  text[DATETIME_TEXT] = '\0';
  return true;
}

bool datetime_parse(const char *text, size_t len, int64_t *time) {
  static const char form[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";
  if (len != DATETIME_TEXT) return false;
  for (size_t i = 0; i < len; i++)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return false;
  unsigned year, month, day, hour, minute, second, micro;
  sscanf(text, "%u-%u-%uT%u:%u:%u.%u", &year, &month, &day, &hour, &minute, &second, &micro);
  const uint8_t packed[DATETIME_PACKED] = {
      (uint8_t)(year >> 8), (uint8_t)year,   (uint8_t)month,         (uint8_t)day,          (uint8_t)hour,
      (uint8_t)minute,      (uint8_t)second, (uint8_t)(micro >> 16), (uint8_t)(micro >> 8), (uint8_t)micro};
  return datetime_unpack(packed, time);
}
