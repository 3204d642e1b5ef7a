#include "composer/surgery/layer.h"

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"

namespace composer {
namespace {

at::Tensor call_any(torch::nn::AnyModule& module, const at::Tensor& x) { return module.forward(x); }

}  // namespace

LayerImpl::LayerImpl(torch::nn::AnyModule module) {
  std::shared_ptr<torch::nn::Module> shown = module.ptr();
  put(std::move(shown), std::move(module),
      [](LayerImpl& self, const at::Tensor& x) -> at::Tensor { return call_any(self.any_, x); });
}

LayerImpl::LayerImpl(std::shared_ptr<torch::nn::Module> module, CannotBeCalled) {
  put(std::move(module), {}, [](LayerImpl& self, const at::Tensor&) -> at::Tensor {
    throw ConfigError("Layer: ", self.module_->name(), " is called by its parent only, which knows its type");
  });
}

LayerImpl::~LayerImpl() = default;

at::Tensor LayerImpl::observed(const at::Tensor& x) {
  struct Scope {
    explicit Scope(const LayerImpl& given) : layer(given) { observer.begin(layer); }
    ~Scope() { observer.end(layer); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    const LayerImpl& layer;
    Observer& observer = *layer.observer_;  // a reference, because it may be replaced meanwhile
  };
  const Scope scope(*this);
  return call_(*this, x);
}

void LayerImpl::put(std::shared_ptr<torch::nn::Module> module, torch::nn::AnyModule any, Call call) {
  if (!module) throw ConfigError("Layer: the module is null");
  if (module_) module->train(module_->is_training());
  module_ = std::move(module);
  any_ = std::move(any);
  call_ = call;
  was_called_ = false;
  refresh();
}

void LayerImpl::hold(const LayerImpl& other) { put(other.module_, other.any_, other.call_); }

void LayerImpl::refresh() {
  // libtorch determines the name at the first call, and after the assignment it would find this class's.
  static_cast<void>(module_->name());
  Module::operator=(*module_);
}

void LayerImpl::train(bool on) {
  module_->train(on);
  refresh();
}

void LayerImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  module_->to(device, dtype, non_blocking);
  refresh();
}

void LayerImpl::to(torch::Dtype dtype, bool non_blocking) {
  module_->to(dtype, non_blocking);
  refresh();
}

void LayerImpl::to(torch::Device device, bool non_blocking) {
  module_->to(device, non_blocking);
  refresh();
}

std::shared_ptr<torch::nn::Module> LayerImpl::clone(const std::optional<torch::Device>& device) const {
  const std::shared_ptr<LayerImpl> copy(new LayerImpl);
  if (any_.is_empty()) {
    copy->put(module_->clone(device), {}, call_);
  } else {
    torch::nn::AnyModule any = any_.clone(device);
    std::shared_ptr<torch::nn::Module> shown = any.ptr();
    copy->put(std::move(shown), std::move(any), call_);
  }
  copy->module_->train(module_->is_training());
  copy->refresh();
  return copy;
}

// Called when a new parent takes over the contents of the parent that it is a clone of.
void LayerImpl::clone_(torch::nn::Module& other, const std::optional<torch::Device>& device) {
  hold(dynamic_cast<LayerImpl&>(*other.clone(device)));
}

Layer Layer::lift() const {
  auto copy = std::make_shared<LayerImpl>(impl_->module(), LayerImpl::CannotBeCalled{});
  copy->hold(*impl_);
  return Layer(std::move(copy));
}

torch::nn::Module& bare(torch::nn::Module& module) {
  auto* layer = dynamic_cast<LayerImpl*>(&module);
  return layer ? *layer->module() : module;
}

const torch::nn::Module& bare(const torch::nn::Module& module) {
  const auto* layer = dynamic_cast<const LayerImpl*>(&module);
  return layer ? *layer->module() : module;
}

}  // namespace composer
