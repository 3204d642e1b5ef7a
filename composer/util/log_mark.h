#pragma once
#include <cstdint>
#include <string>

namespace composer {
class StateVisitor;
}

namespace composer::util {

// Identifies a log in a checkpoint, so that no other log is ever cut or continued. It consists of the size and of
// checksums of the beginning and the end, so a moved or copied log still matches.
struct LogMark {
  std::int64_t size = 0;   // bytes
  std::string head, tail;  // checksums of the first and last 4 KiB; empty in checkpoints of older versions

  static LogMark of(const std::string& path, std::int64_t size);

  enum class Match : std::uint8_t {
    SAME,     // the same log, possibly longer
    SHORTER,  // the same log, but its end is missing
    OTHER,    // another file, or a missing one
  };
  Match compare(const std::string& path) const;
  void visit_state(StateVisitor& visit);
};

}  // namespace composer::util
