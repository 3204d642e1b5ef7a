#include "composer/step/computation.h"

#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/util/autocast.h"

namespace composer {
namespace {

// Adds advice to libtorch's error, which does not know where samples come from.
void throw_if_too_few(const c10::Error& error, const Batch& batch) {
  if (std::string_view(error.what()).find("Expected more than 1 value per channel") == std::string_view::npos) return;
  throw_nested<DataError>(
      "the model has a batch norm, which cannot train on ", batch.front().sizes(), ", a single sample; ",
      "set drop_last of the loader, or another batch_size or device_train_microbatch_size, so that ",
      "no batch ends with one sample");
}

[[noreturn]] void throw_without_gradient(const Losses& losses) {
  throw ConfigError("Model::loss: no gradient flows from ", listed(losses, [](const auto& item) { return item.first; }),
                    " to any parameter; was it detached or computed ",
                    "under a NoGradGuard, or does no parameter that it depends on require gradients?");
}

}  // namespace

void EagerComputation::forward(const LossWeight&) {
  const AutocastScope autocast(state_.precision, state_.device);
  try {
    state_.outputs = forward_of(*state_.model, state_.batch);
  } catch (const c10::Error& error) {
    throw_if_too_few(error, state_.batch);
    throw;
  }
}

void EagerComputation::loss() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.loss = loss_of(*state_.model, state_.outputs, state_.batch);
  if (state_.loss.empty()) throw ConfigError("Model::loss gave no loss");
  for (const auto& [name, loss] : state_.loss)
    if (!loss.defined()) throw ConfigError("Model::loss: ", name, " is an undefined tensor");
}

void EagerComputation::backward(const at::Tensor& total, const LossWeight& share) {
  if (!total.requires_grad()) throw_without_gradient(state_.loss);
  scaling_.scale(share.times(total)).backward();
}

}  // namespace composer
