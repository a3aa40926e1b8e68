/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs under ThreadSanitizer. libuv closes descriptors with syscall(SYS_close), which the sanitizer does not
 * see. It would then take a new descriptor with the number of a closed one for the same object, used by two threads. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long syscall_function(long number, ...);

__attribute__((visibility("default"))) long syscall(long number, ...) {
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_close) return close((int)words[0]);
  syscall_function *next = (syscall_function *)dlsym(RTLD_NEXT, "syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
