// What a training step allocates with operator new, which this program counts. Tensors' data come from elsewhere.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/logger.h"
#include "composer/core/record.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace {

bool counting = false;  // by one thread
std::int64_t allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  if (counting) ++allocations;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, std::max(static_cast<std::size_t>(alignment), alignof(std::max_align_t)));
}
// Not inline: where g++ inlines one of the pair alone, it takes the other for a mismatch.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace composer::test::allocations_test {
namespace {

// Allocations while this is called so many times.
template <class F>
std::int64_t allocations_in(int times, F&& call) {
  allocations = 0;
  counting = true;
  for (int i = 0; i < times; ++i) call();
  counting = false;
  return allocations;
}

// Listens to everything, in the way of a user's callback and of one whose type is known at run time only.
struct Counter final : Callback {
  void batch_end(const State& state, Logger&) override { batches += state.timestamp.batch; }
  void after_loss(const State&, Logger&) override { ++losses; }
  std::int64_t batches = 0, losses = 0;
};
struct Everything final : Callback {
  void run_event(Event, const State&, Logger&) override { ++events; }
  std::int64_t events = 0;
};
struct Touch final : Algorithm {
  EventSet events() const override { return EventSet::all(); }
  void apply(Event, State&, Logger&) override { ++applied; }
  std::int64_t applied = 0;
};

TEST_CASE("operator new is counted") {
  std::vector<int*> kept;
  kept.reserve(3);
  CHECK(allocations_in(3, [&] { kept.push_back(new int(1)); }) == 3);
  for (const int* number : kept) delete number;
}

TEST_CASE("The engine allocates nothing when it calls its listeners") {
  TrainerOptions options = tiny_options();
  options.algorithms = {Touch(), Touch()};
  auto everything = std::make_shared<Everything>();
  options.callbacks = {Counter(), Counter(), everything, callbacks::NaNMonitor()};
  options.loggers = {loggers::InMemoryLogger()};
  options.max_duration = "10ba";
  Trainer trainer(std::move(options));
  trainer.begin();
  for (int i = 0; i < 3; ++i) trainer.step();
  const std::int64_t before = everything->events;
  // Not at EVAL_START and EVAL_END: weights are compared where an algorithm acts at both.
  for (const Event event : {Event::BEFORE_DATALOADER, Event::BATCH_START, Event::BEFORE_FORWARD, Event::AFTER_LOSS,
                            Event::AFTER_TRAIN_BATCH, Event::BATCH_END, Event::EPOCH_END, Event::EVAL_BATCH_START}) {
    CAPTURE(to_string(event));
    CHECK(allocations_in(1000, [&] { trainer.engine().run_event(event); }) == 0);
  }
  CHECK(everything->events == before + 8000);
}

// Keeps records, in memory that it has.
struct Keeper final : LoggerDestination {
  Keeper() { kept.reserve(1000); }
  void log_record(const Record& record, const State&) override { kept.push_back(record.keep()); }
  std::vector<std::shared_ptr<const Record>> kept;
};
// In the way of a user's logger.
struct Reader final : LoggerDestination {
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State&) override { count += metrics.size(); }
  std::size_t count = 0;
};

TEST_CASE("A metric that nobody keeps costs no allocation, and one that several keep no more than for the first") {
  const State state;
  const at::Tensor loss = at::ones({});
  const auto cost_of = [&](std::vector<LoggerDestination*> destinations) {
    Logger logger(state, std::move(destinations));
    const std::vector<LogEntry> entries = {{"loss/train/total", loss}, {"time/batch", std::int64_t{1}}};
    return allocations_in(320, [&] { logger.log_metrics(entries); });
  };
  Reader reader, other;
  Keeper alone, first, second, third;
  CHECK(cost_of({&reader, &other}) == 0);
  CHECK(reader.count == 640);
  const std::int64_t one = cost_of({&alone});
  CHECK(one <= 30);  // 32 records share a piece of memory
  CHECK(cost_of({&first, &second, &reader, &third}) == one);
  CHECK(first.kept == third.kept);
}

// The allocations of a step, on average over 16; a buffer that grows now and then hardly shows.
double per_step(Trainer& trainer) {
  for (int i = 0; i < 80; ++i) trainer.step();
  const std::int64_t batches = trainer.state().timestamp.batch;
  const std::int64_t count = allocations_in(16, [&] { trainer.step(); });
  REQUIRE(trainer.state().timestamp.batch == batches + 16);
  return static_cast<double>(count) / 16;
}

double per_step_by_hand() {
  TrainerOptions tiny = tiny_options();
  auto loader = data::in_memory(tiny_data(16000), {.batch_size = 4, .shuffle = false});
  torch::optim::SGD optimizer(tiny.model->parameters(), 0.1);
  loader->seek(0, 0);
  const auto step = [&] {
    const Batch batch = *loader->next();
    optimizer.zero_grad();
    const at::Tensor loss = tiny.model->loss(tiny.model->forward(batch), batch).front();
    loss.backward();
    optimizer.step();
  };
  for (int i = 0; i < 80; ++i) step();
  return static_cast<double>(allocations_in(16, step)) / 16;
}

TEST_CASE("The trainer adds few allocations to a step, and those of its loggers and callbacks are none") {
  const auto make = [](bool watched) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = data::in_memory(tiny_data(16000), {.batch_size = 4, .shuffle = false});
    if (watched) {
      options.callbacks = {callbacks::SpeedMonitor({.window_size = 10}), callbacks::LRMonitor(),
                           callbacks::NaNMonitor()};
      options.loggers = {loggers::InMemoryLogger()};
    }
    Trainer trainer(std::move(options));
    trainer.begin();
    const double count = per_step(trainer);
    trainer.end();
    return count;
  };
  const double by_hand = per_step_by_hand(), plain = make(false), watched = make(true);
  MESSAGE("allocations a step: by hand ", by_hand, ", trainer ", plain, ", with 3 callbacks and a logger ", watched);
  CHECK(plain - by_hand <= 8);
  CHECK(watched - plain < 1);
}

}  // namespace
}  // namespace composer::test::allocations_test
