#include "tests/property/reference.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"

namespace composer::property {
namespace {

at::Tensor as_tensor(const Ids& ids) { return at::tensor(ids, at::kLong); }

// What plain gradient descent with momentum does to one weight.
struct Descent {
  double momentum;
  void step(double& weight, double& velocity, double gradient) const {
    velocity = momentum * velocity + gradient;
    weight -= kLr * velocity;
  }
};

// The mean of a number for each microbatch, of a stream of which there is one for each.
double mean_draw(const Setup& setup, std::size_t samples, at::Generator& generator) {
  const auto all = static_cast<double>(samples);
  const std::size_t part = setup.microbatch ? static_cast<std::size_t>(setup.microbatch) : samples;
  double mean = 0;
  for (std::size_t from = 0; from < samples; from += part) {
    const double number = at::rand({}, generator, at::kDouble).item<double>();
    mean += number * static_cast<double>(std::min(part, samples - from)) / all;
  }
  return mean;
}

}  // namespace

std::string to_string(const Ids& ids) {
  std::string text;
  for (int id : ids) text += join(text.empty() ? "" : " ", id);
  return text.empty() ? "none" : text;
}

int mask_of(const Setup& setup, int id) { return setup.masked && id < kGivenIds && id % 4 < 2 ? 0 : 1; }

Batch make_batch(const Setup& setup, const Ids& ids) {
  std::vector<double> mask;
  for (int id : ids) mask.push_back(mask_of(setup, id));
  return {{"id", as_tensor(ids)}, {"mask", at::tensor(mask, at::kDouble)}};
}

Ids ids_of(const Batch& batch) {
  Ids ids;
  const at::Tensor tensor = batch["id"].contiguous();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) ids.push_back(static_cast<int>(tensor.data_ptr<std::int64_t>()[i]));
  return ids;
}

std::shared_ptr<Loader> make_loader(const Setup& setup) {
  Ids ids;
  for (int i = 0; i < setup.samples; ++i) ids.push_back(i);
  return data::in_memory(make_batch(setup, ids),
                         {.batch_size = setup.batch, .shuffle = setup.shuffle != 0, .prefetch = setup.prefetch});
}

Places::Places(const Setup& setup) : per_epoch_((setup.samples + setup.batch - 1) / setup.batch) {
  Setup plain = setup;
  plain.prefetch = 0;
  loader_ = make_loader(plain);
}

const Ids& Places::at(std::int64_t index) {
  const std::int64_t epoch = index / per_epoch_;
  std::vector<Ids>& batches = epochs_[epoch];
  if (batches.empty()) {
    loader_->seek(epoch, 0);
    while (const auto batch = loader_->next()) batches.push_back(ids_of(*batch));
  }
  return batches.at(static_cast<std::size_t>(index % per_epoch_));
}

double Weights::mean_output(const Ids& ids, double factor) const {
  double sum = 0;
  for (int id : ids) sum += output(id) * factor;
  return sum / static_cast<double>(ids.size());
}

Weights train(const Setup& setup, const History& history) {
  Weights weights, velocity;
  const Descent descent{setup.momentum ? 0.5 : 0.0};
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  for (const auto& [ids, given] : history) {
    double all = 0;
    for (int id : ids) all += mask_of(setup, id);
    std::array<double, kIds> gradient{};
    double order = 0;
    for (int id : ids) {
      const double share = mask_of(setup, id) / all;
      gradient.at(static_cast<std::size_t>(id)) += share;
      order += share * (weights.order - id);
    }
    for (std::size_t i = 0; i < kIds; ++i) descent.step(weights.count.at(i), velocity.count.at(i), gradient.at(i));
    descent.step(weights.order, velocity.order, order);
    if (setup.draws) descent.step(weights.noise, velocity.noise, mean_draw(setup, ids.size(), generator));
  }
  return weights;
}

std::string difference(const Weights& are, const Weights& should) {
  std::string text;
  const auto compare = [&](const std::string& name, double is, double expected) {
    if (std::abs(is - expected) <= 1e-9 * (1 + std::abs(expected))) return;
    text += join(text.empty() ? "" : ", ", name, " is ", is, " and not ", expected);
  };
  for (std::size_t i = 0; i < kIds; ++i) compare(join("that of sample ", i), are.count.at(i), should.count.at(i));
  compare("that of the order", are.order, should.order);
  compare("that of random numbers", are.noise, should.noise);
  return text;
}

}  // namespace composer::property
