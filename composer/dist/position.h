#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace composer::dist {

// The training position of a rank. One thread writes it often, another reads it from time to time; neither waits.
class Position {
 public:
  void set(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept;
  std::string text() const;  // "BATCH_END, epoch 0, batch 17"; empty before the first set()

 private:
  std::atomic<std::uint64_t> version_ = 0;  // odd while a write is under way
  std::atomic<const char*> event_ = nullptr;
  std::atomic<std::size_t> length_ = 0;
  std::atomic<std::int64_t> epoch_ = 0, batch_ = 0;
};

}  // namespace composer::dist
