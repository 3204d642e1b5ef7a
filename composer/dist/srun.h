#pragma once
#include <string>

#include "composer/dist/environment.h"

namespace composer::dist {

// Whether srun started this process. A batch script has most of the SLURM variables, but not SLURM_STEP_ID.
bool started_by_srun();
// Reads the SLURM variables. Throws ConfigError like environment().
Environment environment_of_srun();

// The first host of a list such as "gpu[03-05,9],login" (here gpu03).
std::string first_host(const std::string& list);
// The entry for a node in a list such as "4(x2),3" (here 4, 4, 3), and the sum of all entries.
struct TasksPerNode {
  int of_node = 0, sum = 0;
};
TasksPerNode tasks_per_node(const std::string& list, int node);

}  // namespace composer::dist
