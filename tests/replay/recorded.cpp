#include "tests/replay/recorded.h"

#include <ATen/ATen.h>

namespace composer::replay {

Recorded::Recorded(const Json& c, const Context& context)
    : all_(context.tensors()), prefix_(c.at("id").get<std::string>() + "/") {}

Context::Tensors Recorded::below(const std::string& beginning) const {
  const std::string prefix = prefix_ + beginning;
  Context::Tensors found;
  for (auto at = all_.lower_bound(prefix); at != all_.end() && at->first.starts_with(prefix); ++at)
    found.emplace(at->first.substr(prefix.size()), at->second.clone());
  return found;
}

Json to_json(const at::Tensor& tensor) {
  Json values = Json::array();
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) values.push_back(number(flat[i].item<double>()));
  return {{"dtype", c10::toString(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"values", values}};
}

Tolerance tolerance_for(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? Tolerance{1e-12, 1e-14} : Tolerance{1e-5, 1e-6};
}

Outcome judge_tensor(const Json& c, const at::Tensor& recorded, const at::Tensor& got, const Rules& rules) {
  return judge(c, to_json(recorded), to_json(got), rules, tolerance_for(got));
}

}  // namespace composer::replay
