#pragma once
#include <cstddef>
#include <functional>

namespace composer::formats {

// Takes the bytes of a file, in order. It may throw, and nothing more comes.
using Sink = std::function<void(const void* data, std::size_t size)>;

}  // namespace composer::formats
