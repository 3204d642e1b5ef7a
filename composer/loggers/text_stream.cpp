#include "composer/loggers/text_stream.h"

#include <iostream>
#include <unistd.h>

#include "composer/core/error.h"
#include "composer/util/no_sigpipe.h"

namespace composer::loggers {

void TextStream::check(std::string_view who) const {
  if (stream_ == nullptr && name_ != "stderr" && name_ != "stdout")
    throw ConfigError(who, ": stream must be stderr, stdout or a std::ostream, got \"", name_, '"');
}

void TextStream::write(std::string_view text) const {
  // The program that shows the text may have ended, and training continues without it.
  const util::NoSigpipe no_sigpipe;
  std::ostream& standard = descriptor() == STDOUT_FILENO ? std::cout : std::cerr;
  (stream_ != nullptr ? *stream_ : standard) << text << std::flush;
}

int TextStream::descriptor() const {
  if (stream_ != nullptr) return -1;
  return name_ == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
}

}  // namespace composer::loggers
