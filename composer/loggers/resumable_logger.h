#pragma once
// Loggers whose log is continued when a run is resumed.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/loggers/background_logger.h"

namespace composer::loggers {

// The place where a ResumableLogger writes the log of a run, from INIT to close(). All functions are called by the
// thread that trains, while the background thread is idle. Either begin() or go_on() is called, and not again unless it
// throws. Derive from MarkedPlace.
class COMPOSER_EXPORT LogPlace {
 public:
  LogPlace() = default;
  LogPlace(const LogPlace&) = delete;
  LogPlace& operator=(const LogPlace&) = delete;
  virtual ~LogPlace();

  virtual std::shared_ptr<RecordWriter> writer() const = 0;
  // Whether a log that is not continued is opened only when a fit begins, because opening changes what is there.
  // Otherwise the log is opened at once if the run is not resumed, or after a checkpoint without a mark was loaded.
  virtual bool waits_for_fit() const { return false; }
  // Called before the first fit, and before the log is opened if it is not open yet.
  virtual void before_fit(const State& /*state*/, bool /*is_open*/) {}
  virtual void begin() = 0;  // opens a new log
  // Whether checkpoints wait for earlier records only as long as flush() does, for example because a server may be
  // slow.
  virtual bool is_remote() const { return false; }
  // Whether the continued log already has the held records. They are then dropped when the mark is loaded.
  virtual bool has_held_records() const { return false; }

 private:
  friend class ResumableLogger;
  virtual bool is_marked() const = 0;
  virtual bool go_on() = 0;  // continues at the mark; false: the log cannot be continued
  virtual bool load_mark(StateVisitor& visit, bool used) = 0;  // returns whether the mark is kept
  virtual void save_mark(StateVisitor& visit, bool is_open) = 0;
};

// A place with a Mark in checkpoints, which says where the log is continued. Mark is a struct with visit_state().
template <class Mark>
class MarkedPlace : public LogPlace {
 protected:
  // Called when a mark was loaded. False: the mark does not belong to this log, which begins as without a mark.
  virtual bool accepts(const Mark& /*mark*/) { return true; }
  // Opens the log and removes what follows the mark. Returns false, after a warning, if the log does not exist any
  // more; a new one is then begun.
  virtual bool go_on_at(const Mark& mark) = 0;
  virtual Mark mark() = 0;  // mark of the open log, after everything that was logged so far
  const std::optional<Mark>& loaded() const { return loaded_; }

 private:
  bool is_marked() const final { return loaded_.has_value(); }
  bool go_on() final { return go_on_at(*loaded_); }
  bool load_mark(StateVisitor& visit, bool used) final {
    Mark given;
    given.visit_state(visit);
    if (!used || !accepts(given)) return false;
    loaded_ = std::move(given);
    return true;
  }
  void save_mark(StateVisitor& visit, bool is_open) final {
    Mark saved = is_open ? mark() : *loaded_;
    saved.visit_state(visit);
  }

  std::optional<Mark> loaded_;
};

// The base of loggers whose log is continued when a run is resumed. The log of a resumed run is opened when its first
// fit begins, or when a checkpoint without a mark of the log is loaded. Until then the log is not changed, and records
// are held in memory. If no fit follows, they are not written, and a warning says so. If the log cannot be opened, a
// later fit tries again. A mark has no effect if the program loads it by hand, or while the log is open.
class COMPOSER_EXPORT ResumableLogger : public BackgroundLogger {
 public:
  ~ResumableLogger() override;
  ResumableLogger(ResumableLogger&&) noexcept;

  void after_load(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 protected:
  ResumableLogger(std::string name, const BackgroundOptions& options);
  // Called at INIT, or before the first record, by make_writer(). Null, the default, means that this process writes
  // nothing.
  virtual std::unique_ptr<LogPlace> make_place(const State& state);
  std::shared_ptr<RecordWriter> make_writer(const State& state) override;

 private:
  void open_place(const State* fit);
  std::unique_ptr<LogPlace> place_;
  bool resumes_ = false;
  bool trains_ = false;  // whether a fit has begun
};

}  // namespace composer::loggers
