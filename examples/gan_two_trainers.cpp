// Trains a GAN by two trainers that take turns: the generator learns to put points on a circle of radius 2, and the
// discriminator learns to distinguish them from real ones. Each trainer has its own model, optimizer, schedule and
// random numbers. With a folder as argument, both save checkpoints there, and a program that was killed resumes from
// the newest batch that both have saved: ./gan_two_trainers runs/gan.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <composer/core/model.h>
#include <composer/optim/schedulers.h>
#include <composer/trainer/trainer.h>
#include <composer/util/random.h>

namespace nn = torch::nn;
using namespace composer;

constexpr int kSamples = 128, kNoise = 4, kSteps = 1500;

at::Tensor real_points(const at::Generator& draws) {
  const at::Tensor angle = at::rand({kSamples}, draws) * (2 * M_PI);
  return at::stack({angle.cos(), angle.sin()}, 1) * 2 + at::randn({kSamples, 2}, draws) * 0.05;
}

at::Tensor bce(const at::Tensor& logits, double target) {
  return nn::functional::binary_cross_entropy_with_logits(logits, at::full_like(logits, target));
}

struct Discriminator : Model {
  nn::Sequential net{nn::Linear(2, 64), nn::LeakyReLU(), nn::Dropout(0.1), nn::Linear(64, 1)};
  Discriminator() { register_module("net", net); }
  Outputs forward(const Batch& batch) override {
    return {{"real", net->forward(batch["real"])}, {"fake", net->forward(batch["fake"])}};
  }
  Losses loss(const Outputs& outputs, const Batch&) override {
    return {{"real", bce(outputs.at("real"), 1)}, {"fake", bce(outputs.at("fake"), 0)}};
  }
};

struct Generator : Model {
  nn::Sequential net{nn::Linear(kNoise, 64), nn::ReLU(), nn::Linear(64, 2)};
  std::shared_ptr<Discriminator> judge;  // not registered, because it belongs to the other trainer
  explicit Generator(std::shared_ptr<Discriminator> discriminator) : judge(std::move(discriminator)) {
    register_module("net", net);
  }
  Outputs forward(const Batch& batch) override { return net->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch&) override { return bce(judge->net->forward(outputs.only()), 1); }
};

void require_gradients(nn::Module& module, bool required) {
  for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(required);
}

// The generator of what this program draws for a batch. A resumed program draws the same numbers.
at::Generator draws_of(const State& state) {
  return at::make_generator<at::CPUGeneratorImpl>(hash64(state.seed, state.timestamp.batch));
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const auto below = [&](const char* name) { return folder.empty() ? "" : folder + '/' + name; };
  const auto beside = [&](const char* name) {
    return folder.empty() ? std::vector<std::string>() : std::vector{below(name)};
  };
  at::manual_seed(1);  // for the initial weights; trainers have their own generators
  const auto discriminator = std::make_shared<Discriminator>();
  const auto generator = std::make_shared<Generator>(discriminator);
  Trainer judge(TrainerOptions{.model = discriminator,
                               .optimizer = optim::adam({.lr = 2e-3, .beta1 = 0.5}),
                               .max_duration = Time(kSteps, TimeUnit::BATCH),
                               .run_name = "gan",
                               .seed = 1,
                               .save_folder = below("judge"),
                               .save_interval = "250ba",
                               .save_num_checkpoints_to_keep = 3,
                               .resume_with = beside("forger")});
  Trainer forger(TrainerOptions{.model = generator,
                                .optimizer = optim::adam({.lr = 1e-3, .beta1 = 0.5}),
                                .max_duration = Time(kSteps, TimeUnit::BATCH),
                                .run_name = "gan",
                                .seed = 2,
                                .save_folder = below("forger"),
                                .save_interval = "250ba",
                                .save_num_checkpoints_to_keep = 3,
                                .resume_with = beside("judge")});

  const at::Device device = forger.state().device;  // the device to which the trainers have moved the models
  const auto noise = [device](const at::Generator& draws) { return at::randn({kSamples, kNoise}, draws).to(device); };
  judge.begin();
  forger.begin();
  while (!judge.done() && !forger.done()) {  // also ends after Ctrl-C
    const at::Generator draws = draws_of(forger.state());
    const at::Tensor fake = generator->net->forward(noise(draws)).detach();
    judge.step({{"real", real_points(draws)}, {"fake", fake}});
    require_gradients(*discriminator, false);  // it is not trained here
    forger.step({{"input", noise(draws)}});
    require_gradients(*discriminator, true);
  }
  judge.end();
  forger.end();

  const at::NoGradGuard no_grad;
  const at::Tensor radius = generator->net->forward(noise(draws_of(forger.state()))).norm(2, {1});
  std::printf("radius of the generated points: %.2f +- %.2f (real: 2.00 +- 0.05)\n", radius.mean().item<double>(),
              radius.std().item<double>());
}
