#include "composer/dist/answer_limit.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace composer::dist {

AnswerLimit::AnswerLimit(std::uint16_t port, std::chrono::milliseconds time) {
  sockets_.begin();
  ends_ = std::jthread([this, port, time](const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kPause(200);  // repeated, because the call may connect again
    std::mutex mutex;
    std::condition_variable_any wakes;
    std::unique_lock lock(mutex);
    for (auto wait = time; !wakes.wait_for(lock, stop, wait, [&] { return stop.stop_requested(); }); wait = kPause)
      sockets_.shut_down_to(port);
  });
}

}  // namespace composer::dist
