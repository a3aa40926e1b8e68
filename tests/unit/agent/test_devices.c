/* SPDX-License-Identifier: BSD-3-Clause */
/* Machines are folders: what the kernel and the drivers would show there. */
#include "agent/worker/devices.h"
#include "agent/worker/numa.h"

#include "unit.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const variables[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

struct machine {
  char root[32];
};

static int open_machine(void **state) {
  static struct machine machine;
  strcpy(machine.root, "/tmp/rdzv-test-XXXXXX");
  for (size_t i = 0; i < COUNT_OF(variables); i++) unsetenv(variables[i]);
  *state = &machine;
  return mkdtemp(machine.root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
  (void)status, (void)type, (void)where;
  return remove(path);
}

static int close_machine(void **state) {
  const struct machine *machine = *state;
  return nftw(machine->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file with that text, and all folders above it; the text NULL: a folder. */
static void make(const struct machine *machine, const char *path, const char *text) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s%s", machine->root, path);
  for (char *at = whole + strlen(machine->root) + 1; (at = strchr(at, '/')); at++) {
    *at = '\0';
    mkdir(whole, 0755);
    *at = '/';
  }
  if (!text) {
    assert_int_equal(mkdir(whole, 0755), 0);
    return;
  }
  FILE *file = fopen(whole, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void make_nvidia(const struct machine *machine, int count) {
  for (int i = 0; i < count; i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/0000:%02x:00.0", i);
    make(machine, path, NULL);
  }
}

/* The processors are nodes of the topology, too. */
static void make_amd(const struct machine *machine, int count) {
  for (int i = 0; i < count + 2; i++) {
    char path[64], id[16];
    snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/gpu_id", i);
    snprintf(id, sizeof id, "%d\n", i < 2 ? 0 : 26800 + i);
    make(machine, path, id);
  }
}

static void test_a_machine_without(void **state) {
  const struct machine *machine = *state;
  assert_int_equal(devices_gpus(machine->root), 0);
  make(machine, "/dev/null", "");
  make(machine, "/proc/driver/nvidia/gpus", NULL);
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  assert_int_equal(devices_gpus(machine->root), 0);
}

static void test_nvidias_are_counted_where_the_driver_lists_them(void **state) {
  make_nvidia(*state, 3);
  make(*state, "/dev/nvidia0", ""); /* a container may be given one of them only; the driver's word goes first */
  assert_int_equal(devices_gpus(((struct machine *)*state)->root), 3);
}

static void test_or_else_by_their_devices(void **state) {
  static const char *const names[] = {"/dev/nvidia0",   "/dev/nvidia1",    "/dev/nvidia10",
                                      "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset",
                                      "/dev/nvidia",    "/dev/nvidia0x",   "/dev/xnvidia3"};
  for (size_t i = 0; i < COUNT_OF(names); i++) make(*state, names[i], "");
  make(*state, "/dev/nvidia-caps/nvidia-cap1", "");
  assert_int_equal(devices_gpus(((struct machine *)*state)->root), 3);
}

static void test_amds_are_nodes_of_the_topology_that_have_an_id(void **state) {
  make_amd(*state, 4);
  make(*state, "/sys/class/kfd/kfd/topology/nodes/6/gpu_id", "");
  make(*state, "/sys/class/kfd/kfd/topology/nodes/7/gpu_id", "none\n");
  make(*state, "/sys/class/kfd/kfd/topology/nodes/8", NULL);
  make(*state, "/sys/class/kfd/kfd/topology/nodes/6.swp", "12\n");
  assert_int_equal(devices_gpus(((struct machine *)*state)->root), 4);
}

static void test_where_both_are_nvidias_are_meant(void **state) {
  make_nvidia(*state, 1);
  make_amd(*state, 5);
  assert_int_equal(devices_gpus(((struct machine *)*state)->root), 1);
}

/* The list ends at the first entry that is no device, as it does for the driver. */
static void test_what_is_hidden_is_not_counted(void **state) {
  static const struct {
    const char *value;
    int64_t count;
  } cases[] = {{"", 0},
               {"-1", 0},
               {"0", 1},
               {"0,1", 2},
               {"3,2,1,0", 4},
               {"1,-1,2", 1},
               {"0,9,1", 1},
               {"9", 0},
               {"4", 0},
               {"0,1,2,3,", 4},
               {"GPU-8932f937", 1},
               {"GPU-1,GPU-2", 2},
               {"MIG-GPU-1/1/0", 1},
               {"NoDevFiles", 0},
               {"none", 0}};
  make_nvidia(*state, 4);
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    setenv("CUDA_VISIBLE_DEVICES", cases[i].value, 1);
    const int64_t count = devices_gpus(((struct machine *)*state)->root);
    if (count != cases[i].count) fail_msg("'%s': %ld", cases[i].value, (long)count);
  }
}

/* Each variable hides some of what the one before has left. */
static void test_amds_variables_are_three(void **state) {
  const char *root = ((struct machine *)*state)->root;
  make_amd(*state, 4);
  setenv("ROCR_VISIBLE_DEVICES", "1,2,3", 1);
  assert_int_equal(devices_gpus(root), 3);
  setenv("HIP_VISIBLE_DEVICES", "0,1", 1);
  assert_int_equal(devices_gpus(root), 2);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  assert_int_equal(devices_gpus(root), 0);
}

static void test_how_many_workers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t count;
  } cases[] = {{"1", 1}, {"8", 8}, {"08", 8}, {"4096", 4096}};
  int64_t count;
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    assert_code(devices_nproc(cases[i].text, &count, NULL), 0);
    assert_int_equal(count, cases[i].count);
  }
  assert_code(devices_nproc("cpu", &count, NULL), 0);
  assert_int_equal(count, sysconf(_SC_NPROCESSORS_ONLN));
}

/* No GPU is to be seen: "auto" takes processors, "gpu" does not. */
static void test_auto_is_cpu_where_there_is_no_gpu(void **state) {
  (void)state;
  rdzv_error error;
  int64_t count;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  assert_code(devices_nproc("auto", &count, NULL), 0);
  assert_int_equal(count, sysconf(_SC_NPROCESSORS_ONLN));
  assert_error(devices_nproc("gpu", &count, &error), RDZV_E_INVALID, &error, "no visible GPU");
}

static void test_what_is_no_number_of_workers(void **state) {
  (void)state;
  static const char *const texts[] = {"",    "0",   "-1",   "+1", " 1", "1 ", "1x", "4097", "99999999999999999999",
                                      "GPU", "xpu", "0x10", "1.0"};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    rdzv_error error;
    int64_t count;
    if (devices_nproc(texts[i], &count, &error) != RDZV_E_INVALID) fail_msg("'%s' is taken", texts[i]);
    assert_non_null(strstr(error.message, "nproc_per_node"));
  }
}

/* ---- NUMA ----------------------------------------------------------------------------------------------------- */

/* Two nodes with four processors each. */
static void make_nodes(const struct machine *machine) {
  make(machine, "/sys/devices/system/node/online", "0-1\n");
  make(machine, "/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  make(machine, "/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
}

/* "0 1 4 5", "" where nothing is bound. */
static const char *cpus_of(const struct machine *machine, int64_t rank, int64_t size, const cpu_set_t *allowed) {
  static char text[64];
  cpu_set_t cpus;
  text[0] = '\0';
  if (!numa_cpus(machine->root, rank, size, allowed, &cpus)) return text;
  for (size_t i = 0; i < 8; i++)
    if (CPU_ISSET(i, &cpus)) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%zu", *text ? " " : "", i);
  return text;
}

static cpu_set_t first_cpus(size_t count) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (size_t i = 0; i < count; i++) CPU_SET(i, &cpus);
  return cpus;
}

static void test_a_worker_runs_near_its_gpu(void **state) {
  const struct machine *machine = *state;
  const cpu_set_t all = first_cpus(8), few = first_cpus(2);
  make_nodes(machine);
  make(machine, "/proc/driver/nvidia/gpus/0000:0A:00.0", NULL);
  make(machine, "/proc/driver/nvidia/gpus/0000:C1:00.0", NULL);
  make(machine, "/sys/bus/pci/devices/0000:0a:00.0/numa_node", "1\n");
  make(machine, "/sys/bus/pci/devices/0000:c1:00.0/numa_node", "0\n");
  assert_string_equal(cpus_of(machine, 0, 2, &all), "2 3 6 7");
  assert_string_equal(cpus_of(machine, 1, 2, &all), "0 1 4 5");
  assert_string_equal(cpus_of(machine, 2, 3, &all), ""); /* it has no GPU */
  assert_string_equal(cpus_of(machine, 1, 2, &few), "0 1");
  assert_string_equal(cpus_of(machine, 0, 2, &few), ""); /* none of its node's is allowed */
  setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  assert_string_equal(cpus_of(machine, 0, 2, &all), "0 1 4 5");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-1234", 1);
  assert_string_equal(cpus_of(machine, 0, 2, &all), "");
}

static void test_a_gpu_whose_node_is_not_known(void **state) {
  const struct machine *machine = *state;
  const cpu_set_t all = first_cpus(8);
  make_nodes(machine);
  make(machine, "/proc/driver/nvidia/gpus/0000:0A:00.0", NULL);
  make(machine, "/sys/bus/pci/devices/0000:0a:00.0/numa_node", "-1\n");
  assert_string_equal(cpus_of(machine, 0, 1, &all), "");
}

static void test_without_gpus_workers_are_spread_over_the_nodes(void **state) {
  const struct machine *machine = *state;
  const cpu_set_t all = first_cpus(8);
  assert_string_equal(cpus_of(machine, 0, 1, &all), ""); /* a machine that does not say */
  make_nodes(machine);
  for (int rank = 0; rank < 4; rank++)
    assert_string_equal(cpus_of(machine, rank, 4, &all), rank < 2 ? "0 1 4 5" : "2 3 6 7");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_machine_without, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_nvidias_are_counted_where_the_driver_lists_them, open_machine,
                                      close_machine),
      cmocka_unit_test_setup_teardown(test_or_else_by_their_devices, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_amds_are_nodes_of_the_topology_that_have_an_id, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_where_both_are_nvidias_are_meant, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_what_is_hidden_is_not_counted, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_amds_variables_are_three, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_how_many_workers, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_auto_is_cpu_where_there_is_no_gpu, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_what_is_no_number_of_workers, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_worker_runs_near_its_gpu, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_gpu_whose_node_is_not_known, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_without_gpus_workers_are_spread_over_the_nodes, open_machine, close_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
