#include "tests/replay/recorded.h"

#include <algorithm>
#include <cmath>

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

const Json& RandomLog::next_of(const std::vector<std::string>& functions) {
  if (is_used_up()) throw std::runtime_error("more random numbers were drawn than recorded");
  const Json& draw = log_.at(next_++);
  const std::string function = draw.at("fn");
  if (std::ranges::find(functions, function) == functions.end())
    throw std::runtime_error(function + " was recorded, asked for is " + functions.front());
  return draw;
}

const Json& RandomLog::next(const std::string& function, const Json& arguments) {
  const Json& draw = next(function);
  if (draw.at("args") != arguments)
    throw std::runtime_error("recorded was " + draw.dump() + ", asked for is " + arguments.dump());
  return draw.at("value");
}

std::int64_t RandomLog::integer(std::int64_t low, std::int64_t high) {
  const Json& draw = next("np.random.randint");
  Json bounds = draw.at("args");
  if (draw.contains("kwargs")) bounds.push_back(draw["kwargs"].at("high"));
  if (bounds.size() == 1) bounds = {0, bounds.at(0)};
  if (low != bounds.at(0) || high != bounds.at(1)) throw std::runtime_error("other bounds were recorded");
  return draw.at("value");
}

double RandomLog::uniform(double low, double high) {
  const Json& draw = next_of({"np.random.uniform", "np.random.random"});
  Json bounds = {0, 1};
  if (!draw.at("args").empty()) bounds = draw.at("args");
  if (draw.contains("kwargs")) bounds = {draw["kwargs"].at("low"), draw["kwargs"].at("high")};
  if (std::abs(bounds.at(0).get<double>() - low) > 1e-12 || std::abs(bounds.at(1).get<double>() - high) > 1e-12)
    throw std::runtime_error("other bounds were recorded");
  return draw.at("value");
}

at::Tensor RandomLog::permutation(std::int64_t n) {
  return at::tensor(next("torch.randperm", {n}).get<std::vector<std::int64_t>>(), at::kLong);
}

Json tensor_json(const at::Tensor& tensor) {
  Json values = Json::array();
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) values.push_back(number(flat.const_data_ptr<double>()[i]));
  return {{"shape", tensor.sizes().vec()}, {"values", values}};
}

Json to_json(const at::Tensor& tensor) {
  Json json = tensor_json(tensor);
  json["dtype"] = c10::toString(tensor.scalar_type());
  return json;
}

Tolerance tolerance_for(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? Tolerance{1e-12, 1e-14} : Tolerance{1e-5, 1e-6};
}

Outcome judge_tensor(const Json& c, const at::Tensor& recorded, const at::Tensor& got, const Rules& rules) {
  return judge(c, to_json(recorded), to_json(got), rules, tolerance_for(got));
}

}  // namespace composer::replay
