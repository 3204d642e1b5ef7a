#pragma once
#include <cstdint>
#include <string>

namespace composer::callbacks {

struct MLPerfSystem {
  std::string submitter, division, status, system_name;
  int world_size = 1;
  bool has_accelerator = false;               // each process has one
  std::int64_t host_processors_per_node = 0;  // 0: not said
};

// The description of a machine as MLPerf has it: a JSON object of texts. What is not known is an empty text.
std::string mlperf_system_json(const MLPerfSystem& system);

}  // namespace composer::callbacks
