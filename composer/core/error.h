#pragma once
#include <concepts>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "composer/core/export.h"
#include "composer/util/text.h"

namespace composer {

// The text of all parts, one after another: join("got ", 3, " of ", 4). Floating-point numbers have 6 digits.
template <class... Parts>
std::string join(const Parts&... parts) {
  util::OutText text;
  ((text << parts), ...);
  return std::move(text).str();
}

// Base class of the errors that the library itself throws. The text says which component complains, about which option
// or file, the rule, the value and, if a cause is likely, a remedy. Errors of libtorch (c10::Error) and of the user's
// code are not converted. An error that leaves Trainer::fit is nested: the outermost one says where it happened (event,
// plug-in, epoch, batch), the inner ones why. Its what() contains all of them, one line each.
struct COMPOSER_EXPORT Error : std::runtime_error {
  template <class... Parts>
  explicit Error(const Parts&... parts) : std::runtime_error(join(parts...)) {}
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;
};

// The user's request cannot be fulfilled.
struct COMPOSER_EXPORT ConfigError : Error {
  using Error::Error;
  ConfigError(const ConfigError&) = default;
  ConfigError& operator=(const ConfigError&) = default;
  ~ConfigError() override;
};

// A batch, a loader or a data file violated its contract.
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

// Training, evaluation or prediction ended by an error, which is nested in this one. The text says at which event, in
// which component, epoch and batch.
struct COMPOSER_EXPORT RunError : Error {
  using Error::Error;
  RunError(const RunError&) = default;
  RunError& operator=(const RunError&) = default;
  ~RunError() override;
};

// The text of the error and of all errors nested in it, one line each, outermost first, without libtorch's stack
// frames.
COMPOSER_EXPORT std::string describe(const std::exception& error);

// Like describe() above, for any exception. For an exception that is not a std::exception, the text says so.
COMPOSER_EXPORT std::string describe(const std::exception_ptr& error);

// The text of the exception being handled, as describe() gives it, on new lines: to be appended to the text of an error
// that it caused.
COMPOSER_EXPORT std::string because();

// Throws an E with these parts as text. The exception being handled is nested in it, and what() contains its text.
template <std::derived_from<Error> E, class... Parts>
[[noreturn]] void throw_nested(const Parts&... parts) {
  std::throw_with_nested(E(parts..., because()));
}

// Warns the user of something that is probably a mistake but stops nothing: writes "libcomposer: <text>" on a line of
// stderr. If a warning handler of libtorch is set on this thread (c10::WarningUtils), it gets the text instead;
// otherwise, the sink set by redirect_warnings(). If that throws, the text goes to stderr.
COMPOSER_EXPORT void warn(const std::string& text);

// Receives the texts of warnings, from any thread.
using WarningSink = std::function<void(const std::string& text)>;
// Returns the previous sink. An empty sink stands for stderr.
COMPOSER_EXPORT WarningSink redirect_warnings(WarningSink sink);

}  // namespace composer
