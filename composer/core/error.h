#pragma once
#include <concepts>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "composer/core/export.h"
#include "composer/util/text.h"

namespace composer {

// The text of all parts, one after another: join("got ", 3, " of ", 4). Floating-point numbers keep 6 digits.
template <class... Parts>
std::string join(const Parts&... parts) {
  util::OutText text;
  ((text << parts), ...);
  return std::move(text).str();
}

// Root of all errors that the library throws itself. The text says who complains, about which option or file, the rule,
// the value it got and, where a cause is likely, what to do. Errors of libtorch (c10::Error) and of the user's code
// pass through; what leaves Trainer::fit is nested: outermost where it happened (event, plug-in, epoch, batch), inside
// why. Its what() holds all of it, one line each.
struct COMPOSER_EXPORT Error : std::runtime_error {
  template <class... Parts>
  explicit Error(const Parts&... parts) : std::runtime_error(join(parts...)) {}
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;
};

// What the user asked for cannot be done.
struct COMPOSER_EXPORT ConfigError : Error {
  using Error::Error;
  ConfigError(const ConfigError&) = default;
  ConfigError& operator=(const ConfigError&) = default;
  ~ConfigError() override;
};

// A batch, a loader or a data file broke its contract.
struct COMPOSER_EXPORT DataError : Error {
  using Error::Error;
  DataError(const DataError&) = default;
  DataError& operator=(const DataError&) = default;
  ~DataError() override;
};

// A checkpoint or a file of weights cannot be read or written, or does not fit what it is loaded into.
struct COMPOSER_EXPORT CheckpointError : Error {
  using Error::Error;
  CheckpointError(const CheckpointError&) = default;
  CheckpointError& operator=(const CheckpointError&) = default;
  ~CheckpointError() override;
};

// Training, evaluation or prediction ended by an error, which is nested in this: at which event, in whose code, epoch
// and batch.
struct COMPOSER_EXPORT RunError : Error {
  using Error::Error;
  RunError(const RunError&) = default;
  RunError& operator=(const RunError&) = default;
  ~RunError() override;
};

// The error with everything nested in it, one line each, outermost first, without libtorch's stack frames.
COMPOSER_EXPORT std::string describe(const std::exception& error);

// The same of any exception; of one that is no std::exception, that it is none.
COMPOSER_EXPORT std::string describe(const std::exception_ptr& error);

// The exception that is being handled, as describe() puts it, on lines that follow the text of an error that it caused.
COMPOSER_EXPORT std::string because();

// Throws an E of these parts with the exception that is being handled nested in it, and its text in what().
template <std::derived_from<Error> E, class... Parts>
[[noreturn]] void throw_nested(const Parts&... parts) {
  std::throw_with_nested(E(parts..., because()));
}

// Tells the user of something that is probably a mistake but stops nothing: as "libcomposer: <text>" on a line of
// stderr. A warning handler of libtorch that is set on this thread (c10::WarningUtils) gets the text instead; if there
// is none, the one of redirect_warnings(). If that throws, the text goes to stderr after all.
COMPOSER_EXPORT void warn(const std::string& text);

// Gets the texts of warnings, from any thread.
using WarningSink = std::function<void(const std::string& text)>;
// Returns the sink before; an empty one stands for stderr.
COMPOSER_EXPORT WarningSink redirect_warnings(WarningSink sink);

}  // namespace composer
