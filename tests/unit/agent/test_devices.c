/* SPDX-License-Identifier: BSD-3-Clause */
/* Machines are folders: what the kernel and the drivers would show there. */
#include "agent/worker/devices.h"
#include "agent/worker/numa.h"

#include "unit.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const variables[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "ZE_AFFINITY_MASK"};

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

static void test_intels_are_render_nodes_of_that_vendor(void **state) {
  static const struct {
    const char *node, *vendor;
  } nodes[] = {
      {"renderD128", "0x8086\n"}, {"renderD129", "0x10de\n"}, {"renderD130", "0x8086\n"}, {"card0", "0x8086\n"}};
  const char *root = ((struct machine *)*state)->root;
  assert_int_equal(devices_xpus(root), 0);
  for (size_t i = 0; i < COUNT_OF(nodes); i++) {
    char path[128];
    snprintf(path, sizeof path, "/dev/dri/%s", nodes[i].node);
    make(*state, path, "");
    snprintf(path, sizeof path, "/sys/class/drm/%s/device/vendor", nodes[i].node);
    make(*state, path, nodes[i].vendor);
  }
  make(*state, "/dev/dri/renderD131", "");
  make(*state, "/sys/class/drm/renderD132/device/vendor", "0x8086\n"); /* not given to this container */
  assert_int_equal(devices_xpus(root), 2);
  assert_int_equal(devices_gpus(root), 0);
  setenv("ZE_AFFINITY_MASK", "1", 1);
  assert_int_equal(devices_xpus(root), 1);
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
  setenv("ZE_AFFINITY_MASK", "", 1);
  assert_error(devices_nproc("xpu", &count, &error), RDZV_E_INVALID, &error, "no visible Intel GPU");
}

static void test_what_is_no_number_of_workers(void **state) {
  (void)state;
  static const char *const texts[] = {"",    "0",   "-1",   "+1", " 1", "1 ", "1x", "4097", "99999999999999999999",
                                      "GPU", "npu", "0x10", "1.0"};
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

/* "0 1 4 5", or the error. */
static const char *bound(const struct machine *machine, enum numa_mode mode, int64_t rank, int64_t size,
                         const cpu_set_t *allowed) {
  static char text[RDZV_MESSAGE_SIZE];
  cpu_set_t cpus;
  rdzv_error error = {0};
  text[0] = '\0';
  if (numa_cpus(machine->root, mode, rank, size, allowed, &cpus, &error) < 0) {
    assert_int_equal(error.code, RDZV_E_INVALID);
    snprintf(text, sizeof text, "%s", error.message);
    return text;
  }
  for (size_t i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &cpus)) snprintf(text + strlen(text), sizeof text - strlen(text), "%s%zu", *text ? " " : "", i);
  return text;
}

static const char *cpus_of(const struct machine *machine, int64_t rank, int64_t size, const cpu_set_t *allowed) {
  return bound(machine, NUMA_NODE, rank, size, allowed);
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
  assert_string_equal(cpus_of(machine, 2, 3, &all), "cannot bind local rank 2 to processors: there are only 2 GPUs");
  assert_string_equal(cpus_of(machine, 1, 2, &few), "0 1");
  assert_string_equal(cpus_of(machine, 0, 2, &few),
                      "cannot bind local rank 0 to processors: NUMA node 1 has no processor that may be used");
  setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  assert_string_equal(cpus_of(machine, 0, 2, &all), "0 1 4 5");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-1234", 1);
  assert_string_equal(cpus_of(machine, 0, 2, &all),
                      "cannot bind local rank 0 to processors: CUDA_VISIBLE_DEVICES does not name its GPU by a number");
}

/* As on machines with one node. */
static void test_a_gpu_without_a_node_is_on_the_first(void **state) {
  const struct machine *machine = *state;
  const cpu_set_t all = first_cpus(8);
  make_nodes(machine);
  make(machine, "/proc/driver/nvidia/gpus/0000:0A:00.0", NULL);
  make(machine, "/sys/bus/pci/devices/0000:0a:00.0/numa_node", "-1\n");
  assert_string_equal(cpus_of(machine, 0, 1, &all), "0 1 4 5");
}

static void test_without_gpus_workers_are_spread_over_the_nodes(void **state) {
  const struct machine *machine = *state;
  const cpu_set_t all = first_cpus(8);
  assert_string_equal(cpus_of(machine, 0, 1, &all),
                      "cannot bind local rank 0 to processors: the machine does not show its NUMA nodes");
  make_nodes(machine);
  for (int rank = 0; rank < 4; rank++)
    assert_string_equal(cpus_of(machine, rank, 4, &all), rank < 2 ? "0 1 4 5" : "2 3 6 7");
}

/* ---- modes ---- */

enum { CORES = 16, NODES = 4 };

/* Two sockets, with two nodes each, with four cores each, with two processors each, N and N + 16. Two neighboring cores
 * share their last cache. */
static void make_big(const struct machine *machine) {
  char path[128], text[64];
  make(machine, "/sys/devices/system/node/online", "0-3\n");
  make(machine, "/sys/devices/system/node/possible", "0-7\n");
  for (int node = 0; node < NODES; node++) {
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    snprintf(text, sizeof text, "%d-%d,%d-%d\n", 4 * node, 4 * node + 3, 4 * node + CORES, 4 * node + 3 + CORES);
    make(machine, path, text);
  }
  for (int cpu = 0; cpu < 2 * CORES; cpu++) {
    const int core = cpu % CORES, pair = core & ~1;
    const struct {
      const char *name, *format;
      int numbers[4];
    } files[] = {{"topology/physical_package_id", "%d\n", {core / 8}},
                 {"topology/thread_siblings_list", "%d,%d\n", {core, core + CORES}},
                 {"cache/index0/level", "1\n", {0}},
                 {"cache/index0/type", "Data\n", {0}},
                 {"cache/index0/shared_cpu_list", "%d,%d\n", {core, core + CORES}},
                 {"cache/index1/level", "3\n", {0}},
                 {"cache/index1/type", "Unified\n", {0}},
                 {"cache/index1/shared_cpu_list", "%d-%d,%d-%d\n", {pair, pair + 1, pair + CORES, pair + 1 + CORES}},
                 {"cache/index2/level", "4\n", {0}},
                 {"cache/index2/type", "Instruction\n", {0}},
                 {"cache/index2/shared_cpu_list", "0-31\n", {0}}};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
      const int *n = files[i].numbers;
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, files[i].name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      snprintf(text, sizeof text, files[i].format, n[0], n[1], n[2], n[3]);
#pragma GCC diagnostic pop
      make(machine, path, text);
    }
  }
}

/* Three on node 1, one on node 3. */
static void make_big_with_gpus(const struct machine *machine) {
  make_big(machine);
  make_nvidia(machine, 4);
  for (int i = 0; i < 4; i++) {
    char path[64];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/0000:%02x:00.0/numa_node", i);
    make(machine, path, i < 3 ? "1\n" : "3\n");
  }
}

static void test_a_socket_has_all_its_nodes(void **state) {
  const cpu_set_t all = first_cpus(32), few = first_cpus(14);
  make_big_with_gpus(*state);
  assert_string_equal(bound(*state, NUMA_SOCKET, 0, 4, &all), "0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23");
  assert_string_equal(bound(*state, NUMA_SOCKET, 3, 4, &all), "8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31");
  assert_string_equal(bound(*state, NUMA_SOCKET, 3, 4, &few), "8 9 10 11 12 13");
}

static void test_cores_are_divided_among_the_gpus_of_a_node(void **state) {
  const cpu_set_t all = first_cpus(32), few = first_cpus(6);
  make_big_with_gpus(*state);
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 4, &all), "4 5 20 21"); /* one core is left over */
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 1, 4, &all), "6 22");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 2, 4, &all), "7 23");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 3, 4, &all), "12 13 14 15 28 29 30 31");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 1, &all), "4 5 20 21"); /* all GPUs count, not all workers */
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 4, &few),
                      "cannot bind local rank 0 to processors: NUMA node 1 has 2 cores for 3 GPUs");
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1); /* and only those that are visible */
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 2, &all), "4 5 20 21");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 1, 2, &all), "6 7 22 23");
}

static void test_a_core_complex_for_each_gpu(void **state) {
  cpu_set_t all = first_cpus(32);
  make_big_with_gpus(*state);
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 0, 4, &all), "4 5 20 21");
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 1, 4, &all), "6 7 22 23");
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 2, 4, &all), "4 5 20 21"); /* there are only two */
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 3, 4, &all), "12 13 28 29");
  CPU_CLR(4, &all); /* the one with more processors comes first */
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 0, 4, &all), "6 7 22 23");
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 1, 4, &all), "5 20 21");
}

static void test_without_gpus_workers_stand_for_them(void **state) {
  const cpu_set_t all = first_cpus(32);
  make_big(*state);
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 2, 8, &all), "4 5 20 21");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 3, 8, &all), "6 7 22 23");
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 3, 8, &all), "6 7 22 23");
  assert_string_equal(bound(*state, NUMA_SOCKET, 7, 8, &all), "8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 32, &all),
                      "cannot bind local rank 0 to processors: NUMA node 0 has 4 cores for 8 workers");
}

static void test_a_machine_that_does_not_show_enough(void **state) {
  const cpu_set_t all = first_cpus(8);
  make_nodes(*state);
  assert_string_equal(bound(*state, NUMA_SOCKET, 0, 1, &all),
                      "cannot bind local rank 0 to processors: the machine does not show its sockets");
  assert_string_equal(bound(*state, NUMA_EXCLUSIVE, 0, 1, &all),
                      "cannot bind local rank 0 to processors: the machine does not show the cores of its processors");
  assert_string_equal(bound(*state, NUMA_CORE_COMPLEX, 0, 1, &all),
                      "cannot bind local rank 0 to processors: the machine does not show the caches of its processors");
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
      cmocka_unit_test_setup_teardown(test_intels_are_render_nodes_of_that_vendor, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_how_many_workers, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_auto_is_cpu_where_there_is_no_gpu, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_what_is_no_number_of_workers, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_worker_runs_near_its_gpu, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_gpu_without_a_node_is_on_the_first, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_socket_has_all_its_nodes, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_cores_are_divided_among_the_gpus_of_a_node, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_core_complex_for_each_gpu, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_without_gpus_workers_stand_for_them, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_a_machine_that_does_not_show_enough, open_machine, close_machine),
      cmocka_unit_test_setup_teardown(test_without_gpus_workers_are_spread_over_the_nodes, open_machine, close_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
