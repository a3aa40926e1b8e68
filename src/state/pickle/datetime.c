/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/datetime.h"

#include <string.h>

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)

struct parts {
  int64_t year, month, day, hour, minute, second, microsecond;
};

/* Years are counted from March, so that the leap day is the last of a year: then the days before a month and before a
 * year are one formula each. An era is the 400 years after which the calendar repeats. */
static int64_t days_of(const struct parts *parts) {
  const int64_t year = parts->year - (parts->month <= 2);
  const int64_t era = year / 400; /* year >= 0 */
  const int64_t in_era = year - era * 400;
  const int64_t day_of_year = (153 * (parts->month + (parts->month > 2 ? -3 : 9)) + 2) / 5 + parts->day - 1;
  return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + day_of_year - 719468;
}

static void set_days(struct parts *parts, int64_t days) {
  days += 719468; /* since 0000-03-01, >= 0 */
  const int64_t era = days / 146097;
  const int64_t in_era = days - era * 146097;
  const int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  const int64_t day_of_year = in_era - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * day_of_year + 2) / 153; /* March is 0 */
  parts->day = day_of_year - (153 * month + 2) / 5 + 1;
  parts->month = month < 10 ? month + 3 : month - 9;
  parts->year = year + era * 400 + (parts->month <= 2);
}

static bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

static bool is_valid(const struct parts *parts) {
  static const int8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (parts->year < 1 || parts->year > 9999 || parts->month < 1 || parts->month > 12) return false;
  const int64_t last = days[parts->month - 1] + (parts->month == 2 && is_leap(parts->year));
  return parts->day >= 1 && parts->day <= last && parts->hour < 24 && parts->minute < 60 && parts->second < 60 &&
         parts->microsecond < SECOND;
}

static bool join(const struct parts *parts, int64_t *time) {
  if (!is_valid(parts)) return false;
  const int64_t seconds = (parts->hour * 60 + parts->minute) * 60 + parts->second;
  *time = days_of(parts) * DAY + seconds * SECOND + parts->microsecond;
  return true;
}

static bool split(int64_t time, struct parts *parts) {
  if (time < DATETIME_MIN || time > DATETIME_MAX) return false;
  const int64_t days = (time - DATETIME_MIN) / DAY + DATETIME_MIN / DAY; /* rounded down, before 1970 too */
  const int64_t in_day = time - days * DAY;
  set_days(parts, days);
  parts->hour = in_day / (3600 * SECOND);
  parts->minute = in_day / (60 * SECOND) % 60;
  parts->second = in_day / SECOND % 60;
  parts->microsecond = in_day % SECOND;
  return true;
}

bool datetime_pack(int64_t time, uint8_t packed[DATETIME_PACKED]) {
  struct parts parts;
  if (!split(time, &parts)) return false;
  const uint8_t bytes[DATETIME_PACKED] = {(uint8_t)(parts.year >> 8),
                                          (uint8_t)parts.year,
                                          (uint8_t)parts.month,
                                          (uint8_t)parts.day,
                                          (uint8_t)parts.hour,
                                          (uint8_t)parts.minute,
                                          (uint8_t)parts.second,
                                          (uint8_t)(parts.microsecond >> 16),
                                          (uint8_t)(parts.microsecond >> 8),
                                          (uint8_t)parts.microsecond};
  memcpy(packed, bytes, sizeof bytes);
  return true;
}

bool datetime_unpack(const uint8_t packed[DATETIME_PACKED], int64_t *time) {
  const struct parts parts = {
      .year = packed[0] << 8 | packed[1],
      .month = packed[2] & 0x7f, /* without `fold` */
      .day = packed[3],
      .hour = packed[4],
      .minute = packed[5],
      .second = packed[6],
      .microsecond = packed[7] << 16 | packed[8] << 8 | packed[9],
  };
  return join(&parts, time);
}
