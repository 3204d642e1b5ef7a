#include "composer/util/layer_watch.h"

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "composer/core/model_access.h"
#include "composer/util/operator_watch.h"

namespace composer {
namespace {

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

class LayerFinder final : public OperatorWatch::Listener {
 public:
  LayerFinder(const torch::nn::Module& model, LayerWatch::Report report) : report_(std::move(report)) {
    for (const auto& [name, tensor] : named_parameters(model)) add(name, tensor);
    for (const auto& [name, tensor] : named_buffers(model)) add(name, tensor);
  }

  void begin(const OperatorCall& call) override {
    ++depth_;
    if (call.is_node || inside_) return;
    const std::string* layer = nullptr;
    const at::Tensor* input = nullptr;
    for (const at::Tensor& tensor : call.inputs) {
      if (const auto found = weights_.find(memory_of(tensor)); found != weights_.end())
        layer = layer ? layer : &found->second;
      else if (!input && tensor.is_floating_point() && tensor.dim() > 0)
        input = &tensor;
    }
    if (!layer) return;
    const bool works = input != nullptr || has_indices(call);
    inside_ = Inside{depth_, *layer, works};
    if (!works || *layer == running_) return;
    running_ = *layer;
    if (input) report_(running_, LayerWatch::Side::INPUT, *input);
  }

  void end(const OperatorCall& call) override {
    if (!call.is_node && inside_ && inside_->depth == depth_) {
      for (const at::Tensor& output : call.outputs) {
        if (!inside_->works) {  // the result is a view or another form of the weights
          kept_.push_back(output);
          weights_.try_emplace(memory_of(output), inside_->layer);
        } else if (output.is_floating_point() && !weights_.contains(memory_of(output))) {
          report_(inside_->layer, LayerWatch::Side::OUTPUT, output);
          break;
        }
      }
      inside_.reset();
    }
    --depth_;
  }

 private:
  struct Inside {
    int depth;  // depth of the operator that uses the weights
    std::string layer;
    bool works;  // whether an operator uses tensors other than weights
  };

  void add(const std::string& name, const at::Tensor& tensor) {
    const std::size_t dot = name.rfind('.');
    if (const void* memory = memory_of(tensor))
      weights_.try_emplace(memory, dot == std::string::npos ? std::string() : name.substr(0, dot));
  }

  // Whether the operator uses indices: an embedding does.
  bool has_indices(const OperatorCall& call) const {
    for (const at::Tensor& tensor : call.inputs)
      if (!tensor.is_floating_point() && !weights_.contains(memory_of(tensor))) return true;
    return false;
  }

  LayerWatch::Report report_;
  std::unordered_map<const void*, std::string> weights_;  // by the address of their memory, which views share
  std::vector<at::Tensor> kept_;                          // keeps the memory, so that addresses are not reused
  std::optional<Inside> inside_;
  std::string running_ = "?";  // the last layer that began
  int depth_ = 0;
};

struct LayerWatch::Impl {
  Impl(const torch::nn::Module& model, Report report) : finder(model, std::move(report)), watch(finder) {}
  LayerFinder finder;
  OperatorWatch watch;
};

LayerWatch::LayerWatch(const torch::nn::Module& model, Report report)
    : impl_(std::make_unique<Impl>(model, std::move(report))) {}
LayerWatch::~LayerWatch() = default;

}  // namespace composer
