// Algorithms without which a checkpoint cannot be loaded.
#include <ATen/ATen.h>

#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::required_algorithms_test {
namespace {

// Adds a parameter.
class Widen final : public Algorithm {
 public:
  explicit Widen(std::int64_t by) : by_(by) {}
  EventSet events() const override { return {Event::INIT}; }
  void apply(Event, State& state, Logger&) override {
    state.model->register_parameter("wide", at::ones(2), /*requires_grad=*/false);
  }
  bool required_on_load() const override { return true; }
  StateDict local_hparams() const override {
    StateDict options;
    options["by"] = by_;
    options["mode"] = std::string("all");
    return options;
  }

 private:
  std::int64_t by_;
};

TrainerOptions with(Algorithms algorithms) {
  TrainerOptions options = tiny_options();
  options.algorithms = std::move(algorithms);
  return options;
}

struct Saved {
  Saved() {
    TrainerOptions options = with({Widen(3)});
    options.save_folder = folder / "ck";
    Trainer trainer(std::move(options));
    trainer.fit();
    path = trainer.saved_checkpoints().back();
  }
  TrainerOptions loading(Algorithms algorithms) const {
    TrainerOptions options = with(std::move(algorithms));
    options.run_name = "another";
    options.load_path = path;
    return options;
  }
  Folder folder;
  std::string path;
};

TEST_CASE("A checkpoint that requires an algorithm is refused without it, and it is said which options it had") {
  const Saved saved;
  const std::string why = "was trained with Widen (by = 3, mode = all), without which it cannot be loaded";
  const auto model = tiny_model();
  const at::Tensor before = model->parameters().front().detach().clone();
  TrainerOptions options = saved.loading({});
  options.model = model;
  CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains(why.c_str()), CheckpointError);
  CHECK(model->parameters().front().equal(before));

  TrainerOptions resuming = with({});
  resuming.save_folder = saved.folder / "ck";
  CHECK_THROWS_WITH_AS(Trainer(std::move(resuming)), doctest::Contains(why.c_str()), CheckpointError);

  const Warnings warnings;
  CHECK_NOTHROW(Trainer(saved.loading({Widen(3)})));
  CHECK(warnings.texts.empty());
}

TEST_CASE("A checkpoint that requires an algorithm with other options is loaded with a warning") {
  const Saved saved;
  const Warnings warnings;
  CHECK_NOTHROW(Trainer(saved.loading({Widen(4)})));
  CHECK(warnings.say("other options of algorithms that it requires: Widen/by: 3 -> 4"));
}

TEST_CASE("Weights that do not fit because of an algorithm are an error that names it, unless they need not fit") {
  const Saved saved;
  const auto weights_of = [&](bool strict) {
    TrainerOptions options = saved.loading({});
    options.load_weights_only = true;
    options.load_strict_model_weights = strict;
    return options;
  };
  CHECK_THROWS_WITH_AS(Trainer(weights_of(true)), doctest::Contains("It was trained with Widen (by = 3, mode = all)"),
                       WeightsError);
  CHECK_NOTHROW(Trainer(weights_of(false)));
}

TEST_CASE("The algorithms that a checkpoint requires can be ignored") {
  const Saved saved;
  TrainerOptions options = saved.loading({});
  options.load_ignore_keys = {"required_algorithms"};
  const Trainer trainer(std::move(options));
  CHECK(trainer.state().timestamp.batch == 4);
}

class Nothing final : public Algorithm {
 public:
  EventSet events() const override { return {}; }
  void apply(Event, State&, Logger&) override {}
  bool required_on_load() const override { return true; }
};

TEST_CASE("A second algorithm of a class is required, too") {
  const Folder folder;
  const auto options = [&](Algorithms algorithms) {
    TrainerOptions options = with(std::move(algorithms));
    options.save_folder = folder / "ck";
    return options;
  };
  Trainer(options({Nothing(), Nothing()})).fit();
  CHECK_THROWS_WITH_AS(Trainer(options({Nothing()})), doctest::Contains("trained with Nothing, without"),
                       CheckpointError);
  CHECK_NOTHROW(Trainer(options({Nothing(), Nothing()})));
}

}  // namespace
}  // namespace composer::test::required_algorithms_test
