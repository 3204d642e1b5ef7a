// What several ranks ask a data set for: every sample once an epoch, all ranks together.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "composer/data/map_style.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::reads_test {
namespace {

using dist::test::results_in_ranks;
using WorldPointer = std::shared_ptr<dist::World>;

// How often each sample was asked for, by what is drawn for it, which is different in each epoch.
class Reads {
 public:
  data::SampleSource source(std::int64_t samples) {
    return {.size = samples, .get = [this](std::int64_t index, RandomStream random) {
              const std::lock_guard lock(mutex_);
              ++counts_[{index, random.next()}];
              return data::Sample{{"input", at::full({4}, static_cast<double>(index), at::kFloat)},
                                  {"target", at::scalar_tensor(index % 3, at::kLong)}};
            }};
  }
  std::int64_t most() const {
    int most = 0;
    for (const auto& [sample, count] : counts_) most = std::max(most, count);
    return most;
  }
  // Beyond the first time in an epoch.
  std::int64_t repeated() const {
    std::int64_t repeated = 0;
    for (const auto& [sample, count] : counts_) repeated += count - 1;
    return repeated;
  }
  // Of the sample that was asked for in the fewest epochs, and in the most.
  std::pair<std::int64_t, std::int64_t> epochs(std::int64_t samples) const {
    std::map<std::int64_t, std::int64_t> by_sample;
    for (std::int64_t index = 0; index < samples; ++index) by_sample[index] = 0;
    for (const auto& [sample, count] : counts_) ++by_sample[sample.first];
    const auto [least, most] = std::ranges::minmax_element(by_sample, {}, [](const auto& one) { return one.second; });
    return {least->second, most->second};
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::int64_t, std::uint64_t>, int> counts_;
};

struct Case {
  std::int64_t samples, workers;
};

TrainerOptions options_of(Reads& reads, const Case& one, const WorldPointer& world) {
  TrainerOptions options = tiny_options();
  options.train_dataloader = data::map_style(reads.source(one.samples), {.batch_size = 6, .num_workers = one.workers});
  options.max_duration = "2ep";
  options.seed = 3;
  options.world = world;
  return options;
}

// Ranks whose first batch is empty read one sample to know the shape of the others.
std::int64_t without_first(std::int64_t samples, std::int64_t ranks) {
  return std::max<std::int64_t>(ranks - std::min<std::int64_t>(samples, 6), 0);
}

TEST_CASE("Several ranks read every sample once an epoch, whatever the number of samples and of workers") {
  for (const int ranks : {2, 4})
    for (const Case& one : {Case{24, 0}, Case{23, 0}, Case{25, 0}, Case{5, 0}, Case{3, 0}, Case{25, 2}, Case{3, 2}}) {
      CAPTURE(ranks);
      CAPTURE(one.samples);
      CAPTURE(one.workers);
      Reads reads;
      const auto counted = results_in_ranks(ranks, [&](const WorldPointer& world) {
        Trainer trainer(options_of(reads, one, world));
        trainer.fit();
        return trainer.state().timestamp.sample;
      });
      for (const std::int64_t samples : counted) CHECK(samples == 2 * one.samples);
      CHECK(reads.repeated() == without_first(one.samples, ranks));
      const auto [least, most] = reads.epochs(one.samples);
      CHECK(least >= 2);
      if (one.workers == 0) CHECK(most == 2);  // workers read ahead of the end of training
    }
}

TEST_CASE("Ranks that resume in the middle of an epoch read what is left of it, once") {
  for (const int ranks : {2, 4})
    for (const std::int64_t stopped_at : {5, 6, 9}) {  // an epoch has five batches, the last of which has one sample
      CAPTURE(ranks);
      CAPTURE(stopped_at);
      Reads reads;
      const Folder folder;
      const auto run = [&](const WorldPointer& world, OptionalTime until) {
        const Warnings warnings;
        TrainerOptions options = options_of(reads, {.samples = 25, .workers = 0}, world);
        options.save_folder = folder / "ck";
        options.save_interval = "1ba";
        options.max_duration = until;
        Trainer trainer(std::move(options));
        trainer.fit();
        return trainer.state().timestamp.sample;
      };
      const Time pause(stopped_at, TimeUnit::BATCH);
      results_in_ranks(ranks, [&](const WorldPointer& world) { return run(world, pause); });
      const auto counted = results_in_ranks(ranks, [&](const WorldPointer& world) { return run(world, "2ep"); });
      for (const std::int64_t samples : counted) CHECK(samples == 50);
      const auto [least, most] = reads.epochs(25);
      CHECK(least == 2);
      CHECK(most == 2);
      CHECK(reads.repeated() == (stopped_at == 9 ? ranks - 1 : 0));  // the first batch of these is empty
    }
}

TEST_CASE("Several ranks evaluate and predict every sample once") {
  for (const int ranks : {2, 4})
    for (const std::int64_t workers : {0, 2}) {
      CAPTURE(ranks);
      CAPTURE(workers);
      Reads trained, evaluated, predicted;
      const auto rows = results_in_ranks(ranks, [&](const WorldPointer& world) {
        TrainerOptions options = options_of(trained, {.samples = 12, .workers = 0}, world);
        options.eval_dataloader =
            data::map_style(evaluated.source(13), {.batch_size = 6, .shuffle = false, .num_workers = workers});
        Trainer trainer(std::move(options));
        trainer.fit();
        trainer.eval();
        const auto loader =
            data::map_style(predicted.source(13), {.batch_size = 6, .shuffle = false, .num_workers = workers});
        std::int64_t rows = 0;
        for (const Outputs& outputs : trainer.predict(loader)) rows += outputs.only().size(0);
        CHECK(trainer.state().eval_timestamp.sample == 13);
        CHECK(trainer.state().predict_timestamp.sample == 13);
        return rows;
      });
      std::int64_t all = 0;
      for (const std::int64_t of_rank : rows) all += of_rank;
      CHECK(all == 13);
      CHECK(predicted.repeated() == 0);
      if (workers == 0) {  // those of an evaluation are all of one epoch: two in the fit, and one of its own
        CHECK(evaluated.most() == 3);
        CHECK(evaluated.repeated() == 13 * 2);
      }
    }
}

}  // namespace
}  // namespace composer::test::reads_test
