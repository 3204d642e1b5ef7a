#pragma once
#include <cstdint>
#include <string>

#include "composer/core/export.h"

namespace composer {
class StateVisitor;
}

namespace composer::loggers {

// What a checkpoint keeps of a log, so that nothing but that log is ever cut or continued: its size, and checksums of
// what it began and ended with. A log that was moved or copied is still the same.
struct COMPOSER_EXPORT LogMark {
  std::int64_t size = 0;   // bytes
  std::string head, tail;  // of the first and the last 4 KiB; empty in checkpoints of older versions

  static LogMark of(const std::string& path, std::int64_t size);

  enum class Match : std::uint8_t {
    SAME,     // and perhaps longer
    SHORTER,  // the same log, but its end is missing
    OTHER,    // or there is no such file
  };
  Match compare(const std::string& path) const;
  void visit_state(StateVisitor& visit);
};

}  // namespace composer::loggers
