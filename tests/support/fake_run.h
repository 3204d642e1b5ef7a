#pragma once
// A State and a Logger without a trainer: the test says what happens, and reads what was logged.
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/callback.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"

namespace composer::test {

// Keeps every record; tensors are read when they are logged.
class RecordingLogger final : public LoggerDestination {
 public:
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State&) override {
    calls.emplace_back();
    for (const auto& [key, value] : metrics) {
      calls.back().emplace_back(key);
      values[std::string(key)].push_back(to_number(value));
    }
  }
  std::vector<std::vector<std::string>> calls;  // the keys of each
  std::map<std::string, std::vector<double>> values;
};

struct FakeRun {
  FakeRun() : logger(state, {&log}) {
    state.max_duration = Time(1000, TimeUnit::EPOCH);
    state.has_dataloader = true;
    state.dataloader_label = "train";
  }

  // Counts a batch, and says that it has ended.
  void batch(Callback& callback, std::int64_t samples = 4, double seconds = 1, std::int64_t tokens = 0) {
    state.previous_timestamp = state.timestamp;
    state.timestamp = state.timestamp.to_next_batch(samples, tokens, Seconds(seconds));
    callback.run_event(Event::BATCH_END, state, logger);
  }
  void epoch(Callback& callback) {
    state.timestamp = state.timestamp.to_next_epoch();
    callback.run_event(Event::EPOCH_END, state, logger);
  }
  // An evaluation that gave this value.
  void eval(Callback& callback, const std::string& label, const std::string& metric, double value) {
    state.dataloader_label = label;
    state.metrics.set(label, metric, at::scalar_tensor(value, at::kDouble));
    callback.run_event(Event::EVAL_END, state, logger);
    state.dataloader_label = "train";
  }

  State state;
  RecordingLogger log;
  Logger logger;
};

}  // namespace composer::test
