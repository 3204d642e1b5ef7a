#include "composer/loggers/run_logger.h"

#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::loggers {

void RunLogger::fit_start(const State& state, Logger& logger) {
  fits_ = true;
  killed_ = false;
  ResumableLogger::fit_start(state, logger);
}

void RunLogger::fit_end(const State& state, Logger& logger) {
  fits_ = false;
  killed_ = state.run && state.run->interrupted();
  ResumableLogger::fit_end(state, logger);
}

void RunLogger::eval_before_all(const State&, Logger&) { evaluates_ = true; }
void RunLogger::eval_after_all(const State& state, Logger&) {
  evaluates_ = false;
  if (state.run && state.run->interrupted()) killed_ = true;  // interrupted in the evaluation that follows fit_end
}
void RunLogger::eval_standalone_start(const State&, Logger&) { evaluates_ = true; }
void RunLogger::eval_standalone_end(const State&, Logger&) { evaluates_ = false; }
void RunLogger::predict_start(const State&, Logger&) { predicts_ = true; }
void RunLogger::predict_end(const State&, Logger&) { predicts_ = false; }

void RunLogger::close(const State& state, Logger& logger) {
  fits_ = evaluates_ = predicts_ = killed_ = false;
  ResumableLogger::close(state, logger);
}

RunStatus RunLogger::status() const {
  if (fits_ || evaluates_ || predicts_) return RunStatus::FAILED;
  return killed_ ? RunStatus::KILLED : RunStatus::FINISHED;
}

}  // namespace composer::loggers
