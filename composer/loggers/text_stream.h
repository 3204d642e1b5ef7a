#pragma once
#include <iosfwd>
#include <string>
#include <string_view>

#include "composer/core/export.h"

namespace composer::loggers {

// The output of a logger: "stderr", "stdout", or a std::ostream that must outlive the logger.
class COMPOSER_EXPORT TextStream {
 public:
  TextStream(std::string name) : name_(std::move(name)) {}
  TextStream(const char* name) : name_(name) {}
  TextStream(std::ostream& stream) : stream_(&stream) {}

  const std::string& name() const { return name_; }  // empty for a std::ostream
  // Throws ConfigError for any other name. The message begins with `who`.
  void check(std::string_view who) const;
  void write(std::string_view text) const;  // writes and flushes; ignores errors
  int descriptor() const;                   // -1 for a std::ostream

 private:
  std::string name_;
  std::ostream* stream_ = nullptr;
};

}  // namespace composer::loggers
