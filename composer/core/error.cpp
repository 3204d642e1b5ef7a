#include "composer/core/error.h"

#include <exception>
#include <iostream>
#include <mutex>
#include <utility>

#include "composer/core/redrawn_line.h"
#include "composer/core/warning_route.h"
#include "composer/util/no_sigpipe.h"

namespace composer {

// Key functions: they place the type information of errors that cross the library's border in this file.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
CheckpointError::~CheckpointError() = default;
RunError::~RunError() = default;

namespace {

// Removes the stack frames that libtorch adds, even from a text that was copied into another error.
std::string text_of(const std::exception& error) {
  std::string text = error.what();
  if (const auto at = text.find("\nException raised from "); at != std::string::npos) text.erase(at);
  return text;
}

std::string because(const std::string& cause) { return "\n  because: " + cause; }

struct Sink {
  std::mutex mutex;
  WarningSink sink;
};
Sink& sink() {
  static Sink* the_one = new Sink;  // never destroyed, because threads may warn while the process ends
  return *the_one;
}

// Returns false if no handler or sink takes the text. Exceptions of a sink are caught, because warnings come from
// destructors and from background threads.
bool handed_over(const std::string& text) {
  try {
    if (const auto route = detail::warning_route.load(); route && route(text)) return true;
    WarningSink to;
    {
      const std::lock_guard lock(sink().mutex);
      to = sink().sink;
    }
    if (to) to(text);
    return static_cast<bool>(to);
  } catch (...) {
    return false;
  }
}

}  // namespace

std::atomic<detail::WarningRoute> detail::warning_route = nullptr;

std::string describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return describe(known);
  } catch (...) {
    return "something that is not a std::exception";
  }
}

std::string because() { return because(describe(std::current_exception())); }

std::string describe(const std::exception& error) {
  std::string text = text_of(error);
  try {
    std::rethrow_if_nested(error);
  } catch (...) {
    // Otherwise the text already contains the cause.
    if (const std::string cause = because(); !text.ends_with(cause)) text += cause;
  }
  return text;
}

void warn(const std::string& text) {
  if (handed_over(text)) return;
  const util::NoSigpipe no_sigpipe;  // stderr may be a pipe without a reader
  RedrawnLine::write_below([&] { std::cerr << "libcomposer: " + text + "\n"; });
}

WarningSink redirect_warnings(WarningSink to) {
  const std::lock_guard lock(sink().mutex);
  return std::exchange(sink().sink, std::move(to));
}

}  // namespace composer
