// invocation_order.json: who is called at each event, in which order, and which algorithms are traced.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "composer/core/event.h"
#include "composer/core/logger.h"
#include "tests/replay/program.h"
#include "tests/replay/replay.h"
#include "tests/support/sandbox.h"
#include "tests/support/warnings.h"

namespace composer::replay {
namespace {

// [event, [who, ...]] per firing of an event.
class Invocations {
 public:
  void begin(const std::string& event) { list_.push_back({event, Json::array()}); }
  void add(const std::string& event, const std::string& who) {
    if (list_.empty() || list_.back()[0] != event) begin(event);
    // Fired again: the same event begins with somebody who has been called.
    const Json& called = list_.back()[1];
    if (std::find(called.begin(), called.end(), Json(who)) != called.end()) begin(event);
    list_.back()[1].push_back(who);
  }
  const Json& list() const { return list_; }

 private:
  Json list_ = Json::array();
};

struct Setup {
  std::string name;
  EventSet events = EventSet::all();
  bool close_raises = false;
};

Setup setup_of(const Json& recorded) {
  Setup setup{.name = recorded.at("name"), .close_raises = recorded.value("close_raises", false)};
  if (recorded.contains("events")) {
    setup.events = {};
    for (const Json& event : recorded["events"]) setup.events.insert(parse_event(event.get<std::string>()));
  }
  return setup;
}

template <class Base>
class Watcher : public Base {
 public:
  Watcher(Setup setup, std::string prefix, Invocations& to) : setup_(std::move(setup)), to_(to) {
    who_ = std::move(prefix) + setup_.name;
  }
  void run_event(Event event, const State&, Logger&) override {
    if (setup_.events.contains(event)) to_.add(std::string(to_string(event)), who_);
  }
  void close(const State&, Logger&) override {
    to_.add("#close", who_);
    if (setup_.close_raises) throw std::runtime_error("close failed, as asked for");
  }
  void post_close() override { to_.add("#post_close", who_); }

 private:
  Setup setup_;
  Invocations& to_;
  std::string who_;
};

class WatchingLogger final : public Watcher<LoggerDestination> {
 public:
  using Watcher::Watcher;
  bool wants_traces() const override { return true; }
  void log_traces(std::span<const LogEntry> entries, const State&) override {
    Json call = Json::array();
    for (const auto& [key, value] : entries) call.push_back({std::string(key), std::get<std::int64_t>(value)});
    std::sort(call.begin(), call.end());
    traces.push_back(call);
  }
  Json traces = Json::array();
};

struct Alg : Algorithm {
  Alg(Setup given, Invocations& watch) : setup(std::move(given)), to(watch) {}
  EventSet events() const override { return setup.events; }
  void apply(Event event, State&, Logger&) override { to.add(std::string(to_string(event)), "alg:" + setup.name); }
  Setup setup;
  Invocations& to;
};
struct SB final : Alg {
  using Alg::Alg;
  Placement placement() const override { return Placement::FIRST; }
};
struct LP final : Alg {
  using Alg::Alg;
  Placement placement() const override { return Placement::LAST; }
};

std::shared_ptr<Algorithm> algorithm_of(const Json& recorded, Invocations& to) {
  const std::string kind = recorded.value("kind", "");
  if (kind == "selective_backprop") return std::make_shared<SB>(setup_of(recorded), to);
  if (kind == "low_precision_layernorm") return std::make_shared<LP>(setup_of(recorded), to);
  return std::make_shared<Alg>(setup_of(recorded), to);
}

AlgorithmPass pass_of(const Json& recorded) {
  const int index = recorded.value("index", -1);
  const std::string name = recorded.at("pass");
  if (name == "reverse")
    return {[](Event, std::vector<Plugin<Algorithm>>& list) { std::ranges::reverse(list); }, index};
  if (name == "C_first")
    return {[](Event, std::vector<Plugin<Algorithm>>& list) {
              std::ranges::stable_partition(list, [](const Plugin<Algorithm>& plugin) {
                return static_cast<const Alg&>(*plugin.object).setup.name == "C";
              });
            },
            index};
  throw Unsupported{"pass " + name};
}

Json sorted_traces(const Json& recorded) {
  Json traces = recorded;
  for (Json& call : traces) std::sort(call.begin(), call.end());
  return traces;
}

Json replay_order(const Json& config) {
  Invocations invocations;
  Json arguments = {{"max_duration", config.at("max_duration")}};
  if (config.value("save", false)) arguments["save_folder"] = "ck";
  TrainerOptions options = trainer_options(arguments);
  options.train_dataloader = toy_data(config.at("train"));
  options.eval_dataloader = evaluators_of(config.at("eval"));
  std::shared_ptr<WatchingLogger> first;
  for (const Json& logger : config.at("loggers")) {
    auto made = std::make_shared<WatchingLogger>(setup_of(logger), "log:", invocations);
    if (!first) first = made;
    options.loggers.add(made);
  }
  for (const Json& callback : config.at("callbacks"))
    options.callbacks.add(std::make_shared<Watcher<Callback>>(setup_of(callback), "cb:", invocations));
  for (const Json& algorithm : config.at("algorithms")) options.algorithms.add(algorithm_of(algorithm, invocations));
  for (const Json& pass : config.value("algorithm_passes", Json::array()))
    options.algorithm_passes.push_back(pass_of(pass));

  Json order = Json::array();
  for (const Json& logger : config["loggers"]) order.push_back("log:" + logger["name"].get<std::string>());
  for (const Json& callback : config["callbacks"]) order.push_back("cb:" + callback["name"].get<std::string>());
  Trainer trainer(std::move(options));
  if (trainer.engine().callbacks().size() != order.size()) order = "not as many callbacks as were given";
  trainer.fit();
  if (config.value("standalone_eval", false)) trainer.eval();
  if (config.value("predict", false)) trainer.predict(toy_data(config["eval"]));
  trainer.close();
  trainer.close();
  if (config.value("save", false) && trainer.saved_checkpoints().empty()) throw std::runtime_error("nothing was saved");
  return {{"state_callbacks_order", order},
          {"invocations", invocations.list()},
          {"algorithm_traces_of_first_logger", first->traces}};
}

bool has_kind(const Json& c) {
  for (const Json& algorithm : c["config"]["algorithms"])
    if (algorithm.contains("kind")) return true;
  return false;
}

// What our order is, worked out apart from the engine: Composer's with the two placements after the reversal.
Json our_order(const Json& config, const std::string& event) {
  struct Item {
    std::string name, kind;
  };
  std::vector<Item> list;
  for (const Json& algorithm : config["algorithms"]) {
    bool listens = !algorithm.contains("events");
    for (const Json& wanted : algorithm.value("events", Json::array())) listens = listens || wanted == event;
    if (listens) list.push_back({algorithm["name"], algorithm.value("kind", "")});
  }
  const bool reversed = event.starts_with("after_");
  const auto place = [&](const char* kind, bool front) {
    std::ranges::stable_partition(list, [&](const Item& item) { return (item.kind == kind) == (front != reversed); });
  };
  const Json passes = config.value("algorithm_passes", Json::array());
  const auto run_passes = [&](auto&& here) {
    for (const Json& pass : passes) {
      if (!here(pass.value("index", -1))) continue;
      if (pass["pass"] == "reverse")
        std::ranges::reverse(list);
      else
        std::ranges::stable_partition(list, [](const Item& item) { return item.name == "C"; });
    }
  };
  run_passes([](int index) { return index == 0; });
  place("selective_backprop", true);
  run_passes([](int index) { return index == 1; });
  place("low_precision_layernorm", false);
  run_passes([](int index) { return index == 2; });
  if (reversed) std::ranges::reverse(list);
  run_passes([](int index) { return index < 0 || index > 2; });
  Json names = Json::array();
  for (const Item& item : list) names.push_back("alg:" + item.name);
  return names;
}

Rules invocation_order_rules() {
  return {
      {.name = "placements_hold_on_reversed_events",
       .applies_to =
           "Algorithms that want to be first or last (`SelectiveBackprop`, `LowPrecisionLayerNorm`), on events "
           "whose name begins with `AFTER_`",
       .composer_does = "Moves them to the front or the back, then reverses the list, so they end up at the other end.",
       .we_do = "`Placement::FIRST` is first and `Placement::LAST` last at every event.",
       .why = "Selective backpropagation must choose samples before anybody mixes them, as its documentation says.",
       .matches = has_kind,
       .ours =
           [](Json& result, const Json& c) {
             for (Json& invocation : result["invocations"]) {
               Json order = our_order(c["config"], invocation[0]);
               for (const Json& who : invocation[1])
                 if (!who.get<std::string>().starts_with("alg:")) order.push_back(who);
               if (invocation[0].get<std::string>().starts_with("after_")) invocation[1] = order;
             }
           }},
      {.name = "loggers_close_last",
       .applies_to = "Closing a trainer that has callbacks and loggers",
       .composer_does = "Closes loggers before callbacks.",
       .we_do = "Closes loggers after callbacks.",
       .why = "What a callback logs in `close()` is still written.",
       .matches = [](const Json& c) { return !c["config"]["loggers"].empty() && !c["config"]["callbacks"].empty(); },
       .ours =
           [](Json& result, const Json&) {
             for (Json& invocation : result["invocations"])
               if (invocation[0].get<std::string>().starts_with("#"))
                 std::stable_partition(invocation[1].begin(), invocation[1].end(),
                                       [](const Json& who) { return who.get<std::string>().starts_with("cb:"); });
           }},
      {.name = "who_saves_is_no_callback",
       .applies_to = "`save_folder`",
       .composer_does = "Adds a `CheckpointSaver` at the end of the callbacks.",
       .we_do = "The trainer itself saves after the `*_CHECKPOINT` events, when all callbacks have been called.",
       .why = "What is saved is what every callback has left, wherever it stands in the list.",
       .matches = [](const Json& c) { return c["config"].value("save", false); },
       .ours =
           [](Json& result, const Json&) {
             Json& order = result["state_callbacks_order"];
             order.erase(std::remove(order.begin(), order.end(), Json("CheckpointSaver")), order.end());
           }}};
}

Outcome run_invocation_order(const Json& c, const Context&) {
  const Json& config = c.at("config");
  const test::Sandbox sandbox;
  const test::Warnings of_failing_close;
  const Json recorded = {{"state_callbacks_order", c.at("state_callbacks_order")},
                         {"invocations", c.at("invocations")},
                         {"algorithm_traces_of_first_logger", sorted_traces(c.at("algorithm_traces_of_first_logger"))}};
  return judge(c, recorded, replay_order(config), invocation_order_rules());
}

}  // namespace

Suite invocation_order_suite() {
  return {"invocation_order.json", "Order of calls", run_invocation_order, invocation_order_rules()};
}

}  // namespace composer::replay
