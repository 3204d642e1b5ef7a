// Trains a GAN: the generator learns to put points on a circle of radius 2, and the discriminator learns to distinguish
// them from real ones. Both are parts of one model, and each is trained by a loss of its own. With a folder as
// argument, checkpoints are saved there, and a program that was killed resumes: ./gan runs/gan.
#include <cmath>
#include <cstdio>
#include <memory>

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <composer/core/frozen.h>
#include <composer/core/model.h>
#include <composer/data/in_memory.h>
#include <composer/trainer/trainer.h>

namespace nn = torch::nn;
using namespace composer;

at::Tensor bce(const at::Tensor& logits, double target) {
  return nn::functional::binary_cross_entropy_with_logits(logits, at::full_like(logits, target));
}

struct Gan : Model {
  nn::Sequential generator{nn::Linear(4, 64), nn::ReLU(), nn::Linear(64, 2)};
  nn::Sequential discriminator{nn::Linear(2, 64), nn::LeakyReLU(), nn::Linear(64, 1)};
  Gan() { register_module("generator", generator), register_module("discriminator", discriminator); }

  Outputs forward(const Batch& batch) override {
    return generator->forward(at::randn({batch["input"].size(0), 4}, batch["input"].options()));
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor& fake = outputs.only();
    const at::Tensor real_loss = bce(discriminator->forward(batch["input"]), 1);
    const at::Tensor fake_loss = bce(discriminator->forward(fake.detach()), 0);  // does not train the generator
    const Frozen frozen(*discriminator);                                         // the next one trains nothing else
    return {{"discriminator", real_loss + fake_loss}, {"generator", bce(discriminator->forward(fake), 1)}};
  }
};

int main(int argc, char** argv) {
  at::manual_seed(1);  // for the initial weights and the data
  const at::Tensor angle = at::rand({12800}) * (2 * M_PI);
  const at::Tensor points = at::stack({angle.cos(), angle.sin()}, 1) * 2 + at::randn({12800, 2}) * 0.05;
  Trainer trainer(TrainerOptions{.model = std::make_shared<Gan>(),
                                 .train_dataloader = data::in_memory({{"input", points}}, {.batch_size = 128}),
                                 .optimizer = optim::adam({.lr = 1e-3, .beta1 = 0.5}),
                                 .max_duration = "20ep",
                                 .run_name = "gan",
                                 .seed = 1,
                                 .save_folder = argc > 1 ? argv[1] : ""});
  trainer.fit();
  const at::Tensor radius =
      trainer.predict_all(data::in_memory({{"input", points}}, {.batch_size = 128, .shuffle = false}))
          .only()
          .norm(2, {1});
  std::printf("radius of the generated points: %.2f +- %.2f (real: 2.00 +- 0.05)\n", radius.mean().item<double>(),
              radius.std().item<double>());
}
