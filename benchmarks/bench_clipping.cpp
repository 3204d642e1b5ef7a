// What does clipping by norm cost over torch::nn::utils::clip_grad_norm_?
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>

#include "benchmarks/bench.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/error.h"

namespace composer::bench {
namespace {

struct Task {
  std::string name;
  std::vector<at::Tensor> gradients;
  int rounds, calls;
};

at::Tensor random(std::vector<std::int64_t> shape) { return at::randn(shape).mul_(1e-3); }

// A convolutional net of 59 tensors and 0.21 M elements.
std::vector<at::Tensor> small_net() {
  std::vector<at::Tensor> list = {random({32, 3, 3, 3})};
  for (int layer = 0; layer < 19; ++layer) {
    list.push_back(random({layer < 15 ? 32 : 48, 32, 3, 3}));
    list.push_back(random({32}));
    list.push_back(random({32}));
  }
  list.push_back(random({10, 64}));
  return list;
}

// ResNet-18 for small images: 62 tensors, 11 M elements.
std::vector<at::Tensor> resnet18() {
  std::vector<at::Tensor> list;
  const auto conv = [&](std::int64_t from, std::int64_t to, std::int64_t kernel) {
    list.push_back(random({to, from, kernel, kernel}));
    list.push_back(random({to}));
    list.push_back(random({to}));
  };
  conv(3, 64, 3);
  for (const std::int64_t width : {64, 128, 256, 512}) {
    conv(width == 64 ? 64 : width / 2, width, 3);
    for (int i = 0; i < 3; ++i) conv(width, width, 3);
    if (width > 64) conv(width / 2, width, 1);
  }
  list.push_back(random({10, 512}));
  list.push_back(random({10}));
  return list;
}

std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& gradient : gradients) {
    parameters.push_back(at::empty_like(gradient).requires_grad_());
    parameters.back().mutable_grad() = gradient.clone();
  }
  return parameters;
}

void measure(const Task& task, bool clips, Report& report) {
  const auto theirs = with_gradients(task.gradients), ours = with_gradients(task.gradients);
  double norm = 0;
  for (const at::Tensor& gradient : task.gradients) norm += gradient.square().sum(at::kDouble).item<double>();
  norm = std::sqrt(norm);
  // A threshold that shrinks a little each time makes every call clip.
  double their_threshold = clips ? norm : 2 * norm, our_threshold = their_threshold;
  const double shrink = clips ? 0.9999 : 1;
  const std::string name = task.name + (clips ? ", clipping" : ", not clipping");
  report.compare(name,
                 {{"clip_grad_norm_",
                   [&](int calls) {
                     for (int i = 0; i < calls; ++i)
                       torch::nn::utils::clip_grad_norm_(theirs, their_threshold *= shrink);
                   }},
                  {"apply_gradient_clipping",
                   [&](int calls) {
                     for (int i = 0; i < calls; ++i)
                       algorithms::apply_gradient_clipping(ours, algorithms::ClippingType::NORM,
                                                           our_threshold *= shrink);
                   }}},
                 task.rounds, task.calls);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!at::allclose(theirs[i].grad(), ours[i].grad(), 1e-3, 1e-9)) throw Error(name, ": the gradients differ");
}

void measure_clipping(int argc, char** argv) {
  at::set_num_threads(1);
  at::manual_seed(1);
  Report report(parse(argc, argv));
  for (const Task& task :
       {Task{"59 tensors, 0.2 M", small_net(), 60, 20}, Task{"resnet18, 62 tensors, 11 M", resnet18(), 20, 5}})
    for (const bool clips : {false, true})
      if (report.wants(task.name)) measure(task, clips, report);
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_clipping(argc, argv); }
