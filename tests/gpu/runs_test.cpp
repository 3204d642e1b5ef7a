// Whole runs on a GPU, against those on the CPU.
#include <thread>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/models/classifier.h"
#include "tests/gpu/gpu.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_runs_test {
namespace {

// Dropout draws from the trainer's generator on the GPU.
std::shared_ptr<Model> net_with_dropout() {
  const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 64), torch::nn::ReLU(),
                                  torch::nn::Dropout(0.3), torch::nn::Linear(64, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions with_dropout(double lr) {
  TrainerOptions options = options_of(nets().front(), kGpu);
  options.model = net_with_dropout();
  options.optimizer = optim::sgd({.lr = lr, .momentum = 0.9});
  return options;
}

TEST_CASE("A run that is tuned on a GPU ends with the weights of one that is not" * on_gpu()) {
  for (const Net& net : nets()) {
    const auto weights = [&](bool tune) {
      TrainerOptions options = options_of(net, kGpu);
      options.tune = tune;
      return trained(std::move(options));
    };
    check_close(net.name, weights(true), weights(false), 10 * net.tolerance);
  }
}

TEST_CASE("A loss on a GPU that is NaN at the end of a fit is told, one that was is not" * on_gpu()) {
  // The loss of that batch alone is NaN, and its gradients are 0.
  struct Sometimes final : models::Classifier {
    explicit Sometimes(int nan)
        : Classifier(torch::nn::Linear(64, 3), {.num_classes = 3, .train_metrics = Metrics()}), batch_of_nan(nan) {}
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      const Losses losses = Classifier::loss(outputs, batch);
      return batches++ == batch_of_nan ? Losses(losses.only().detach() * NAN + parameters()[0].sum() * 0) : losses;
    }
    int batches = 0, batch_of_nan;
  };
  const auto is_told = [](int batch_of_nan) {
    TrainerOptions options = options_of(nets().front(), kGpu);
    Batch data = nets().front().data();
    data.set("input", data["input"].flatten(1));
    options.model = std::make_shared<Sometimes>(batch_of_nan);
    options.train_dataloader = data::in_memory(data, {.batch_size = kBatchSize, .shuffle = false});
    options.eval_dataloader = {};
    options.max_duration = "1ep";
    const Warnings warnings;
    Trainer(std::move(options)).fit();
    return warnings.say("nothing was learnt");
  };
  CHECK(is_told(3));
  CHECK_FALSE(is_told(1));
}

TEST_CASE("A trainer without a device chooses the GPU if there is one" * on_gpu()) {
  TrainerOptions options = options_of(nets().front(), kGpu);
  options.device.reset();
  Trainer trainer(std::move(options));
  CHECK(trainer.state().device == at::Device(at::kCUDA, 0));  // with its number
  for (const at::Tensor& parameter : trainer.state().model->parameters()) CHECK(parameter.is_cuda());
}

TEST_CASE("A run on a GPU ends with the weights and metrics of the same run on the CPU" * on_gpu()) {
  for (const Net& net : nets()) {
    Trainer on_cpu(options_of(net, kCpu)), on_gpu(options_of(net, kGpu));
    on_cpu.fit();
    on_gpu.fit();
    check_close(net.name, weights_on_cpu(on_gpu), weights_on_cpu(on_cpu), net.tolerance);
    for (const auto& [label, values] : on_cpu.state().metrics.all())
      for (const auto& [name, reported] : values) {
        CAPTURE(name);
        const double expected = reported.value.item<double>(), got = on_gpu.state().metrics.at(label, name);
        // An accuracy is a multiple of one sample, and one sample may be on the border.
        CHECK(std::abs(got - expected) <= 1.01 / kBatchSize + net.tolerance * std::abs(expected));
      }
  }
}

TEST_CASE("Predictions on a GPU are on the CPU, and those of the CPU" * on_gpu()) {
  for (const Net& net : nets()) {
    const auto outputs_on = [&](at::Device device) {
      Trainer trainer(options_of(net, device));
      std::vector<at::Tensor> all;
      for (const Outputs& outputs : trainer.predict(data::in_memory(net.data(), {.batch_size = 10, .shuffle = false})))
        for (const auto& [name, output] : outputs) all.push_back(output);
      return all;
    };
    const std::vector<at::Tensor> got = outputs_on(kGpu);
    REQUIRE_FALSE(got.empty());
    for (const at::Tensor& output : got) CHECK(output.is_cpu());
    check_close(net.name, got, outputs_on(kCpu), 1e-4);
  }
}

TEST_CASE("The same run on a GPU with the same seed draws the same numbers, with another seed others" * on_gpu()) {
  const std::vector<at::Tensor> first = trained(with_dropout(0.05)), again = trained(with_dropout(0.05));
  check_close("the same seed", again, first, 1e-6);
  TrainerOptions other = with_dropout(0.05);
  other.seed = 8;
  CHECK(distance(trained(std::move(other)), first) > 1e-4);
}

TEST_CASE("Trainers in threads on one GPU end with the weights that each has alone" * on_gpu()) {
  const std::vector<double> rates = {0.1, 0.05, 0.02, 0.01};
  std::vector<std::vector<at::Tensor>> alone;
  std::vector<std::unique_ptr<Trainer>> together;
  for (const double lr : rates) alone.push_back(trained(with_dropout(lr)));
  for (const double lr : rates) together.push_back(std::make_unique<Trainer>(with_dropout(lr)));
  {
    std::vector<std::jthread> threads;
    for (const auto& trainer : together) threads.emplace_back([&trainer] { trainer->fit(); });
  }
  for (std::size_t i = 0; i < rates.size(); ++i)
    check_close("lr " + std::to_string(rates[i]), weights_on_cpu(*together[i]), alone[i], 1e-6);
}

TEST_CASE("With deterministic_mode a run on a GPU is repeated to the bit" * on_gpu()) {
  for (const Net& net : nets()) {
    const auto run = [&] {
      TrainerOptions options = options_of(net, kGpu);
      options.deterministic_mode = true;
      return trained(std::move(options));
    };
    check_close(net.name, run(), run(), 0);
  }
}

TEST_CASE("find_lr on a GPU changes nothing of the run that follows" * on_gpu()) {
  const Net& net = nets().front();
  Trainer trainer(options_of(net, kGpu));
  trainer.find_lr({.num_batches = 20});
  trainer.fit();
  check_close(net.name, weights_on_cpu(trainer), trained(options_of(net, kGpu)), 1e-6);
}

}  // namespace
}  // namespace composer::test::gpu_runs_test
