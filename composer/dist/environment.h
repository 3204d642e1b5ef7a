#pragma once
#include <cstdint>
#include <string>

#include "composer/core/export.h"

namespace composer::dist {

// The place of this process among those that train together, as its launcher describes it in environment variables.
struct Environment {
  int rank = 0, world_size = 1;              // among all processes
  int local_rank = 0, local_world_size = 1;  // among the processes on this machine
  int node_rank = 0;                         // number of this machine
  int restart_count = 0;                     // how often the launcher has restarted all processes
  std::string master_addr = "127.0.0.1";     // host of the store, which rank 0 or the launcher serves
  std::uint16_t master_port = 29500;
  bool agent_store = false;  // the launcher (torchrun) serves the store, so rank 0 does not
  std::string job;           // distinguishes jobs, so that ranks of different jobs do not mix; empty: unknown
  std::string launcher;  // "torchrun", "composer launch", "srun", "the environment"; empty: no launcher, one process

  bool operator==(const Environment&) const = default;
};

// Reads the variables of torchrun and `composer launch` (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK or
// GROUP_RANK, MASTER_ADDR, MASTER_PORT). Without them, reads those of srun (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID,
// ...). Without any of these, the world has one process. Throws ConfigError if variables are missing, malformed or
// contradict each other; the error has their names and values.
COMPOSER_EXPORT Environment environment();

}  // namespace composer::dist
