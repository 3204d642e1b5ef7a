#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/device/allocator_history.h"

namespace composer::test {

struct HistoryCalls {
  std::vector<std::string> names;
  bool fails = false;
};

// Notes what is asked of an allocator's history.
class FakeHistory final : public AllocatorHistory {
 public:
  explicit FakeHistory(HistoryCalls& calls) : calls_(calls) {}
  void start(std::int64_t entries) override { calls_.names.push_back(join("start ", entries)); }
  std::string snapshot() override {
    calls_.names.emplace_back("snapshot");
    if (calls_.fails) throw Error("no history");
    return "pickled";
  }
  void stop() override { calls_.names.emplace_back("stop"); }

 private:
  HistoryCalls& calls_;
};

}  // namespace composer::test
