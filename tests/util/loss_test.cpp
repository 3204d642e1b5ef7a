#include "composer/util/loss.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::loss_test {
namespace {

at::Tensor logits() { return at::tensor({2., 1., 0., -1., 0.5, 3.}, at::kDouble).view({2, 3}); }
double value(const at::Tensor& tensor) { return tensor.item<double>(); }

}  // namespace

TEST_CASE("Classes and their one-hot rows have the same loss, in every reduction") {
  const at::Tensor target = at::tensor({2, 0}, at::kLong);
  const at::Tensor dense = ensure_targets_one_hot(logits(), target);
  for (Reduction reduction : {Reduction::NONE, Reduction::MEAN, Reduction::SUM}) {
    const at::Tensor one = soft_cross_entropy(logits(), target, {.reduction = reduction});
    const at::Tensor two = soft_cross_entropy(logits(), dense, {.reduction = reduction});
    CHECK(at::allclose(one, two, 1e-12, 1e-12));
  }
  const at::Tensor p = logits().log_softmax(1);
  CHECK(value(soft_cross_entropy(logits(), target)) ==
        doctest::Approx(-(value(p[0][2]) + value(p[1][0])) / 2).epsilon(1e-12));
}

TEST_CASE("The mean over probabilities has the very loss and gradient that autograd finds by operators") {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& shape : {std::vector<std::int64_t>{6, 5}, {2, 5, 3, 4}}) {
      const at::Tensor a = at::randn(shape, type).requires_grad_(), b = a.detach().clone().requires_grad_();
      const at::Tensor target = at::softmax(at::randn(shape), 1);
      const double rows = static_cast<double>(target.numel()) / 5;
      const at::Tensor wide = type == at::kBFloat16 ? b.to(at::kFloat) : b;
      const at::Tensor by_operators =
          at::log_softmax(wide, 1).mul(target).sum().neg_().div(rows).mul(target.sum().reciprocal().mul(rows));
      const at::Tensor loss = soft_cross_entropy(a, target);
      CHECK(at::equal(loss, by_operators));
      (loss * 0.7).backward();
      (by_operators * 0.7).backward();
      CHECK(at::equal(a.grad(), b.grad()));
      CHECK((a.grad().scalar_type() == type));
    }
  }
}

TEST_CASE("The mean over probabilities has gradients of gradients, and of its targets") {
  const at::Tensor target = at::softmax(at::sin(at::arange(6, at::kDouble)).view({2, 3}), 1);
  const auto second = [&](bool by_operators) {
    const at::Tensor x = logits().requires_grad_();
    const at::Tensor loss =
        by_operators ? -at::log_softmax(x, 1).mul(target).sum() / target.sum() : soft_cross_entropy(x, target);
    torch::autograd::grad({loss * loss}, {x}, {}, true, true)[0].square().sum().backward();
    return x.grad();
  };
  CHECK(at::allclose(second(true), second(false), 1e-12, 1e-14));
  const at::Tensor learned = target.clone().requires_grad_();
  soft_cross_entropy(logits(), learned).backward();
  CHECK(learned.grad().defined());
}

TEST_CASE("A row without probability weighs nothing in the mean") {
  const at::Tensor target = at::tensor({0., 1., 0., 0., 0., 0.}, at::kDouble).view({2, 3});
  CHECK(value(soft_cross_entropy(logits(), target)) ==
        doctest::Approx(value(-logits().log_softmax(1)[0][1])).epsilon(1e-12));
}

TEST_CASE("The mean over no probability at all is NaN, as that over no class, and its gradient is zero") {
  for (const at::Tensor& target : {at::zeros({2, 3}), at::full({2}, -100, at::kLong)}) {
    const at::Tensor x = logits().requires_grad_();
    const at::Tensor loss = soft_cross_entropy(x, target);
    CHECK(std::isnan(value(loss)));
    (loss * 0).backward();
    CHECK(at::equal(x.grad(), at::zeros_like(x)));
  }
}

TEST_CASE("A weight on a device is not read, and sums of it stay there") {
  const at::TensorOptions device = at::TensorOptions(at::kMeta);  // where reading would throw
  const LossWeight part = target_weight(at::zeros({4, 3}, device.dtype(at::kLong)));
  for (const LossWeight& weight : {part, part + 5, LossWeight(5) + part, part * 4}) {
    CHECK(weight.known());
    CHECK(weight.is_on_device());
    CHECK_FALSE(weight.is(0));
  }
  CHECK((part / (LossWeight(0) + part)).is(1));  // it is all there is
}

TEST_CASE("Shares of weights on the host are numbers, and that of nothing is 0, also of NaN") {
  CHECK((LossWeight(1) / LossWeight(4)).is(0.25));
  CHECK((LossWeight(0) / LossWeight(0)).is(0));
  CHECK((LossWeight(at::scalar_tensor(3, at::kLong)) + 1).is(4));
  CHECK_FALSE(LossWeight().known());
  CHECK(value(LossWeight(0).times(at::scalar_tensor(NAN))) == 0);
  CHECK_THROWS_WITH_AS(LossWeight(at::zeros({2})), doctest::Contains("must be one number, got [2]"), DataError);
}

TEST_CASE("The weight of targets is what the mean of their loss is over") {
  const at::Tensor weight = at::tensor({5., 1., 0.25}, at::kDouble);
  struct Row {
    const char* what;
    at::Tensor target;
    SoftCrossEntropyOptions options;
    double expected;
  };
  for (const auto& [what, target, options, expected] : {
           Row{"classes", at::tensor({2, 0, 1}, at::kLong), {}, 3},
           Row{"ignored ones", at::tensor({2, -100, 1}, at::kLong), {}, 2},
           Row{"nothing else", at::full({3}, -100, at::kLong), {}, 0},
           Row{"of another type", at::tensor({2, -100, 1}, at::kInt), {}, 2},
           Row{"not one after another", at::tensor({2, -100, 1, 0}, at::kLong).view({2, 2}).select(1, 0), {}, 2},
           Row{"whose -100 would be a class", at::tensor({156, 0, 156}, at::kByte), {}, 3},
           Row{"another index", at::tensor({2, 255, 1}, at::kLong), {.ignore_index = 255}, 2},
           Row{"with weights", at::tensor({2, 0, 0}, at::kLong), {.weight = weight}, 10.25},
           Row{"ignored ones with weights", at::tensor({2, -100, 0}, at::kLong), {.weight = weight}, 5.25},
           Row{"probabilities", at::tensor({0.5, 0.25, 0.25, 0., 0., 0.}).view({2, 3}), {}, 1},
           Row{"their weights are not in it", at::tensor({0.5, 0.25, 0.25}).view({1, 3}), {.weight = weight}, 1},
           Row{"a batch without samples", at::empty({0}, at::kLong), {}, 0},
       }) {
    CAPTURE(what);
    const LossWeight found = target_weight(target, options);
    CHECK(found.is(expected));
    CHECK(found.depends_on_kind() == options.weight.defined());
    if (target.numel() == 0) continue;
    const std::int64_t classes = target.scalar_type() == at::kByte ? 200 : 3;
    const at::Tensor x = at::sin(at::arange(classes * target.size(0), at::kDouble)).view({-1, classes});
    SoftCrossEntropyOptions sum = options;
    sum.reduction = Reduction::SUM;
    if (expected > 0)
      CHECK(value(soft_cross_entropy(x, target, options)) ==
            doctest::Approx(value(soft_cross_entropy(x, target, sum)) / expected).epsilon(1e-12));
  }
  CHECK_THROWS_WITH_AS(target_weight(at::tensor({0, 3}, at::kLong), {.weight = weight}),
                       doctest::Contains("class 3 of sample 1"), DataError);
}

TEST_CASE("An ignored class is none that a smaller type has at its place") {
  const at::Tensor target = at::tensor({156, 0, 255}, at::kByte);
  CHECK(not_ignored(target, -100).all().item<bool>());
  CHECK(not_ignored(target, -1).all().item<bool>());
  CHECK(not_ignored(target, 255).equal(at::tensor({1, 1, 0}).to(at::kBool)));
  CHECK(not_ignored(at::tensor({-1, -100}, at::kChar), 255).all().item<bool>());
  CHECK(not_ignored(at::tensor({-1, -100}, at::kChar), -100).equal(at::tensor({1, 0}).to(at::kBool)));
}

TEST_CASE("Booleans are the classes 0 and 1") {
  const at::Tensor target = at::tensor({1, 0}, at::kLong);
  CHECK(value(soft_cross_entropy(logits(), target.to(at::kBool))) == value(soft_cross_entropy(logits(), target)));
}

TEST_CASE("Whole numbers of the shape of the logits are refused: by their type they are classes, by their shape none") {
  const at::Tensor dense = ensure_targets_one_hot(logits(), at::tensor({2, 0}, at::kLong));
  for (const auto type : {at::kLong, at::kByte, at::kBool}) {
    for (const at::Tensor& weight : {at::Tensor(), at::ones({3}, at::kDouble)})
      CHECK_THROWS_WITH_AS(
          soft_cross_entropy(logits(), dense.to(type), {.weight = weight}),
          doctest::Contains("a target of the shape of the logits, [2, 3], is probabilities, which must "
                            "be floating-point numbers, got "),
          DataError);
    CHECK_THROWS_WITH_AS(ensure_targets_one_hot(logits(), dense.to(type)),
                         doctest::Contains("give target.to(at::kFloat), or the classes, target.argmax(1)"), DataError);
  }
}

TEST_CASE("With weights of classes, too, the mean over no probability is NaN, and its gradients are zero") {
  for (const bool learned : {false, true})
    for (const at::Tensor& weight : {at::Tensor(), at::tensor({5., 1., 0.25}, at::kDouble)}) {
      const at::Tensor x = logits().requires_grad_(), target = at::zeros({2, 3}, at::kDouble).requires_grad_(learned);
      const at::Tensor loss = soft_cross_entropy(x, target, {.weight = weight});
      CHECK(std::isnan(value(loss)));
      (loss * 0).backward();
      CHECK(at::equal(x.grad(), at::zeros_like(x)));
      if (learned) CHECK(at::equal(target.grad(), at::zeros_like(x)));
    }
}

TEST_CASE("Ignored classes count nothing") {
  const at::Tensor target = at::tensor({1, -1}, at::kLong);
  CHECK(value(soft_cross_entropy(logits(), target, {.ignore_index = -1})) ==
        doctest::Approx(value(-logits().log_softmax(1)[0][1])).epsilon(1e-12));
}

TEST_CASE("Classes may be of any type of whole number") {
  const double expected = value(soft_cross_entropy(logits(), at::tensor({2, 0}, at::kLong)));
  for (auto type : {at::kByte, at::kChar, at::kShort, at::kInt})
    CHECK(value(soft_cross_entropy(logits(), at::tensor({2, 0}, at::kLong).to(type))) == expected);
  CHECK_THROWS_WITH_AS(soft_cross_entropy(logits(), at::tensor({2., 0.})), doctest::Contains("whole numbers"),
                       DataError);
}

TEST_CASE("One-hot rows are in the logits' dtype; a negative class is a row of zeros") {
  const at::Tensor one_hot = ensure_targets_one_hot(logits(), at::tensor({1, -1}, at::kLong));
  CHECK((one_hot.scalar_type() == at::kDouble));
  CHECK(one_hot.equal(at::tensor({0., 1., 0., 0., 0., 0.}, at::kDouble).view({2, 3})));
  CHECK((ensure_targets_one_hot(logits(), at::tensor({0, 1}, at::kLong), 5).sizes() == at::IntArrayRef({2, 5})));
  const at::Tensor maps = at::zeros({2, 3, 4, 5}), classes = at::ones({2, 4, 5}, at::kLong);
  CHECK(ensure_targets_one_hot(maps, classes).argmax(1).equal(classes));
  CHECK_THROWS_WITH_AS(ensure_targets_one_hot(logits(), at::tensor({0, 3}, at::kLong)),
                       doctest::Contains("larger than 2"), DataError);
}

TEST_CASE("Targets of a shape that fits neither kind are an error that tells both shapes") {
  CHECK_THROWS_WITH_AS(soft_cross_entropy(at::zeros({5, 4}), at::zeros({5, 3})),
                       doctest::Contains("logits are [5, 4], the target is [5, 3]"), DataError);
  CHECK_THROWS_AS(soft_cross_entropy(at::zeros({5, 4}), at::zeros(4, at::kLong)), DataError);
  CHECK_THROWS_WITH_AS(soft_cross_entropy(at::zeros(5), at::zeros(5)),
                       "the logits must have their classes in dimension 1; logits and target are [5]", DataError);
  CHECK_THROWS_AS(ensure_targets_one_hot(at::zeros({2, 3, 4, 5}), at::zeros({2, 4, 6}, at::kLong)), DataError);
}

TEST_CASE("Probabilities and logits in half precision have a loss in float32") {
  at::manual_seed(7);
  const at::Tensor target = at::randn({64, 10}, at::kDouble).softmax(1);
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const Reduction reduction : {Reduction::NONE, Reduction::MEAN, Reduction::SUM}) {
      const at::Tensor x = at::randn({64, 10}, at::kDouble).mul_(4).to(type).requires_grad_();
      const at::Tensor exact_x = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor loss = soft_cross_entropy(x, target.to(at::kFloat), {.reduction = reduction});
      const at::Tensor exact = soft_cross_entropy(exact_x, target, {.reduction = reduction});
      CHECK((loss.scalar_type() == at::kFloat));
      CHECK(at::allclose(loss.to(at::kDouble), exact, 1e-5, 1e-6));
      loss.sum().backward();
      exact.sum().backward();
      CHECK((x.grad().scalar_type() == type));
      // of a gradient in float32, rounded once
      CHECK(at::allclose(x.grad(), exact_x.grad().to(at::kFloat).to(type), 1e-2, 1e-6));
    }
}

TEST_CASE("A class that is out of range is an error that names it and its sample") {
  struct Row {
    std::vector<std::int64_t> target;
    const char* text;
  };
  const Row rows[] = {{{0, 3}, "class 3 of sample 1 is out of range; classes are 0 to 2"},
                      {{-1, 0}, "class -1 of sample 0"},
                      {{-100, 7}, "class 7 of sample 1"}};
  for (const Row& row : rows)
    CHECK_THROWS_WITH_AS(soft_cross_entropy(logits(), at::tensor(row.target)), doctest::Contains(row.text), DataError);
  CHECK_THROWS_WITH_AS(
      soft_cross_entropy(logits(), at::tensor({0, 255})),
      "class 255 of sample 1 is out of range; classes are 0 to 2; if it stands for no class, replace it "
      "by -100, which counts nothing, or set ignore_index = 255 in the options of the loss or of the "
      "metric; those of models::Classifier are its loss_fn, train_metrics and val_metrics",
      DataError);
  CHECK_THROWS_WITH_AS(check_classes(at::tensor({0, 255}), 3, std::nullopt),
                       doctest::Contains("if it stands for no class, set ignore_index = 255 in"), DataError);
  const at::Tensor pixels = at::zeros({2, 3, 2, 2}), mask = at::zeros({2, 2, 2}, at::kLong);
  mask.mutable_data_ptr<std::int64_t>()[6] = 9;
  CHECK_THROWS_WITH_AS(soft_cross_entropy(pixels, mask), doctest::Contains("class 9 of sample 1"), DataError);
}

TEST_CASE("Binary cross entropy sums over classes and divides by the batch size") {
  const at::Tensor target = at::tensor({2, 0}, at::kLong);
  const at::Tensor p = logits().sigmoid(), y = ensure_targets_one_hot(logits(), target);
  const at::Tensor terms = -(y * p.log() + (1 - y) * (1 - p).log());
  CHECK(value(composer::binary_cross_entropy_with_logits(logits(), target)) ==
        doctest::Approx(value(terms.sum()) / 2).epsilon(1e-12));
  CHECK(value(composer::binary_cross_entropy_with_logits(logits(), y, {.scale_by_batch_size = false})) ==
        doctest::Approx(value(terms.sum())).epsilon(1e-12));
}

TEST_CASE("Gradients flow to the logits from classes and from probabilities") {
  for (const at::Tensor& target : {at::tensor({2, 0}, at::kLong), at::full({2, 3}, 1. / 3)}) {
    const at::Tensor x = logits().set_requires_grad(true);
    soft_cross_entropy(x, target).backward();
    const at::Tensor y = ensure_targets_one_hot(logits(), target);
    CHECK(at::allclose(x.grad(), (logits().softmax(1) - y) / 2, 1e-6, 1e-7));
  }
}

TEST_CASE("The mean squared error refuses tensors of different shapes, which libtorch's would broadcast") {
  const at::Tensor outputs = at::tensor({1., 2., 4.}).view({3, 1}), targets = at::tensor({1., 1., 1.});
  CHECK(value(mean_squared_error(outputs, targets.view_as(outputs)).to(at::kDouble)) == doctest::Approx(10. / 3));
  CHECK_THROWS_AS(mean_squared_error(outputs, targets), DataError);
  CHECK(test::error_of([&] {
          mean_squared_error(outputs, targets);
        }).starts_with("mean_squared_error: the outputs are [3, 1], and the targets [3]; they must have one shape"));
}

}  // namespace composer::loss_test
