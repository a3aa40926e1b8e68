/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/descriptors.h"

#include "base/error.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST = 8, OF_A_LOOP = 6 }; /* an epoll descriptor, two pipes, an event descriptor */

int descriptors_lack(int count) {
  int fds[MOST], made = 0;
  while (made < count && made < MOST && (fds[made] = eventfd(0, EFD_CLOEXEC)) >= 0) made++;
  const int errnum = made < count && made < MOST ? errno : 0;
  while (made > 0) close(fds[--made]);
  return errnum;
}

int descriptors_for_loop(rdzv_error *error) {
  const int errnum = descriptors_lack(OF_A_LOOP);
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_IO, errnum, "cannot create an event loop");
}
