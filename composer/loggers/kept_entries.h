#pragma once
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/logger.h"
#include "composer/loggers/tensor_streams.h"

namespace composer {

// What one call of a Logger has logged, for destinations that write it later.
class KeptEntries {
 public:
  struct Field {
    std::string_view key;
    LogValue value;
  };

  // The destinations of a Logger get the same object for the same call. Numbers in host memory are read immediately.
  // Throws DataError for a tensor that is not one real number.
  static std::shared_ptr<KeptEntries> of(std::span<const LogEntry> entries, const State& state);

  // `memory` must outlive the object.
  KeptEntries(std::span<const LogEntry> entries, const State& state,
              std::pmr::memory_resource* memory = std::pmr::new_delete_resource());
  KeptEntries(const KeptEntries&) = delete;
  KeptEntries& operator=(const KeptEntries&) = delete;

  // On the host: the first call, by any thread, waits for the devices. Throws what reading a tensor throws.
  std::span<const Field> read();

  const std::int64_t epoch, batch;
  const double time;       // seconds of training
  const double wall_time;  // seconds since 1970

 private:
  std::pmr::string keys_;  // one after the other
  std::pmr::vector<Field> fields_;
  loggers::TensorStreams streams_;  // compute the tensors until they are read
  std::once_flag was_read_;
};

}  // namespace composer
