// Writes what tests/interop/callback_files.py reads with the programs of others:
//   composer_callback_interop mlperf FOLDER        a run's results for MLPerf
//   composer_callback_interop torchscript FOLDER   net.pt and net.safetensors; input, logits and features of
//   io.safetensors composer_callback_interop trace FOLDER         a profiler's trace, ep0-ba4-rank0.json
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/export_for_inference.h"
#include "composer/callbacks/mlperf_callback.h"
#include "composer/callbacks/profiler.h"
#include "composer/formats/safetensors.h"
#include "tests/support/tiny.h"

namespace {

using namespace composer;
namespace fs = std::filesystem;
namespace nn = torch::nn;

void write_mlperf(const fs::path& folder) {
  TrainerOptions options = test::tiny_options();
  options.eval_dataloader = test::tiny_loader(6, 4);
  options.max_duration = "3ep";
  options.callbacks.add(callbacks::MLPerfCallback({.root_folder = folder.string(),
                                                   .index = 0,
                                                   .target = -1,
                                                   .submitter = "libcomposer",
                                                   .cache_clear_cmd = "true",
                                                   .exit_at_target = true}));
  Trainer(std::move(options)).fit();
}

struct Net final : Model {
  Net() {
    register_module("body", body);
    register_module("head", head);
  }
  Outputs forward(const Batch& batch) override {
    const at::Tensor features = body->forward(batch.at("input")).relu().flatten(1);
    return {{"logits", head(features)}, {"features", features}};
  }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.at("logits").square().mean(); }
  nn::Sequential body{nn::Conv2d(1, 2, 3), nn::BatchNorm2d(2)};
  nn::Linear head{8, 3};
};

void write_torch_script(const fs::path& folder) {
  const Batch samples = {{"input", at::sin(at::arange(8 * 16, at::kFloat)).view({8, 1, 4, 4})}};
  const auto model = std::make_shared<Net>();
  TrainerOptions options = test::tiny_options();
  options.model = model;
  options.train_dataloader = data::in_memory(samples, {.batch_size = 4, .shuffle = false});
  using callbacks::ExportForInferenceCallback, callbacks::ExportFormat;
  options.callbacks.add(ExportForInferenceCallback({.save_path = (folder / "net.pt").string()}));
  options.callbacks.add(ExportForInferenceCallback(
      {.save_format = ExportFormat::SAFETENSORS, .save_path = (folder / "net.safetensors").string()}));
  Trainer(std::move(options)).fit();
  model->eval();
  const at::NoGradGuard no_grad;
  const Outputs outputs = model->forward(samples);
  formats::save_safetensors(
      folder / "io.safetensors",
      {{"input", samples.at("input")}, {"logits", outputs.at("logits")}, {"features", outputs.at("features")}});
}

void write_trace(const fs::path& folder) {
  TrainerOptions options = test::tiny_options();
  options.callbacks.add(
      callbacks::Profiler({.warmup = 1, .active = 3, .folder = folder.string(), .overwrite = true, .print = false}));
  Trainer(std::move(options)).fit();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  try {
    if (what == "mlperf")
      write_mlperf(argv[2]);
    else if (what == "torchscript")
      write_torch_script(argv[2]);
    else if (what == "trace")
      write_trace(argv[2]);
    else
      std::cerr << "usage: composer_callback_interop mlperf|torchscript|trace FOLDER\n";
    return argc == 3 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << composer::describe(error) << '\n';
    return 1;
  }
}
