#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/metric.h"
#include "composer/core/model.h"

namespace composer::test {

inline std::int64_t parameter_count(const Model& model) {
  std::int64_t n = 0;
  for (const auto& parameter : model.parameters()) n += parameter.numel();
  return n;
}

inline std::vector<std::string> metric_names(const Metrics& metrics) {
  std::vector<std::string> list;
  for (const auto& metric : metrics) list.push_back(metric->name());
  return list;
}

}  // namespace composer::test
