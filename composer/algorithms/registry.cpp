#include "composer/algorithms/registry.h"

namespace composer::algorithms {

// Each entry is defined beside its class.
namespace entries {
Entry<Algorithms> alibi();
Entry<Algorithms> augmix();
Entry<Algorithms> blurpool();
Entry<Algorithms> channels_last();
Entry<Algorithms> colout();
Entry<Algorithms> cutmix();
Entry<Algorithms> cutout();
Entry<Algorithms> ema();
Entry<Algorithms> factorize();
Entry<Algorithms> free_outputs();
Entry<Algorithms> freeze_until();
Entry<Algorithms> gated_linear_units();
Entry<Algorithms> ghost_batchnorm();
Entry<Algorithms> gradient_clipping();
Entry<Algorithms> gyro_dropout();
Entry<Algorithms> label_smoothing();
Entry<Algorithms> layer_freezing();
Entry<Algorithms> low_precision_groupnorm();
Entry<Algorithms> low_precision_layernorm();
Entry<Algorithms> mixup();
Entry<Algorithms> no_op_model();
Entry<Algorithms> progressive_resizing();
Entry<Algorithms> randaugment();
Entry<Algorithms> sam();
Entry<Algorithms> selective_backprop();
Entry<Algorithms> seq_length_warmup();
Entry<Algorithms> squeeze_excite();
Entry<Algorithms> stochastic_depth();
Entry<Algorithms> swa();
Entry<Algorithms> weight_standardization();
}  // namespace entries

const Registry<Algorithms>& registry() {
  // clang-format off
  static const Registry<Algorithms> entries = {
      entries::alibi(),
      entries::augmix(),
      entries::blurpool(),
      entries::channels_last(),
      entries::colout(),
      entries::cutmix(),
      entries::cutout(),
      entries::ema(),
      entries::factorize(),
      entries::free_outputs(),
      entries::freeze_until(),
      entries::gated_linear_units(),
      entries::ghost_batchnorm(),
      entries::gradient_clipping(),
      entries::gyro_dropout(),
      entries::label_smoothing(),
      entries::layer_freezing(),
      entries::low_precision_groupnorm(),
      entries::low_precision_layernorm(),
      entries::mixup(),
      entries::no_op_model(),
      entries::progressive_resizing(),
      entries::randaugment(),
      entries::sam(),
      entries::selective_backprop(),
      entries::seq_length_warmup(),
      entries::squeeze_excite(),
      entries::stochastic_depth(),
      entries::swa(),
      entries::weight_standardization(),
  };
  // clang-format on
  return entries;
}

}  // namespace composer::algorithms
