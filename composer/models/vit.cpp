#include "composer/models/vit.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/models/ready.h"
#include "composer/surgery/layer.h"

namespace composer::models {
namespace {

using torch::nn::Dropout;
using torch::nn::Linear;

torch::nn::LayerNorm vit_layer_norm(std::int64_t width) {
  constexpr double kEps = 1e-6;
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kEps));
}

class VitSelfAttention final : public torch::nn::Module {
 public:
  explicit VitSelfAttention(const VitOptions& options)
      : heads_(options.heads),
        dropout_(options.attention_dropout),
        in_proj_weight_(register_parameter("in_proj_weight", at::empty({3 * options.width, options.width}))),
        in_proj_bias_(register_parameter("in_proj_bias", at::zeros({3 * options.width}))),
        out_proj_(this, "out_proj", Linear(options.width, options.width)) {
    torch::nn::init::xavier_uniform_(in_proj_weight_);
    torch::nn::init::zeros_(out_proj_->get<Linear>()->bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor all = at::linear(x, in_proj_weight_, in_proj_bias_).unflatten(2, {3, heads_, x.size(2) / heads_});
    const at::Tensor parts = all.permute({2, 0, 3, 1, 4});
    const at::Tensor y =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, is_training() ? dropout_ : 0);
    return out_proj_(y.transpose(1, 2).flatten(2));
  }

 private:
  std::int64_t heads_;
  double dropout_;
  at::Tensor in_proj_weight_, in_proj_bias_;
  Layer out_proj_;
};

torch::nn::Sequential feed_forward(std::int64_t width, std::int64_t inner, double dropout) {
  constexpr double kBiasStddev = 1e-6;
  const Linear in(width, inner), out(inner, width);
  for (const Linear& linear : {in, out}) {
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::normal_(linear->bias, 0, kBiasStddev);
  }
  return torch::nn::Sequential(Layer(in), Layer(torch::nn::GELU()), Layer(Dropout(dropout)), Layer(out),
                               Layer(Dropout(dropout)));
}

class VitBlock final : public torch::nn::Module {
 public:
  VitBlock(const VitOptions& options, std::int64_t inner)
      : ln_1_(this, "ln_1", vit_layer_norm(options.width)),
        self_attention_(this, "self_attention", std::make_shared<VitSelfAttention>(options)),
        dropout_(this, "dropout", Dropout(options.dropout)),
        ln_2_(this, "ln_2", vit_layer_norm(options.width)),
        mlp_(this, "mlp", feed_forward(options.width, inner, options.dropout)) {}

  at::Tensor forward(at::Tensor x) {
    x = x + dropout_(self_attention_(ln_1_(x)));
    return x + mlp_(ln_2_(x));
  }

 private:
  Layer ln_1_, self_attention_, dropout_, ln_2_, mlp_;
};

class VitEncoder final : public torch::nn::Module {
 public:
  VitEncoder(const VitOptions& options, std::int64_t patches, std::int64_t inner)
      : pos_embedding_(register_parameter("pos_embedding", at::empty({1, patches + 1, options.width}))),
        dropout_(this, "dropout", Dropout(options.dropout)) {
    constexpr double kStddev = 0.02;
    torch::nn::init::normal_(pos_embedding_, 0, kStddev);
    torch::nn::Sequential layers;
    for (std::int64_t i = 0; i < options.depth; ++i) {
      blocks_.emplace_back(std::make_shared<VitBlock>(options, inner));
      layers->push_back("encoder_layer_" + std::to_string(i), blocks_.back());
    }
    register_module("layers", layers);
    ln_ = Layer(this, "ln", vit_layer_norm(options.width));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = dropout_(tokens + pos_embedding_);
    for (const Layer& block : blocks_) x = block(x);
    return ln_(x);
  }

 private:
  at::Tensor pos_embedding_;
  Layer dropout_;
  std::vector<Layer> blocks_;
  Layer ln_;
};

class Vit final : public torch::nn::Module {
 public:
  Vit(const VitOptions& options, std::int64_t inner)
      : image_size_(options.image_size),
        conv_proj_(this, "conv_proj",
                   torch::nn::Conv2d(torch::nn::Conv2dOptions(options.in_channels, options.width, options.patch_size)
                                         .stride(options.patch_size))) {
    const std::int64_t side = options.image_size / options.patch_size;
    encoder_ = Layer(this, "encoder", std::make_shared<VitEncoder>(options, side * side, inner));
    class_token_ = register_parameter("class_token", at::zeros({1, 1, options.width}));
    const Linear head(options.width, options.num_classes);
    torch::nn::Sequential heads;
    heads->push_back("head", Layer(head));
    heads_ = Layer(this, "heads", heads);
    const auto projection = conv_proj_->get<torch::nn::Conv2d>();
    const auto fan_in = static_cast<double>(options.in_channels * options.patch_size * options.patch_size);
    // torchvision truncates at +-2, which these numbers never reach.
    torch::nn::init::normal_(projection->weight, 0, std::sqrt(1 / fan_in));
    torch::nn::init::zeros_(projection->bias);
    torch::nn::init::zeros_(head->weight);
    torch::nn::init::zeros_(head->bias);
  }

  at::Tensor forward(const at::Tensor& images) {
    if (images.dim() != 4 || images.size(2) != image_size_ || images.size(3) != image_size_)
      throw DataError("vit: expected images [N, C, ", image_size_, ", ", image_size_, "], got ", images.sizes());
    const at::Tensor patches = conv_proj_(images).flatten(2).transpose(1, 2);
    // One for each image, without their number, which a recording of the operators would keep.
    const at::Tensor class_tokens = class_token_.expand_as(patches.narrow(1, 0, 1));
    const at::Tensor x = encoder_(at::cat({class_tokens, patches}, 1));
    return heads_(x.select(1, 0));
  }

 private:
  std::int64_t image_size_;
  Layer conv_proj_, encoder_, heads_;
  at::Tensor class_token_;
};

std::vector<Option<VitOptions>> vit_options() {
  using O = VitOptions;
  return all_options(option("image_size", &O::image_size).at_least(1), option("patch_size", &O::patch_size).at_least(1),
                     option("num_classes", &O::num_classes).at_least(1),
                     option("in_channels", &O::in_channels).at_least(1), option("width", &O::width).at_least(1),
                     option("depth", &O::depth).at_least(1), option("heads", &O::heads).at_least(1),
                     option("mlp_width", &O::mlp_width).at_least(0), option("dropout", &O::dropout).from_0_below_1(),
                     option("attention_dropout", &O::attention_dropout).from_0_below_1());
}

}  // namespace

std::shared_ptr<Classifier> vit(VitOptions options) {
  const auto described = vit_options();
  check(options, described, "vit: ", "");
  const std::int64_t width = options.width, heads = options.heads, mlp_width = options.mlp_width;
  if (options.image_size % options.patch_size != 0)
    throw ConfigError("vit: image_size must be a multiple of patch_size (", options.patch_size, "), got ",
                      options.image_size);
  if (width % heads != 0) throw ConfigError("vit: width must be a multiple of heads (", heads, "), got ", width);
  return std::make_shared<Classifier>(
      std::make_shared<Vit>(options, mlp_width == 0 ? 4 * width : mlp_width),
      ClassifierOptions{
          .num_classes = options.num_classes, .hyperparameters = describe(options, described), .ready = "vit"});
}

namespace entries {

Entry<ReadyModel> vit() { return ready_model("vit", "A vision transformer", vit_options(), models::vit); }

}  // namespace entries

}  // namespace composer::models
