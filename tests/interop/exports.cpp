// Writes what tests/interop/exports.py reads with onnxruntime and PyTorch's Python: for each ready model, and for
// layers that they do not have, NAME.onnx, NAME.pt, and inputs and outputs in NAME.safetensors.
//   composer_export_interop FOLDER
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include "composer/core/error.h"
#include "composer/formats/safetensors.h"
#include "composer/models/regressor.h"
#include "composer/predict/export.h"
#include "tests/predict/support.h"

namespace {

using namespace composer;
namespace fs = std::filesystem;
namespace nn = torch::nn;

// The example of the export has one sample less, and dynamic sizes one less, than what is compared.
void write(const fs::path& folder, const std::string& name, Model& model, const Batch& batch,
           const std::map<std::string, std::vector<std::int64_t>>& dynamic) {
  const at::NoGradGuard no_grad;
  model.eval();
  Batch example;
  for (const auto& [key, tensor] : batch) {
    at::Tensor less = tensor.narrow(0, 0, tensor.size(0) - 1);
    if (const auto more = dynamic.find(key); more != dynamic.end())
      for (const std::int64_t dimension : more->second) less = less.narrow(dimension, 0, less.size(dimension) - 1);
    example.set(key, less);
  }
  formats::NamedTensors tensors;
  for (const auto& [key, tensor] : batch) tensors.emplace_back("input." + key, tensor);
  for (const auto& [key, tensor] : model.forward(batch)) tensors.emplace_back("output." + key, tensor.contiguous());
  const Exported made = export_onnx(model, example, folder / (name + ".onnx"), {.dynamic = dynamic});
  if (!made.any_batch_size) throw Error(name, " has one batch size");
  export_torchscript(model, example, folder / (name + ".pt"), {.inputs = made.inputs, .dynamic = dynamic});
  std::string order;
  for (const std::string& input : made.inputs) order += (order.empty() ? "" : " ") + input;
  formats::save_safetensors(folder / (name + ".safetensors"), tensors, {{"inputs", order}});
}

// A module of one function.
struct Of final : nn::Module {
  explicit Of(std::function<at::Tensor(const at::Tensor&)> given) : function(std::move(given)) {}
  at::Tensor forward(const at::Tensor& x) { return function(x); }
  std::function<at::Tensor(const at::Tensor&)> function;
};

std::shared_ptr<Model> of(const std::function<at::Tensor(const at::Tensor&)>& function) {
  return std::make_shared<models::Regressor>(std::make_shared<Of>(function));
}

void write_layers(const fs::path& folder) {
  at::manual_seed(5);
  const at::Tensor images = test::waves({3, 4, 9, 8}), rows = test::waves({4, 6}), series = test::waves({3, 4, 11});
  const auto sequential = [&](const std::string& name, const nn::Sequential& net, const at::Tensor& input) {
    models::Regressor model(net);
    write(folder, name, model, input, {});
  };
  sequential("convolutions",
             nn::Sequential(nn::Conv2d(nn::Conv2dOptions(4, 8, {3, 2}).stride(2).padding({1, 0}).groups(2)), nn::SiLU(),
                            nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 4, 3).stride(2).output_padding(1)),
                            nn::GroupNorm(nn::GroupNormOptions(2, 4)), nn::Mish(),
                            nn::AvgPool2d(nn::AvgPool2dOptions(2).padding(1)), nn::AdaptiveAvgPool2d(1), nn::Flatten()),
             images);
  sequential("series",
             nn::Sequential(nn::Conv1d(nn::Conv1dOptions(4, 6, 3).dilation(2)), nn::BatchNorm1d(6), nn::ELU(),
                            nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2).ceil_mode(true)),
                            nn::AvgPool1d(nn::AvgPool1dOptions(2)), nn::Softmax(1)),
             series);
  sequential("activations",
             nn::Sequential(nn::Linear(nn::LinearOptions(6, 8).bias(false)), nn::LeakyReLU(), nn::Hardtanh(),
                            nn::ReLU6(), nn::LayerNorm(nn::LayerNormOptions({8}).elementwise_affine(false)), nn::GELU(),
                            nn::Dropout(0.5), nn::Softplus(), nn::Sigmoid(), nn::LogSoftmax(1)),
             rows);
  const auto function = [&](const std::string& name, const std::function<at::Tensor(const at::Tensor&)>& call,
                            const at::Tensor& input) { write(folder, name, *of(call), input, {}); };
  function(
      "arithmetic",
      [](const at::Tensor& x) {
        const at::Tensor y = at::add(x, x.abs(), 2) / 3 - 1 + at::rsub(x, 4) * x.square().clamp(0.1, 0.5);
        return at::where(x > 0, y.pow(2).add_(1).rsqrt(), -y.exp()).masked_fill(x.le(-0.9), 7) +
               x.gt(0).to(at::kFloat) + at::arange(6, at::kFloat) + x.logical_not().to(at::kFloat);
      },
      rows);
  function(
      "shapes",
      [order = at::tensor({2, 0}, at::kLong)](const at::Tensor& x) {
        const std::vector<at::Tensor> parts = x.transpose(1, -1).chunk(2, 1), all = parts[0].unbind(1);
        const at::Tensor y = at::stack({all[0], all[1]}, -1).unsqueeze(1).squeeze(1).permute({0, 2, 1});
        const at::Tensor z = at::cat({y, y.slice(1, 0, 1)}, 1).repeat({1, 1, 2});
        return z.flatten(1).unflatten(1, {-1, 2}).select(2, 1).index_select(1, order) + x.flatten(1).amax(1, true) +
               x.mean({1, 2}, true).flatten(1) + x.sum({-1}).narrow(1, 1, 1) + x.flatten(1).argmax(1, true);
      },
      series);
  function(
      "attention",
      [](const at::Tensor& x) {
        const at::Tensor bias = at::ones({11, 11}).triu(1) * -3;
        return at::scaled_dot_product_attention(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), bias, 0, false, 0.3);
      },
      test::waves({3, 11, 5}));
  write(folder, "any_length", *of([](const at::Tensor& x) {
          return x.unflatten(1, {2, -1}).mean(2).flatten(0, 1).unflatten(0, {-1, 2});
        }),
        test::waves({3, 4, 6, 2}), {{"input", {2}}});
  function(
      "whole_numbers",
      [bounds = at::tensor({0.5F, 1.5F, 2.5F, 3.F, 4.F, 5.F})](const at::Tensor& x) {
        return x.lt(0.5).to(at::kFloat) + x.ne(bounds).to(at::kFloat) * 2 + x.clamp(0.5, 3);
      },
      at::arange(24, at::kLong).view({4, 6}).remainder(5));
  function(
      "padded",
      [](const at::Tensor& x) {
        return at::constant_pad_nd(x, {1, 2, 0, 3}, 0.5);
      },
      images);
}

void write_all(const fs::path& folder) {
  for (const test::SmallModel& small : test::small_models())
    write(folder, small.name, *small.make(), small.batch, small.dynamic);
  write_layers(folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: composer_export_interop FOLDER\n";
    return 2;
  }
  try {
    write_all(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << composer::describe(error) << '\n';
    return 1;
  }
}
