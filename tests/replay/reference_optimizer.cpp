#include "tests/replay/reference_optimizer.h"

#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "tests/replay/program.h"

namespace composer::replay {

ReferenceOptimizer::ReferenceOptimizer(const Json& recorded, const at::Tensor& initial)
    : recorded_(recorded), name_(recorded.at("class")), value_(initial.to(at::kDouble).clone()) {}

at::Tensor& ReferenceOptimizer::state(const char* name) {
  at::Tensor& tensor = state_[name];
  if (!tensor.defined()) tensor = at::zeros_like(value_);
  return tensor;
}

void ReferenceOptimizer::step(const at::Tensor& gradient, double lr) {
  const at::Tensor g = gradient.to(at::kDouble);
  const double decay = option("weight_decay", name_ == "AdamW" ? 1e-2 : name_ == "DecoupledAdamW" ? 1e-5 : 0);
  const double initial_lr = option("lr", name_ == "RMSprop" || name_ == "Adagrad" ? 1e-2 : 1e-3);
  const double share = initial_lr == 0 ? 0 : lr / initial_lr;
  steps_ += 1;
  if (name_ == "SGD") return sgd(g + decay * value_, lr, false);
  if (name_ == "DecoupledSGDW") {
    return sgd(g, lr, true);
  } else if (name_ == "Adam") {
    return adam(g + decay * value_, lr, 0.999);
  } else if (name_ == "AdamW") {
    value_ = value_ * (1 - lr * decay);
    return adam(g, lr, 0.999);
  } else if (name_ == "DecoupledAdamW") {
    value_ = value_ * (1 - share * decay);
    return adam(g, lr, 0.95);
  } else if (name_ == "RMSprop") {
    return rmsprop(g + decay * value_, lr);
  } else if (name_ == "Adagrad") {
    return adagrad(g + decay * value_, lr);
  }
  throw Unsupported{"formula of " + name_};
}

void ReferenceOptimizer::sgd(const at::Tensor& gradient, double lr, bool decoupled) {
  const double momentum = option("momentum", 0);
  at::Tensor direction = gradient;
  if (momentum != 0) {
    at::Tensor& buffer = state("momentum_buffer");
    buffer = steps_ == 1 ? gradient : momentum * buffer + (1 - option("dampening", 0)) * gradient;
    direction = flag("nesterov") ? gradient + momentum * buffer : buffer;
  }
  if (decoupled) value_ = value_ * (1 - lr / option("lr", lr) * option("weight_decay", 0));
  value_ = value_ - lr * direction;
}

void ReferenceOptimizer::adam(const at::Tensor& gradient, double lr, double beta2) {
  const auto betas = recorded_.value("betas", std::array<double, 2>{0.9, beta2});
  at::Tensor &mean = state("exp_avg"), &square = state("exp_avg_sq");
  mean = betas[0] * mean + (1 - betas[0]) * gradient;
  square = betas[1] * square + (1 - betas[1]) * gradient * gradient;
  at::Tensor largest = square;
  if (flag("amsgrad")) largest = state("max_exp_avg_sq") = at::maximum(state("max_exp_avg_sq"), square);
  const at::Tensor scale = largest.sqrt() / std::sqrt(1 - std::pow(betas[1], steps_)) + option("eps", 1e-8);
  value_ = value_ - lr / (1 - std::pow(betas[0], steps_)) * mean / scale;
}

void ReferenceOptimizer::rmsprop(const at::Tensor& gradient, double lr) {
  const double alpha = option("alpha", 0.99), momentum = option("momentum", 0);
  at::Tensor& square = state("square_avg");
  square = alpha * square + (1 - alpha) * gradient * gradient;
  at::Tensor spread = square;
  if (flag("centered")) {
    at::Tensor& mean = state("grad_avg");
    mean = alpha * mean + (1 - alpha) * gradient;
    spread = square - mean * mean;
  }
  at::Tensor direction = gradient / (spread.sqrt() + option("eps", 1e-8));
  if (momentum != 0) direction = state("momentum_buffer") = momentum * state("momentum_buffer") + direction;
  value_ = value_ - lr * direction;
}

void ReferenceOptimizer::adagrad(const at::Tensor& gradient, double lr) {
  at::Tensor& sum = state("sum");
  if (steps_ == 1) sum = sum + option("initial_accumulator_value", 0);
  sum = sum + gradient * gradient;
  const double rate = lr / (1 + (steps_ - 1) * option("lr_decay", 0));
  value_ = value_ - rate * gradient / (sum.sqrt() + option("eps", 1e-10));
}

}  // namespace composer::replay
