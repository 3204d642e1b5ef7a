// The means of an epoch that are logged beside the values of its batches.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "composer/loggers/in_memory_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::epoch_means_test {
namespace {

using loggers::InMemoryLogger;

constexpr const char* kLoss = "loss/train/total";
constexpr const char* kAccuracy = "metrics/train/MulticlassAccuracy";

// 10 samples in batches of 4, 4 and 2.
TrainerOptions options_of(const std::shared_ptr<InMemoryLogger>& log) {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.train_dataloader = tiny_loader(10, 4);
  options.max_duration = "2ep";
  options.loggers = {log};
  return options;
}

bool has(const InMemoryLogger& log, const std::string& key) { return std::ranges::count(log.keys(), key) > 0; }

TEST_CASE(
    "When an epoch ends, the means of its losses and metrics are logged, weighted by the samples of its batches") {
  const auto log = std::make_shared<InMemoryLogger>();
  Trainer(options_of(log)).fit();
  for (const char* key : {kLoss, kAccuracy}) {
    CAPTURE(key);
    std::vector<double> of_batches(6, NAN);  // at the end of an epoch, the metric of its last batch is logged again
    for (const auto& [timestamp, value] : log->get_timeseries(key))
      if (timestamp.batch < 6 && std::isnan(of_batches.at(static_cast<std::size_t>(timestamp.batch))))
        of_batches[static_cast<std::size_t>(timestamp.batch)] = to_number(value);
    const auto means = log->get_timeseries(std::string(key) + "_epoch");
    REQUIRE(means.size() == 2);
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      const double* of = of_batches.data() + 3 * epoch;
      if (key == std::string(kLoss))
        CHECK(means[epoch].number() == doctest::Approx((4 * of[0] + 4 * of[1] + 2 * of[2]) / 10));
      CHECK(means[epoch].timestamp.batch == static_cast<std::int64_t>(3 * epoch + 3));
    }
  }
}

TEST_CASE("The mean of a metric over an epoch whose weights do not change is the metric of all its samples") {
  const auto log = std::make_shared<InMemoryLogger>();
  TrainerOptions options = options_of(log);
  options.optimizer = optim::sgd({.lr = 1e-30});
  options.max_duration = "1ep";
  options.eval_dataloader = tiny_loader(10, 10);
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->most_recent("metrics/train/MulticlassAccuracy_epoch").number() ==
        doctest::Approx(trainer.state().metrics.at("eval", "MulticlassAccuracy")));
  CHECK(log->most_recent("loss/train/total_epoch").number() ==
        doctest::Approx(trainer.state().metrics.at("eval", "CrossEntropy")));
}

TEST_CASE("An epoch that is trained by several fits has the means of one fit, and one that does not end has none") {
  const auto whole = std::make_shared<InMemoryLogger>(), parts = std::make_shared<InMemoryLogger>();
  Trainer(options_of(whole)).fit();
  Trainer trainer(options_of(parts));
  trainer.fit("2ba");
  CHECK_FALSE(has(*parts, "loss/train/total_epoch"));
  trainer.fit("3ba");
  CHECK(parts->get_timeseries("loss/train/total_epoch").size() == 1);
  trainer.fit("1ba");
  const auto expected = whole->get_timeseries("loss/train/total_epoch"),
             got = parts->get_timeseries("loss/train/total_epoch");
  REQUIRE(got.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(got[i].number() == expected[i].number());
}

TEST_CASE("Rank 0 logs the means over the samples of all ranks") {
  const auto alone = std::make_shared<InMemoryLogger>();
  Trainer(options_of(alone)).fit();
  const auto in_ranks = std::make_shared<InMemoryLogger>();
  dist::test::results_in_ranks(2, [&](const WorldPointer& world) {
    TrainerOptions options = options_of(world->rank() == 0 ? in_ranks : std::make_shared<InMemoryLogger>());
    fit_in(world, std::move(options));
    return 0;
  });
  const auto expected = alone->get_timeseries("loss/train/total_epoch"),
             got = in_ranks->get_timeseries("loss/train/total_epoch");
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i].number() == doctest::Approx(expected[i].number()).epsilon(1e-6));
}

}  // namespace
}  // namespace composer::test::epoch_means_test
