// A run that goes on from a checkpoint equals the run that was never interrupted, to the bit.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/on.h"
#include "composer/core/run.h"
#include "composer/data/map_style.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/optim/reduce_on_plateau.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/machines.h"
#include "tests/support/skippable_sgd.h"
#include "tests/support/tiny.h"

namespace composer::test::resume_test {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

// Everything in it has a memory: running statistics, random numbers, momentum.
std::shared_ptr<Model> forgetful_model() {
  at::manual_seed(5);
  nn::Sequential net(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Dropout(0.3), nn::Linear(8, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

struct Setting {
  std::int64_t threads = 1, workers = 0, microbatch_size = 0;
  Precision precision = Precision::FP32;
};

std::shared_ptr<Loader> loader_of(std::int64_t workers) {
  if (workers == 0) return data::in_memory(tiny_data(22), {.batch_size = 4, .shuffle = true});
  struct Rows {
    Batch all = tiny_data(22);
    std::int64_t size() const { return 22; }
    data::Sample get(std::int64_t index) const {
      data::Sample sample;
      for (const auto& [name, tensor] : all) sample.set(name, tensor[index]);
      return sample;
    }
  };
  return data::map_style(Rows(), {.batch_size = 4, .shuffle = true, .num_workers = workers});
}

TrainerOptions options_of(const Setting& setting, const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.model = forgetful_model();
  options.train_dataloader = loader_of(setting.workers);
  options.eval_dataloader = tiny_loader(9, 4);
  options.eval_interval = "2ba";
  options.optimizer = optim::adamw({.lr = 0.05});
  options.schedulers = {optim::cosine_annealing_with_warmup({.t_warmup = "3ba"}),
                        optim::reduce_on_plateau({.monitor = "MulticlassAccuracy", .factor = 0.5, .patience = "2ba"})};
  options.max_duration = "2ep";
  options.algorithms = {
      algorithms::MixUp(), algorithms::LabelSmoothing(),
      algorithms::GradientClipping({.clipping_type = algorithms::ClippingType::NORM, .clipping_threshold = 1})};
  options.callbacks = {
      callbacks::SpeedMonitor({.window_size = 3}),
      callbacks::EarlyStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval", .patience = "100ba"})};
  options.loggers = {loggers::JsonLinesLogger({.path = folder / "log.jsonl", .overwrite = true})};
  options.seed = 7;
  options.precision = setting.precision;
  options.device_train_microbatch_size = setting.microbatch_size;
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

// The log without what is told by clocks.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("_per_sec") != std::string::npos || line.find("wall_clock") != std::string::npos ||
        line.find("time/") != std::string::npos)
      continue;
    if (const auto at = line.find("\"time\":"); at != std::string::npos) line.erase(at, line.find(',', at) - at);
    lines.push_back(line);
  }
  return lines;
}

struct Result {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> log;
  Timestamp timestamp;
};

Result result_of(Trainer& trainer, const Folder& folder) {
  Result result;
  const State& state = trainer.state();
  for (const at::Tensor& parameter : trainer.state().model->parameters()) result.tensors.push_back(parameter.clone());
  for (const at::Tensor& buffer : trainer.state().model->buffers()) result.tensors.push_back(buffer.clone());
  for (const auto& [label, by_name] : state.metrics.all())
    for (const auto& [name, reported] : by_name) result.tensors.push_back(reported.value.clone());
  result.tensors.push_back(at::tensor(optim::learning_rates(*trainer.state().optimizer), at::kDouble));
  result.tensors.push_back(at::rand({5}));
  result.timestamp = state.timestamp;
  trainer.close();
  result.log = lines_of(folder / "log.jsonl");
  return result;
}

void check_equal(const Result& a, const Result& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) CHECK(a.tensors[i].equal(b.tensors[i]));
  CHECK(a.timestamp.batch == b.timestamp.batch);
  CHECK(a.timestamp.epoch == b.timestamp.epoch);
  CHECK(a.timestamp.sample == b.timestamp.sample);
  REQUIRE(a.log.size() == b.log.size());
  for (std::size_t i = 0; i < a.log.size(); ++i) CHECK(a.log[i] == b.log[i]);
}

void run_until(const Setting& setting, const Folder& folder, Event event, std::int64_t batch) {
  TrainerOptions options = options_of(setting, folder);
  options.callbacks.add(killed_at(event, batch));
  CHECK_THROWS(Trainer(std::move(options)).fit());
}

Result whole_of(const Setting& setting) {
  const Folder folder;
  Trainer trainer(options_of(setting, folder));
  trainer.fit();
  CHECK(trainer.resumed_from().empty());
  return result_of(trainer, folder);
}

TEST_CASE("a run that is cut off after any batch of two epochs goes on as if nothing had happened") {
  const int threads = at::get_num_threads();
  for (const Setting& setting : {Setting{}, Setting{.threads = 2, .microbatch_size = 2}, Setting{.workers = 2},
                                 Setting{.precision = Precision::AMP_BF16}}) {
    at::set_num_threads(static_cast<int>(setting.threads));
    const Result whole = whole_of(setting);
    CHECK(whole.timestamp.batch == 12);
    for (std::int64_t batch = 1; batch < 12; ++batch) {
      CAPTURE(batch);
      const Folder folder;
      run_until(setting, folder, Event::BATCH_START, batch);
      Trainer trainer(options_of(setting, folder));
      CHECK(trainer.state().timestamp.batch == batch);
      CHECK_FALSE(trainer.resumed_from().empty());
      trainer.fit();
      check_equal(result_of(trainer, folder), whole);
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("a run that is cut off in any event, also while it evaluates, goes on as if nothing had happened") {
  const Setting setting;
  const Result whole = whole_of(setting);
  for (const Event event : {Event::AFTER_FORWARD, Event::BATCH_END, Event::EVAL_START, Event::EVAL_BATCH_END,
                            Event::EVAL_END, Event::BATCH_CHECKPOINT}) {
    CAPTURE(to_string(event));
    const Folder folder;
    run_until(setting, folder, event, 4);
    Trainer trainer(options_of(setting, folder));
    trainer.fit();
    check_equal(result_of(trainer, folder), whole);
  }
}

TEST_CASE("a run that had come to its end does nothing the second time") {
  const Folder folder;
  const Setting setting;
  Result first;
  {
    Trainer trainer(options_of(setting, folder));
    trainer.fit();
    first = result_of(trainer, folder);
  }
  Trainer trainer(options_of(setting, folder));
  trainer.fit();
  check_equal(result_of(trainer, folder), first);
}

TEST_CASE("each epoch is saved by default, named and listed, with a link to the newest, and all are whole") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "{run_name}";
  options.max_duration = "3ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  const std::string at = folder / "tiny";
  CHECK(trainer.saved_checkpoints() == std::vector<std::string>{at + "/ep1-ba4", at + "/ep2-ba8", at + "/ep3-ba12"});
  const auto all = saving::list_checkpoints(at);
  REQUIRE(all.size() == 3);
  CHECK(all[0].manifest.parent.empty());
  CHECK(all[1].manifest.parent == "ep1-ba4");
  CHECK(all[2].manifest.time.epoch == 3);
  CHECK(fs::read_symlink(at + "/latest") == "ep3-ba12");
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(at)) ++entries;
  CHECK(entries == 4);
}

TEST_CASE("only so many checkpoints are kept: the newest, or the best of a metric and the newest") {
  const Folder folder;
  const auto names = [&](std::optional<saving::Best> best) {
    TrainerOptions options = tiny_options();
    options.save_folder = folder / (best ? "best" : "newest");
    options.max_duration = "5ep";
    options.save_num_checkpoints_to_keep = 2;
    options.save_best = std::move(best);
    options.eval_dataloader = tiny_loader(9, 4);
    Trainer trainer(std::move(options));
    trainer.fit();
    std::vector<std::string> names;
    for (const auto& found : saving::list_checkpoints(trainer.saved_checkpoints().back() + "/.."))
      names.push_back(found.path.filename());
    return names;
  };
  CHECK(names(std::nullopt) == std::vector<std::string>{"ep4-ba16", "ep5-ba20"});
  const auto best = names(saving::Best{.metric = "eval/MulticlassAccuracy"});
  CHECK(best.size() == 2);
  CHECK(best.back() == "ep5-ba20");
}

TEST_CASE("a checkpoint that was to be deleted when the process ended is deleted by the one that goes on") {
  const Folder folder;
  const Setting setting;
  const auto options = [&] {
    TrainerOptions options = options_of(setting, folder);
    options.save_num_checkpoints_to_keep = 2;
    return options;
  };
  TrainerOptions first = options();
  first.callbacks.add(At([&](Event now, const State& state) {
    const fs::path old = folder / "ck/ep0-ba1", kept = folder / "kept";
    if (now == Event::BATCH_START && state.timestamp.batch == 2) fs::copy(old, kept, fs::copy_options::recursive);
    if (now == Event::BATCH_START && state.timestamp.batch == 3) throw Killed();
  }));
  {
    Trainer trainer(std::move(first));
    CHECK_THROWS(trainer.fit());
  }
  REQUIRE_FALSE(fs::exists(folder / "ck/ep0-ba1"));
  fs::rename(folder / "kept", folder / "ck/ep0-ba1");  // as if there had been no time to delete it
  Trainer trainer(options());
  CHECK(trainer.state().timestamp.batch == 3);
  CHECK(fs::exists(folder / "ck/ep0-ba1"));  // nothing is deleted before the run goes on
  trainer.begin();
  CHECK_FALSE(fs::exists(folder / "ck/ep0-ba1"));
  while (trainer.step()) {
  }
  trainer.end();
  CHECK(saving::list_checkpoints(folder / "ck").size() == 2);
}

TEST_CASE("a run that begins from another's checkpoint does not count that run's checkpoints as its own") {
  const Folder folder;
  const auto options = [&](const char* run_name) {
    TrainerOptions options = tiny_options();
    options.run_name = run_name;
    options.save_folder = folder / "ck";
    options.save_interval = "1ba";
    return options;
  };
  Trainer(options("one")).fit();
  REQUIRE(saving::list_checkpoints(folder / "ck").size() == 4);
  TrainerOptions second = options("two");
  second.load_path = folder / "ck/latest";
  second.save_num_checkpoints_to_keep = 1;
  second.max_duration = "2ep";
  Trainer trainer(std::move(second));
  CHECK(trainer.saved_checkpoints().empty());
  trainer.fit();
  CHECK(trainer.saved_checkpoints().size() == 1);
  CHECK(saving::list_checkpoints(folder / "ck").size() == 5);
}

TEST_CASE("a run that begins from another's checkpoint does not cut what it appends its log to") {
  const Folder folder;
  const auto options = [&](loggers::JsonLinesLoggerOptions log) {
    TrainerOptions options = tiny_options();
    log.path = folder / "log.jsonl";
    options.loggers = {loggers::JsonLinesLogger(log)};
    return options;
  };
  {
    TrainerOptions first = options({.overwrite = true});
    first.save_folder = folder / "ck";
    first.save_interval = "1ba";
    Trainer(std::move(first)).fit();
  }
  const std::vector<std::string> before = lines_of(folder / "log.jsonl");
  TrainerOptions second = options({.append = true});
  second.run_name = "two";
  second.load_path = folder / "ck/ep0-ba1";
  Trainer(std::move(second)).fit();
  const std::vector<std::string> after = lines_of(folder / "log.jsonl");
  REQUIRE(after.size() > before.size());
  CHECK(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_CASE("a run that was saved at the end of an epoch logs that end with its last metrics") {
  const Folder folder;
  const Setting setting;
  run_until(setting, folder, Event::EPOCH_END, 6);
  Trainer trainer(options_of(setting, folder));
  CHECK(trainer.state().timestamp.batch == 6);
  trainer.fit();
  trainer.close();
  std::vector<std::string> logged;  // by the sixth batch, by the end of the epoch, its means, by the seventh batch
  for (const std::string& line : lines_of(folder / "log.jsonl"))
    if (const auto at = line.find("\"metrics/train"); at != std::string::npos)
      if (line.find("\"batch\":5") != std::string::npos || line.find("\"batch\":6") != std::string::npos)
        logged.push_back(line.substr(at));
  REQUIRE(logged.size() == 4);
  CHECK(logged[1] == logged[0]);
  CHECK(logged[2].find("_epoch\"") != std::string::npos);
}

TEST_CASE("another run's checkpoints are neither gone on from nor overwritten") {
  const Folder folder;
  const auto options = [&](const char* run_name) {
    TrainerOptions options = tiny_options();
    options.run_name = run_name;
    options.save_folder = folder / "ck";
    return options;
  };
  Trainer(options("one")).fit();
  Trainer other(options("other"));
  CHECK(other.resumed_from().empty());
  CHECK_THROWS_AS(other.fit(), ConfigError);
  Trainer unnamed(options(""));
  CHECK_FALSE(unnamed.resumed_from().empty());
  CHECK(unnamed.state().run_name == "one");
  TrainerOptions overwriting = options("other");
  overwriting.save_overwrite = true;
  Trainer allowed(std::move(overwriting));
  allowed.fit();
  CHECK(saving::open_checkpoint(folder / "ck/latest").manifest.run_name == "other");
}

TEST_CASE("load_path begins another run: whole, weights only, with keys ignored") {
  const Folder folder;
  {
    TrainerOptions options = tiny_options();
    options.optimizer = optim::adamw({.lr = 0.1});
    options.save_folder = folder / "ck";
    Trainer(std::move(options)).fit();
  }
  const auto load = [&](bool weights_only, std::vector<std::string> ignored) {
    TrainerOptions options = tiny_options();
    options.optimizer = optim::adamw({.lr = 0.1});
    options.load_path = folder / "ck/latest";
    options.load_weights_only = weights_only;
    options.load_ignore_keys = std::move(ignored);
    options.max_duration = "2ep";
    return std::make_unique<Trainer>(std::move(options));
  };
  const at::Tensor fresh = [] {
    Trainer trainer(tiny_options());
    return weights_of(trainer).clone();
  }();
  auto whole = load(false, {});
  CHECK(whole->state().timestamp.batch == 4);
  CHECK_FALSE(weights_of(*whole).equal(fresh));
  auto weights = load(true, {});
  CHECK(weights->state().timestamp.batch == 0);
  CHECK(weights_of(*weights).equal(weights_of(*whole)));
  auto without = load(false, {"state/model/*"});
  CHECK(weights_of(*without).equal(fresh));
  CHECK(without->state().timestamp.batch == 4);
  for (const char* glob : {"optimizer", "optimizer/*", "state/optimizers", "state/optimizers/*"}) {
    CAPTURE(glob);
    auto anew = load(false, {glob});
    CHECK(anew->state().timestamp.batch == 4);
    CHECK(anew->state().optimizer->state().empty());
    anew->fit();
    CHECK(anew->state().timestamp.batch == 8);
  }
  CHECK_FALSE(whole->state().optimizer->state().empty());
  for (const char* glob : {"seed", "metrics", "stop", "evaluated", "rng", "*timestamp"}) {
    CAPTURE(glob);
    auto part = load(false, {glob});
    CHECK(part->state().timestamp.batch == (glob[0] == '*' ? 0 : 4));
    CHECK(weights_of(*part).equal(weights_of(*whole)));
    CHECK_NOTHROW(part->fit());
  }
  whole->fit();
  CHECK(whole->state().timestamp.batch == 8);
  CHECK_THROWS_AS(whole->save_checkpoint(), ConfigError);
}

TEST_CASE("a run that goes on trains in the way that tune had chosen for it, whatever is fastest now") {
  const Folder folder;
  const QuietMachine quiet;
  const auto options = [&] {
    TrainerOptions options = tiny_options();
    options.precision = Precision::AMP_BF16;
    options.tune = true;
    options.tune_cache = folder / "tune.json";
    options.save_folder = folder / "ck";
    options.save_interval = "1ba";
    return options;
  };
  Precision chosen = Precision::FP32;
  {
    Trainer trainer(options());
    trainer.fit("2ba");
    REQUIRE(trainer.tuning().size() >= 1);
    CHECK(trainer.tuning()[0].find(" ms a step (") != std::string::npos);
    chosen = trainer.state().precision;
  }
  fs::remove(folder / "tune.json");
  Trainer trainer(options());
  trainer.fit();
  REQUIRE(trainer.tuning().size() >= 1);
  CHECK(trainer.tuning()[0].ends_with(", as was found before"));
  CHECK(trainer.state().precision == chosen);
}

// The scale of the losses, as the next checkpoint would have it.
double scale_of(const State& state) {
  const StateDict saved = state.run->snapshot(false);
  const auto& scaler = std::get<StateDict>(*saved.find("scaler"));
  return std::get<at::Tensor>(*scaler.find("scale")).item<double>();
}

TEST_CASE("A run with a grad scaler that resumes goes on with the scale and the count that it had") {
  const Folder folder;
  const auto run = [&](bool dies, bool resumes) {
    std::vector<double> scales;
    TrainerOptions options = tiny_options();
    options.optimizer = skippable_sgd(0.1);
    options.grad_scaler = optim::GradScalerOptions{.init_scale = 16, .growth_interval = 2};
    options.max_duration = "8ba";
    options.save_folder = folder / (resumes ? "ck" : "whole");
    options.save_interval = "1ba";
    options.callbacks = {on(Event::BATCH_CHECKPOINT, [&](const State& state) { scales.push_back(scale_of(state)); }),
                         killed_at(Event::BATCH_START, dies ? 5 : -1)};
    Trainer trainer(std::move(options));
    if (dies)
      CHECK_THROWS_AS(trainer.fit(), RunError);
    else
      trainer.fit();
    return scales;
  };
  const std::vector<double> whole = run(false, false), before = run(true, true), after = run(false, true);
  CHECK(whole == std::vector<double>{16, 32, 32, 64, 64, 128, 128, 256});
  CHECK(before == std::vector<double>(whole.begin(), whole.begin() + 5));
  CHECK(after == std::vector<double>(whole.begin() + 5, whole.end()));
}

}  // namespace
}  // namespace composer::test::resume_test
