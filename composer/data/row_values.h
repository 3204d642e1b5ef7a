#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// One value for each row of some data: a tensor, or the name of one of the data's tensors or columns. An undefined
// tensor or an empty name is an error where the values are used, and not none.
class COMPOSER_EXPORT RowValues {
 public:
  RowValues() = default;  // none
  RowValues(at::Tensor values) : given_(true), values_(std::move(values)) {}
  RowValues(const std::vector<std::int64_t>& values);
  RowValues(std::string name) : given_(true), name_(std::move(name)) {}
  RowValues(const char* name) : given_(true), name_(name) {}

  bool empty() const { return !given_; }
  const std::string& name() const { return name_; }  // empty if the values were given
  const at::Tensor& values() const { return values_; }

 private:
  bool given_ = false;
  at::Tensor values_;
  std::string name_;
};

}  // namespace composer::data
