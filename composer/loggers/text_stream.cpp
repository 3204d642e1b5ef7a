#include "composer/loggers/text_stream.h"

#include <cstdio>
#include <ostream>
#include <unistd.h>

#include "composer/core/error.h"

namespace composer::loggers {

void TextStream::check(std::string_view who) const {
  if (stream_ == nullptr && name_ != "stderr" && name_ != "stdout")
    throw ConfigError(who, ": stream must be stderr, stdout or a std::ostream, got \"", name_, '"');
}

void TextStream::write(std::string_view text) const {
  if (stream_ != nullptr) {
    *stream_ << text << std::flush;
    return;
  }
  std::FILE* file = descriptor() == STDOUT_FILENO ? stdout : stderr;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int TextStream::descriptor() const {
  if (stream_ != nullptr) return -1;
  return name_ == "stdout" ? STDOUT_FILENO : STDERR_FILENO;
}

}  // namespace composer::loggers
