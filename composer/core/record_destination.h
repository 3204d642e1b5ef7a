#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/logger.h"
#include "composer/core/record.h"

namespace composer {

// A destination that takes whole records. Its methods for single kinds make a Record of their arguments, so a logger
// that forwards to another one may call either form. Derived classes override log_record().
class COMPOSER_EXPORT RecordDestination : public LoggerDestination {
 public:
  void log_record(const Record& record, const State& state) override = 0;

  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) final;
  void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) final;
  void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State& state) final;
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state) final;
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step, const State& state) final;
  void upload_file(const LogFile& file, const State& state) final;
  void log_traces(std::span<const LogEntry> traces, const State& state) final;
};

}  // namespace composer
