#pragma once
#include <chrono>
#include <cstdint>
#include <thread>

#include "composer/dist/sockets.h"

namespace composer::dist {

// Limits how long this process waits for what listens at a port, where the call that waits has no limit: from the end
// of the time until this ends, connections to the port that were opened since it began are shut down, and such calls
// fail. Earlier ones, such as those of another world, stay.
class AnswerLimit {
 public:
  AnswerLimit(std::uint16_t port, std::chrono::milliseconds time);

 private:
  Sockets sockets_;
  std::jthread ends_;
};

}  // namespace composer::dist
