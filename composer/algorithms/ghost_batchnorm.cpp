#include "composer/algorithms/ghost_batchnorm.h"

#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

// Changes the momentum of a batch norm while it lives.
class MomentumScope {
 public:
  MomentumScope(nn::BatchNormOptions& options, double momentum) : options_(options), before_(options.momentum()) {
    options_.momentum(momentum);
  }
  ~MomentumScope() { options_.momentum(before_); }
  MomentumScope(const MomentumScope&) = delete;
  MomentumScope& operator=(const MomentumScope&) = delete;

 private:
  nn::BatchNormOptions& options_;
  std::optional<double> before_;
};

template <class Norm>
struct InGhostBatches final : nn::Module {
  InGhostBatches(const Layer& place, std::int64_t samples)
      : size(samples), norm(std::dynamic_pointer_cast<Norm>(place->module())), batchnorm(place.lift()) {
    register_module("batchnorm", batchnorm.ptr());
  }
  at::Tensor forward(const at::Tensor& x) {
    if (!is_training()) return batchnorm(x);
    const std::int64_t samples = x.size(0), parts = (samples + size - 1) / size;
    if (samples < size)
      throw DataError("GhostBatchNorm: a microbatch has ", samples, " samples, and ghost_batch_size is ", size);
    if (parts == 1) return batchnorm(x);
    const MomentumScope scope(norm->options, *norm->options.momentum() / static_cast<double>(parts));
    std::vector<at::Tensor> normalised;
    for (const at::Tensor& part : x.chunk(parts)) normalised.push_back(batchnorm(part));
    return at::cat(normalised);
  }
  void pretty_print(std::ostream& stream) const override {
    stream << "composer::GhostBatchNorm(ghost_batch_size=" << size << ")";
  }

  std::int64_t size;
  std::shared_ptr<Norm> norm;
  Layer batchnorm;
};

// Returns the replacement of a batch norm; a null Layer if the place holds another module.
template <class Norm>
Layer in_ghost_batches(const std::string& name, const Layer& place, std::int64_t size) {
  const auto* norm = place->as<Norm>();
  if (!norm) return {};
  if (!norm->options.momentum())
    throw ConfigError("GhostBatchNorm: ", name, " has no momentum; averages over all batches are not supported");
  return std::make_shared<InGhostBatches<Norm>>(place, size);
}

std::vector<Option<GhostBatchNormOptions>> ghost_batchnorm_options() {
  return all_options(
      option("ghost_batch_size", &GhostBatchNormOptions::ghost_batch_size).at_least(1).worded("be at least 1"));
}

}  // namespace

Replacements ghost_batchnorm(nn::Module& model, const GhostBatchNormOptions& options) {
  check(options, ghost_batchnorm_options(), "GhostBatchNorm: ", "");
  const std::int64_t size = options.ghost_batch_size;
  return replace_modules<InGhostBatches<nn::BatchNorm1dImpl>, InGhostBatches<nn::BatchNorm2dImpl>,
                         InGhostBatches<nn::BatchNorm3dImpl>>(
      model, [size](const std::string& name, const Layer& place) -> Layer {
        if (Layer made = in_ghost_batches<nn::BatchNorm1dImpl>(name, place, size)) return made;
        if (Layer made = in_ghost_batches<nn::BatchNorm2dImpl>(name, place, size)) return made;
        return in_ghost_batches<nn::BatchNorm3dImpl>(name, place, size);
      });
}

GhostBatchNorm::GhostBatchNorm(GhostBatchNormOptions options)
    : SurgeryAlgorithm("GhostBatchNorm"), options_(checked("GhostBatchNorm", options, ghost_batchnorm_options())) {}

Replacements GhostBatchNorm::operate(State& state) const { return ghost_batchnorm(*state.model, options_); }

void GhostBatchNorm::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"GhostBatchNorm/num_new_modules", static_cast<std::int64_t>(done.made.size())}});
}

std::string GhostBatchNorm::nothing_found() const { return "no batch norm"; }

StateDict GhostBatchNorm::local_hparams() const { return describe(options_, ghost_batchnorm_options()); }

namespace entries {

Entry<Algorithms> ghost_batchnorm() {
  return entry<GhostBatchNorm>("ghost_batchnorm", "Normalises parts of a batch by themselves",
                               ghost_batchnorm_options());
}

}  // namespace entries
}  // namespace composer::algorithms
