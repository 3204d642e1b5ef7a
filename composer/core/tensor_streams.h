#pragma once
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

namespace composer {

// The streams that compute tensors which another thread will read: one for each device, namely the current stream of
// the thread that adds the tensors. Tensors on the CPU need none.
class TensorStreams {
 public:
  void add(const at::Tensor& tensor);
  bool empty() const { return streams_.empty(); }

  // Makes them the current streams of this thread until the end of the scope.
  class Scope {
   public:
    explicit Scope(const TensorStreams& streams);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<std::unique_ptr<c10::StreamGuard>> guards_;
  };

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace composer
