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
  DROP_OLDEST,  // warn, drop the records that have waited longest, and report at the end how many are missing
};

struct BackgroundOptions {
  std::int64_t capacity = 65'536;       // >= 1; number of records that may wait to be written
  WhenFull when_full = WhenFull::WAIT;  // what to do while that many wait
  Seconds flush_interval{1};  // 0 to 86,400 s; longest time until a record is written. At EPOCH_END it is 1 s at most
  Seconds flush_timeout{60};  // >= 0; longest time that flush() and close() wait for the writer
  LogFailure on_failure = LogFailure::CONTINUE;  // what to do when the writer throws
};

// Records to be written, in the order of the calls. All values and tensors are on the host. Tensors in entries and in
// table cells have been read as numbers.
using Records = std::span<const Record* const>;

// Writes the records of a BackgroundLogger. Derive from it for a format or a service.
class COMPOSER_EXPORT RecordWriter {
 public:
  RecordWriter() = default;
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  virtual ~RecordWriter();

  virtual std::string where() const = 0;  // the path or address, for messages; must not change
  virtual std::string_view noun() const;  // the name of records in messages: "records" by default
  // Whether the writer takes the record; other records are not queued. Called by the thread that trains. By default it
  // takes metrics and hyperparameters.
  virtual bool takes(const Record& record) const;

 protected:
  // The following are called by the background thread, or by the thread that trains while the background thread is
  // idle. Exceptions are handled according to on_failure. If write() throws, all its records count as missing.
  virtual void write(Records records) = 0;
  virtual void flush() {}  // writes what write() holds back
  virtual void sync() {}   // makes what was written survive a loss of power
  virtual void close() {}  // the last call
  // Reports records that are missing although write() does not fail. Throws Error if on_failure is FAIL.
  void lose(std::int64_t count, const std::string& reason);

 private:
  friend class BackgroundLogger;
  bool drops_ = true;
  std::string name_;  // name of the logger
  // Whether the log was opened. If records were held until the end, it was not, and there is nothing to close.
  std::atomic<bool> begun_ = false;
  std::atomic<bool> failed_ = false, left_out_ = false;
  std::string partial_;  // the first histogram without some of its values; constant once left_out_ is set
  std::mutex mutex_;     // guards the fields below
  std::string reason_;   // reason of the first failure
  std::int64_t lost_ = 0;
  std::exception_ptr error_;  // thrown by close()
};

// The base of loggers that write to a disk or a network. The thread that trains only makes records, once for all of a
// trainer's loggers, and puts them into a bounded queue. A background thread reads the tensors and calls the
// RecordWriter, without holding any lock. An error of the writer becomes one warning on the thread that trains, or an
// exception of its next call. What is logged between close() and the next INIT is lost, with a warning.
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
  // Every message begins with `name`. Throws ConfigError for options out of range.
  BackgroundLogger(std::string name, const BackgroundOptions& options);

  // Called at INIT, or before the first record if that is earlier. Throws ConfigError for a path or an address that
  // cannot be used.
  virtual std::shared_ptr<RecordWriter> make_writer(const State& state) = 0;

  const std::string& name() const { return name_; }
  RecordWriter& open(const State& state);  // the writer; the first call makes it
  void hold();                             // to be called by make_writer(): records are held until open_held()
  bool is_holding() const { return channel_ && holding_; }
  // Whether a loaded mark belongs to the log of this run, which then continues there. If not, the mark is ignored.
  bool goes_on_at(const StateVisitor& loaded) const;
  bool is_open() const { return channel_ && !holding_; }  // whether records are queued
  // Calls `open`, which opens the log, and queues the held records. If `open` throws, the records stay held, so a later
  // call can succeed. If open_held() is never called, the records are lost, and close() does not report them.
  void open_held(const std::function<void()>& open);
  void drop_held();
  void sync();  // waits, without limit, until everything logged so far would survive a loss of power
  // For visit_state(), in addition to the mark: saves how many records are missing so far. The report at the end
  // includes those of earlier processes.
  void visit_missing(StateVisitor& visit);
  // Forgets the missing records of earlier processes: they are missing in another log than the open one.
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
