#pragma once
#include <chrono>
#include <cstdint>
#include <thread>

namespace composer::dist {

// Limits how long this process waits for what listens at a port, where the call that waits has no limit: from the end
// of the time until this ends, connections to the port are shut down, and such calls fail.
class AnswerLimit {
 public:
  AnswerLimit(std::uint16_t port, std::chrono::milliseconds time);

 private:
  std::jthread ends_;
};

}  // namespace composer::dist
