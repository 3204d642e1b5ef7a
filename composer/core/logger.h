#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/callback.h"
#include "composer/core/export.h"

namespace composer {

// A number, a text, or a 0-d tensor that nobody has read yet. A tensor must not be changed after it was logged.
using LogValue = std::variant<std::int64_t, double, bool, std::string, at::Tensor>;

// The number of it, read on the host (a tensor on a GPU is waited for). Throws DataError for a text.
COMPOSER_EXPORT double to_number(const LogValue& value);

struct LogEntry {
  std::string_view key;  // as in loss/train/total; valid during the call only
  LogValue value;
};

// Where records go: a file, a terminal, memory. It is a callback as well, called after all others (first at INIT), so
// that it can flush. Calls come from the thread that trains, so a destination that writes buffers tensors as they are
// and reads them later, best on a thread of its own.
class COMPOSER_EXPORT LoggerDestination : public Callback {
 public:
  ~LoggerDestination() override;
  virtual void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state);
  virtual void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state);
  // Which algorithms ran: algorithm_traces/<name>/Event.<EVENT> = 1. Only if wants_traces() was true at registration.
  virtual void log_traces(std::span<const LogEntry> traces, const State& state);
  virtual bool wants_traces() const;
  // Write what is buffered: training ended by an error, and the program may end without closing.
  virtual void flush();
};

// Hands each record to every destination. Stores hyperparameters alone.
class COMPOSER_EXPORT Logger {
 public:
  Logger(const State& state, std::vector<LoggerDestination*> destinations);

  // `step` is the number of batches trained so far, unless given.
  void log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_hyperparameters(std::initializer_list<LogEntry> hyperparameters);
  const auto& hyperparameters() const { return hyperparameters_; }  // that have been logged, by key
  void log_traces(std::span<const LogEntry> traces);
  void flush();  // of every destination; what one of them throws is a warning

  bool wants_traces() const { return !tracing_.empty(); }
  bool empty() const { return destinations_.empty(); }

 private:
  const State& state_;
  std::vector<LoggerDestination*> destinations_, tracing_;
  std::map<std::string, LogValue, std::less<>> hyperparameters_;
};

}  // namespace composer
