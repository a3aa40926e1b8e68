/* SPDX-License-Identifier: BSD-3-Clause */
/* Syncs to the disk that do nothing and succeed, for an etcd that a test starts: its leases then do not run out because
 * others load the disk. What it writes is safe from its own death, not from a power loss. */
#ifndef RDZV_TESTS_NO_SYNC_H
#define RDZV_TESTS_NO_SYNC_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NO_SYNC_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NO_SYNC_ARCH AUDIT_ARCH_AARCH64
#else
#define NO_SYNC_ARCH 0
#endif

/* In this process and in all that it starts from now on. Where the kernel refuses, syncs are what they always are. */
static inline void no_sync(void) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NO_SYNC_ARCH, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof steps / sizeof steps[0], steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#endif
