#include <algorithm>
#include <ctime>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "tests/optim/every_optimizer.h"
#include "tests/optim/support.h"
#include "tests/support/doctest.h"

namespace composer::tests::groups_test {
namespace {

const optim::SgdOptions& options_of(const optim::Optimizer& optimizer, std::size_t group) {
  return dynamic_cast<const optim::GroupOptions<optim::SgdOptions>&>(optimizer.param_groups().at(group).options())
      .values;
}

}  // namespace

TEST_CASE("A pattern fits a whole name") {
  struct Row {
    const char *pattern, *name;
    bool fits;
  };
  const Row rows[] = {{"*.bias", "a.b.bias", true},
                      {"*.bias", "bias", false},
                      {"bias", "a.bias", false},
                      {"*", "", true},
                      {"", "a", false},
                      {"a?c", "abc", true},
                      {"a?c", "ac", false},
                      {"*a*b*", "xxaxxb", true},
                      {"*a*b", "aabx", false},
                      {"**", "x", true},
                      {"a*a", "a", false},
                      {"*ab", "aab", true}};
  for (const Row& row : rows) {
    CAPTURE(row.pattern);
    CAPTURE(row.name);
    const std::string error = config_error_of([&] {
      optim::sgd({.lr = 1, .groups = {{.match = row.pattern}}}).make({{row.name, at::ones(1)}});
    });
    CHECK((error == "no error") == row.fits);
  }
}

TEST_CASE("Groups have exactly the options that were asked for") {
  const auto list = random_parameters(at::kFloat);
  const auto optimizer = optim::sgd({.lr = 0.5,
                                     .momentum = 0.9,
                                     .weight_decay = 0.1,
                                     .groups = {{.match = "*.bias", .weight_decay = 0},
                                                {.where = [](const auto&, const at::Tensor& t) { return t.dim() == 4; },
                                                 .lr = 0.25,
                                                 .momentum = 0}}})
                             .make(list);
  REQUIRE(optimizer->param_groups().size() == 3);
  CHECK(optimizer->param_groups()[0].params().size() == 2);  // the rest
  CHECK(optimizer->param_groups()[1].params().size() == 3);
  CHECK(optimizer->param_groups()[2].params().size() == 1);
  CHECK(optim::learning_rates(*optimizer) == std::vector<double>{0.5, 0.5, 0.25});
  CHECK(options_of(*optimizer, 0).weight_decay == 0.1);
  CHECK(options_of(*optimizer, 1).weight_decay == 0);
  CHECK(options_of(*optimizer, 2).weight_decay == 0.1);
  CHECK(options_of(*optimizer, 2).momentum == 0);
  CHECK(
      dynamic_cast<optim::NamedOptimizer&>(*optimizer)
          .table()
          .find(
              "group 1: 3 tensors, 19 numbers: layer1.bias layer3.bias layer4.bias\n  lr 0.5 momentum 0.9 dampening 0 "
              "weight_decay 0 nesterov no\n") != std::string::npos);
}

TEST_CASE("decay_matrices_only spares vectors and scalars, but for groups that set a decay") {
  const auto optimizer =
      optim::sgd({.lr = 0.5,
                  .weight_decay = 0.1,
                  .groups = {{.match = "layer1.*", .weight_decay = 0.2}, {.match = "layer3.*", .lr = 1}},
                  .decay_matrices_only = true})
          .make(random_parameters(at::kFloat));
  REQUIRE(optimizer->param_groups().size() == 4);
  const double decays[] = {0.1, 0, 0.2, 0};
  const std::size_t sizes[] = {3, 1, 1, 1};
  for (std::size_t g = 0; g < 4; ++g) {
    CHECK(options_of(*optimizer, g).weight_decay == decays[g]);
    CHECK(optimizer->param_groups()[g].params().size() == sizes[g]);
  }
}

TEST_CASE("The order of groups does not matter to the result") {
  const optim::ParameterGroup biases{.match = "*.bias", .lr = 0.3}, first{.match = "layer0.*", .weight_decay = 0};
  const auto a = random_parameters(at::kFloat), b = random_parameters(at::kFloat);
  train(*optim::adamw({.groups = {biases, first}}).make(a), tensors_of(a), 0, 5);
  train(*optim::adamw({.groups = {first, biases}}).make(b), tensors_of(b), 0, 5);
  CHECK(equal(tensors_of(a), tensors_of(b)));
}

TEST_CASE("Groups that cannot be are refused") {
  const auto list = random_parameters(at::kFloat);
  const auto with = [&](std::vector<optim::ParameterGroup> groups) {
    return config_error_of([&] { optim::sgd({.lr = 1, .groups = std::move(groups)}).make(list); });
  };
  CHECK(with({{.match = "*.gamma"}}) == "sgd: groups[0] (*.gamma) has no parameters: no parameter matches");
  CHECK(with({{.match = "*"}, {.match = "*.bias"}}) ==
        "sgd: groups[1] (*.bias) has no parameters: all that match are in earlier ones");
  CHECK(with({{.lr = 1}}) == "sgd: groups[0] must have exactly one of match and where");
  CHECK(with({{.match = "*.bias", .beta1 = 1}}) ==
        "sgd: groups[0] (*.bias): sets beta1, which this optimizer does not have");
  CHECK(with({{.match = "*.bias", .lr = -1}}) == "sgd: groups[0] (*.bias): lr must be >= 0, got -1");
}

TEST_CASE("A group with a learning rate of 0 stays as it is, in every optimizer") {
  const optim::ParameterGroup frozen{.match = "layer0.weight", .lr = 0};
  for (const auto& [name, any] : test::every_optimizer({frozen})) {
    CAPTURE(name);
    const auto list = random_parameters(at::kFloat), before = random_parameters(at::kFloat);
    train(*any.make(list), tensors_of(list), 0, 2);
    const bool decays = name.starts_with("decoupled_");  // whose decay is not multiplied by the learning rate
    CHECK(list[0].tensor.equal(before[0].tensor) == !decays);
    CHECK_FALSE(list[5].tensor.equal(before[5].tensor));
  }
}

TEST_CASE("Parameters that lie between one another in memory may be trained, unless they share an element") {
  const auto with = [](const at::Tensor& a, const at::Tensor& b) {
    return config_error_of([&] { optim::sgd({.lr = 1}).make({{"a", a}, {"b", b}}); });
  };
  const at::Tensor whole = at::ones({6, 4});
  const char* const shared =
      "sgd: the parameters a and b share memory, so each step would change them twice; pass only one of them";
  CHECK(with(whole.select(1, 0), whole.select(1, 2)) == "no error");
  CHECK(with(whole.narrow(1, 0, 2), whole.narrow(1, 2, 2)) == "no error");
  CHECK(with(whole.narrow(1, 0, 3), whole.narrow(1, 2, 2)) == shared);
  CHECK(with(whole.select(1, 1), whole.select(0, 5)) == shared);
  CHECK(with(whole.narrow(1, 0, 2), whole.select(0, 3).narrow(0, 2, 2)) == "no error");
}

TEST_CASE("Many parameters that lie between one another cost in proportion to their number, and one overlap is found") {
  const auto columns = [](std::int64_t count) {
    const at::Tensor whole = at::ones({1000, count});
    optim::NamedParameters list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back({join("p", i), whole.select(1, i)});
    return list;
  };
  const auto seconds = [&](std::int64_t count) {  // of the processor
    optim::NamedParameters list = columns(count);
    const std::clock_t from = std::clock();
    optim::sgd({.lr = 1}).make(list);
    return static_cast<double>(std::clock() - from) / CLOCKS_PER_SEC;
  };
  CHECK(seconds(64) < 100 * std::max(seconds(8), 1e-3));  // by pairs it were 512 times

  optim::NamedParameters list = columns(64);
  const at::Tensor first = list[0].tensor;
  list.push_back({"q", first.as_strided({2}, {64 * 100}, first.storage_offset() + 64 * 50 + 17)});
  CHECK(config_error_of([&] { optim::sgd({.lr = 1}).make(list); }) ==
        "sgd: the parameters p17 and q share memory, so each step would change them twice; pass only one of them");
  // Of other sizes, and one that lies over itself.
  const at::Tensor bytes = at::zeros({64}, at::kByte);
  const at::Tensor halves = bytes.view(at::kHalf), floats = bytes.view(at::kFloat);
  const auto with = [](const at::Tensor& a, const at::Tensor& b) {
    return config_error_of([&] { optim::sgd({.lr = 1}).make({{"a", a}, {"b", b}}); });
  };
  CHECK(with(floats.as_strided({4}, {4}), halves.as_strided({4}, {8}, 2)) == "no error");
  CHECK(with(floats.as_strided({4}, {4}), halves.as_strided({4}, {8}, 1)).starts_with("sgd: the parameters a and b"));
  CHECK(with(floats.as_strided({2, 4}, {0, 4}), floats.as_strided({3}, {4}, 1)) == "no error");
}

TEST_CASE("Parameters that cannot be trained are refused by name") {
  const auto with = [](optim::NamedParameters list) {
    return config_error_of([&] { optim::sgd({.lr = 1}).make(std::move(list)); });
  };
  const at::Tensor whole = at::ones({10});
  CHECK(with({}) == "sgd: there are no parameters to optimize");
  CHECK(with({{"a", whole}, {"b", whole.narrow(0, 9, 1)}}).find("sgd: the parameters a and b share memory") == 0);
  CHECK(with({{"a", whole.narrow(0, 0, 5)}, {"b", whole.narrow(0, 5, 5)}}) == "no error");
  CHECK(with({{"a", whole}, {"a", at::ones(1)}}) == "sgd: two parameters are called a");
  CHECK(with({{"a", at::ones(3, at::kLong)}}).find("sgd: the parameter a must be of a real floating point type") == 0);
  CHECK(with({{"a", at::Tensor()}}) == "sgd: the parameter a is undefined");
  CHECK(with({{"a", at::ones(3).set_requires_grad(true) * 2}}).find("sgd: the parameter a is not a leaf tensor") == 0);
}

TEST_CASE("A parameter under two names comes once") {
  torch::nn::Linear linear(3, 3);
  torch::nn::Sequential net(linear, linear);
  const auto list = optim::parameters_of(*net);
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "0.weight");
  CHECK(list[1].name == "0.bias");
}

TEST_CASE("Options that cannot be are refused") {
  using namespace optim;
  const std::pair<std::string, std::string> rows[] = {
      {config_error_of([] { sgd({.lr = 0}); }), "sgd: lr must be > 0, got 0"},
      {config_error_of([] { sgd({.lr = 1, .momentum = -1}); }), "sgd: momentum must be >= 0, got -1"},
      {config_error_of([] { sgd({.lr = 1, .dampening = NAN}); }), "sgd: dampening must be >= 0, got nan"},
      {config_error_of([] { sgd({.lr = 1, .weight_decay = -0.1}); }), "sgd: weight_decay must be >= 0, got -0.1"},
      {config_error_of([] { sgd({.lr = 1, .nesterov = true}); }),
       "sgd: nesterov needs momentum > 0 and dampening 0, got momentum 0, dampening 0"},
      {config_error_of([] { decoupled_sgdw({}); }), "decoupled_sgdw: lr must be > 0, got 0"},
      {config_error_of([] { adam({.lr = INFINITY}); }), "adam: lr must be >= 0, got inf"},
      {config_error_of([] { adam({.beta1 = 1}); }), "adam: beta1 must be in [0, 1), got 1"},
      {config_error_of([] { adamw({.beta2 = -0.5}); }), "adamw: beta2 must be in [0, 1), got -0.5"},
      {config_error_of([] { adamw({.eps = -1}); }), "adamw: eps must be >= 0, got -1"},
      {config_error_of([] { decoupled_adamw({.weight_decay = -1}); }),
       "decoupled_adamw: weight_decay must be >= 0, got -1"},
      {config_error_of([] { rmsprop({.alpha = 1}); }), "rmsprop: alpha must be in [0, 1), got 1"},
      {config_error_of([] { rmsprop({.momentum = -1}); }), "rmsprop: momentum must be >= 0, got -1"},
      {config_error_of([] { adagrad({.lr_decay = -1}); }), "adagrad: lr_decay must be >= 0, got -1"},
      {config_error_of([] { adagrad({.initial_accumulator_value = -1}); }),
       "adagrad: initial_accumulator_value must be >= 0, got -1"},
  };
  for (const auto& [got, expected] : rows) CHECK(got == expected);
}

}  // namespace composer::tests::groups_test
