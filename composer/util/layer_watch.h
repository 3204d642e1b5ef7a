#pragma once
// Reports the inputs and outputs of the layers of a model, recognised by the operators that use their weights.
// Internal.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace composer {

// During its lifetime, reports each layer of the model that runs on this thread: its name, the first floating-point
// tensor that it processes, and the result of the last operator with its weights. A layer is a module with parameters
// or buffers of its own. Reports are made during the forward pass, before anything can be written into the tensors.
class LayerWatch {
 public:
  enum class Side : std::uint8_t { INPUT, OUTPUT };
  // An output may be reported several times, by each operator of its layer; the last counts.
  using Report = std::function<void(const std::string& layer, Side side, const at::Tensor& tensor)>;

  LayerWatch(const torch::nn::Module& model, Report report);
  ~LayerWatch();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer
