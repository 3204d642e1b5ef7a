#pragma once
#include <cstdint>
#include <string>

#include "composer/core/export.h"
#include "composer/loggers/resumable_logger.h"

namespace composer::loggers {

enum class RunStatus : std::uint8_t {
  FINISHED,
  FAILED,  // the fit, evaluation or prediction begun last has not ended: it threw
  KILLED,  // a signal has ended the last fit
};

// The base of loggers that report how a run has ended.
class COMPOSER_EXPORT RunLogger : public ResumableLogger {
 public:
  void fit_start(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void eval_before_all(const State& state, Logger& logger) override;
  void eval_after_all(const State& state, Logger& logger) override;
  void eval_standalone_start(const State& state, Logger& logger) override;
  void eval_standalone_end(const State& state, Logger& logger) override;
  void predict_start(const State& state, Logger& logger) override;
  void predict_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 protected:
  using ResumableLogger::ResumableLogger;
  RunStatus status() const;

 private:
  bool fits_ = false, evaluates_ = false, predicts_ = false;  // whether one has begun and not ended
  bool killed_ = false;
};

}  // namespace composer::loggers
