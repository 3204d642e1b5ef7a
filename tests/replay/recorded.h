#pragma once
// Tensors and random numbers of a recorded case.
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

// Gives the random numbers that were recorded, in their order. Throws if something else is asked for.
class RandomLog {
 public:
  explicit RandomLog(const Json& log) : log_(log) {}

  // The next one, if it was drawn by this function; with arguments, its value, if it had them.
  const Json& next(const std::string& function) { return next_of({function}); }
  const Json& next(const std::string& function, const Json& arguments);
  std::int64_t integer(std::int64_t low, std::int64_t high);  // np.random.randint
  double uniform(double low, double high);                    // np.random.uniform, or np.random.random
  at::Tensor permutation(std::int64_t n);
  bool is_used_up() const { return next_ == log_.size(); }

 private:
  const Json& next_of(const std::vector<std::string>& functions);

  const Json& log_;
  std::size_t next_ = 0;
};

Json tensor_json(const at::Tensor& tensor);  // shape and values
// With the type.
Json to_json(const at::Tensor& tensor);

// For whole tensors of either type.
Tolerance tolerance_for(const at::Tensor& tensor);
Outcome judge_tensor(const Json& c, const at::Tensor& recorded, const at::Tensor& got, const Rules& rules = {});

}  // namespace composer::replay
