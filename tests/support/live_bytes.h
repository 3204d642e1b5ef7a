#pragma once
// How many bytes of tensors this thread has on the CPU, of those that it allocated while this lived.
#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace composer::test {

class LiveBytes {
 public:
  LiveBytes() : report_(std::make_shared<Report>()), guard_(c10::DebugInfoKind::PROFILER_STATE, report_) {}
  std::int64_t now() const { return report_->now; }
  std::int64_t peak() const { return report_->peak; }

 private:
  struct Report final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
      now += size;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t now = 0, peak = 0;
  };
  std::shared_ptr<Report> report_;
  c10::DebugInfoGuard guard_;
};

}  // namespace composer::test
