#include <cmath>

#include "composer/core/entry.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::registry_test {
namespace {

enum class Shape { ROUND, FLAT };

struct WatcherOptions {
  std::string monitor;
  double share = 0.25;
  std::int64_t count = 3;
  bool loud = false;
  Time patience = "1ep";
  OptionalTime limit;
  std::optional<std::int64_t> ignored;
  Interval interval = "10ba";
  std::filesystem::path folder = "runs";
  Shape shape = Shape::FLAT;
};

struct Watcher final : Callback {
  explicit Watcher(WatcherOptions given) : options(std::move(given)) {
    if (options.monitor.empty()) throw ConfigError("Watcher: monitor is required");
  }
  void batch_end(const State&, Logger&) override {}
  WatcherOptions options;
};

struct Plain final : Callback {};

const Registry<Callbacks>& registry() {
  using O = WatcherOptions;
  static const Registry<Callbacks> entries = {
      entry<Watcher, O>(
          "watcher", "Watches",
          {option("monitor", &O::monitor).example("acc"), option("share", &O::share).refuses({"x"}),
           option("count", &O::count), option("loud", &O::loud), option("patience", &O::patience),
           option("limit", &O::limit), option("ignored", &O::ignored), option("interval", &O::interval),
           option("folder", &O::folder), option("shape", &O::shape, {{"round", Shape::ROUND}, {"flat", Shape::FLAT}})}),
      entry<Plain>("plain", "Does nothing")};
  return entries;
}

WatcherOptions made(const Settings& settings) {
  const Callbacks list = registry().find("watcher").make(settings);
  REQUIRE(list.size() == 1);
  return dynamic_cast<Watcher&>(*list.list()[0].object).options;
}

std::string error(const Settings& settings) {
  try {
    made(settings);
  } catch (const ConfigError& thrown) {
    return thrown.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("Two options or two entries of one name, and an empty name, are errors when they are described") {
  using O = WatcherOptions;
  const auto made = [](std::vector<Option<O>> options) { entry<Watcher, O>("watcher", "Watches", std::move(options)); };
  CHECK_NOTHROW(made({option("a", &O::share), option("b", &O::count)}));
  CHECK_THROWS_WITH_AS(made({option("a", &O::share), option("b", &O::loud), option("a", &O::count)}),
                       "watcher: \"a\" is there twice", ConfigError);
  CHECK_THROWS_WITH_AS(made({option("", &O::share)}), "watcher: a name is empty", ConfigError);
  CHECK_THROWS_WITH_AS(describe(O{}, std::vector<Option<O>>{option("a", &O::share), option("a", &O::count)}),
                       "describe: \"a\" is there twice", ConfigError);
  using Entries = Registry<Callbacks>;
  CHECK_THROWS_WITH_AS(Entries({entry<Plain>("plain", "x"), entry<Plain>("plain", "y")}),
                       "registry: \"plain\" is there twice", ConfigError);
  CHECK_THROWS_WITH_AS(Entries({entry<Plain>("", "x")}), "registry: a name is empty", ConfigError);
}

TEST_CASE("A registry makes a plug-in with the options given as text") {
  const WatcherOptions options = made({{"monitor", "acc"},
                                       {"share", "1e-3"},
                                       {"count", "-7"},
                                       {"loud", "true"},
                                       {"patience", "20ba"},
                                       {"limit", "0.5dur"},
                                       {"ignored", "-100"},
                                       {"interval", "2ep"},
                                       {"folder", "a/b"},
                                       {"shape", "round"}});
  CHECK(options.monitor == "acc");
  CHECK(options.share == 1e-3);
  CHECK(options.count == -7);
  CHECK(options.loud);
  CHECK(options.patience == Time("20ba"));
  CHECK(options.limit == Time("0.5dur"));
  CHECK(options.ignored == -100);
  CHECK(options.interval.time() == Time("2ep"));
  CHECK(options.folder == "a/b");
  CHECK(options.shape == Shape::ROUND);
  CHECK(std::isnan(made({{"monitor", "acc"}, {"share", "nan"}}).share));
}

TEST_CASE("The default text of an option, given, changes nothing") {
  Settings settings = {{"monitor", "acc"}};
  for (const auto& [name, type, text, example, refused] : registry().find("watcher").options)
    if (!example) settings[name] = text;
  CHECK(settings.size() == 10);
  const WatcherOptions given = made(settings), left_out = made({{"monitor", "acc"}});
  CHECK(given.share == left_out.share);
  CHECK(given.count == left_out.count);
  CHECK(given.patience == left_out.patience);
  CHECK_FALSE(given.limit.has_value());
  CHECK_FALSE(given.ignored.has_value());
  CHECK(given.interval.time() == left_out.interval.time());
  CHECK(given.folder == left_out.folder);
  CHECK(given.shape == left_out.shape);
}

TEST_CASE("Errors name the plug-in, the option, the value and what there is instead") {
  CHECK(error({{"monitr", "acc"}}) ==
        "watcher has no option \"monitr\"; did you mean \"monitor\"? There are: monitor, share, count, loud, patience, "
        "limit, ignored, interval, "
        "folder, "
        "shape");
  CHECK(error({{"share", "1x"}}) == "watcher: share: expected a number, got \"1x\"");
  CHECK(error({{"count", "1.5"}}) == "watcher: count: expected a whole number, got \"1.5\"");
  CHECK(error({{"ignored", "x"}}) == "watcher: ignored: expected a whole number, got \"x\"");
  CHECK(error({{"count", ""}}) == "watcher: count: expected a whole number, got \"\"");
  CHECK(error({{"loud", "yes"}}) == "watcher: loud: expected true or false, got \"yes\"");
  CHECK(error({{"shape", "oval"}}) == "watcher: shape: expected round or flat, got \"oval\"");
  CHECK(error({{"patience", "1.5ep"}}).starts_with("watcher: patience: Time: \"1.5ep\""));
  CHECK(error({}) == "Watcher: monitor is required");
  CHECK_THROWS_WITH_AS(registry().find("wotcher"),
                       "there is no \"wotcher\"; did you mean \"watcher\"? There are: plain, watcher", ConfigError);
}

struct StopperOptions {
  OptionalTime patience;
  double clipping_threshold = 1;
};
struct Stopper final : Callback {
  explicit Stopper(StopperOptions) {}
};

TEST_CASE("An option or a plug-in that has another name elsewhere is found by the error") {
  using O = StopperOptions;
  const Registry<Callbacks> stoppers = {
      entry<Stopper, O>("early_stopper", "Stops",
                        {option("patience", &O::patience), option("clipping_threshold", &O::clipping_threshold)}),
      entry<Plain>("lr_monitor", "Logs")};
  const auto error = [&](const std::string& name, const Settings& settings) {
    return test::error_of([&] { stoppers.find(name).make(settings); });
  };
  CHECK(error("early_stopper", {{"gradient_clip_val", "1"}}) ==
        "early_stopper has no option \"gradient_clip_val\"; did you mean \"clipping_threshold\"? There are: patience, "
        "clipping_threshold");
  CHECK(error("early_stopper", {{"ClippingThreshold", "1"}})
            .starts_with("early_stopper has no option \"ClippingThreshold\"; did you mean \"clipping_threshold\"?"));
  CHECK(error("early_stopper", {{"validate_every_n_epochs", "2"}}) ==
        "early_stopper has no option \"validate_every_n_epochs\"; there are: patience, clipping_threshold. Composer's "
        "\"validate_every_n_epochs\" is eval_interval here; \"2ep\" (docs/reference/old-names.md)");
  CHECK(error("early_stopper", {{"enable_model_summary", ""}}) ==
        "early_stopper has no option \"enable_model_summary\"; there are: patience, clipping_threshold. Lightning's "
        "\"enable_model_summary\" does not exist here; composer::summary(*model, example) "
        "(docs/reference/old-names.md)");
  CHECK(error("EarlyStopping", {}) ==
        "there is no \"EarlyStopping\"; did you mean \"early_stopper\"? There are: early_stopper, lr_monitor");
  CHECK(error("early_stoper", {}).starts_with("there is no \"early_stoper\"; did you mean \"early_stopper\"?"));
  CHECK(error("early_stopper", {{"patiense", "2ep"}})
            .starts_with("early_stopper has no option \"patiense\"; did you mean \"patience\"?"));
  CHECK(error("LRMonitor", {}) ==
        "there is no \"LRMonitor\"; did you mean \"lr_monitor\"? There are: early_stopper, lr_monitor");
  CHECK(error("ModelCheckpoint", {}) ==
        "there is no \"ModelCheckpoint\"; there are: early_stopper, lr_monitor. Lightning's \"ModelCheckpoint\" is "
        "checkpoint_saver here; or the trainer's own save_folder (docs/reference/old-names.md)");
}

TEST_CASE("A plug-in made by name is called at the events it listens to, and no others") {
  CHECK(registry().find("watcher").make({{"monitor", "acc"}}).list()[0].events == EventSet{Event::BATCH_END});
  CHECK(registry().find("plain").make({}).list()[0].events == EventSet{});
}

}  // namespace composer::registry_test
