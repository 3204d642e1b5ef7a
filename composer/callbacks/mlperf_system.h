#pragma once
#include <cstdint>
#include <string>

namespace composer::callbacks {

struct MLPerfSystem {
  std::string submitter, division, status, system_name;
  int world_size = 1;
  bool has_accelerator = false;               // each process has an accelerator
  std::int64_t host_processors_per_node = 0;  // 0: unknown
};

// The description of a machine in MLPerf's form: a JSON object of texts. Unknown values are empty texts.
std::string mlperf_system_json(const MLPerfSystem& system);

}  // namespace composer::callbacks
