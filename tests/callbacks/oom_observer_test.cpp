#include "composer/callbacks/oom_observer.h"

#include <fstream>
#include <iterator>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/device/allocator_history.h"
#include "composer/optim/adam.h"
#include "tests/callbacks/fake_history.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_run.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::oom_observer_test {

using callbacks::OOMObserver, callbacks::OOMObserverOptions;
using test::FakeHistory;
using test::HistoryCalls;

namespace {

struct Uploads final : LoggerDestination {
  void upload_file(const LogFile& file, const State&) override { names.push_back(file.name); }
  void flush() override { names_at_flush = names.size(); }
  std::vector<std::string> names;
  std::size_t names_at_flush = 0;
};

// Fails in the second batch, once each time `fail` is set, or with microbatches of more than `most` samples.
struct Failing : Model {
  Failing() { register_module("fc", fc); }
  Outputs forward(const Batch& batch) override {
    if (batch["input"].size(0) > most) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, says the test");
    if (++forwards == 2 && fail) fail();
    return fc->forward(batch["input"]);
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  torch::nn::Linear fc{4, 3};
  std::function<void()> fail;
  std::int64_t most = 1000;
  int forwards = 0;
};

struct FailingRun {
  explicit FailingRun(std::function<void()> fail = {}) { model->fail = std::move(fail); }

  std::string train(MicrobatchSize size = 0) {
    TrainerOptions options = test::tiny_options();
    options.model = model;
    options.optimizer = optim::adam({.lr = 0.1});
    options.callbacks = {OOMObserver({.folder = folder.path().string()})};
    options.loggers = {uploads};
    options.device_train_microbatch_size = size;
    Trainer trainer(std::move(options));
    return test::error_of([&] { trainer.fit(); });
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool wrote_nothing() const { return std::filesystem::is_empty(folder.path()) && uploads->names.empty(); }

  std::shared_ptr<Failing> model = std::make_shared<Failing>();
  std::shared_ptr<Uploads> uploads = std::make_shared<Uploads>();
  test::Folder folder;
};

void no_memory() { TORCH_CHECK_WITH(OutOfMemoryError, false, "no room for 7 bytes"); }

void check_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("OOMObserver reports an out-of-memory error of a step, uploads the report, and the error leaves the fit") {
  FailingRun run(&no_memory);
  check_contains(run.train(), {"no room for 7 bytes"});
  check_contains(run.read("rank0_oom_report.txt"),
                 {"run tiny: out of memory on cpu in epoch 0, batch 1, loader \"train\"\n", "no room for 7 bytes",
                  "device_train_microbatch_size: the whole batch\n", "  input: [4, 4] Float on cpu, 64 bytes\n",
                  "  target: [4] Long on cpu, 32 bytes\n", "resident memory: ", "parameters: 60 bytes, gradients: ",
                  "  model/fc.weight: [3, 4] Float on cpu, 48 bytes\n", "largest tensors of model and optimizer:\n  "});
  CHECK(run.uploads->names == std::vector<std::string>{"tiny/oom_traces/rank0_oom_report.txt"});
  CHECK(run.uploads->names_at_flush == 1);
  CHECK_FALSE(std::filesystem::exists(run.folder / "rank0_oom_snapshot.pickle"));
}

TEST_CASE("OOMObserver lists the state of the optimizer") {
  FailingRun run(&no_memory);
  run.train();
  check_contains(run.read("rank0_oom_report.txt"), {"  optimizer/", "exp_avg_sq"});
}

TEST_CASE("OOMObserver reports std::bad_alloc") {
  FailingRun run([] { throw std::bad_alloc(); });
  run.train();
  check_contains(run.read("rank0_oom_report.txt"), {"std::bad_alloc"});
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends the process
TEST_CASE("OOMObserver reports the error of libtorch's CPU allocator") {
  FailingRun run([] { at::empty({std::int64_t{1} << 50}, at::kByte); });
  run.train();
  check_contains(run.read("rank0_oom_report.txt"), {"1125899906842624 bytes"});
}
#endif

TEST_CASE("OOMObserver reports no other errors") {
  FailingRun run([] { throw Error("something else"); });
  check_contains(run.train(), {"something else"});
  CHECK(run.wrote_nothing());
}

TEST_CASE("OOMObserver reports nothing while \"auto\" finds a smaller microbatch, and reports when there is none") {
  const test::Warnings warnings;
  FailingRun found;
  found.model->most = 2;
  CHECK(found.train("auto") == "no error");
  CHECK(found.wrote_nothing());
  FailingRun none;
  none.model->most = 0;
  check_contains(none.train("auto"), {"out of memory with microbatches of 1 sample"});
  check_contains(none.read("rank0_oom_report.txt"), {"device_train_microbatch_size: 1\n", "  input: [1, 4]"});
  CHECK(none.uploads->names.size() == 1);
}

TEST_CASE("OOMObserver keeps an existing report unless overwrite is set") {
  FailingRun run(&no_memory);
  run.train();
  run.model->forwards = 0;
  run.train();
  CHECK(run.uploads->names.back() == "tiny/oom_traces/rank0_oom_2_report.txt");
  CHECK(std::filesystem::exists(run.folder / "rank0_oom_2_report.txt"));

  test::FakeRun fake;
  fake.state.run_name = "night";
  OOMObserver observer({.folder = run.folder.path().string(), .overwrite = true});
  observer.run_fails(std::make_exception_ptr(std::bad_alloc()), fake.state, fake.logger);
  check_contains(run.read("rank0_oom_report.txt"), {"run night: "});
}

TEST_CASE("OOMObserver adds a snapshot of the allocator's history, which it records from INIT until close") {
  test::FakeRun run;
  const test::Folder folder;
  HistoryCalls calls;
  OOMObserver observer({.max_entries = 7, .folder = folder.path().string()}, std::make_unique<FakeHistory>(calls));
  observer.init(run.state, run.logger);
  observer.run_fails(std::make_exception_ptr(std::bad_alloc()), run.state, run.logger);
  observer.close(run.state, run.logger);
  CHECK(calls.names == std::vector<std::string>{"start 7", "snapshot", "stop"});
  std::ifstream file(folder / "rank0_oom_snapshot.pickle");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "pickled");
}

TEST_CASE("OOMObserver warns of a snapshot that fails, and keeps the report") {
  test::FakeRun run;
  const test::Folder folder;
  HistoryCalls calls{.names = {}, .fails = true};
  OOMObserver observer({.folder = folder.path().string()}, std::make_unique<FakeHistory>(calls));
  const test::Warnings warnings;
  observer.init(run.state, run.logger);
  observer.run_fails(std::make_exception_ptr(std::bad_alloc()), run.state, run.logger);
  CHECK(warnings.say("OOMObserver: the report is incomplete: no history"));
  CHECK(std::filesystem::exists(folder / "rank0_oom_report.txt"));
  CHECK_FALSE(std::filesystem::exists(folder / "rank0_oom_snapshot.pickle"));
}

TEST_CASE("OOMObserver rejects options with their value") {
  CHECK_THROWS_WITH_AS(OOMObserver({.max_entries = 0}), "OOMObserver: max_entries must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(OOMObserver({.filename = ""}), "OOMObserver: filename must not be empty", ConfigError);
}

}  // namespace composer::oom_observer_test
