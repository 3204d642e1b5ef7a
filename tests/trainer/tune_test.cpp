#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/core/on.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/kernels/gemm.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/machines.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/trainer_parts.h"

namespace composer::tune_test {
namespace {

using namespace test;

// A cache of its own, and the threads as they were.
struct Scratch {
  Scratch() { std::filesystem::remove_all(folder); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::filesystem::remove_all(folder);
    at::set_num_threads(threads);
  }
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("composer-tune-" + std::to_string(getpid()));
  std::filesystem::path cache = folder / "tune.json";
  int threads = at::get_num_threads();
  QuietMachine quiet;
};

// Batch norm has buffers and dropout draws random numbers: both would show that a trial step was taken.
std::shared_ptr<Model> convolutions() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(8 * 6 * 6, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions tuned_options(std::shared_ptr<Model> model, const Scratch& scratch) {
  TrainerOptions options = tiny_options();
  options.model = std::move(model);
  options.seed = 3;
  options.max_duration = "2ep";
  options.tune = true;
  options.tune_cache = scratch.cache;
  return options;
}

std::shared_ptr<Loader> image_loader() {
  return data::in_memory({{"input", at::sin(at::arange(8 * 3 * 64, at::kFloat)).view({8, 3, 8, 8})},
                          {"target", at::arange(8, at::kLong).remainder(3)}},
                         {.batch_size = 4, .shuffle = false});
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST_CASE("the trial steps of tune leave no trace in weights, buffers, metrics and random numbers") {
  const Scratch scratch;
  int threads = 2;
  const auto all_that_is_left = [&](bool tune) {
    auto memory = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = tuned_options(model_with_memory(), scratch);
    options.tune = tune;
    options.products = Products::LIBRARY;
    options.loggers = {memory};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.tuning().empty() == !tune);
    std::vector<at::Tensor> left = trainer.state().model->parameters();
    for (const at::Tensor& buffer : trainer.state().model->buffers()) left.push_back(buffer);
    const StateDict saved = trainer.state().run->snapshot(/*weights_only=*/false);
    left.push_back(std::get<at::Tensor>(*std::get<StateDict>(*saved.find("rng")).find("cpu")));
    for (const std::string& line : trainer.tuning())
      if (line.starts_with("threads: 1,")) threads = 1;
    std::vector<double> losses;
    for (const auto& point : memory->get_timeseries("loss/train/total")) losses.push_back(point.number());
    left.push_back(at::tensor(losses, at::kDouble));
    return left;
  };
  at::set_num_threads(2);
  const std::vector<at::Tensor> tuned = all_that_is_left(true);
  at::set_num_threads(threads);  // that tune has chosen, for its trainer alone
  const std::vector<at::Tensor> plain = all_that_is_left(false);
  REQUIRE(tuned.size() == plain.size());
  for (std::size_t i = 0; i < tuned.size(); ++i) CHECK(tuned[i].equal(plain[i]));
}

TEST_CASE("the trial steps of tune leave buffers as they were that nobody may write, or that change their shape") {
  struct Odd : models::Classifier {
    Odd() : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}) {
      expanded = register_buffer("expanded", at::arange(5, at::kFloat).expand({3, 5}));
      grows = register_buffer("grows", at::zeros({1}));
      const c10::InferenceMode mode;
      inference = register_buffer("inference", at::arange(3, at::kFloat));
    }
    Outputs forward(const Batch& batch) override {
      const at::NoGradGuard no_grad;
      grows.set_data(at::cat({grows, at::ones({1})}));
      const at::AutoGradMode grad(true);
      return Classifier::forward(batch);
    }
    at::Tensor expanded, grows, inference;
  };
  const Scratch scratch;
  const auto left = [&](bool tune) {
    const auto model = std::make_shared<Odd>();
    TrainerOptions options = tuned_options(model, scratch);
    options.train_dataloader = test::tiny_loader(16, 4);
    options.tune = tune;
    Trainer(std::move(options)).fit();
    return model;
  };
  const std::shared_ptr<Odd> tuned = left(true), plain = left(false);
  CHECK(tuned->grows.sizes() == at::IntArrayRef({9}));
  CHECK(tuned->grows.equal(plain->grows));
  CHECK(tuned->expanded.equal(plain->expanded));
  CHECK(tuned->expanded.strides() == plain->expanded.strides());
  CHECK(tuned->inference.equal(plain->inference));
}

TEST_CASE("tune says in one line each what it chose, of what there was to choose, and logs it") {
  const Scratch scratch;
  at::set_num_threads(1);
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tuned_options(convolutions(), scratch);
  options.train_dataloader = image_loader();
  options.precision = Precision::AMP_BF16;
  options.loggers = {memory};
  Trainer trainer(std::move(options));
  CHECK(trainer.tuning().empty());
  trainer.fit();
  REQUIRE(trainer.tuning().size() == (kernels::has_gemm() ? 3 : 2));
  CHECK(trainer.tuning()[0].starts_with("weights: "));
  CHECK(trainer.tuning()[1].starts_with("precision: "));
  CHECK(memory->hyperparameters().contains("tune/weights"));
  CHECK(memory->hyperparameters().contains("tune/precision"));
  CHECK(memory->hyperparameters().contains("tune/products") == kernels::has_gemm());
  const bool fp32 = trainer.tuning()[1].starts_with("precision: fp32");
  CHECK(trainer.state().precision == (fp32 ? Precision::FP32 : Precision::AMP_BF16));
  const bool channels_last = trainer.tuning()[0].starts_with("weights: channels last");
  CHECK(trainer.state().model->parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast) == channels_last);
}

TEST_CASE("what tune found is used by the next run without trial steps, and by no other model, batch or precision") {
  const Scratch scratch;
  at::set_num_threads(1);
  const auto lines = [&](Precision precision, std::int64_t microbatch_size) {
    TrainerOptions options = tuned_options(convolutions(), scratch);
    options.train_dataloader = image_loader();
    options.precision = precision;
    options.device_train_microbatch_size = microbatch_size;
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning();
  };
  const auto measured = [](const std::vector<std::string>& said) {
    return said[0].starts_with("weights: ") && said[0].find(" ms a step (") != std::string::npos;
  };
  CHECK(measured(lines(Precision::FP32, 0)));
  CHECK(lines(Precision::FP32, 0)[0].ends_with(", as was found before"));
  CHECK(measured(lines(Precision::FP32, 2)));
  CHECK(measured(lines(Precision::AMP_BF16, 0)));
  CHECK(lines(Precision::AMP_BF16, 0)[0].ends_with(", as was found before"));
}

TEST_CASE("tune measures anew for the same weights if other weights are frozen, or the products of a step differ") {
  if (!kernels::has_gemm()) return;
  const Scratch scratch;
  at::set_num_threads(1);
  struct Folding : models::Classifier {  // the same weights, used for other products
    explicit Folding(std::int64_t given)
        : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}), parts(given) {}
    Outputs forward(const Batch& batch) override {
      const at::Tensor x = batch["input"];
      const at::Tensor square = at::bmm(x.view({parts, -1, 4}), x.view({parts, -1, 4}).transpose(1, 2)).mean();
      return Outputs(Classifier::forward(batch).only() + square);
    }
    std::int64_t parts;
  };
  const auto lines = [&](std::int64_t parts, bool frozen) {
    TrainerOptions options = tuned_options(std::make_shared<Folding>(parts), scratch);
    options.model->parameters()[0].set_requires_grad(!frozen);
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning().back();
  };
  const auto was_found = [](const std::string& line) { return line.ends_with("as was found before"); };
  CHECK_FALSE(was_found(lines(1, false)));
  CHECK(was_found(lines(1, false)));
  CHECK_FALSE(was_found(lines(2, false)));
  CHECK_FALSE(was_found(lines(1, true)));
  CHECK(was_found(lines(2, false)));
}

TEST_CASE("the products of a checkpoint from another machine are not put in the cache of this one") {
  if (!kernels::has_gemm()) return;
  const Scratch scratch;
  const auto options = [&](const char* cache) {
    TrainerOptions options = tuned_options(tiny_model(), scratch);
    options.tune_cache = scratch.folder / cache;
    return options;
  };
  const auto saved = [&](const char* cache) {
    TrainerOptions with = options(cache);
    with.save_folder = (scratch.folder / "run").string();
    with.save_interval = "1ba";
    return with;
  };
  at::set_num_threads(2);
  Trainer(options("there.json")).fit("1ba");
  std::string text = text_of(scratch.folder / "there.json");
  text = std::regex_replace(text, std::regex("\"products\": \"[^\"]*\""), "\"products\": \"1x1x1 RR=1,others=1\"");
  text = std::regex_replace(text, std::regex("\"threads\": 1"), "\"threads\": 2");
  std::ofstream(scratch.folder / "there.json") << text;
  Trainer(saved("there.json")).fit("1ba");
  at::set_num_threads(1);
  Trainer(saved("here.json")).fit("1ba");
  CHECK(text_of(scratch.folder / "here.json").find("1x1x1") == std::string::npos);
}

// Slow with autocast, and in need of memory without.
class Torn final : public models::Classifier {
 public:
  Torn() : Classifier(torch::nn::Linear(64, 3), models::ClassifierOptions{.num_classes = 3}) {
    scale_ = register_parameter("scale", at::ones({64}));
  }
  Outputs forward(const Batch& batch) override {
    at::Tensor x = batch["input"];
    if (at::autocast::is_autocast_enabled(at::kCPU)) {
      const at::NoGradGuard no_grad;
      at::Tensor work = at::zeros({64, 64});
      for (int i = 0; i < 300; ++i) work = work.mm(work);
    } else {
      for (int i = 0; i < 8; ++i) x = x * scale_;
    }
    return Classifier::forward({{"input", x}, {"target", batch["target"]}});
  }

 private:
  at::Tensor scale_;
};

TEST_CASE("A choice that was made while other programs ran is used, and not kept, which one line says") {
  const Scratch scratch;
  BusyMachine machine;
  at::set_num_threads(1);
  const auto lines = [&] {
    TrainerOptions options = tuned_options(convolutions(), scratch);
    options.train_dataloader = image_loader();
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning();
  };
  const std::vector<std::string> busy = lines();
  CHECK(busy.front().starts_with("weights: "));
  CHECK(busy.back().starts_with("kept: no, other programs used the processors"));
  CHECK_FALSE(std::filesystem::exists(scratch.cache));
  machine.quiet = true;
  const std::vector<std::string> quiet = lines();
  CHECK(quiet.front().find(" ms a step (") != std::string::npos);  // measured, and not found
  CHECK_FALSE(quiet.back().starts_with("kept: "));
  CHECK(std::filesystem::exists(scratch.cache));
}

std::string threads_line(const Trainer& trainer) {
  for (const std::string& line : trainer.tuning())
    if (line.starts_with("threads: ")) return line;
  return "";
}

TEST_CASE(
    "A run whose threads were chosen on a busy machine chooses them again at the end of an epoch, until it is quiet") {
  const Scratch scratch;
  BusyMachine machine;
  at::set_num_threads(2);
  std::vector<int> threads;
  TrainerOptions options = tuned_options(convolutions(), scratch);
  options.train_dataloader = image_loader();
  options.callbacks = {on(Event::EPOCH_START, [&](const State& state, Logger&) {
    threads.push_back(at::get_num_threads());
    machine.quiet = state.timestamp.epoch == 3;
  })};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  CHECK(threads_line(trainer).find("measured again") == std::string::npos);  // the fit has ended
  trainer.fit("2ep");
  CHECK(threads_line(trainer).ends_with("measured again after epoch 2"));
  trainer.fit("3ep");
  CHECK(threads_line(trainer).ends_with("measured again after epoch 4"));  // the machine was quiet: not after epoch 5
  CHECK(threads.size() == 6);
  CHECK(threads_line(trainer).starts_with(join("threads: ", threads.back(), ",")));
  CHECK_FALSE(std::filesystem::exists(scratch.cache));  // a precision that was chosen then may be the wrong one
}

TEST_CASE("A run whose steps take longer than was promised says so once, and forgets the choice when the epoch ends") {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const Scratch scratch;
    at::set_num_threads(threads);
    const auto options = [&] {
      TrainerOptions options = tuned_options(tiny_model(), scratch);
      options.train_dataloader = tiny_loader(8800, 4);  // 2,200 batches
      options.precision = Precision::AMP_BF16;
      return options;
    };
    Trainer(options()).fit("1ba");
    const std::string text = text_of(scratch.cache);
    REQUIRE(text.find("\"seconds\": ") != std::string::npos);
    std::ofstream(scratch.cache) << std::regex_replace(text, std::regex("\"seconds\": [-0-9.e]+"), "\"seconds\": 1e-9");
    const Warnings warnings;
    const BusyMachine machine;
    Trainer trainer(options());
    CHECK(trainer.tuning().empty());
    trainer.fit("2150ba");
    CHECK(trainer.tuning().front().ends_with("as was found before"));
    CHECK(std::ranges::count_if(warnings.texts, [](const std::string& said) {
            return said.find("were measured when the fastest way was chosen") != std::string::npos;
          }) == 1);
    CHECK(warnings.say("the number of threads is chosen again when the epoch ends") == (threads == 2));
    CHECK(text_of(scratch.cache).find("seconds") != std::string::npos);
    trainer.fit("60ba");
    CHECK(text_of(scratch.cache).find("seconds") == std::string::npos);
    CHECK(threads_line(trainer).ends_with("measured again after epoch 1") == (threads == 2));
  }
}

TEST_CASE("\"auto\" chooses the size of microbatches for the way that tune has chosen, measured now or before") {
  const Scratch scratch;
  at::set_num_threads(1);
  const auto size = [&] {
    TrainerOptions options = tuned_options(std::make_shared<Torn>(), scratch);
    options.train_dataloader = data::in_memory({{"input", at::ones({64, 64})}, {"target", at::zeros(64, at::kLong)}},
                                               {.batch_size = 64, .shuffle = false});
    options.precision = Precision::AMP_BF16;
    options.device_train_microbatch_size = "auto";
    options.microbatch_memory = 100000;
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK_FALSE(warnings.say("out of memory"));
    CHECK(trainer.tuning()[0].starts_with("precision: fp32"));
    return trainer.state().device_train_microbatch_size;
  };
  const std::int64_t measured = size();
  CHECK(measured > 1);
  CHECK(measured < 64);
  CHECK(measured == size());
}

TEST_CASE("a damaged or unwritable cache of tune costs a measurement, not the run") {
  const Scratch scratch;
  at::set_num_threads(1);
  std::filesystem::create_directories(scratch.folder);
  for (const std::string damage : {"{\"a\": ", "[1, 2]", "", "{\"x\": {\"threads\": \"many\"}}"}) {
    std::ofstream(scratch.cache) << damage;
    TrainerOptions options = tuned_options(convolutions(), scratch);
    options.train_dataloader = image_loader();
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.tuning()[0].starts_with("weights: "));
    CHECK(text_of(scratch.cache).find("\"threads\": 1") != std::string::npos);
  }
  TrainerOptions options = tuned_options(convolutions(), scratch);
  options.train_dataloader = image_loader();
  options.tune_cache = scratch.cache / "below a file" / "tune.json";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("tune tries nothing with a model whose forward changes its weights, and leaves them as they were") {
  struct Decaying : models::Classifier {
    Decaying() : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}) {}
    Outputs forward(const Batch& batch) override {
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& parameter : parameters()) parameter.data().mul_(0.5);  // libtorch does not count this one
      }
      return Classifier::forward(batch);
    }
  };
  const Scratch scratch;
  const auto trained = [&](bool tune) {
    at::manual_seed(5);
    TrainerOptions options = tuned_options(std::make_shared<Decaying>(), scratch);
    options.train_dataloader = test::tiny_loader(16, 4);
    options.tune = tune;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.tuning().empty());
    return weights_of(trainer);
  };
  const Warnings warnings;
  CHECK(trained(true).equal(trained(false)));
  CHECK(warnings.say("changes its parameters"));
}

TEST_CASE("A signal and a request to stop end the trial steps of tune, which then leave no trace and no choice") {
  struct Asking : models::Classifier {
    Asking() : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}) {}
    Outputs forward(const Batch& batch) override {
      if (++forwards == at) ask();
      return Classifier::forward(batch);
    }
    int forwards = 0, at = 0;
    std::function<void()> ask;
  };
  for (const bool signal : {true, false})
    for (const int at : {1, 4, 30}) {
      CAPTURE(signal);
      CAPTURE(at);
      const Scratch scratch;
      const auto model = std::make_shared<Asking>();
      TrainerOptions options = tuned_options(model, scratch);
      options.train_dataloader = test::tiny_loader(16, 4);
      options.handle_signals = true;
      Trainer trainer(std::move(options));
      const at::Tensor before = weights_of(trainer).clone();
      model->at = at;
      model->ask = [&] { signal ? void(std::raise(SIGTERM)) : trainer.state().stop.ask("enough"); };
      trainer.fit();
      CHECK(model->forwards == at);
      CHECK(trainer.tuning().empty());
      CHECK(trainer.state().timestamp.batch == 0);
      CHECK(trainer.interrupted_by() == (signal ? SIGTERM : 0));
      CHECK(weights_of(trainer).equal(before));
      CHECK_FALSE(std::filesystem::exists(scratch.cache));
      trainer.state().stop.clear();
      trainer.fit();
      CHECK(trainer.state().timestamp.batch == 8);
      CHECK_FALSE(trainer.tuning().empty());
    }
}

TEST_CASE("an error of the model in a trial step leaves fit as any other, and the fit can be tried again") {
  struct Failing : models::Classifier {
    Failing() : models::Classifier(torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3}) {}
    Outputs forward(const Batch& batch) override {
      if (fails) throw DataError("no forward today");
      return models::Classifier::forward(batch);
    }
    bool fails = true;
  };
  const Scratch scratch;
  at::set_num_threads(2);
  const auto model = std::make_shared<Failing>();
  Trainer trainer(tuned_options(model, scratch));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  model->fails = false;
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 8);
}

TEST_CASE(
    "an error in a trial step leaves precision, layout and threads as they were asked for, and the next fit tunes") {
  struct Failing : models::Classifier {
    Failing()
        : models::Classifier(torch::nn::Sequential(torch::nn::Conv2d(3, 8, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                                                   torch::nn::Linear(8 * 6 * 6, 3)),
                             models::ClassifierOptions{.num_classes = 3}) {}
    Outputs forward(const Batch& batch) override {
      if (fails(*this)) throw DataError("no forward today");
      return models::Classifier::forward(batch);
    }
    at::Tensor kernel() const { return parameters()[0]; }
    std::function<bool(const Failing&)> fails;
  };
  const auto channels_last = [](const Failing& model) {
    return model.kernel().is_contiguous(at::MemoryFormat::ChannelsLast);
  };
  const std::pair<const char*, std::function<bool(const Failing&)>> rows[] = {
      {"in the other layout", channels_last},
      {"in fp32", [](const Failing&) { return !at::autocast::is_autocast_enabled(at::kCPU); }},
      {"on one thread", [](const Failing&) { return at::get_num_threads() == 1; }}};
  for (const auto& [when, fails] : rows) {
    CAPTURE(when);
    const Scratch scratch;
    at::set_num_threads(2);
    const auto model = std::make_shared<Failing>();
    model->fails = fails;
    TrainerOptions options = tuned_options(model, scratch);
    options.train_dataloader = image_loader();
    options.precision = Precision::AMP_BF16;
    Trainer trainer(std::move(options));
    CHECK_THROWS_AS(trainer.fit(), RunError);
    CHECK(trainer.state().precision == Precision::AMP_BF16);
    CHECK_FALSE(channels_last(*model));
    CHECK(model->kernel().is_contiguous());
    CHECK(at::get_num_threads() == 2);
    model->fails = [](const Failing&) { return false; };
    trainer.fit();
    CHECK(trainer.tuning().size() == (kernels::has_gemm() ? 4 : 3));
  }
}

TEST_CASE("A trainer decides which products its kernels compute if it tunes, or is told which") {
  struct Case {
    bool tune;
    Products products;
    bool decides;
  };
  for (const auto& [tune, products, decides] :
       {Case{false, Products::TUNED, false}, Case{true, Products::TUNED, true}, Case{false, Products::OWN, true},
        Case{false, Products::LIBRARY, true}}) {
    CAPTURE(tune);
    TrainerOptions options = tiny_options();
    options.tune = tune;
    options.products = products;
    CHECK(TrainerParts(std::move(options)).tuning.decides_products() == decides);
  }
}

TEST_CASE("What the saved run has chosen decides which products are computed, though nobody tunes any more") {
  StateDict saved;
  std::optional<Tuned> chosen = Tuned{.threads = 1, .products = kernels::ProductTable().text()};
  StateVisitor saving = StateVisitor::saving(saved);
  saving("tuned", chosen);
  TrainerParts trainer;
  StateVisitor loading = StateVisitor::loading(saved, "");
  trainer.tuning.visit_state(loading);
  CHECK(trainer.tuning.decides_products());
  trainer.tuning.use_saved_products();
  CHECK(trainer.tuning.lines().empty());
}

}  // namespace
}  // namespace composer::tune_test
