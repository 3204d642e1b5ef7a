// A program that is started again repeats its calls of save_checkpoint(): each is answered by what the run has of it,
// and one that the program had not come to saves.
#include <exception>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/model_access.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::repeated_calls_test {
namespace {

struct Killed : std::exception {};

std::int64_t batch_of(const std::string& path) { return saving::open_checkpoint(path).manifest.time.batch; }

// Killed, as far as the disk can tell, when it begins that batch; -1: not.
TrainerOptions saved_each_batch(const Folder& folder, const OptionalTime& until, std::int64_t dies_at = -1) {
  TrainerOptions options = tiny_options();
  options.max_duration = until;
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  options.callbacks = {At([dies_at](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == dies_at) throw Killed();
  })};
  return options;
}

TEST_CASE("A name that a program gives twice, for other weights, has the later ones, also when it is started again") {
  const auto options = [](const Folder& folder) {
    TrainerOptions made = tiny_options();
    made.save_folder = folder / "ck";
    return made;
  };
  const auto weights_in = [](const std::string& path) {
    const StateDict saved = saving::load(saving::open_checkpoint(path));
    return std::get<at::Tensor>(*std::get<StateDict>(*saved.find("model")).find("module.bias")).sum().item<double>();
  };
  // Doubles the weights between the two calls.
  const auto program = [&](const Folder& folder, const char* first, bool dies) {
    Trainer trainer(options(folder));
    trainer.fit();
    trainer.save_checkpoint(first);
    if (dies) throw Killed();
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& weight : parameters(as_module(*trainer.state().model))) weight.mul_(2);
    }
    return weights_in(trainer.save_checkpoint("final"));
  };
  for (const char* first : {"final", "first"}) {
    CAPTURE(first);
    const Folder whole, killed;
    const double last = program(whole, first, false);
    CHECK(program(whole, first, false) == last);
    CHECK_THROWS_AS(program(killed, first, true), Killed);
    CHECK(program(killed, first, false) == last);
    CHECK(program(killed, first, false) == last);
  }
}

TEST_CASE("A checkpoint by hand stays when a program that does not ask for it has gone on with the run meanwhile") {
  const Folder folder;
  CHECK(batch_of(Trainer(saved_each_batch(folder, Time("2ep"))).save_checkpoint("init")) == 0);
  Trainer(saved_each_batch(folder, Time("1ep"))).fit();
  CHECK(batch_of(Trainer(saved_each_batch(folder, Time("2ep"))).save_checkpoint("init")) == 0);
}

TEST_CASE("A call in a fit that is skipped when the program is started again does not shift those after it") {
  const Folder folder;
  const auto program = [&](bool dies) {
    Trainer trainer(saved_each_batch(folder, /*until=*/{}, dies ? 6 : -1));
    std::vector<std::int64_t> batches;
    const auto save = [&](const char* name) { batches.push_back(batch_of(trainer.save_checkpoint(name))); };
    trainer.begin({.duration = "1ep"});
    while (trainer.step()) {
    }
    save("within");
    trainer.end();
    save("after");
    trainer.fit("1ep");
    return batches;
  };
  CHECK_THROWS(program(true));
  CHECK(program(false) == std::vector<std::int64_t>{4, 4});
}

TEST_CASE("A name that is given after each of several fits keeps what it had when the program is started again") {
  const Folder folder;
  const auto program = [&](bool dies) {
    Trainer trainer(saved_each_batch(folder, /*until=*/{}, dies ? 10 : -1));
    std::vector<std::int64_t> batches;
    for (int stage = 0; stage < 3; ++stage) {
      trainer.fit("1ep");
      batches.push_back(batch_of(trainer.save_checkpoint("stage")));
    }
    return batches;
  };
  CHECK_THROWS(program(true));
  CHECK(program(false) == std::vector<std::int64_t>{8, 8, 12});  // the first two as they were when it died
}

}  // namespace
}  // namespace composer::test::repeated_calls_test
