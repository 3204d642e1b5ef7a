#include "composer/optim/optimizer.h"

#include <cmath>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"

namespace composer::optim {
namespace {

void require(bool holds, const char* who, const char* rule, double value) {
  if (!holds) throw ConfigError(who, ": ", rule, ", got ", value);
}

void check(const SgdOptions& options) {
  require(options.lr > 0 && std::isfinite(options.lr), "sgd", "lr must be > 0", options.lr);
  require(options.momentum >= 0, "sgd", "momentum must be >= 0", options.momentum);
  require(options.dampening >= 0, "sgd", "dampening must be >= 0", options.dampening);
  require(options.weight_decay >= 0, "sgd", "weight_decay must be >= 0", options.weight_decay);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
    throw ConfigError("sgd: nesterov needs momentum > 0 and dampening 0, got momentum ", options.momentum,
                      ", dampening ", options.dampening);
}

void check(const AdamWOptions& options) {
  require(options.lr >= 0 && std::isfinite(options.lr), "adamw", "lr must be >= 0", options.lr);
  require(options.beta1 >= 0 && options.beta1 < 1, "adamw", "beta1 must be in [0, 1)", options.beta1);
  require(options.beta2 >= 0 && options.beta2 < 1, "adamw", "beta2 must be in [0, 1)", options.beta2);
  require(options.eps >= 0, "adamw", "eps must be >= 0", options.eps);
  require(options.weight_decay >= 0, "adamw", "weight_decay must be >= 0", options.weight_decay);
}

}  // namespace

AnyOptimizer sgd(SgdOptions options) {
  check(options);
  return AnyOptimizer::Factory([options](std::vector<at::Tensor> parameters) {
    return std::make_shared<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(options.lr)
                                                                          .momentum(options.momentum)
                                                                          .dampening(options.dampening)
                                                                          .weight_decay(options.weight_decay)
                                                                          .nesterov(options.nesterov));
  });
}

AnyOptimizer adamw(AdamWOptions options) {
  check(options);
  return AnyOptimizer::Factory([options](std::vector<at::Tensor> parameters) {
    return std::make_shared<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(options.lr)
                                                                            .betas({options.beta1, options.beta2})
                                                                            .eps(options.eps)
                                                                            .weight_decay(options.weight_decay)
                                                                            .amsgrad(options.amsgrad));
  });
}

std::vector<double> learning_rates(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void set_learning_rate(Optimizer& optimizer, std::size_t group, double lr) {
  optimizer.param_groups().at(group).options().set_lr(lr);
}

}  // namespace composer::optim
