#include "composer/core/tensors.h"

#include <algorithm>

#include "composer/core/error.h"
#include "composer/core/listed.h"

namespace composer {
namespace {

std::string names(const Tensors& tensors) {
  return tensors.empty() ? "none" : listed(tensors, [](const auto& item) { return item.first; });
}

}  // namespace

Tensors::Tensors(std::initializer_list<Item> items) : items_(items) {
  for (auto item = items_.begin(); item != items_.end(); ++item)
    if (std::any_of(items_.begin(), item, [&](const Item& other) { return other.first == item->first; }))
      throw DataError("two tensors are called \"", item->first, "\"");
}

const at::Tensor* Tensors::find(std::string_view name) const {
  for (const auto& [key, tensor] : items_)
    if (key == name) return &tensor;
  return nullptr;
}

const at::Tensor& Tensors::at(std::string_view name) const {
  if (const at::Tensor* found = find(name)) return *found;
  throw DataError("there is no tensor called \"", name, "\"; there are: ", names(*this));
}

const at::Tensor& Tensors::front() const {
  if (items_.empty()) throw DataError("expected at least one tensor, there is none");
  return items_.front().second;
}

const at::Tensor& Tensors::only() const {
  if (items_.size() != 1) throw DataError("expected exactly one tensor, there are: ", names(*this));
  return items_.front().second;
}

void Tensors::set(std::string_view name, at::Tensor tensor) {
  for (auto& [key, old] : items_) {
    if (key != name) continue;
    old = std::move(tensor);
    return;
  }
  items_.emplace_back(std::string(name), std::move(tensor));
}

}  // namespace composer
