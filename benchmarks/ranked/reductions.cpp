#include <algorithm>

#include <ATen/ATen.h>

#include "benchmarks/bench.h"
#include "benchmarks/ranked/loops.h"
#include "composer/dist/world.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kParts = 16;  // number of gradients that are combined into one message

struct Size {
  std::int64_t bytes;
  int calls;  // per round
};

std::vector<Size> sizes(bool quick) {
  if (quick) return {{64, 20}, {64 << 10, 10}, {1 << 20, 5}, {8 << 20, 2}};
  return {{8, 50},         {64, 50},     {1 << 10, 50}, {16 << 10, 40}, {128 << 10, 20},
          {512 << 10, 15}, {2 << 20, 8}, {8 << 20, 4},  {32 << 20, 2}};
}

// All ranks begin the calls at the same time.
Contender in_step(dist::World& world, std::string name, std::function<void()> call) {
  return {std::move(name), [&world, call = std::move(call)](int calls) {
            world.barrier();
            for (int i = 0; i < calls; ++i) call();
          }};
}

Contender reduction_of(dist::World& world, at::ScalarType dtype, std::int64_t bytes) {
  const at::Tensor tensor = at::zeros(
      {std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(elementSize(dtype)))}, at::TensorOptions(dtype));
  return in_step(world, "all-reduce", [&world, tensor] { world.sum(tensor); });
}

// The copies of average_in_one(), without its all-reduce.
Contender copies_of(dist::World& world, std::int64_t bytes) {
  std::vector<at::Tensor> gradients;
  for (std::int64_t i = 0; i < kParts; ++i)
    gradients.push_back(at::zeros({std::max<std::int64_t>(1, bytes / 4 / kParts)}));
  return in_step(world, "copies", [gradients, size = world.size()] {
    const at::Tensor flat = at::cat(gradients);
    flat.div_(size);
    std::int64_t at = 0;
    for (const at::Tensor& gradient : gradients) {
      gradient.copy_(flat.narrow(0, at, gradient.numel()));
      at += gradient.numel();
    }
  });
}

}  // namespace

void average_in_one(dist::World& world, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients, parts;
  gradients.reserve(parameters.size());
  parts.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
    parts.push_back(parameter.grad().view({-1}));
  }
  const at::Tensor flat = at::cat(parts);
  world.sum(flat);
  flat.div_(world.size());
  std::int64_t at = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(flat.narrow(0, at, gradient.numel()).view_as(gradient));
    at += gradient.numel();
  }
}

nlohmann::ordered_json sweep(dist::World& world, bool quick) {
  nlohmann::ordered_json result = {{"float", nlohmann::ordered_json::array()},
                                   {"bf16", nlohmann::ordered_json::array()},
                                   {"copies", nlohmann::ordered_json::array()}};
  for (const auto& [bytes, calls] : sizes(quick)) {
    const std::vector<Contender> contenders = {reduction_of(world, at::kFloat, bytes),
                                               reduction_of(world, at::kBFloat16, bytes), copies_of(world, bytes)};
    const std::vector<Series> series = take_turns(contenders, /*rounds=*/quick ? 3 : 7, calls);
    std::size_t i = 0;
    for (const char* name : {"float", "bf16", "copies"}) {
      result[name].push_back({bytes, median(series[i].wall) * 1e-6, median(series[i].cpu) * 1e-6});
      ++i;
    }
  }
  return result;
}

}  // namespace composer::bench
