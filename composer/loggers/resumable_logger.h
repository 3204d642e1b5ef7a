#pragma once
// The log of a run that begins, is held until it is known whether it goes on, goes on, or is left as it is.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/loggers/background_logger.h"

namespace composer::loggers {

// Where a ResumableLogger writes the log of a run, from INIT to close(). All is called by the thread that trains, while
// the background thread is idle; of begin() and go_on() one, unless it throws. Derive from MarkedPlace.
class COMPOSER_EXPORT LogPlace {
 public:
  LogPlace() = default;
  LogPlace(const LogPlace&) = delete;
  LogPlace& operator=(const LogPlace&) = delete;
  virtual ~LogPlace();

  virtual std::shared_ptr<RecordWriter> writer() const = 0;
  // Whether a log that is not continued is opened when a fit begins, although its run does not resume, or has loaded a
  // checkpoint without a mark: what is there is changed then.
  virtual bool waits_for_fit() const { return false; }
  // Before the first fit, and before the log is opened if it is not.
  virtual void before_fit(const State& /*state*/, bool /*is_open*/) {}
  virtual void begin() = 0;  // opens a log of its own
  // Whether a checkpoint waits for everything that precedes it no longer than flush() does, as for a slow server.
  virtual bool is_remote() const { return false; }
  // Whether the log that goes on has what is held when its mark is loaded, which is then dropped.
  virtual bool has_held_records() const { return false; }

 private:
  friend class ResumableLogger;
  virtual bool is_marked() const = 0;
  virtual bool go_on() = 0;                                    // at the mark; false: it cannot be continued
  virtual bool load_mark(StateVisitor& visit, bool used) = 0;  // whether it is kept
  virtual void save_mark(StateVisitor& visit, bool is_open) = 0;
};

// A place of which a checkpoint knows a Mark, a struct with visit_state(): where the log goes on.
template <class Mark>
class MarkedPlace : public LogPlace {
 protected:
  // A mark was loaded. False: it says nothing of this log, which begins as without one.
  virtual bool accepts(const Mark& /*mark*/) { return true; }
  // Opens the log without what followed the mark. False, after a warning: it is not there any more, and another begins.
  virtual bool go_on_at(const Mark& mark) = 0;
  virtual Mark mark() = 0;  // of the open log, with all that was logged so far
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

// The base of loggers whose log goes on when a run is resumed. The log of a run that resumes is opened when its first
// fit begins, or once a checkpoint is loaded that has no mark of it; until then nothing of it is changed, and records
// are held in memory. If no fit follows they are not written, and a warning says so. A log that cannot be opened can be
// opened by a later fit. A state that is loaded by hand, or while the log is open, moves no place in it.
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
  // Called at INIT, or before the first record, as make_writer(). Null, as by default: this process writes nothing.
  virtual std::unique_ptr<LogPlace> make_place(const State& state);
  std::shared_ptr<RecordWriter> make_writer(const State& state) override;

 private:
  void open_place(const State* fit);
  std::unique_ptr<LogPlace> place_;
  bool resumes_ = false;
  bool trains_ = false;  // or has trained
};

}  // namespace composer::loggers
