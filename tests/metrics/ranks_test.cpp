// Every metric that can be made by name, evaluated by several ranks, is that of one process: for any number of samples.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/data/in_memory.h"
#include "composer/metrics/registry.h"
#include "composer/trainer/trainer.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::test::ranks_test {
namespace {

// Its outputs are the inputs.
class Identity final : public Model {
 public:
  Outputs forward(const Batch& batch) override { return batch.at("input"); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
};

struct Case {
  std::string what;
  Settings settings;
  const Entry<Metrics>* entry;
  Batch data;
  std::int64_t batch_size;
};

// Fewer samples than ranks, batches of which a rank has none, and slices of unequal size.
std::vector<Case> cases() {
  at::manual_seed(5);
  std::vector<Case> all;
  for (const Kind& kind : kinds())
    for (const std::string& name : metrics::registry().names()) {
      const auto& entry = metrics::registry().find(name);
      for (const Settings& settings : settings_of(entry)) {
        if (!accepts(**entry.make(settings).begin(), kind)) continue;
        for (const auto& [samples, batch_size] : {std::pair(1, 4), std::pair(2, 4), std::pair(3, 1), std::pair(9, 4)}) {
          const Step step = kind.draw(samples, at::kDouble);
          all.push_back({join(name, " of ", kind.name, ", ", samples, " samples in batches of ", batch_size),
                         settings,
                         &entry,
                         {{"input", step.outputs.only()}, {"target", step.batch.at("target")}},
                         batch_size});
        }
      }
    }
  return all;
}

std::vector<double> measured(const std::vector<Case>& cases, const std::shared_ptr<dist::World>& world) {
  TrainerOptions options;
  options.model = std::make_shared<Identity>();
  options.device = at::Device(at::kCPU);
  options.handle_signals = false;
  options.world = world;
  Trainer trainer(std::move(options));
  std::vector<double> values;
  for (const Case& one : cases) {
    const Metrics metric = one.entry->make(one.settings);
    trainer.eval({.eval_dataloader = Evaluator{
                      .label = "test",
                      .dataloader = data::in_memory(one.data, {.batch_size = one.batch_size, .shuffle = false}),
                      .metrics = metric}});
    values.push_back(trainer.state().metrics.at("test", (*metric.begin())->name()));
  }
  return values;
}

bool are_nan(double a, double b) { return std::isnan(a) && std::isnan(b); }
bool is_close(double a, double b) { return are_nan(a, b) || std::abs(a - b) <= 1e-12 * std::abs(b); }

TEST_CASE("Every metric made by name is exact with 1 to 4 ranks, also where ranks have few samples or none") {
  const std::vector<Case> all = cases();
  REQUIRE(all.size() > 50);
  const std::vector<double> alone = measured(all, dist::World::alone());
  std::vector<Case> one_by_one = all;
  for (Case& one : one_by_one) one.batch_size = 1;
  const std::vector<double> in_ones = measured(one_by_one, dist::World::alone());
  std::size_t compared = 0;
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto ranks = dist::test::results_in_ranks(
        size, [&](const std::shared_ptr<dist::World>& world) { return measured(all, world); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(all[i].what);
      for (const std::vector<double>& rank : ranks) CHECK((rank[i] == ranks[0][i] || are_nan(rank[i], ranks[0][i])));
      if (!is_close(alone[i], in_ones[i])) continue;  // by its options, it depends on how samples are put into batches
      ++compared;
      CHECK(is_close(ranks[0][i], alone[i]));
    }
  }
  CHECK(compared > 2 * all.size());
}

}  // namespace
}  // namespace composer::test::ranks_test
