#include "composer/checkpoint/host_copy.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "composer/device/device_support.h"

namespace composer::saving {
namespace {

class Copier {
 public:
  explicit Copier(bool copies_host) : copies_host_(copies_host) {}

  void copy(const StateDict& from, StateDict& to) {
    StateDict before = std::exchange(to, StateDict());
    for (const auto& [name, value] : from.entries()) {
      StateValue* old = before.find(name) ? &before[name] : nullptr;
      if (const auto* dict = std::get_if<StateDict>(&value)) {
        StateDict inner;
        if (auto* old_dict = old ? std::get_if<StateDict>(old) : nullptr) inner = std::move(*old_dict);
        copy(*dict, inner);
        to[name] = std::move(inner);
      } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
        to[name] = copy(*tensor, old ? std::get_if<at::Tensor>(old) : nullptr);
      } else {
        to[name] = value;
      }
    }
  }

  std::vector<c10::Event> record() const {
    std::vector<c10::Event> events;
    events.reserve(devices_.size());
    for (const at::Device& device : devices_) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      events.emplace_back(device.type()).record(guard.getStream(device));
    }
    return events;
  }

 private:
  at::Tensor copy(const at::Tensor& from, const at::Tensor* old) {
    const bool device = !from.is_cpu();
    if (!device && !copies_host_) return from;
    at::Tensor to;
    if (old && old->sizes() == from.sizes() && old->strides() == from.strides() &&
        old->scalar_type() == from.scalar_type())
      to = *old;
    else
      to = at::empty_like(
          from, at::TensorOptions().device(at::kCPU).pinned_memory(device_support(from.device().type()).pins_memory()));
    to.copy_(from, /*non_blocking=*/device);
    if (device && std::ranges::find(devices_, from.device()) == devices_.end()) devices_.push_back(from.device());
    return to;
  }

  bool copies_host_;
  std::vector<at::Device> devices_;
};

}  // namespace

std::vector<c10::Event> copy_to_host(const StateDict& from, StateDict& to, bool copies_host) {
  Copier copier(copies_host);
  copier.copy(from, to);
  return copier.record();
}

}  // namespace composer::saving
