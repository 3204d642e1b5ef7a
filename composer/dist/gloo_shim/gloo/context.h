// Stands in for a header of gloo, which libtorch's wheel does not ship. libtorch's ProcessGroupGloo.hpp names these
// types only behind pointers and calls nothing but setTimeout(), which libtorch_cpu defines.
#pragma once
#include <chrono>
#include <memory>

namespace gloo {
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

class Context {
 public:
  Context() = delete;
  Context(const Context&) = delete;
  ~Context() = delete;
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
