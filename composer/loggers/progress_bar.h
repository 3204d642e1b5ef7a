#pragma once
#include <memory>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/record_destination.h"
#include "composer/core/time.h"
#include "composer/loggers/terminal.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

struct ProgressBarOptions {
  TextStream stream = "stderr";  // or "stdout", or a std::ostream
  Seconds redraw_interval{0.1};  // > 0; minimum time between two redraws on a terminal
  Seconds line_interval{30};     // > 0; if not on a terminal: time between two lines during an epoch
};

// Shows progress, speed, remaining time, losses and metrics of training, evaluation and prediction. On a terminal, it
// shows a bar that is redrawn in place; elsewhere, plain lines. One line remains for each epoch, with the metrics of
// its evaluations, and for each other evaluation. If epochs are shorter than redraw_interval, only some lines remain.
//
// Between redraws it only reads the clock. It waits for a GPU only at the end of an epoch or an evaluation. In between,
// it shows the values that have arrived.
class COMPOSER_EXPORT ProgressBar final : public RecordDestination {
 public:
  explicit ProgressBar(ProgressBarOptions options = {});
  explicit ProgressBar(EmptyOptions) : ProgressBar() {}
  ProgressBar(ProgressBarOptions options, Terminal terminal);
  ~ProgressBar() override;
  ProgressBar(ProgressBar&&) noexcept;

  void log_record(const Record& record, const State& state) override;

  void flush() override;  // ends the current line

  void fit_start(const State& state, Logger& logger) override;
  void epoch_start(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void epoch_checkpoint(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void eval_start(const State& state, Logger& logger) override;
  void eval_batch_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void predict_start(const State& state, Logger& logger) override;
  void predict_batch_end(const State& state, Logger& logger) override;
  void predict_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Progress;
  std::unique_ptr<Progress> progress_;
};

}  // namespace composer::loggers
