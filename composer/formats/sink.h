#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace composer::formats {

// Receives the bytes of a file in order. If it throws, it is not called again.
using Sink = std::function<void(const void* data, std::size_t size)>;

// Receives disjoint parts of a file with their offsets, so that the beginning may be written last. If it throws, it is
// not called again.
using PlacedSink = std::function<void(std::uint64_t offset, const void* data, std::size_t size)>;

}  // namespace composer::formats
