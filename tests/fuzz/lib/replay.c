/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for libFuzzer in ordinary builds: feeds each file of the given folders (and each given file) to the target
 * once, in the order of their names. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>

static int fed;

static int feed(const char *path) {
  FILE *file = fopen(path, "rb");
  size_t len = 0, cap = 4096, got;
  uint8_t *data = malloc(cap);
  while (file && data && (got = fread(data + len, 1, cap - len, file)) > 0) {
    len += got;
    if (len == cap) data = realloc(data, cap *= 2);
  }
  const int failed = !file || !data || ferror(file);
  if (failed) fprintf(stderr, "cannot read '%s': %s\n", path, strerror(errno));
  if (file) fclose(file);
  if (!failed) {
    uint8_t *exact = fuzz_copy(data, len); /* so that one read too far is found out */
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    fed++;
  }
  free(data);
  return failed;
}

static int is_input(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int feed_folder(const char *path) {
  struct dirent **entries = NULL;
  const int count = scandir(path, &entries, is_input, alphasort);
  if (count < 0 && errno == ENOTDIR) return feed(path);
  if (count < 0) fprintf(stderr, "cannot read '%s': %s\n", path, strerror(errno));
  int failed = count < 0;
  for (int i = 0; i < count; i++) {
    char inner[4096];
    snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
    failed |= feed(inner);
    free(entries[i]);
  }
  free(entries);
  return failed;
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) failed |= feed_folder(argv[i]);
  printf("replayed %d inputs\n", fed);
  return failed || fed == 0;
}
