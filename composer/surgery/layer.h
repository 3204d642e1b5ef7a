#pragma once
#include <atomic>
#include <concepts>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include "composer/core/export.h"

namespace composer {

class LayerImpl;

// A module whose forward() takes one tensor and returns one.
template <class Module>
concept MapsTensor = std::derived_from<Module, torch::nn::Module> && !std::same_as<Module, LayerImpl> &&
                     requires(Module & module, const at::Tensor& x) {
  { module.forward(x) } -> std::convertible_to<at::Tensor>;
};

// The object that a Layer points to. It has the parameters, buffers and children of the module that it holds (the same
// tensors and modules, under the same names): `conv1.weight` has this name with and without a Layer, and a parent need
// not know that a module was replaced.
class COMPOSER_EXPORT LayerImpl final : public torch::nn::Module {
 public:
  template <MapsTensor M>
  explicit LayerImpl(std::shared_ptr<M> module) {
    hold(std::move(module));
  }
  explicit LayerImpl(torch::nn::AnyModule module);  // an entry of a torch::nn::Sequential
  // Holds a module that cannot be called here, because only its parent knows its type: forward() throws.
  struct CannotBeCalled {};
  LayerImpl(std::shared_ptr<torch::nn::Module> module, CannotBeCalled);
  ~LayerImpl() override;

  at::Tensor forward(const at::Tensor& x) {
    std::atomic_ref(was_called_).store(true, std::memory_order_relaxed);  // several threads may predict
    return observer_ ? observed(x) : call_(*this, x);
  }

  // Replaces the held module. The new one gets the mode (training or evaluation) of the old one. Throws ConfigError for
  // null.
  template <MapsTensor M>
  void hold(std::shared_ptr<M> module) {
    put(std::move(module), {}, [](LayerImpl& self, const at::Tensor& x) -> at::Tensor {
      return static_cast<M*>(self.module_.get())->forward(x);
    });
  }
  void hold(const LayerImpl& other);  // holds the module that `other` holds

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  // get<torch::nn::Conv2d>(): the held module, or an empty holder if it has another type.
  template <class Holder>
  Holder get() const {
    return Holder(std::dynamic_pointer_cast<typename Holder::ContainedType>(module_));
  }
  template <std::derived_from<torch::nn::Module> M>
  M* as() const {
    return dynamic_cast<M*>(module_.get());
  }

  bool was_called() const { return was_called_; }  // since the last hold()

  // Called before and after each forward(), also if it throws, on the thread that calls it.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void begin(const LayerImpl& layer) = 0;
    virtual void end(const LayerImpl& layer) = 0;
  };
  // Null: no observer. The observer must exist until it is replaced. A clone has no observer.
  void observe(Observer* observer) { observer_ = observer; }
  // Call this after the held module has registered or replaced a parameter, buffer or child.
  void refresh();

  void train(bool on = true) override;
  bool is_training() const noexcept override { return module_->is_training(); }
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override { module_->pretty_print(stream); }

 private:
  using Call = at::Tensor (*)(LayerImpl& self, const at::Tensor& x);

  LayerImpl() = default;
  at::Tensor observed(const at::Tensor& x);
  void put(std::shared_ptr<torch::nn::Module> module, torch::nn::AnyModule any, Call call);
  void clone_(torch::nn::Module& other, const std::optional<torch::Device>& device) override;

  Call call_ = nullptr;
  bool was_called_ = false;
  Observer* observer_ = nullptr;
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::AnyModule any_;  // calls the module, if its type is not known here
};

// A place in a model for any module that maps a tensor to a tensor; algorithms may replace the module that it holds. A
// model declares each of its layers in one line:
//
//   struct Net : torch::nn::Module {
//     composer::Layer conv{this, "conv", torch::nn::Conv2d(3, 16, 3)};
//     at::Tensor forward(const at::Tensor& x) { return conv(x).relu_(); }
//   };
//
// Like torch's module holders, a Layer is a shared pointer: copies are the same place.
struct COMPOSER_EXPORT Layer : torch::nn::ModuleHolder<LayerImpl> {
  using Base = torch::nn::ModuleHolder<LayerImpl>;

  Layer(std::nullptr_t = nullptr) : Base(nullptr) {}
  explicit Layer(std::shared_ptr<LayerImpl> place) : Base(std::move(place)) {}
  template <MapsTensor M>
  Layer(std::shared_ptr<M> module) : Base(std::make_shared<LayerImpl>(std::move(module))) {}
  template <MapsTensor M>
  Layer(const torch::nn::ModuleHolder<M>& module) : Layer(module ? module.ptr() : nullptr) {}
  // Registers the layer with its parent.
  template <class Module>
  Layer(torch::nn::Module* parent, std::string name, Module&& module) : Layer(std::forward<Module>(module)) {
    parent->register_module(std::move(name), ptr());
  }

  at::Tensor operator()(const at::Tensor& x) const { return impl_->forward(x); }
  // A new Layer with the module of this one, for a module that wraps it.
  Layer lift() const;
};

// Returns the module in a Layer, or the module itself if it is not in one: for code that checks types.
COMPOSER_EXPORT torch::nn::Module& bare(torch::nn::Module& module);
COMPOSER_EXPORT const torch::nn::Module& bare(const torch::nn::Module& module);

}  // namespace composer
