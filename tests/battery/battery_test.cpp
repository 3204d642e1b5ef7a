// What every callback, algorithm, logger and metric that can be made by name must stand, none of them named here.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/registry.h"
#include "composer/callbacks/registry.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/registry.h"
#include "composer/metrics/registry.h"
#include "composer/trainer/trainer.h"
#include "tests/battery/host_reads.h"
#include "tests/support/doctest.h"
#include "tests/support/quiet.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/tiny_images.h"

namespace composer::battery_test {

using test::HostReads;

namespace {

// A new folder to run in, and silence: files and lines that loggers write by default go nowhere.
struct Sandbox {
  test::Sandbox folder;
  test::Quiet quiet;
};

// Calls f with each entry of the registry. One that throws does not hide the others.
template <class List, class F>
void for_each(const Registry<List>& registry, F f) {
  for (const std::string& name : registry.names()) {
    CAPTURE(name);
    try {
      f(registry.find(name));
    } catch (const std::exception& error) {
      FAIL_CHECK(describe(error));
    }
  }
}

template <class F>
void for_each_plugin(F f) {
  for_each(callbacks::registry(), f);
  for_each(algorithms::registry(), f);
  for_each(loggers::registry(), f);
}

template <class List>
Settings examples(const Entry<List>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  return settings;
}

// The defaults, and every value of every option that has only a few, one at a time.
template <class List>
std::vector<Settings> variants(const Entry<List>& entry) {
  std::vector<Settings> all = {examples(entry)};
  for (const OptionInfo& option : entry.options) {
    const std::string separator = " or ";
    if (option.type.find(separator) == std::string::npos) continue;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + separator.size()) {
      end = option.type.find(separator, begin);
      all.push_back(examples(entry));
      all.back()[option.name] = option.type.substr(begin, end - begin);
    }
  }
  return all;
}

std::string text(const Settings& settings) {
  return listed(settings, [](const auto& one) { return join(one.first, "=", one.second); });
}

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("a neighbour") {}
};

// Throws the second time that this event happens, or the first if it happens once in a trainer's life.
class Neighbour final : public Callback {
 public:
  explicit Neighbour(Event event) : event_(event), left_(event == Event::INIT ? 0 : 1) {}
  void run_event(Event event, const State&, Logger&) override {
    if (event == event_ && left_-- == 0) throw Thrown();
  }

 private:
  Event event_;
  int left_;
};

// What algorithms find in a batch: images [1, 2, 2], because some accept nothing else, and tokens.
std::shared_ptr<Loader> image_loader(std::int64_t samples) {
  Batch batch = test::tiny_images(samples, 2);
  batch.set("input_ids", at::arange(samples * 8, at::kLong).remainder(11).view({samples, 8}));
  return data::in_memory(std::move(batch), {.batch_size = 4, .shuffle = false});
}

TrainerOptions options() {
  TrainerOptions options = test::tiny_options();
  options.model = test::tiny_model(/*train_metrics=*/true);
  options.eval_dataloader = test::tiny_loader(6, 4);
  options.max_duration = "2ep";
  return options;
}

TrainerOptions options(const Callbacks& list) {
  TrainerOptions with = options();
  with.callbacks = list;
  return with;
}
TrainerOptions options(const Algorithms& list) {
  TrainerOptions with = options();
  with.model = test::tiny_image_model();
  with.train_dataloader = image_loader(16);
  with.eval_dataloader = image_loader(6);
  with.algorithms = list;
  return with;
}
TrainerOptions options(const Loggers& list) {
  TrainerOptions with = options();
  with.loggers = list;
  return with;
}

template <class List>
void check_refuses(const Entry<List>& entry, const std::string& option, const std::string& text) {
  CAPTURE(option);
  CAPTURE(text);
  Settings settings = examples(entry);
  settings[option] = text;
  CHECK_THROWS_AS(entry.make(settings), ConfigError);
}

}  // namespace

TEST_CASE("There are callbacks and algorithms that can be made by name") {
  CHECK_FALSE(callbacks::registry().names().empty());
  CHECK_FALSE(algorithms::registry().names().empty());
}

TEST_CASE("Everything that can be made by name says what it is, and is made from its defaults and its examples") {
  const auto check = [](const auto& entry) {
    CHECK_FALSE(entry.summary.empty());
    CHECK(entry.make(examples(entry)).size() == 1);
    Settings all = examples(entry);
    for (const OptionInfo& option : entry.options)
      if (!option.example) all[option.name] = option.default_text;
    CHECK(entry.make(all).size() == 1);
  };
  for_each_plugin(check);
  for_each(metrics::registry(), check);
}

TEST_CASE("Every callback and algorithm tells the options that it was made with") {
  const auto is = [](const StateValue& value, const std::string& given) {
    if (const auto* text = std::get_if<std::string>(&value)) return *text == given;
    if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number) == given;
    if (const auto* number = std::get_if<double>(&value)) return *number == std::stod(given);
    return std::get<bool>(value) == (given == "true");
  };
  const auto check = [&](const auto& entry) {
    for (const Settings& given : variants(entry)) {
      const StateDict told = entry.make(given).list().front().object->local_hparams();
      CHECK(told.size() == entry.options.size());
      for (const OptionInfo& option : entry.options) {
        CAPTURE(option.name);
        REQUIRE(told.find(option.name));
        const auto setting = given.find(option.name);
        CHECK(is(*told.find(option.name), setting == given.end() ? option.default_text : setting->second));
      }
    }
  };
  for_each(callbacks::registry(), check);
  for_each(algorithms::registry(), check);
}

TEST_CASE(
    "Everything that can be made by name refuses the options that it says it refuses, and NaN, and unknown ones") {
  const auto check = [](const auto& entry) {
    for (const OptionInfo& option : entry.options) {
      for (const std::string& text : option.refused) check_refuses(entry, option.name, text);
      if (option.type != "text") check_refuses(entry, option.name, "no value of its type");
      if (option.type == "whole number") check_refuses(entry, option.name, "1.5");
      if (option.type == "number") check_refuses(entry, option.name, "nan");
      if (option.example) {
        Settings without = examples(entry);
        without.erase(option.name);
        CAPTURE(option.name);
        CHECK_THROWS_AS(entry.make(without), ConfigError);
      }
    }
    check_refuses(entry, "no_such_option", "1");
  };
  for_each_plugin(check);
  for_each(metrics::registry(), check);
}

TEST_CASE("Every plug-in survives two fits, an evaluation and being closed twice") {
  for_each_plugin([](const auto& entry) {
    for (const Settings& settings : variants(entry)) {
      CAPTURE(text(settings));
      const Sandbox sandbox;
      Trainer trainer(options(entry.make(settings)));
      trainer.fit();
      trainer.fit("1ep");
      trainer.eval();
      CHECK(trainer.state().timestamp.batch > 0);
      trainer.close();
      trainer.close();
    }
  });
}

TEST_CASE("Every plug-in is closed when a neighbour throws, and works in the next trainer") {
  for_each_plugin([](const auto& entry) {
    for (const Event event : {Event::INIT, Event::EPOCH_START, Event::BEFORE_FORWARD, Event::AFTER_FORWARD,
                              Event::AFTER_LOSS, Event::BATCH_END, Event::EVAL_BATCH_END, Event::FIT_END}) {
      CAPTURE(to_string(event));
      const auto plugin = entry.make(examples(entry));
      TrainerOptions failing = options(plugin);
      failing.callbacks.add(Neighbour(event));
      const auto fail = [&] {
        const Sandbox sandbox;
        Trainer trainer(std::move(failing));
        trainer.fit("2ep");
        trainer.fit("2ep");
      };
      try {
        fail();
        FAIL("nothing was thrown");
      } catch (const std::exception& error) {
        CHECK(describe(error).find("a neighbour") != std::string::npos);
      }
      const Sandbox sandbox;  // another: some refuse to write over what is there
      // a plug-in that had not been closed would be refused
      Trainer next(options(plugin));
      CHECK_NOTHROW(next.fit());
    }
  });
}

TEST_CASE("A step of the trainer alone reads no tensor on the host") {
  TrainerOptions with = options();
  const auto reads = std::make_shared<HostReads>();
  with.callbacks.add(reads);
  Trainer(std::move(with)).fit();
  CHECK(reads->batches() == 8);
  CHECK(reads->count() == 0);
}

TEST_CASE("No plug-in reads a tensor on the host during a step") {
  for_each_plugin([](const auto& entry) {
    for (const Settings& settings : variants(entry)) {
      CAPTURE(text(settings));
      const auto reads = std::make_shared<HostReads>();
      {
        const Sandbox sandbox;
        TrainerOptions with = options(entry.make(settings));
        with.callbacks.add(reads);
        Trainer(std::move(with)).fit();
      }
      CHECK(reads->batches() > 0);
      CHECK(reads->count() == 0);
    }
  });
}

TEST_CASE("A plug-in that reads a tensor on the host during a step is found out") {
  struct Reader final : Callback {
    explicit Reader(Event event) : event_(event) {}
    void run_event(Event event, const State&, Logger&) override {
      if (event == event_) sum_ += tensor_.item<double>();
    }
    Event event_;
    at::Tensor tensor_ = at::ones({});
    double sum_ = 0;
  };
  for (const Event event : {Event::AFTER_LOSS, Event::AFTER_TRAIN_BATCH, Event::BATCH_END, Event::EPOCH_END}) {
    CAPTURE(to_string(event));
    TrainerOptions with = options();
    const auto reads = std::make_shared<HostReads>();
    with.callbacks.add(reads);
    with.callbacks.add(Reader(event));
    Trainer(std::move(with)).fit();
    CHECK((reads->count() > 0) == (event != Event::EPOCH_END));
  }
}

}  // namespace composer::battery_test
