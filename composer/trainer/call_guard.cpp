#include "composer/trainer/call_guard.h"

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/error_watcher.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/step/code_after.h"
#include "composer/trainer/ranks.h"

namespace composer {

void CallGuard::require_open(const char* call) const {
  if (needs_.engine.closed()) throw Error("Trainer: ", call, " after close(); make a new Trainer");
}

void CallGuard::require_fit(const char* call) const {
  needs_.calls.require_idle(call);
  require_open(call);
  if (needs_.fit) return;
  if (needs_.fits.ended_by.empty()) throw ConfigError("Trainer: ", call, " before begin()");
  throw ConfigError("Trainer: ", call, " after the fit was ended by an error (", needs_.fits.ended_by,
                    "); call begin() again");
}

void CallGuard::throw_located() const {
  std::exception_ptr told;
  try {
    needs_.ranks.rethrow_to_all();  // before anything that may take long
  } catch (...) {
    told = std::current_exception();
  }
  tell_watchers(std::current_exception());  // what the call has thrown
  needs_.logger.flush();
  try {
    std::rethrow_exception(told);
  } catch (const RunError&) {
    throw;  // the engine has added the place
  } catch (...) {
    const Event last = needs_.calls.last();
    throw_nested<RunError>(code_after(last), " failed after ", to_string(last), ", epoch ",
                           needs_.state.timestamp.epoch, ", batch ", needs_.state.timestamp.batch);
  }
}

void CallGuard::tell_watchers(const std::exception_ptr& error) const noexcept try {
  for (const auto& plugin : needs_.engine.callbacks()) {
    auto* const watcher = plugin.interfaces.error_watcher;
    if (watcher == nullptr) continue;
    try {
      watcher->run_fails(error, needs_.state, needs_.logger);
    } catch (...) {
      warn(join(plugin.name, ": run_fails(): ", describe(std::current_exception())));
    }
  }
} catch (...) {  // NOLINT(bugprone-empty-catch): too little memory for the list; the error itself must leave
}

}  // namespace composer
