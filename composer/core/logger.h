#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/log_records.h"

namespace composer {

class Record;
class RecordBlock;

// Where records go: a file, a terminal, memory. It is a callback as well, called after all others (first at INIT), so
// that it can flush. Calls come from the thread that trains, so a destination that writes keeps records and reads their
// tensors later, best on a background thread (loggers/background_logger.h).
//
// A destination may keep tensors without copying them: they are not changed after they were logged. Keys, spans and
// references are valid during the call only. Arguments were checked. Each kind of record is ignored by default.
class COMPOSER_EXPORT LoggerDestination : public Callback {
 public:
  ~LoggerDestination() override;
  // Gets each record. By default it calls the method for its kind, one of those that follow; override them, or it.
  virtual void log_record(const Record& record, const State& state);

  virtual void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state);
  virtual void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state);
  virtual void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State& state);
  virtual void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state);
  virtual void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                             const State& state);
  // Placeholders of the name have been replaced.
  virtual void upload_file(const LogFile& file, const State& state);
  // Which algorithms ran: algorithm_traces/<name>/Event.<EVENT> = 1. Only if wants_traces() was true at registration.
  virtual void log_traces(std::span<const LogEntry> traces, const State& state);

  virtual bool wants_traces() const;
  // Write what is buffered: training ended by an error, and the program may end without closing.
  virtual void flush();
};

// Hands each record to every destination. Stores hyperparameters alone. Does not read tensors. Throws DataError for
// arguments that log_records.h does not allow, before any destination gets them.
class COMPOSER_EXPORT Logger {
 public:
  Logger(const State& state, std::vector<LoggerDestination*> destinations);

  // `step` is the number of batches trained so far, unless given.
  void log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_hyperparameters(std::span<const LogEntry> hyperparameters);
  void log_hyperparameters(std::initializer_list<LogEntry> hyperparameters);
  // Any content at a key; the others are for those that have a name of their own.
  void log(std::string_view key, const LogContent& content, std::optional<std::int64_t> step = {});
  void log_images(std::string_view key, const LogImages& images, std::optional<std::int64_t> step = {});
  void log_table(std::string_view key, const LogTable& table, std::optional<std::int64_t> step = {});
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::optional<std::int64_t> step = {});
  void upload_file(const LogFile& file);
  const auto& hyperparameters() const { return hyperparameters_; }  // that have been logged, by key
  void log_traces(std::span<const LogEntry> traces);
  void flush();  // of every destination; what one of them throws is a warning

  bool wants_traces() const { return !tracing_.empty(); }
  bool empty() const { return destinations_.empty(); }

 private:
  std::int64_t step_or_batch(std::optional<std::int64_t> step) const;
  void hand_out(const Record& record, const std::vector<LoggerDestination*>& destinations) const;
  template <class Content>
  void log_checked(std::string_view key, const Content& content, std::optional<std::int64_t> step) const;
  const State& state_;
  std::vector<LoggerDestination*> destinations_, tracing_;
  std::map<std::string, LogValue, std::less<>> hyperparameters_;
  std::weak_ptr<RecordBlock> block_;
};

}  // namespace composer
