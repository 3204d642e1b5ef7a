#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/record.h"
#include "composer/core/record_destination.h"
#include "composer/core/time.h"

namespace composer::loggers {

// What to do when a record cannot be written, for example because the disk is full.
enum class LogFailure : std::uint8_t {
  CONTINUE,  // warn, drop records until writing works again, and report at the end how many are missing
  FAIL,      // the next call throws the error, which ends the run
};

// What to do when records arrive faster than they are written.
enum class WhenFull : std::uint8_t {
  WAIT,         // training waits
  DROP_NEWEST,  // warn, drop new records until there is room, and report at the end how many are missing
  DROP_OLDEST,  // likewise, but drop the records that have waited longest
};

struct BackgroundOptions {
  std::int64_t capacity = 65'536;  // >= 1; records that wait to be written
  WhenFull when_full = WhenFull::WAIT;
  Seconds flush_interval{1};  // 0 to 86,400 s; longest time until a record is written. At EPOCH_END it is 1 s at most
  Seconds flush_timeout{60};  // >= 0; longest time that flush() and close() wait for the writer
  LogFailure on_failure = LogFailure::CONTINUE;
};

// What is to be written, in the order of the calls. All values and tensors are on the host, those of entries and of the
// cells of tables as numbers.
using Records = std::span<const Record* const>;

// Writes the records of a BackgroundLogger. Derive from it for a format or a service.
class COMPOSER_EXPORT RecordWriter {
 public:
  RecordWriter() = default;
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  virtual ~RecordWriter();

  virtual std::string where() const = 0;  // the path or address, for messages; must not change
  virtual std::string_view noun() const;  // of what is counted in messages: "records"
  // Called by the thread that trains: other records are not queued. Metrics and hyperparameters by default.
  virtual bool takes(const Record& record) const;

 protected:
  // The following are called by the background thread, or by the thread that trains while the background thread is
  // idle. An exception is handled as on_failure says. After one of write() all its records count as missing.
  virtual void write(Records records) = 0;
  virtual void flush() {}  // writes what write() holds back
  virtual void sync() {}   // makes what was written survive a loss of power
  virtual void close() {}  // the last call
  // Reports records that are missing although write() goes on. Throws Error if on_failure is FAIL.
  void lose(std::int64_t count, const std::string& reason);

 private:
  friend class BackgroundLogger;
  bool drops_ = true;
  std::string name_;  // of the logger
  // Whether it has a place to write to. One whose records were held to the end has none, and nothing to close.
  std::atomic<bool> begun_ = false;
  std::atomic<bool> failed_ = false, left_out_ = false;
  std::string partial_;  // the first histogram that some values were left out of; constant once left_out_ is set
  std::mutex mutex_;     // of the following
  std::string reason_;   // of the first failure
  std::int64_t lost_ = 0;
  std::exception_ptr error_;  // of close()
};

// The base of loggers that write to a disk or a network. Training only keeps records, once for all of a trainer's
// loggers, and puts them into a bounded queue; a background thread reads the tensors and calls the RecordWriter,
// without any lock. Errors of the writer become one warning of the thread that trains, or an exception of its next
// call. What is logged between close() and another INIT is lost, with a warning.
class COMPOSER_EXPORT BackgroundLogger : public RecordDestination {
 public:
  ~BackgroundLogger() override;
  BackgroundLogger(BackgroundLogger&&) noexcept;

  void log_record(const Record& record, const State& state) override;
  // Returns when everything logged so far is written, after flush_timeout at the latest.
  void flush() override;

  void init(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 protected:
  // `name` begins every message. Throws ConfigError for options out of range.
  BackgroundLogger(std::string name, const BackgroundOptions& options);

  // Called at INIT, or before the first record. Throws ConfigError for a path or an address that cannot be used.
  virtual std::shared_ptr<RecordWriter> make_writer(const State& state) = 0;

  const std::string& name() const { return name_; }
  RecordWriter& open(const State& state);  // the writer, made by the first call
  void hold();                             // called by make_writer(): records are held until open_held()
  bool is_holding() const { return channel_ && holding_; }
  // Whether a place that is loaded is where the log of this run goes on; if not, it says nothing about the log.
  bool goes_on_at(const StateVisitor& loaded) const;
  bool is_open() const { return channel_ && !holding_; }  // records are queued
  // Calls `open`, which makes the place that the records are held for, and queues them. If that throws they are held
  // on, so a later call can succeed; without one they are lost, and close() says nothing of them.
  void open_held(const std::function<void()>& open);
  void drop_held();
  void sync();  // waits, without limit, until everything logged so far would survive a loss of power
  // For visit_state(), beside what is kept of the place in the log: how many records are missing before it. The report
  // at the end counts those of earlier processes, too.
  void visit_missing(StateVisitor& visit);
  // Those of earlier processes: they are missing in another log than that which was opened.
  void forget_missing();

 private:
  struct Channel;
  void send(std::shared_ptr<const Record> record);
  void warn_once();
  bool is_closed();
  std::string name_;
  BackgroundOptions options_;
  bool holding_ = false;
  bool closed_ = false, warned_closed_ = false;
  std::unique_ptr<Channel> channel_;
};

}  // namespace composer::loggers
