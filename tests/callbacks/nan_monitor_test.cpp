#include "composer/callbacks/nan_monitor.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::nan_monitor_test {

using callbacks::NaNMonitor;
using test::FakeRun;

TEST_CASE("NaNMonitor throws at the first loss that is NaN") {
  struct Case {
    const char* why;
    Losses loss;
    bool throws;
  };
  const at::Tensor one = at::ones({}), nan = at::scalar_tensor(NAN);
  const Case cases[] = {
      {"a number", one, false},
      {"NaN", nan, true},
      {"double", nan.to(at::kDouble), true},
      {"bfloat16", nan.to(at::kBFloat16), true},
      {"with a gradient", at::scalar_tensor(NAN).requires_grad_(), true},
      {"infinity is none", at::scalar_tensor(INFINITY), false},
      {"in the second of two", {{"a", one}, {"b", nan}}, true},
      {"in the second of two, unless it is a number", {{"a", one}, {"b", one}}, false},
      {"one element of several", at::stack({one, nan, one}), true},
      {"several elements", at::ones({3}), false},
      {"whole numbers", at::ones({}, at::kLong), false},
      {"no loss", {}, false},
  };
  for (const auto& [why, loss, throws] : cases) {
    CAPTURE(why);
    NaNMonitor monitor;
    FakeRun run;
    run.state.loss = loss;
    bool thrown = false;
    try {
      monitor.run_event(Event::AFTER_LOSS, run.state, run.logger);
    } catch (const Error&) {
      thrown = true;
    }
    CHECK(thrown == throws);
  }
}

TEST_CASE("NaNMonitor names the loss") {
  NaNMonitor monitor;
  FakeRun run;
  run.state.loss = {{"mlm", at::ones({})}, {"nsp", at::scalar_tensor(NAN)}};
  CHECK_THROWS_WITH_AS(monitor.run_event(Event::AFTER_LOSS, run.state, run.logger),
                       "NaNMonitor: the training loss \"nsp\" is NaN", Error);
}

}  // namespace composer::nan_monitor_test
