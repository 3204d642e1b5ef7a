#pragma once
#include <chrono>
#include <cstdint>
#include <thread>

#include "composer/dist/sockets.h"

namespace composer::dist {

// Limits how long this process waits for a server, in calls that have no timeout of their own. Once `time` has passed,
// and until this object is destroyed, connections to the port that were opened since its construction are shut down, so
// that calls that wait on them fail. Earlier connections, such as those of another world, stay open.
class AnswerLimit {
 public:
  AnswerLimit(std::uint16_t port, std::chrono::milliseconds time);

 private:
  Sockets sockets_;
  std::jthread ends_;
};

}  // namespace composer::dist
