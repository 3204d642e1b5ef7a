#include "composer/dist/srun.h"

#include <algorithm>
#include <optional>

#include "composer/core/error.h"
#include "composer/dist/variables.h"

namespace composer::dist {
namespace {

// The first of two variables that is set. srun sets both for a step; the job's variables may describe more than the
// step.
std::optional<std::string> either(const char* of_step, const char* of_job) {
  if (std::optional<std::string> value = variable(of_step)) return value;
  return variable(of_job);
}

int int_of(std::int64_t number) { return static_cast<int>(number); }

int world_size() {
  if (const auto of_step = integer_variable("SLURM_STEP_NUM_TASKS", 1, kLargestWorld)) return int_of(*of_step);
  return int_of(required_variable("SLURM_NTASKS", 1, kLargestWorld));
}

// The port of the store. All ranks compute the same port, below the range from which Linux takes ports for outgoing
// connections. Jobs and steps that share a machine get different ports.
std::uint16_t port_of_job() {
  const std::int64_t largest = 0xffffffff;
  const std::int64_t job = integer_variable("SLURM_JOB_ID", 0, largest).value_or(0);
  const std::int64_t step = integer_variable("SLURM_STEP_ID", 0, largest).value_or(0);
  return static_cast<std::uint16_t>(20000 + (job + 97 * step) % 10000);
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    const std::size_t end = std::min(list.find_first_of(",-]", at), close);
    if (close == std::string::npos) throw ConfigError("the list of nodes '", list, "' has no ']' for its '['");
    host += list.substr(at + 1, end - at - 1);
    at = close + 1;
  }
  return host;
}

TasksPerNode tasks_per_node(const std::string& list, int node) {
  const std::string what = "the number of tasks in '" + list + "'";
  TasksPerNode tasks;
  int nodes = 0;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string entry = list.substr(at, end - at);
    int times = 1;
    if (const std::size_t paren = entry.find("(x"); paren != std::string::npos && entry.ends_with(')')) {
      times = int_of(integer(what, entry.substr(paren + 2, entry.size() - paren - 3), 1, kLargestWorld));
      entry.erase(paren);
    }
    const int each = int_of(integer(what, entry, 1, kLargestWorld));
    if (node >= nodes && node < nodes + times) tasks.of_node = each;
    nodes += times;
    tasks.sum += times * each;
    at = end + 1;
  }
  return tasks;
}

bool started_by_srun() { return variable("SLURM_PROCID") && (variable("SLURM_STEP_ID") || variable("SLURM_STEPID")); }

Environment environment_of_srun() {
  Environment e;
  e.launcher = "srun";
  e.world_size = world_size();
  e.rank = int_of(required_variable("SLURM_PROCID", 0, e.world_size - 1));
  e.node_rank = int_of(integer_variable("SLURM_NODEID", 0, kLargestWorld).value_or(0));
  e.local_world_size = e.world_size;
  if (const auto list = either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")) {
    const TasksPerNode tasks = tasks_per_node(*list, e.node_rank);
    if (tasks.sum != e.world_size || tasks.of_node == 0)
      throw ConfigError("srun started ", e.world_size, " tasks, but its list of tasks per node, '", *list, "', has ",
                        tasks.sum, " (this is node ", e.node_rank, ")");
    e.local_world_size = tasks.of_node;
  } else if (e.node_rank > 0) {
    throw ConfigError("SLURM_NODEID=", e.node_rank, ", but SLURM_STEP_TASKS_PER_NODE is missing");
  }
  e.local_rank = int_of(required_variable("SLURM_LOCALID", 0, e.local_world_size - 1));
  e.restart_count = int_of(integer_variable("SLURM_RESTART_COUNT", 0, kLargestWorld).value_or(0));
  if (const auto address = variable("MASTER_ADDR"))
    e.master_addr = *address;
  else if (const auto nodes = either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    e.master_addr = first_host(*nodes);
  else if (e.local_world_size < e.world_size)
    throw ConfigError("SLURM_STEP_NODELIST and MASTER_ADDR are missing; one of them must name the machine of rank 0");
  e.master_port = port_of_job();
  const auto job = variable("SLURM_JOB_ID"), step = either("SLURM_STEP_ID", "SLURM_STEPID");
  if (job) e.job = join("job ", *job, " of Slurm, step ", step.value_or("?"));
  if (const auto port = integer_variable("MASTER_PORT", 1, 65535)) e.master_port = static_cast<std::uint16_t>(*port);
  return e;
}

}  // namespace composer::dist
