#pragma once
// Tensors and random numbers of a case of algorithms.json.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/replay/replay.h"

namespace composer::replay {

// The tensors of one case, by their names without the id of the case: in.input, out.
class Recorded {
 public:
  Recorded(const Json& c, const Context& context);
  at::Tensor at(const std::string& name) const { return all_.at(prefix_ + name).clone(); }
  bool contains(const std::string& name) const { return all_.contains(prefix_ + name); }
  // Of those whose names begin so, by the rest of their names.
  Context::Tensors below(const std::string& beginning) const;

 private:
  const Context::Tensors& all_;
  std::string prefix_;
};

// Gives the random numbers that were recorded, in their order.
class RecordedRandom {
 public:
  explicit RecordedRandom(const Json& log) : log_(log) {}

  // The next one; throws unless it was drawn by this function.
  const Json& next(const std::string& function) { return next_of({function}); }
  // np.random.randint.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    const Json& draw = next("np.random.randint");
    Json bounds = draw.at("args");
    if (draw.contains("kwargs")) bounds.push_back(draw["kwargs"].at("high"));
    if (bounds.size() == 1) bounds = {0, bounds.at(0)};
    if (low != bounds.at(0) || high != bounds.at(1)) throw std::runtime_error("other bounds were recorded");
    return draw.at("value").get<std::int64_t>();
  }
  // np.random.uniform, or np.random.random.
  double uniform(double low, double high) {
    const Json& draw = next_of({"np.random.uniform", "np.random.random"});
    Json bounds = {0, 1};
    if (!draw.at("args").empty()) bounds = draw.at("args");
    if (draw.contains("kwargs")) bounds = {draw["kwargs"].at("low"), draw["kwargs"].at("high")};
    if (std::abs(bounds.at(0).get<double>() - low) > 1e-12 || std::abs(bounds.at(1).get<double>() - high) > 1e-12)
      throw std::runtime_error("other bounds were recorded");
    return draw.at("value").get<double>();
  }
  at::Tensor permutation(std::int64_t n) {
    const Json& draw = next("torch.randperm");
    if (draw.at("args").at(0) != n) throw std::runtime_error("another size was recorded");
    return at::tensor(draw.at("value").get<std::vector<std::int64_t>>(), at::kLong);
  }
  bool is_used_up() const { return next_ == log_.size(); }

 private:
  const Json& next_of(const std::vector<std::string>& functions) {
    if (next_ == log_.size()) throw std::runtime_error("more random numbers were drawn than recorded");
    const Json& draw = log_.at(next_++);
    const auto function = draw.at("fn").get<std::string>();
    if (std::ranges::find(functions, function) == functions.end()) throw std::runtime_error(function + " was recorded");
    return draw;
  }

  const Json& log_;
  std::size_t next_ = 0;
};

Json to_json(const at::Tensor& tensor);

// For whole tensors of either type.
Tolerance tolerance_for(const at::Tensor& tensor);
Outcome judge_tensor(const Json& c, const at::Tensor& recorded, const at::Tensor& got, const Rules& rules = {});

}  // namespace composer::replay
