#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/record_destination.h"
#include "composer/core/time.h"

namespace composer::loggers {

// A logged value on the host; tensors are converted to numbers.
struct COMPOSER_EXPORT LoggedPoint {
  Timestamp timestamp;  // training time when it was logged
  LogValue value;
  double number() const { return to_number(value); }  // throws DataError for text
};

// Keeps every metric and hyperparameter of the run in memory, in a few bytes each. To read them, keep a shared_ptr to
// the logger. Values on a GPU are read together at EPOCH_END; the functions below also read them, and wait. Do not read
// from another thread during training.
class COMPOSER_EXPORT InMemoryLogger final : public RecordDestination, public ForAllRanks {
 public:
  InMemoryLogger();
  ~InMemoryLogger() override;
  InMemoryLogger(InMemoryLogger&&) noexcept;

  std::vector<std::string> keys() const;  // sorted
  // All values of `key`, oldest first. Throws ConfigError for an unknown key; the error lists the known keys.
  std::vector<LoggedPoint> get_timeseries(std::string_view key) const;
  LoggedPoint most_recent(std::string_view key) const;  // throws like get_timeseries()
  const std::map<std::string, LogValue, std::less<>>& hyperparameters() const { return hyperparameters_; }

  void log_record(const Record& record, const State& state) override;
  void epoch_end(const State& state, Logger& logger) override;

 private:
  struct Column;
  struct Table;
  void add_metrics(std::span<const LogEntry> metrics, const Timestamp& timestamp);
  Column& find(std::string_view key) const;
  std::unique_ptr<Table> table_;
  std::map<std::string, LogValue, std::less<>> hyperparameters_;
};

}  // namespace composer::loggers
