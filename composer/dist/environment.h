#pragma once
#include <cstdint>
#include <string>

#include "composer/core/export.h"

namespace composer::dist {

// Which of the processes that train together this one is, as its launcher tells in environment variables.
struct Environment {
  int rank = 0, world_size = 1;              // of all processes
  int local_rank = 0, local_world_size = 1;  // of those on this machine
  int node_rank = 0;                         // of the machine
  int restart_count = 0;                     // how often the launcher has started all processes anew
  std::string master_addr = "127.0.0.1";     // where rank 0, or the launcher, serves the store
  std::uint16_t master_port = 29500;
  bool agent_store = false;  // the launcher (torchrun) serves the store, so rank 0 does not
  std::string job;           // tells jobs apart, so that ranks of two of them do not mix; empty: unknown
  std::string launcher;  // "torchrun", "composer launch", "srun", "the environment"; empty: no launcher, one process

  bool operator==(const Environment&) const = default;
};

// Reads the variables of torchrun and `composer launch` (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK or
// GROUP_RANK, MASTER_ADDR, MASTER_PORT), or else those of srun (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, ...).
// Without any of them: one process. Throws ConfigError for variables that are missing, malformed or contradict each
// other, with names and values.
COMPOSER_EXPORT Environment environment();

}  // namespace composer::dist
