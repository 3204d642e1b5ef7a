#include "composer/core/engine.h"

#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "tests/support/fake_run.h"

namespace composer {
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
  CHECK(f.log == Log{"close L1", "close L2", "close X", "close Y", "post Y"});
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

TEST_CASE("A null pointer is no callback") { CHECK_THROWS_AS(Callbacks(std::shared_ptr<Named>()), ConfigError); }

}  // namespace
}  // namespace composer
