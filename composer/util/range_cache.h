// Keeps track of which parts of a stretch of addresses are in use, cached for reuse, or without memory. Internal; makes
// no system calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace composer::util {

// Divides [0, capacity) into ranges. A range that is given back stays cached: it keeps its memory and joins cached
// neighbours, so that a later range of any size can be cut from it. One thread at a time.
class RangeCache {
 public:
  struct Range {
    std::size_t offset, bytes;
  };

  explicit RangeCache(std::size_t capacity);

  // Returns the offset of a range of `bytes`: cut from the shortest cached range that is long enough, otherwise from
  // fresh memory. nullopt: there is no room.
  std::optional<std::size_t> take(std::size_t bytes);
  // Caches the range that take() returned at this offset. Returns its length.
  std::size_t give(std::size_t offset);
  std::size_t bytes_at(std::size_t offset) const;  // length of a range in use

  // Removes cached ranges, oldest first, until at most `keep` bytes are cached. Ranges are cut in whole units of
  // `grain`. The caller releases the memory of the removed ranges, then calls released().
  std::vector<Range> drop(std::size_t keep, std::size_t grain);
  void released(const std::vector<Range>& dropped);

  std::size_t used() const { return used_; }
  std::size_t cached() const { return cached_; }

 private:
  enum class Kind : std::uint8_t { USED, CACHED, DROPPED, FRESH };
  struct Part {
    std::size_t bytes;
    Kind kind;
    std::uint64_t given;  // when it became cached; later ones are larger
  };
  using Parts = std::map<std::size_t, Part>;                     // by offset; adjacent, without gaps
  using BySize = std::set<std::pair<std::size_t, std::size_t>>;  // (bytes, offset)

  void index(Parts::const_iterator part);
  void unindex(Parts::const_iterator part);
  Parts::iterator cut(Parts::iterator part, std::size_t bytes);
  void add_free(Parts::iterator part, Kind kind, std::uint64_t given);
  Parts::iterator grown(std::size_t bytes);

  Parts parts_;
  BySize cached_by_size_, fresh_by_size_;
  std::set<std::pair<std::uint64_t, std::size_t>> cached_by_age_;  // (given, offset)
  std::uint64_t clock_ = 0;
  std::size_t used_ = 0, cached_ = 0;
};

}  // namespace composer::util
