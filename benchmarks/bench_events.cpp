// What does an event without listeners cost, and one with 1 or 10 listeners?
#include <atomic>

#include "benchmarks/bench.h"
#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/state.h"

namespace composer::bench {
namespace {

// Counts at AFTER_LOSS, and listens to no other event.
struct Listener final : Callback {
  explicit Listener(std::int64_t& calls) : count(&calls) {}
  void after_loss(const State&, Logger&) override { ++*count; }
  std::int64_t* count;
};

struct Bench {
  explicit Bench(int listeners) : expected(listeners), engine(state, logger, {}, callbacks(listeners), {}) {
    state.has_dataloader = true;
    state.max_duration = "1ep";
  }

  Callbacks callbacks(int listeners) {
    Callbacks list;
    for (int i = 0; i < listeners; ++i) list.add(Listener(calls));
    return list;
  }

  void run(int times) {
    for (int i = 0; i < times; ++i) {
      engine.run_event(Event::AFTER_LOSS);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // prevents optimisations across iterations
    }
    expected_calls += static_cast<std::int64_t>(times) * expected;
  }

  void check() const {
    if (calls != expected_calls) throw Error("expected ", expected_calls, " calls, got ", calls);
  }

  int expected;
  std::int64_t calls = 0, expected_calls = 0;
  State state;
  Logger logger{state, {}};
  Engine engine;
};

void measure_events(int argc, char** argv) {
  Report report(parse(argc, argv));
  Bench nobody(0), one(1), ten(10);
  report.compare("run_event",
                 {{"an empty loop",
                   [](int times) {
                     for (int i = 0; i < times; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
                   }},
                  {"no listener", [&](int times) { nobody.run(times); }},
                  {"1 listener", [&](int times) { one.run(times); }},
                  {"10 listeners", [&](int times) { ten.run(times); }}},
                 300, 20000);
  for (const Bench* bench : {&nobody, &one, &ten}) bench->check();
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_events(argc, argv); }
