#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/last_batch.h"
#include "composer/core/record_destination.h"
#include "composer/core/time.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

struct ConsoleLoggerOptions {
  Time log_interval = "1ba";     // in ep or ba, >= 1
  TextStream stream = "stderr";  // or "stdout", or a std::ostream
  bool log_traces = false;       // also prints which algorithms ran, immediately
};

// Prints the metrics logged since it last printed: after the first batch (or epoch) and then at every interval, after
// each evaluation, and the rest at FIT_END. With an interval in epochs, losses and metrics of training are means over
// the batches since the last output, weighted by the number of samples. With an interval in batches, they are the
// values of the last batch. During an evaluation it prints progress at up to ten batches. Prints hyperparameters when a
// fit, an evaluation or a prediction starts, each once. Values on a GPU are printed when they have arrived on the host,
// and at the end of the epoch at the latest. Training waits for them there and before an evaluation, but not within an
// epoch.
class COMPOSER_EXPORT ConsoleLogger final : public RecordDestination {
 public:
  explicit ConsoleLogger(ConsoleLoggerOptions options = {});
  explicit ConsoleLogger(EmptyOptions) : ConsoleLogger() {}
  ~ConsoleLogger() override;
  ConsoleLogger(ConsoleLogger&&) noexcept;

  void log_record(const Record& record, const State& state) override;
  bool wants_traces() const override { return options_.log_traces; }

  void fit_start(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void eval_start(const State& state, Logger& logger) override;
  void eval_batch_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void predict_start(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void flush() override;  // waits for values on a GPU

 private:
  struct Buffers;
  void add_metrics(std::span<const LogEntry> metrics);
  void add_hyperparameters(std::span<const LogEntry> hyperparameters);
  void print_hyperparameters();
  void print_training(const State& state);
  void print_metrics(std::string text, const char* kind);

  ConsoleLoggerOptions options_;
  std::unique_ptr<Buffers> buffers_;
  LastBatch printed_at_;  // when training metrics were last printed
  // Batches of this evaluation whose progress is still to be printed, last first.
  std::vector<std::int64_t> eval_batches_to_print_;
  bool hyperparameters_printed_ = false;  // true also if there were none
};

}  // namespace composer::loggers
