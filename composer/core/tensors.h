#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// Named tensors in a fixed order: the common part of Batch, Outputs and Losses. Copies share the tensors.
class COMPOSER_EXPORT Tensors {
 public:
  using Item = std::pair<std::string, at::Tensor>;

  // Each throws DataError, which lists the existing names, if `name` is missing.
  const at::Tensor& at(std::string_view name) const;
  const at::Tensor& operator[](std::string_view name) const { return at(name); }
  const at::Tensor& front() const;  // throws if there is none
  const at::Tensor& only() const;   // throws unless there is exactly one

  // Replaces the tensor with this name, or adds it at the end.
  void set(std::string_view name, at::Tensor tensor);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const at::Tensor* find(std::string_view name) const;  // nullptr if there is none

  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  void clear() { items_.clear(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 protected:
  Tensors() = default;
  Tensors(std::initializer_list<Item> items);  // throws DataError if two have one name
  Tensors(const char* name, at::Tensor only) { items_.emplace_back(name, std::move(only)); }

 private:
  std::vector<Item> items_;
};

// What a loader yields: tensors [N, ...] with N samples. It does not convert to Outputs or Losses, so loss(batch,
// outputs) with swapped arguments does not compile.
class COMPOSER_EXPORT Batch : public Tensors {
 public:
  Batch() = default;
  Batch(std::initializer_list<Item> items) : Tensors(items) {}
  Batch(at::Tensor only) : Tensors("input", std::move(only)) {}
};

// What Model::forward returns. A single tensor is called "output".
class COMPOSER_EXPORT Outputs : public Tensors {
 public:
  Outputs() = default;
  Outputs(std::initializer_list<Item> items) : Tensors(items) {}
  Outputs(at::Tensor only) : Tensors("output", std::move(only)) {}
};

// What Model::loss returns. The tensor called "total" is minimised; without one, the sum of all (using the mean of
// tensors that are not scalars). All are logged as loss/train/<name>. A single tensor is called "total".
class COMPOSER_EXPORT Losses : public Tensors {
 public:
  Losses() = default;
  Losses(std::initializer_list<Item> items) : Tensors(items) {}
  Losses(at::Tensor only) : Tensors("total", std::move(only)) {}
};

}  // namespace composer
