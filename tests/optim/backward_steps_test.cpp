#include "composer/optim/backward_steps.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/util/recompute.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::test::backward_steps_test {
namespace {

using Places = std::vector<std::pair<std::size_t, std::size_t>>;

at::Tensor parameter() { return at::ones({2}).set_requires_grad(true); }

// Writes down which places it would update.
struct Watched {
  Places updated;
  optim::detail::BackwardSteps steps{"sgd", [this](std::size_t g, std::size_t i) { updated.emplace_back(g, i); },
                                     [](std::size_t g, std::size_t i) { return join("parameter ", g, '.', i); }};

  Places after(const at::Tensor& loss) {
    updated.clear();
    loss.sum().backward();
    return updated;
  }
};

TEST_CASE("A parameter is updated when its gradient is complete, by its place, until it is released") {
  Watched watched;
  const at::Tensor a = parameter(), b = parameter();
  watched.steps.watch(a, 0, 0);
  watched.steps.watch(b, 1, 1);
  CHECK(watched.after(a) == Places{{0, 0}});
  CHECK(watched.after(b * 2) == Places{{1, 1}});
  watched.steps.finish();
  CHECK(watched.updated.size() == 1);  // nothing was left to do
  watched.steps.release(a);
  CHECK(watched.after(a + b) == Places{{1, 1}});
}

TEST_CASE("Places move up where one is erased, and come anew where all are cleared") {
  Watched watched;
  const at::Tensor a = parameter(), b = parameter();
  watched.steps.watch(a, 0, 0);
  watched.steps.watch(b, 0, 1);
  for (const at::Tensor& one : {a, b}) watched.steps.release(one);
  watched.steps.erase(0, 0);
  watched.steps.watch(b, 0, 0);
  CHECK(watched.after(a + b) == Places{{0, 0}});
  watched.steps.release(b);
  watched.steps.clear();
  watched.steps.watch(a, 2, 0);
  CHECK(watched.after(a + b) == Places{{2, 0}});
}

TEST_CASE("After its owner has gone a hook does nothing, and the one below it still runs") {
  const at::Tensor a = parameter();
  Watched below;
  below.steps.watch(a, 0, 0);
  auto above = std::make_unique<Watched>();
  above->steps.watch(a, 5, 5);
  CHECK(below.after(a) == Places{{0, 0}});
  CHECK(above->updated == Places{{5, 5}});
  above.reset();  // without a release
  CHECK(below.after(a) == Places{{0, 0}});
}

// A parameter that two segments use: its gradient is completed twice.
TEST_CASE("The first step leaves a parameter of several checkpoints to its end, and the next ones know the number") {
  Watched watched;
  const at::Tensor a = parameter();
  watched.steps.watch(a, 0, 0);
  const auto loss = [&](int segments) {
    at::Tensor x = at::ones({2});
    for (int i = 0; i < segments; ++i) x = checkpoint([a](const at::Tensor& input) { return input * a; }, x);
    return x;
  };
  watched.steps.begin();
  CHECK(watched.after(loss(2)).empty());
  watched.steps.finish();
  CHECK(watched.updated == Places{{0, 0}});
  watched.steps.begin();
  CHECK(watched.after(loss(2)) == Places{{0, 0}});
  watched.steps.finish();
  CHECK(watched.updated.size() == 1);
  watched.steps.begin();
  CHECK(watched.after(loss(1)).empty());  // less often than expected
  watched.steps.finish();
  CHECK(watched.updated == Places{{0, 0}});
  watched.steps.begin();
  CHECK(error_of([&] { watched.after(loss(3)); }).find("sgd: step_in_backward already updated parameter 0.0") !=
        std::string::npos);
}

}  // namespace
}  // namespace composer::test::backward_steps_test
