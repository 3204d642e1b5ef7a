#include "composer/algorithms/blurpool.h"

#include <memory>
#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

at::Tensor default_filter() {
  return at::tensor({1.F, 2.F, 1.F, 2.F, 4.F, 2.F, 1.F, 2.F, 1.F}).div_(16).view({1, 1, 3, 3});
}

at::Tensor blur(const at::Tensor& input, at::IntArrayRef stride, const at::Tensor& filter) {
  const std::int64_t channels = input.size(1);
  const at::Tensor of_channels =
      filter.size(0) == channels ? filter : filter.expand({channels, 1, filter.size(2), filter.size(3)});
  return at::conv2d(input, of_channels, {}, stride, {filter.size(2) / 2, filter.size(3) / 2}, 1, channels);
}

bool is_strided(const nn::Conv2dImpl& conv) {
  const at::ArrayRef<std::int64_t> stride(*conv.options.stride());
  return stride[0] > 1 || stride[1] > 1;
}

struct BlurConv2d final : nn::Module {
  BlurConv2d(const Layer& place, bool first)
      : blur_first(first), stride(*place->as<nn::Conv2dImpl>()->options.stride()) {
    blur_filter = register_buffer("blur_filter", default_filter());
    if (first) {
      conv = place.lift();
    } else {  // the new layer has the same tensors
      const auto dense = std::make_shared<nn::Conv2dImpl>(*place->as<nn::Conv2dImpl>());
      dense->options.stride(1);
      conv = Layer(dense);
    }
    register_module("conv", conv.ptr());
  }
  at::Tensor forward(const at::Tensor& x) {
    return blur_first ? conv(blur(x, {1, 1}, blur_filter)) : blur(conv(x), stride, blur_filter);
  }
  void pretty_print(std::ostream& stream) const override {
    stream << "composer::BlurConv2d(blur_first=" << (blur_first ? "true" : "false") << ")";
  }

  bool blur_first;
  torch::ExpandingArray<2> stride;
  at::Tensor blur_filter;
  Layer conv;
};

struct BlurMaxPool2d final : nn::Module {
  explicit BlurMaxPool2d(nn::MaxPool2dOptions of_pool) : options(std::move(of_pool)) {
    filt2d = register_buffer("filt2d", default_filter());
  }
  at::Tensor forward(const at::Tensor& x) const {
    return blur(
        at::max_pool2d(x, *options.kernel_size(), 1, *options.padding(), *options.dilation(), options.ceil_mode()),
        *options.stride(), filt2d);
  }
  void pretty_print(std::ostream& stream) const override {
    stream << "composer::BlurMaxPool2d(kernel_size=" << at::IntArrayRef(*options.kernel_size())
           << ", stride=" << at::IntArrayRef(*options.stride()) << ")";
  }

  nn::MaxPool2dOptions options;
  at::Tensor filt2d;
};

std::vector<Option<BlurPoolOptions>> blurpool_options() {
  using O = BlurPoolOptions;
  return all_options(option("replace_convs", &O::replace_convs), option("replace_maxpools", &O::replace_maxpools),
                     option("blur_first", &O::blur_first),
                     option("min_channels", &O::min_channels).at_least(1).worded("be at least 1"));
}

void check_blurpool(const BlurPoolOptions& options) {
  if (!options.replace_convs && !options.replace_maxpools)
    throw ConfigError("BlurPool: replace_convs and replace_maxpools are both false; nothing would be replaced");
  check(options, blurpool_options(), "BlurPool: ", "");
}

template <class Made>
std::int64_t count_blurred(const Replacements& done) {
  std::int64_t number = 0;
  for (const Replacement& one : done.made) number += one.place->as<Made>() ? 1 : 0;
  return number;
}

}  // namespace

at::Tensor blur_2d(const at::Tensor& input, at::IntArrayRef stride, const at::Tensor& filter) {
  return blur(input, stride, (filter.defined() ? filter : default_filter()).to(input.options()));
}

Replacements blurpool(nn::Module& model, const BlurPoolOptions& options) {
  check_blurpool(options);
  return replace_modules<BlurConv2d, BlurMaxPool2d>(model, [&](const std::string&, const Layer& place) -> Layer {
    if (const auto* pool = place->as<nn::MaxPool2dImpl>())
      return options.replace_maxpools ? Layer(std::make_shared<BlurMaxPool2d>(pool->options)) : Layer();
    const auto* conv = place->as<nn::Conv2dImpl>();
    if (!conv || !options.replace_convs || conv->options.in_channels() < options.min_channels || !is_strided(*conv))
      return {};
    return std::make_shared<BlurConv2d>(place, options.blur_first);
  });
}

BlurPool::BlurPool(BlurPoolOptions options) : SurgeryAlgorithm("BlurPool"), options_(options) {
  check_blurpool(options_);
}

Replacements BlurPool::operate(State& state) const { return blurpool(*state.model, options_); }

void BlurPool::log(const Replacements& done, Logger& logger) const {
  logger.log_hyperparameters({{"blurpool/num_blurpool_layers", count_blurred<BlurMaxPool2d>(done)},
                              {"blurpool/num_blurconv_layers", count_blurred<BlurConv2d>(done)}});
}

std::string BlurPool::nothing_found() const {
  return join(options_.replace_maxpools ? "no max-pool" : "",
              options_.replace_maxpools && options_.replace_convs ? " and " : "",
              options_.replace_convs
                  ? join("no convolution with a stride above 1 and ", options_.min_channels, " or more input channels")
                  : std::string());
}

StateDict BlurPool::local_hparams() const { return describe(options_, blurpool_options()); }

namespace entries {

Entry<Algorithms> blurpool() {
  return entry<BlurPool>("blurpool", "Blurs before images are subsampled", blurpool_options());
}

}  // namespace entries
}  // namespace composer::algorithms
