#include "composer/core/engine.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::engine_test {
namespace {

using Log = std::vector<std::string>;

struct Named : Callback {
  Named(std::string given, Log& to) : name(std::move(given)), log(to) {}
  void run_event(Event, const State&, Logger&) override { log.push_back(name); }
  void close(const State&, Logger&) override {
    log.push_back("close " + name);
    if (fails) throw std::runtime_error("no");
  }
  void post_close() override { log.push_back("post " + name); }
  std::string name;
  Log& log;
  bool fails = false;
};

struct NamedLogger : LoggerDestination {
  NamedLogger(std::string given, Log& to) : name(std::move(given)), log(to) {}
  void run_event(Event, const State&, Logger&) override { log.push_back(name); }
  void close(const State&, Logger&) override { log.push_back("close " + name); }
  bool wants_traces() const override { return true; }
  void log_traces(std::span<const LogEntry> entries, const State&) override {
    for (const auto& [key, value] : entries) traces.emplace_back(key);
  }
  std::string name;
  Log& log;
  Log traces;
};

struct Alg : Algorithm {
  Alg(std::string given, Log& to) : name(std::move(given)), log(to) {}
  EventSet events() const override { return at; }
  bool match(Event, const State&) const override {
    ++asked;
    return matches;
  }
  void apply(Event, State&, Logger&) override { log.push_back(name); }
  Placement placement() const override { return where; }
  std::string name;
  Log& log;
  EventSet at = EventSet::all();
  bool matches = true;
  mutable int asked = 0;
  Placement where = Placement::ANY;
};

// Two loggers, callbacks X and Y, algorithms A, B and C.
struct Fixture {
  Fixture() { run.state.max_duration = "1ep"; }
  Engine engine(const std::vector<AlgorithmPass>& passes = {}) {
    return Engine(run.state, run.logger, {a, b, c}, {x, y}, {l1, l2}, passes);
  }
  Log at(Engine& engine, Event event) {
    log.clear();
    engine.run_event(event);
    return log;
  }
  test::FakeRun run;
  Log log;
  std::shared_ptr<NamedLogger> l1 = std::make_shared<NamedLogger>("L1", log),
                               l2 = std::make_shared<NamedLogger>("L2", log);
  std::shared_ptr<Named> x = std::make_shared<Named>("X", log), y = std::make_shared<Named>("Y", log);
  std::shared_ptr<Alg> a = std::make_shared<Alg>("A", log), b = std::make_shared<Alg>("B", log),
                       c = std::make_shared<Alg>("C", log);
};

TEST_CASE("At INIT loggers come first, then callbacks, then algorithms; elsewhere the other way round") {
  Fixture f;
  Engine engine = f.engine();
  CHECK(f.at(engine, Event::INIT) == Log{"L1", "L2", "X", "Y", "A", "B", "C"});
  CHECK(f.at(engine, Event::BATCH_START) == Log{"A", "B", "C", "X", "Y", "L1", "L2"});
}

TEST_CASE("Algorithms are last in, first out on events whose name begins with AFTER_, and only there") {
  Fixture f;
  Engine engine = f.engine();
  CHECK(f.at(engine, Event::AFTER_LOSS) == Log{"C", "B", "A", "X", "Y", "L1", "L2"});
  CHECK(f.at(engine, Event::EVAL_AFTER_FORWARD) == Log{"A", "B", "C", "X", "Y", "L1", "L2"});
  CHECK(f.at(engine, Event::BATCH_END) == Log{"A", "B", "C", "X", "Y", "L1", "L2"});
}

TEST_CASE("An algorithm is asked once at its events, and applied only if it said yes") {
  Fixture f;
  f.a->matches = false;
  f.b->at = {Event::BEFORE_LOSS};
  Engine engine = f.engine();
  CHECK(f.at(engine, Event::BATCH_START) == Log{"C", "X", "Y", "L1", "L2"});
  CHECK(f.a->asked == 1);
  CHECK(f.b->asked == 0);
}

TEST_CASE("Those that want to be first or last are, also on reversed events") {
  Fixture f;
  f.c->where = Placement::FIRST;
  f.a->where = Placement::LAST;
  Engine engine = f.engine();
  CHECK(f.at(engine, Event::BATCH_START) == Log{"C", "B", "A", "X", "Y", "L1", "L2"});
  CHECK(f.at(engine, Event::AFTER_DATALOADER) == Log{"C", "B", "A", "X", "Y", "L1", "L2"});
}

TEST_CASE("A pass goes where its index says, and -1 is the end") {
  const Pass c_first = [](Event, std::vector<Plugin<Algorithm>>& list) { std::swap(list.front(), list.back()); };
  Fixture f;
  {
    Engine engine = f.engine({c_first});  // after the reversal
    CHECK(f.at(engine, Event::AFTER_LOSS) == Log{"A", "B", "C", "X", "Y", "L1", "L2"});
    CHECK(f.at(engine, Event::BATCH_START) == Log{"C", "B", "A", "X", "Y", "L1", "L2"});
  }
  const Pass drop_first = [](Event, std::vector<Plugin<Algorithm>>& list) { list.erase(list.begin()); };
  Engine engine = f.engine();
  engine.register_pass(drop_first, 0);  // before the reversal
  CHECK(f.at(engine, Event::AFTER_LOSS) == Log{"C", "B", "X", "Y", "L1", "L2"});
  CHECK_THROWS_AS(engine.register_pass(drop_first, -2), ConfigError);
  CHECK_THROWS_AS(engine.register_pass(nullptr), ConfigError);
}

TEST_CASE("Applied algorithms are traced, others are not") {
  Fixture f;
  f.a->matches = false;
  Logger logger(f.run.state, {f.l1.get()});
  Engine engine(f.run.state, logger, {f.a, f.b}, {}, {f.l1});
  engine.run_event(Event::BEFORE_LOSS);
  CHECK(f.l1->traces == Log{"algorithm_traces/Alg/Event.BEFORE_LOSS"});
}

TEST_CASE("close() closes all in order, isolates failures, skips post_close for those, and is idempotent") {
  Fixture f;
  f.x->fails = true;
  Engine engine = f.engine();
  engine.close();
  CHECK(f.log == Log{"close X", "close Y", "close L1", "close L2", "post Y"});
  f.log.clear();
  engine.close();
  CHECK(f.log.empty());
  CHECK_THROWS_AS(engine.run_event(Event::BATCH_START), Error);
}

TEST_CASE("A callback is in one open trainer at a time, and free again after close() even if that failed") {
  Fixture f;
  f.x->fails = true;
  Engine first = f.engine();
  CHECK_THROWS_WITH_AS(f.engine(), doctest::Contains("is in a trainer that is still open"), ConfigError);
  first.close();
  CHECK_NOTHROW(f.engine());
}

TEST_CASE("A refused callback leaves the others free") {
  Fixture f;
  Engine first(f.run.state, f.run.logger, {}, {f.y}, {});
  CHECK_THROWS_AS(f.engine(), ConfigError);  // x was opened before y was refused
  CHECK_NOTHROW(Engine(f.run.state, f.run.logger, {}, {f.x}, {}));
}

TEST_CASE("What a listener throws says who, at which event and where, and stops the listeners after it") {
  struct Throws : Callback {
    void after_loss(const State&, Logger&) override { throw std::out_of_range("boom"); }
  };
  Fixture f;
  f.run.state.timestamp = f.run.state.timestamp.to_next_batch(4).to_next_batch(4);
  Engine engine(f.run.state, f.run.logger, {}, {Throws(), f.x}, {});
  try {
    engine.run_event(Event::AFTER_LOSS);
    FAIL("it threw nothing");
  } catch (const RunError& error) {
    CHECK(describe(error) == "Throws failed at after_loss, epoch 0, batch 2\n  because: boom");
  }
  CHECK(f.log.empty());
}

TEST_CASE("Events outside of construction need a loader, and none a max_duration") {
  Fixture f;
  Engine engine = f.engine();
  f.run.state.has_dataloader = false;
  for (int i = 0; i < kEventCount; ++i) {
    const auto event = static_cast<Event>(i);
    const bool free = event == Event::INIT || event == Event::BEFORE_LOAD || event == Event::AFTER_LOAD ||
                      event == Event::EVAL_STANDALONE_START || event == Event::EVAL_STANDALONE_END;
    CAPTURE(to_string(event));
    if (free)
      CHECK_NOTHROW(engine.run_event(event));
    else
      CHECK_THROWS_AS(engine.run_event(event), ConfigError);
  }
  f.run.state.has_dataloader = true;
  f.run.state.max_duration = std::nullopt;
  for (const Event event : {Event::FIT_START, Event::BATCH_START, Event::EVAL_START, Event::PREDICT_START})
    CHECK_NOTHROW(engine.run_event(event));
}

struct Counts : Callback {
  void batch_end(const State&, Logger&) override { ++batches; }
  int batches = 0;
};

TEST_CASE("A copy of a callback of an open trainer can be used in another one") {
  test::FakeRun run;
  const auto first = std::make_shared<Counts>();
  const Engine engine(run.state, run.logger, {}, {first}, {});
  CHECK_NOTHROW(Engine(run.state, run.logger, {}, {Counts(*first)}, {}));
}

TEST_CASE("An algorithm is in one open trainer at a time, and trials run it all the same") {
  Fixture f;
  Engine first(f.run.state, f.run.logger, {f.a}, {}, {});
  CHECK_THROWS_WITH_AS(Engine(f.run.state, f.run.logger, {f.a}, {}, {}),
                       doctest::Contains("this Alg is in a trainer that is still open"), ConfigError);
  {
    Engine trial(f.run.state, f.run.logger, first, Engine::ForTrial{});
    CHECK(f.at(trial, Event::BATCH_START) == Log{"A"});
  }
  CHECK_THROWS_AS(Engine(f.run.state, f.run.logger, {f.a}, {}, {}), ConfigError);  // the trial does not free it
  first.close();
  CHECK_NOTHROW(Engine(f.run.state, f.run.logger, {f.a}, {}, {}));
}

TEST_CASE("One object given twice is refused in these words, and free afterwards") {
  Fixture f;
  CHECK_THROWS_WITH_AS(Engine(f.run.state, f.run.logger, {}, {f.x, f.y, f.x}, {}),
                       "Engine: the same Named object was given twice; give it once, or make another one", ConfigError);
  CHECK_THROWS_WITH_AS(Engine(f.run.state, f.run.logger, {f.a, f.a}, {}, {}), doctest::Contains("same Alg object"),
                       ConfigError);
  CHECK_NOTHROW(f.engine());
}

struct Mixes : Algorithm {
  EventSet events() const override { return {}; }
  void apply(Event, State&, Logger&) override {}
  bool mixes_targets() const override { return true; }
};
struct Interpolates : Mixes {
  bool interpolates_loss() const override { return true; }
};

TEST_CASE("Only the last of the algorithms that mix targets may interpolate the loss") {
  test::FakeRun run;
  CHECK_THROWS_WITH_AS(
      Engine(run.state, run.logger, {Interpolates(), Interpolates()}, {}, {}),
      "algorithms: Interpolates and Interpolates both have interpolate_loss; set it for the last one only",
      ConfigError);
  CHECK_THROWS_WITH_AS(Engine(run.state, run.logger, {Interpolates(), Mixes()}, {}, {}),
                       "algorithms: Interpolates has interpolate_loss, and Mixes, which mixes targets, comes after it; "
                       "give Interpolates last",
                       ConfigError);
  const Engine engine(run.state, run.logger, {Mixes(), Interpolates()}, {}, {});
  CHECK_NOTHROW(Engine(run.state, run.logger, engine, Engine::ForTrial{}));
}

TEST_CASE("A pass registered within an event holds after it, and the listeners of the event stay as they were") {
  Fixture f;
  Engine* engine_of_callback = nullptr;
  struct Registers : Callback {
    explicit Registers(Engine*& given) : engine(given) {}
    void batch_end(const State&, Logger&) override {
      if (const int now = ++times; now == 1)
        engine->register_pass([](Event, std::vector<Plugin<Algorithm>>& list) { std::ranges::reverse(list); });
      else if (now == 2)
        CHECK_THROWS_AS(engine->register_pass([](Event, std::vector<Plugin<Algorithm>>&) { throw Error("bad"); }),
                        Error);
    }
    Engine*& engine;
    int times = 0;
  };
  Engine engine(f.run.state, f.run.logger, {f.a, f.b, f.c}, {Registers(engine_of_callback), f.x, f.y}, {});
  engine_of_callback = &engine;
  const std::uint64_t before = engine.generation();
  CHECK(f.at(engine, Event::BATCH_END) == Log{"A", "B", "C", "X", "Y"});
  CHECK(engine.generation() == before + 1);
  CHECK(f.at(engine, Event::BATCH_END) == Log{"C", "B", "A", "X", "Y"});
  CHECK(f.at(engine, Event::BATCH_END) == Log{"C", "B", "A", "X", "Y"});  // the pass that failed was not kept
  CHECK(engine.generation() == before + 1);
}

TEST_CASE("The engine tells which events algorithms and callbacks listen to") {
  test::FakeRun run;
  Fixture f;
  f.a->at = {Event::BEFORE_LOSS};
  Engine engine(run.state, run.logger, {f.a}, {Counts()}, {});
  CHECK(engine.heard_by_algorithms() == EventSet{Event::BEFORE_LOSS});
  CHECK(engine.heard_by_callbacks() == EventSet{Event::BATCH_END});
  CHECK(engine.listens(Event::BEFORE_LOSS));
  CHECK(engine.listens(Event::BATCH_END));
  CHECK_FALSE(engine.listens(Event::AFTER_LOSS));
  engine.close();
  CHECK_FALSE(engine.listens(Event::AFTER_LOSS));
}

struct InPlace : Algorithm {
  explicit InPlace(bool replaces) : replaces(replaces) {}
  EventSet events() const override { return {Event::BATCH_START}; }
  void apply(Event, State& state, Logger&) override {
    if (replaces)
      state.batch.set("input", state.batch["input"].mul(2).add_(1));
    else
      state.batch["input"].slice(0, 0, 1).mul_(2);  // a view changes what it is of
  }
  bool replaces;
};

TEST_CASE("An algorithm that changes a tensor of the batch in place is named, one that replaces it is not") {
  test::FakeRun run;
  run.state.batch = {{"target", at::zeros({4})}, {"input", at::ones({4, 2})}};
  Engine good(run.state, run.logger, {InPlace(true)}, {}, {});
  CHECK_NOTHROW(good.run_event(Event::BATCH_START));
  Engine bad(run.state, run.logger, {InPlace(false)}, {}, {});
  CHECK_THROWS_WITH_AS(bad.run_event(Event::BATCH_START),
                       doctest::Contains("InPlace failed at batch_start, epoch 0, batch 0\n  because: \"input\" of the "
                                         "batch was changed in place"),
                       RunError);
  {
    const c10::InferenceMode inference;  // whose tensors are not counted
    run.state.batch = {{"input", at::ones({4, 2})}};
    CHECK_NOTHROW(good.run_event(Event::BATCH_START));
  }
}

struct ClosingLogger : LoggerDestination {
  explicit ClosingLogger(Log& to) : log(to) {}
  void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State&) override {
    if (!closed) log.emplace_back(metrics.front().key);
  }
  void close(const State&, Logger&) override { closed = true; }
  Log& log;
  bool closed = false;
};
struct LogsAtClose : Callback {
  void close(const State&, Logger& logger) override { logger.log_metrics({{"at close", 1.0}}); }
};

TEST_CASE("What a callback logs in close() reaches the loggers") {
  Fixture f;
  const auto destination = std::make_shared<ClosingLogger>(f.log);
  Logger logger(f.run.state, {destination.get()});
  Engine engine(f.run.state, logger, {}, {LogsAtClose()}, {destination});
  engine.close();
  CHECK(f.log == Log{"at close"});
}

TEST_CASE("A logger among the callbacks is refused, also if its type is known at run time only") {
  Fixture f;
  const std::shared_ptr<Callback> hidden = f.l1;
  CHECK_THROWS_WITH_AS(Callbacks{hidden}, "callbacks: NamedLogger is a logger; give it to .loggers", ConfigError);
}

TEST_CASE("A null pointer is no callback") { CHECK_THROWS_AS(Callbacks(std::shared_ptr<Named>()), ConfigError); }

}  // namespace
}  // namespace composer::engine_test
