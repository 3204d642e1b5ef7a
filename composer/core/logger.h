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

// A sink for log records: a file, a terminal, memory. It is also a callback, which is called after all others (at INIT:
// before them) so that it can flush. All calls come from the thread that trains, so a destination that writes should
// keep records and read their tensors later, preferably on a background thread (loggers/background_logger.h).
//
// A destination may keep tensors without copying them, because they are not changed after they were logged. Keys, spans
// and references are valid during the call only. Arguments have been checked. By default, every kind of record is
// ignored.
class COMPOSER_EXPORT LoggerDestination : public Callback {
 public:
  ~LoggerDestination() override;
  // Receives each record. By default it calls the method below for its kind. Override either this or those methods.
  virtual void log_record(const Record& record, const State& state);

  virtual void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state);
  virtual void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state);
  virtual void log_images(std::string_view key, const LogImages& images, std::int64_t step, const State& state);
  virtual void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State& state);
  virtual void log_histogram(std::string_view key, const LogHistogram& histogram, std::int64_t step,
                             const State& state);
  // Placeholders in the name have been replaced.
  virtual void upload_file(const LogFile& file, const State& state);
  // The algorithms that ran: algorithm_traces/<name>/Event.<EVENT> = 1. Called only if wants_traces() was true at
  // registration.
  virtual void log_traces(std::span<const LogEntry> traces, const State& state);

  virtual bool wants_traces() const;
  // Writes buffered records. Called after training ended by an error, because the program may end without closing.
  virtual void flush();
};

// Passes each record to every destination, and stores hyperparameters. Does not read tensors. Throws DataError for
// arguments that log_records.h does not allow, before any destination gets them.
class COMPOSER_EXPORT Logger {
 public:
  Logger(const State& state, std::vector<LoggerDestination*> destinations);

  // `step` defaults to the number of batches trained so far.
  void log_metrics(std::span<const LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_metrics(std::initializer_list<LogEntry> metrics, std::optional<std::int64_t> step = {});
  void log_hyperparameters(std::span<const LogEntry> hyperparameters);
  void log_hyperparameters(std::initializer_list<LogEntry> hyperparameters);
  // Logs any content under a key. The other functions are shorter forms for one kind each.
  void log(std::string_view key, const LogContent& content, std::optional<std::int64_t> step = {});
  void log_images(std::string_view key, const LogImages& images, std::optional<std::int64_t> step = {});
  void log_table(std::string_view key, const LogTable& table, std::optional<std::int64_t> step = {});
  void log_histogram(std::string_view key, const LogHistogram& histogram, std::optional<std::int64_t> step = {});
  void upload_file(const LogFile& file);
  const auto& hyperparameters() const { return hyperparameters_; }  // all that were logged, by key
  void log_traces(std::span<const LogEntry> traces);
  void flush();  // flushes every destination; their exceptions become warnings

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
