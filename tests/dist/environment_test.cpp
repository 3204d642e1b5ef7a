#include "composer/dist/environment.h"

#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "composer/core/error.h"
#include "composer/dist/srun.h"
#include "tests/support/doctest.h"

namespace composer::dist::environment_test {
namespace {

using Variables = std::map<std::string, std::string>;

bool is_of_launchers(const std::string& name) {
  for (const char* prefix : {"RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "GROUP_", "MASTER_", "TORCHELASTIC_",
                             "SLURM_", "COMPOSER_LAUNCHER", "COMPOSER_MASTER_FD"})
    if (name.starts_with(prefix)) return true;
  return false;
}

// The launcher's variables are these while it lives.
struct InEnvironment {
  explicit InEnvironment(const Variables& variables) : before(all()) { replace(variables); }
  ~InEnvironment() { replace(before); }
  InEnvironment(const InEnvironment&) = delete;
  InEnvironment& operator=(const InEnvironment&) = delete;

  static Variables all() {
    Variables found;
    for (char** each = environ; *each != nullptr; ++each) {
      const std::string text = *each;
      const std::string name = text.substr(0, text.find('='));
      if (is_of_launchers(name)) found[name] = text.substr(name.size() + 1);
    }
    return found;
  }
  static void replace(const Variables& variables) {
    for (const auto& [name, value] : all()) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  const Variables before;
};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables LAUNCHED{
    {"RANK", "3"},      {"WORLD_SIZE", "4"},      {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
    {"NODE_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29511"}};
const Variables BY_SRUN{{"SLURM_PROCID", "5"},
                        {"SLURM_STEP_ID", "2"},
                        {"SLURM_NTASKS", "7"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                        {"SLURM_STEP_NODELIST", "gpu[03-05,9],login"},
                        {"SLURM_JOB_ID", "123456"}};

// The text of the ConfigError that the function throws.
template <class Function>
std::string config_error_of(Function&& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("without variables of a launcher there is one process") {
  const InEnvironment set({});
  CHECK(environment() == Environment{});
}

TEST_CASE("the variables of a launcher say which rank this process is") {
  Environment expected;
  expected.rank = 3;
  expected.world_size = 4;
  expected.local_rank = 1;
  expected.local_world_size = 2;
  expected.node_rank = 1;
  expected.master_addr = "node0";
  expected.master_port = 29511;
  expected.launcher = "the environment";
  {
    const InEnvironment set(LAUNCHED);
    CHECK(environment() == expected);
  }
  {
    const InEnvironment set(
        with(LAUNCHED, {{"COMPOSER_LAUNCHER", "composer launch"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
    expected.launcher = "composer launch";
    expected.restart_count = 2;
    CHECK(environment() == expected);
  }
  const InEnvironment set(with(without(LAUNCHED, "NODE_RANK"), {{"GROUP_RANK", "1"},
                                                                {"TORCHELASTIC_RUN_ID", "none"},
                                                                {"TORCHELASTIC_RESTART_COUNT", "3"},
                                                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  expected.launcher = "torchrun";
  expected.restart_count = 3;
  expected.agent_store = true;
  CHECK(environment() == expected);
}

TEST_CASE("the variables of srun say which rank this process is, and where rank 0 is") {
  Environment expected;
  expected.rank = 5;
  expected.world_size = 7;
  expected.local_rank = 1;
  expected.local_world_size = 3;
  expected.node_rank = 1;
  expected.master_addr = "gpu03";
  expected.master_port = 20000 + (123456 + 2 * 97) % 10000;
  expected.launcher = "srun";
  expected.job = "job 123456 of Slurm, step 2";
  {
    const InEnvironment set(BY_SRUN);
    CHECK(environment() == expected);
  }
  const InEnvironment set(with(
      BY_SRUN,
      {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}, {"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_NTASKS", "99"}}));
  expected.master_addr = "10.0.0.1";
  expected.master_port = 4000;
  CHECK(environment() == expected);
}

TEST_CASE("a program that a batch script of Slurm starts without srun is one process") {
  const InEnvironment set(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}});
  CHECK(environment() == Environment{});
}

TEST_CASE("the variables of torchrun count where srun started torchrun") {
  const InEnvironment set(with(BY_SRUN, LAUNCHED));
  CHECK(environment().rank == 3);
  CHECK(environment().launcher == "the environment");
}

TEST_CASE("on one machine RANK, WORLD_SIZE and the address of rank 0 are enough") {
  const InEnvironment set({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}});
  CHECK(environment().local_rank == 1);
  CHECK(environment().local_world_size == 2);
}

TEST_CASE("variables of a launcher that are missing, malformed or contradict each other are named with their values") {
  struct Row {
    Variables variables;
    std::vector<std::string> parts;  // of the message
  };
  const std::vector<Row> rows{
      {without(LAUNCHED, "RANK"), {"RANK is missing"}},
      {without(LAUNCHED, "WORLD_SIZE"), {"WORLD_SIZE is missing"}},
      {without(LAUNCHED, "MASTER_ADDR"), {"MASTER_ADDR is missing"}},
      {without(LAUNCHED, "MASTER_PORT"), {"MASTER_PORT is missing"}},
      {without(LAUNCHED, "LOCAL_RANK"), {"LOCAL_WORLD_SIZE is set", "LOCAL_RANK is missing"}},
      {without(LAUNCHED, "LOCAL_WORLD_SIZE"), {"LOCAL_RANK is set", "LOCAL_WORLD_SIZE is missing"}},
      {without(without(LAUNCHED, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"), {"MASTER_ADDR", "node0", "loopback"}},
      {with(LAUNCHED, {{"RANK", ""}}), {"RANK is missing"}},
      {with(LAUNCHED, {{"RANK", "two"}}), {"RANK='two'", "not an integer"}},
      {with(LAUNCHED, {{"RANK", "1.5"}}), {"RANK='1.5'"}},
      {with(LAUNCHED, {{"RANK", "-1"}}), {"RANK='-1'"}},
      {with(LAUNCHED, {{"RANK", " 1"}}), {"RANK=' 1'"}},
      {with(LAUNCHED, {{"RANK", "99999999999999999999"}}), {"RANK='99999999999999999999'"}},
      {with(LAUNCHED, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE='0'"}},
      {with(LAUNCHED, {{"RANK", "4"}}), {"RANK=4", "WORLD_SIZE=4"}},
      {with(LAUNCHED, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
      {with(LAUNCHED, {{"RANK", "0"}, {"NODE_RANK", "0"}}), {"LOCAL_RANK=1", "RANK=0"}},
      {with(LAUNCHED, {{"LOCAL_WORLD_SIZE", "5"}}), {"LOCAL_WORLD_SIZE='5'", "1 to 4"}},
      {with(LAUNCHED, {{"LOCAL_WORLD_SIZE", "4"}}), {"NODE_RANK=1", "LOCAL_WORLD_SIZE=4"}},
      {with(LAUNCHED, {{"GROUP_RANK", "0"}}), {"NODE_RANK=1", "GROUP_RANK=0"}},
      {with(LAUNCHED, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT='65536'", "65535"}},
      {with(LAUNCHED, {{"MASTER_PORT", "0"}}), {"MASTER_PORT='0'"}},
      {with(LAUNCHED, {{"TORCHELASTIC_RESTART_COUNT", "x"}}), {"TORCHELASTIC_RESTART_COUNT='x'"}},
      {without(BY_SRUN, "SLURM_NTASKS"), {"SLURM_NTASKS is missing"}},
      {without(BY_SRUN, "SLURM_LOCALID"), {"SLURM_LOCALID is missing"}},
      {without(BY_SRUN, "SLURM_STEP_NODELIST"), {"SLURM_STEP_NODELIST", "MASTER_ADDR"}},
      {without(BY_SRUN, "SLURM_STEP_TASKS_PER_NODE"), {"SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE"}},
      {with(BY_SRUN, {{"SLURM_PROCID", "7"}}), {"SLURM_PROCID='7'", "0 to 6"}},
      {with(BY_SRUN, {{"SLURM_STEP_TASKS_PER_NODE", "4,4"}}), {"7 tasks", "'4,4'", "8"}},
      {with(BY_SRUN, {{"SLURM_STEP_TASKS_PER_NODE", "7"}}), {"'7'", "node 1"}},
      {with(BY_SRUN, {{"SLURM_STEP_TASKS_PER_NODE", "4,x"}}), {"'4,x'", "'x'"}},
      {with(BY_SRUN, {{"SLURM_LOCALID", "3"}}), {"SLURM_LOCALID='3'", "0 to 2"}},
  };
  for (const Row& row : rows) {
    const InEnvironment set(row.variables);
    const std::string text = config_error_of([] { environment(); });
    for (const std::string& part : row.parts) {
      CAPTURE(text);
      CAPTURE(part);
      CHECK(text.find(part) != text.npos);
    }
  }
}

TEST_CASE("the first host of Slurm's lists") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("a,b") == "a");
  CHECK(first_host("gpu[03-05,9],login") == "gpu03");
  CHECK(first_host("gpu[9,03-05]") == "gpu9");
  CHECK(first_host("rack[1-2]n[1-4]") == "rack1n1");
  CHECK(first_host("gpu[7]-ib,x") == "gpu7-ib");
  CHECK(config_error_of([] { first_host("gpu[7"); }).find("gpu[7") != std::string::npos);
}

TEST_CASE("Slurm's lists of tasks per node") {
  CHECK(tasks_per_node("4", 0).of_node == 4);
  CHECK(tasks_per_node("4(x2),3", 1).of_node == 4);
  CHECK(tasks_per_node("4(x2),3", 2).of_node == 3);
  CHECK(tasks_per_node("4(x2),3", 3).of_node == 0);
  CHECK(tasks_per_node("4(x2),3", 0).sum == 11);
}

}  // namespace
}  // namespace composer::dist::environment_test
