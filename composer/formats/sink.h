#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace composer::formats {

// Takes the bytes of a file, in order. It may throw, and nothing more comes.
using Sink = std::function<void(const void* data, std::size_t size)>;

// Takes parts of a file that do not overlap, each with its place, so that what stands first may be known last. It may
// throw likewise.
using PlacedSink = std::function<void(std::uint64_t offset, const void* data, std::size_t size)>;

}  // namespace composer::formats
