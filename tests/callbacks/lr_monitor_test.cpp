#include "composer/callbacks/lr_monitor.h"

#include <torch/optim/sgd.h>

#include "composer/optim/optimizer.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::lr_monitor_test {

using callbacks::LRMonitor;
using test::FakeRun;

TEST_CASE("LRMonitor logs the rate in force of each group, under the optimizer's class") {
  const std::vector<torch::optim::OptimizerParamGroup> groups = {torch::optim::OptimizerParamGroup({at::ones(1)}),
                                                                 torch::optim::OptimizerParamGroup({at::ones(1)})};
  const auto optimizer = std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  FakeRun run;
  run.state.optimizer = Handle<optim::Optimizer>(optimizer);
  LRMonitor monitor;
  run.batch(monitor);
  optim::set_learning_rate(*optimizer, 1, 0.05);
  run.batch(monitor);
  CHECK(run.log.values.size() == 2);
  CHECK(run.log.values["lr-SGD/group0"] == std::vector{0.1, 0.1});
  CHECK(run.log.values["lr-SGD/group1"] == std::vector{0.1, 0.05});
  CHECK(run.log.calls[0] == std::vector<std::string>{"lr-SGD/group0", "lr-SGD/group1"});
}

TEST_CASE("LRMonitor logs nothing without an optimizer") {
  FakeRun run;
  LRMonitor monitor;
  run.batch(monitor);
  CHECK(run.log.calls.empty());
}

}  // namespace composer::lr_monitor_test
