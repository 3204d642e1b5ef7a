#pragma once
// The work of all contenders, which has the same result in all: data, the order of the samples, a new network, an
// update rule.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/data/in_memory.h"
#include "composer/models/classifier.h"

namespace composer::bench {

// A network for a loop by hand, and the model of it for a trainer; both have the same weights.
struct Net {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::shared_ptr<models::Classifier> model;
};

// Makes both from a model, whose module can be called only through it.
Net net_of(std::shared_ptr<models::Classifier> model, const char* input = "input");

enum class Update : std::uint8_t { ADAMW, SGD };
constexpr double kAdamLr = 1e-3, kAdamDecay = 1e-2;                    // betas 0.9 and 0.999, eps 1e-8
constexpr double kSgdLr = 0.05, kSgdMomentum = 0.9, kSgdDecay = 5e-4;  // no dampening
constexpr double kMean = 0.2860, kStddev = 0.3530;                     // of pixels divided by 255

struct Workload {
  std::string name;
  std::int64_t batch_size = 0;
  Update update = Update::ADAMW;
  at::Tensor input, target;  // of all samples: images as bytes [N, ...], or tokens [N, T]
  std::function<Net()> make;

  bool has_images() const;
  const char* input_name() const { return has_images() ? "input" : "input_ids"; }
};

const std::vector<std::string>& workload_names();
Workload make_workload(const std::string& name);  // throws ConfigError for an unknown name

at::Tensor normalized(const at::Tensor& bytes);
at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target);  // the mean over samples, or over tokens

// Returns a network with the same initial weights in every process.
Net fresh_net(const Workload& workload);

// The sum of the absolute values of all parameters: equal for contenders that did the same.
double checksum(const torch::nn::Module& network);

// The loader of the trainers, and the order of its samples, for loops that gather their batches themselves.
std::shared_ptr<Loader> make_loader(const Workload& workload, bool channels_last);
class Order {
 public:
  explicit Order(std::int64_t samples);
  at::Tensor epoch(std::int64_t number);  // int64 [samples]

 private:
  std::shared_ptr<Loader> numbers_;
};

// Writes files for contenders in other languages: input, target, the order of a few epochs and the initial weights, as
// raw numbers.
void write_files(const Workload& workload, const std::string& folder);

}  // namespace composer::bench
