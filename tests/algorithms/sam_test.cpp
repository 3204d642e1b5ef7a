#include "composer/algorithms/sam.h"

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/core/error.h"
#include "composer/util/loss.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::sam_test {

using algorithms::SAM;
using algorithms::SAMOptions;
using algorithms::SharpStep;

namespace {

using Change = std::function<void(TrainerOptions&)>;

at::Tensor trained(const SAMOptions& sam, const Change& change = {}) {
  TrainerOptions options = test::tiny_options();
  options.algorithms = {SAM(sam)};
  if (change) change(options);
  Trainer trainer(std::move(options));
  trainer.fit();
  return test::weights_of(trainer);
}

// SAM by its formula, with plain SGD: rate 0.1 on the batches of tiny_options().
struct ByHand {
  double rho = 0.05, smoothing = 0, clip = 0;
  std::int64_t interval = 1;
  std::vector<double> losses = {};

  at::Tensor operator()() {
    const std::shared_ptr<Model> model = test::tiny_model();
    const std::vector<at::Tensor> w = model->parameters();
    const Batch all = test::tiny_data(16);
    for (std::int64_t batch = 0; batch < 4; ++batch) {
      const auto gradients = [&] {
        const at::Tensor x = all["input"].narrow(0, batch * 4, 4), y = all["target"].narrow(0, batch * 4, 4);
        const at::Tensor loss = at::cross_entropy_loss(model->forward({{"input", x}, {"target", y}}).only(), y, {},
                                                       at::Reduction::Mean, -100, smoothing);
        model->zero_grad();
        loss.backward();
        return loss.item<double>();
      };
      losses.push_back(gradients());
      if ((batch + 1) % interval == 0) {
        const at::NoGradGuard no_grad;
        const at::Tensor norm = at::cat({w[0].grad().flatten(), w[1].grad()}).norm();
        const std::vector<at::Tensor> step{w[0].grad() * (rho / norm), w[1].grad() * (rho / norm)};
        for (std::size_t i = 0; i < 2; ++i) w[i].add_(step[i]);
        {
          const at::AutoGradMode enable_grad(true);
          gradients();
        }
        for (std::size_t i = 0; i < 2; ++i) w[i].sub_(step[i]);
      }
      const at::NoGradGuard no_grad;
      if (clip > 0) algorithms::apply_gradient_clipping(w, algorithms::ClippingType::NORM, clip);
      for (const at::Tensor& one : w) one.sub_(one.grad() * 0.1);
    }
    return at::cat({w[0].detach().flatten(), w[1].detach().flatten()});
  }
};

bool close(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-5, 1e-6); }

}  // namespace

TEST_CASE("SAM trains with the gradients of the weights a step uphill, whatever the microbatches") {
  for (const double rho : {0.05, 0.5}) {
    const at::Tensor expected = ByHand{.rho = rho}();
    CHECK_FALSE(close(expected, ByHand{.rho = 0}()));
    for (const std::int64_t size : {0, 1, 3}) {
      CAPTURE(size);
      CHECK(close(trained({.rho = rho}, [&](TrainerOptions& o) { o.device_train_microbatch_size = size; }), expected));
    }
    CHECK(close(trained({.rho = rho}, [](TrainerOptions& o) { o.device_train_microbatch_size = "auto"; }), expected));
  }
}

TEST_CASE("SAM leaves the batches between its intervals alone") {
  const at::Tensor expected = ByHand{.rho = 0.5, .interval = 3}();
  CHECK_FALSE(close(expected, ByHand{.rho = 0.5}()));
  CHECK(close(trained({.rho = 0.5, .interval = 3}), expected));
}

TEST_CASE("Both passes of SAM see what algorithms do to the targets, and the second one is clipped") {
  const at::Tensor expected = ByHand{.rho = 0.5, .smoothing = 0.3, .clip = 0.1}();
  CHECK_FALSE(close(expected, ByHand{.rho = 0.5, .smoothing = 0.3}()));
  CHECK(close(trained({.rho = 0.5},
                      [](TrainerOptions& o) {
                        o.algorithms.add(algorithms::LabelSmoothing({.smoothing = 0.3}));
                        o.algorithms.add(algorithms::GradientClipping({.clipping_threshold = 0.1}));
                      }),
              expected));
}

TEST_CASE("The losses of a run with SAM are those of the trained weights") {
  ByHand by_hand{.rho = 0.5};
  by_hand();
  std::vector<double> losses;
  trained({.rho = 0.5}, [&](TrainerOptions& o) {
    o.callbacks = {test::At([&](Event event, const State& state) {
      if (event == Event::BATCH_END) losses.push_back(state.batch_loss["total"].item<double>());
    })};
  });
  REQUIRE(losses.size() == by_hand.losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(by_hand.losses[i]).epsilon(1e-5));
}

TEST_CASE("SAM works with an optimizer of libtorch as with ours") {
  const at::Tensor got = trained({.rho = 0.5}, [](TrainerOptions& o) {
    o.optimizer = std::make_shared<torch::optim::SGD>(o.model->parameters(), torch::optim::SGDOptions(0.1));
  });
  CHECK(close(got, ByHand{.rho = 0.5}()));
}

TEST_CASE("A run with SAM that is cut and resumed ends as one that is not") {
  for (const std::int64_t interval : {1, 2})
    test::check_cut_and_resumed(
        [interval] {
          TrainerOptions options = test::tiny_options();
          at::manual_seed(2);
          options.model = std::make_shared<models::Classifier>(
              torch::nn::Sequential(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::Dropout(0.5),
                                    torch::nn::Linear(6, 3)),
              models::ClassifierOptions{.num_classes = 3});
          options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
          options.algorithms = {SAM({.rho = 0.5, .interval = interval})};
          return options;
        },
        2);
}

TEST_CASE("SharpStep moves by rho along the gradients, and takes it back to the last bit, also after an error") {
  const at::Tensor a = at::rand({3}).requires_grad_(), b = at::rand({2}).requires_grad_(), c = at::rand({2});
  const at::Tensor before = a.detach().clone();
  a.mutable_grad() = at::full({3}, 3.F), b.mutable_grad() = at::zeros({2});
  try {
    const SharpStep step({a, b, c}, 0.5);
    CHECK(at::allclose(a.detach(), before + 0.5 / std::sqrt(3)));
    throw Error("in the second pass");
  } catch (const Error&) {
  }
  CHECK(a.detach().equal(before));
  const SharpStep nothing({c}, 0.5);
}

TEST_CASE("SharpStep stays where it is if all gradients are zero, in half precision too") {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor weight = at::ones({3}, type).requires_grad_();
    weight.mutable_grad() = at::zeros({3}, type);
    const SharpStep step({weight}, 0.5);
    CHECK(weight.detach().equal(at::ones({3}, type)));
  }
}

TEST_CASE("SharpStep takes the norm of gradients of several types") {
  const at::Tensor a = at::zeros({1}).requires_grad_(), b = at::zeros({1}, at::kBFloat16).requires_grad_();
  a.mutable_grad() = at::full({1}, 3.F), b.mutable_grad() = at::full({1}, 4.F).to(at::kBFloat16);
  const SharpStep step({a, b}, 0.5);
  CHECK(a.item<float>() == doctest::Approx(0.3));
  CHECK(b.item<float>() == doctest::Approx(0.4).epsilon(0.01));
}

TEST_CASE("SAM refuses options that make no sense, with their values, and sparse gradients") {
  CHECK_THROWS_WITH_AS(SAM({.rho = -1}), "SAM: rho must be >= 0, got -1", ConfigError);
  CHECK_THROWS_AS(SAM({.rho = NAN}), ConfigError);
  CHECK_THROWS_WITH_AS(SAM({.epsilon = 0}), "SAM: epsilon must be > 0, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(SAM({.interval = 0}), "SAM: interval must be >= 1, got 0", ConfigError);
  const at::Tensor a = at::rand({3, 1}).requires_grad_();
  a.mutable_grad() = at::ones({3, 1}).to_sparse();
  CHECK_THROWS_WITH_AS(SharpStep({a}, 0.5), doctest::Contains("SAM: cannot use the sparse gradient"), ConfigError);
}

TEST_CASE("In a fit, the error of a sparse gradient says that SAM has failed, and names the parameter") {
  struct Words final : Model {
    torch::nn::Embedding words{torch::nn::EmbeddingOptions(5, 3).sparse(true)};
    Words() { register_module("words", words); }
    Outputs forward(const Batch& batch) override { return words->forward(batch["target"]); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  const auto fit = [] { trained({}, [](TrainerOptions& options) { options.model = std::make_shared<Words>(); }); };
  const std::string said = test::error_of(fit);
  CHECK_MESSAGE(said.starts_with("SAM failed in make_gradients, epoch 0, batch 0"), said);
  CHECK_MESSAGE(said.find("SAM: cannot use the sparse gradient of words.weight. Make it dense") != said.npos, said);
}

}  // namespace composer::sam_test
