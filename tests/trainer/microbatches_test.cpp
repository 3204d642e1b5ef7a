#include <doctest/doctest.h>

#include "composer/loggers/in_memory_logger.h"
#include "tests/support/tiny.h"

namespace composer::test {
namespace {

// Weights after two batches of 5 samples, and the last logged loss.
std::pair<at::Tensor, double> train(std::int64_t microbatch_size, bool by_tokens = false) {
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  DataSpec spec{.dataloader = tiny_loader(10, 5)};
  if (by_tokens)
    spec.get_num_tokens_in_batch = [](const Batch& b) {
      return TokenCount(9 * b.front().size(0), 2 * b.front().size(0));
    };
  options.train_dataloader = spec;
  options.accumulate_train_batch_on_tokens = by_tokens;
  options.device_train_microbatch_size = microbatch_size;
  options.loggers = {memory};
  Trainer trainer(std::move(options));
  trainer.fit();
  return {weights_of(trainer), memory->most_recent("loss/train/total").number()};
}

TEST_CASE("Any split of a batch gives the same weights and the same loss") {
  const auto [whole, loss] = train(0);
  for (std::int64_t size : {1, 2, 3, 4, 5, 9}) {
    CAPTURE(size);
    const auto [weights, logged] = train(size);
    CHECK(at::allclose(weights, whole, 1e-6, 1e-6));
    CHECK(logged == doctest::Approx(loss).epsilon(1e-6));
  }
}

TEST_CASE("Weighing by tokens equals weighing by samples where samples are of one length") {
  const auto [whole, loss] = train(0);
  const auto [weights, logged] = train(2, /*by_tokens=*/true);
  CHECK(at::allclose(weights, whole, 1e-6, 1e-6));
  CHECK(logged == doctest::Approx(loss).epsilon(1e-6));
}

TEST_CASE("Timestamps count all tokens, weights only those that generate loss") {
  // Sample i of the batch of 4 has i loss-generating tokens: a microbatch of one sample weighs i of 6.
  TrainerOptions options = tiny_options();
  std::vector<double> shares;
  DataSpec spec{.dataloader = tiny_loader(4, 4)};
  spec.get_num_tokens_in_batch = [](const Batch& batch) {
    std::int64_t with_loss = 0;
    for (std::int64_t i = 0; i < batch["target"].size(0); ++i) with_loss += batch["target"][i].item<std::int64_t>();
    return TokenCount(10 * batch["target"].size(0), with_loss);
  };
  options.train_dataloader = spec;
  options.accumulate_train_batch_on_tokens = true;
  options.device_train_microbatch_size = 1;
  Trainer trainer(std::move(options));
  const Batch data = tiny_data(4);  // targets 0, 1, 2, 0
  at::Tensor expected;
  {
    auto model = tiny_model();
    const at::Tensor each =
        at::cross_entropy_loss(model->forward(data).only(), data["target"], {}, at::Reduction::None);
    expected = (each[1] * 1 + each[2] * 2) / 3;
  }
  trainer.fit();
  CHECK(trainer.state().batch_loss["total"].item<double>() == doctest::Approx(expected.item<double>()));
  CHECK(trainer.state().timestamp.token == 40);
}

TEST_CASE("A batch without anything to weigh it by is an error, not a division by zero") {
  TrainerOptions options = tiny_options();
  options.accumulate_train_batch_on_tokens = true;  // and no tokens are counted
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
}

}  // namespace
}  // namespace composer::test
