#pragma once
#include <exception>

#include "composer/core/export.h"

namespace composer {

struct State;
class Logger;

// A callback or logger that also derives from this is told of every error that leaves a fit, an evaluation or a
// prediction, before the error does. It is not told of errors that the trainer handles itself. The call comes from the
// thread that drives the trainer, and the loggers are flushed after it. An exception that it throws becomes a warning.
class COMPOSER_EXPORT ErrorWatcher {
 public:
  virtual ~ErrorWatcher();
  virtual void run_fails(const std::exception_ptr& error, const State& state, Logger& logger) = 0;
};

}  // namespace composer
