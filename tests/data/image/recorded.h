#pragma once
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "tests/support/places.h"
#include "tests/support/safetensors.h"

namespace composer::test {

// What record_images.py has written.
inline const std::map<std::string, at::Tensor>& recorded_images() {
  static const auto tensors = read_safetensors(repository() / "tests/data/image/images.safetensors");
  return tensors;
}

inline std::string recorded_file(const std::string& name) {
  const at::Tensor bytes = recorded_images().at("file/" + name).contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

}  // namespace composer::test
