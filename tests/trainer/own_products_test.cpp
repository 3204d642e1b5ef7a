// Products of matrices by our kernels, chosen in the trainer's options or by tune.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <sstream>

#include <ATen/Parallel.h>
#include <torch/nn/modules/linear.h>

#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"
#include "composer/models/mlp.h"
#include "composer/optim/adam.h"
#include "composer/optim/sgd.h"
#include "composer/util/tune_process.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/machines.h"
#include "tests/support/system_calls.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::own_products_test {
namespace {

namespace fs = std::filesystem;

class Threads {
 public:
  explicit Threads(int threads) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

// Sums over 784 numbers, which libtorch's library adds in another order than we do.
TrainerOptions mlp_options() {
  at::manual_seed(3);
  TrainerOptions options;
  options.model = models::mlp({.features = {784, 256, 10}});
  options.train_dataloader = data::in_memory(
      {{"input", at::sin(at::arange(64 * 784, at::kFloat)).view({64, 784})}, {"target", at::arange(64).remainder(10)}},
      {.batch_size = 32, .shuffle = false});
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.max_duration = "2ep";
  options.device = at::Device(at::kCPU);
  return options;
}

std::vector<at::Tensor> trained(Products products) {
  TrainerOptions options = mlp_options();
  options.products = products;
  Trainer trainer(std::move(options));
  trainer.fit();
  return trainer.state().model->parameters();
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return true;
}

std::vector<at::Tensor> trained_by_hand() {
  TrainerOptions options = mlp_options();
  const std::shared_ptr<Model> model = options.model;
  const auto optimizer = options.optimizer.make(optim::parameters_of(*model));
  for (int epoch = 0; epoch < 2; ++epoch)
    for (int begin = 0; begin < 64; begin += 32) {
      const Batch batch{
          {"input", at::sin(at::arange(64 * 784, at::kFloat)).view({64, 784}).slice(0, begin, begin + 32)},
          {"target", at::arange(begin, begin + 32).remainder(10)}};
      optimizer->zero_grad();
      model->loss(model->forward(batch), batch).only().backward();
      optimizer->step();
    }
  return model->parameters();
}

TEST_CASE(
    "A fit with our products equals the same loop by hand within a scope, and one with libtorch's a loop without") {
  const Threads one(1);
  CHECK(equal(trained(Products::LIBRARY), trained_by_hand()));
  CHECK(equal(trained(Products::TUNED), trained_by_hand()));  // nobody has tuned
  if (!kernels::has_gemm()) return;
  kernels::ProductTable all;
  all.set_others(true);
  const std::vector<at::Tensor> ours = trained(Products::OWN);
  {
    const kernels::ProductScope scope(all);
    CHECK(equal(ours, trained_by_hand()));
  }
  CHECK_FALSE(equal(ours, trained_by_hand()));
}

TEST_CASE("Our products give a fit the same bits with any number of threads, and with the instructions of AVX2") {
  if (!kernels::has_gemm()) return;
  std::vector<at::Tensor> one;
  {
    const Threads threads(1);
    one = trained(Products::OWN);
  }
  for (const int count : {2, 3, 5}) {
    const Threads threads(count);
    CHECK(equal(trained(Products::OWN), one));
  }
  kernels::use_gemm_instructions("AVX2");
  CHECK(equal(trained(Products::OWN), one));
  kernels::use_gemm_instructions(nullptr);
}

TEST_CASE("Evaluation and prediction multiply as training does") {
  if (!kernels::has_gemm()) return;
  const Threads one(1);
  const auto outputs = [](Products products) {
    TrainerOptions options = mlp_options();
    options.products = products;
    const auto loader = options.train_dataloader;
    Trainer trainer(std::move(options));
    return trainer.predict(data::in_memory({{"input", at::cos(at::arange(16 * 784, at::kFloat)).view({16, 784})}},
                                           {.batch_size = 16, .shuffle = false}));
  };
  const auto ours = outputs(Products::OWN).at(0).only(), theirs = outputs(Products::LIBRARY).at(0).only();
  CHECK(at::allclose(ours, theirs, 1e-4, 1e-5));
  CHECK_FALSE(ours.equal(theirs));
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Puts another text in the place of what the cache says of products.
void choose(const fs::path& cache, const std::string& products) {
  std::string text = text_of(cache);
  const std::string name = "\"products\": \"";
  const std::size_t begin = text.find(name) + name.size();
  REQUIRE(begin >= name.size());
  text.replace(begin, text.find('"', begin) - begin, products);
  std::ofstream(cache) << text;
}

TEST_CASE("What tune chose of products is said, kept in its cache and the checkpoint, and used to the bit") {
  if (!kernels::has_gemm()) return;
  const Threads one(1);
  const Folder folder;
  const QuietMachine quiet;
  const fs::path cache = fs::path(folder / "tune.json");
  const auto options = [&] {
    TrainerOptions options = mlp_options();
    options.tune = true;
    options.tune_cache = cache;
    return options;
  };
  const auto run = [&](TrainerOptions options, std::string* line = nullptr) {
    Trainer trainer(std::move(options));
    trainer.fit();
    REQUIRE_FALSE(trainer.tuning().empty());
    if (line) *line = trainer.tuning().back();
    return trainer.state().model->parameters();
  };
  std::string line;
  run(options(), &line);
  CAPTURE(line);
  CHECK(line.starts_with("products: "));
  CHECK((line.find("libtorch's") != std::string::npos || line.find("own kernels for ") != std::string::npos));

  choose(cache, "others=1");
  CHECK(equal(run(options(), &line), trained(Products::OWN)));
  CHECK(line == "products: own kernels, as was found before");
  // An altered text is measured anew, and a choice of shapes is one of these shapes alone.
  choose(cache, "32x256x784 RC+=2,others=1");
  run(options(), &line);
  CHECK(line.find("as was found before") == std::string::npos);
  choose(cache, "32x256x784 RC+=1,others=0");
  const std::vector<at::Tensor> some = run(options());
  CHECK_FALSE(equal(some, trained(Products::LIBRARY)));

  // A run goes on with what it began with.
  TrainerOptions saved = options();
  saved.save_folder = folder / "run";
  saved.save_interval = "1ba";
  {
    Trainer trainer(saved);
    trainer.fit("2ba");
  }
  choose(cache, "others=0");
  TrainerOptions resumed = options();
  resumed.save_folder = folder / "run";
  CHECK(equal(run(std::move(resumed)), some));
}

TEST_CASE("tune races the products in bf16 of a run in amp_bf16, beside those in fp32") {
  if (!kernels::has_gemm()) return;
  const Threads one(1);
  const Folder folder;
  const QuietMachine quiet;
  const auto line = [&](Precision precision) {
    TrainerOptions options = mlp_options();
    options.precision = precision;
    options.tune = true;
    options.tune_cache = folder / "tune.json";
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning().back();
  };
  const std::string in_fp32 = line(Precision::FP32);
  CHECK(in_fp32.starts_with("products: "));
  CHECK(text_of(folder / "tune.json").find(" bf16=") == std::string::npos);
  fs::remove(folder / "tune.json");
  const std::string measured = line(Precision::AMP_BF16);
  const auto shapes = [](const std::string& said) {  // "... of 12 shapes"
    const std::size_t end = said.find(" shapes");
    return std::stoi(said.substr(said.rfind(' ', end - 1) + 1));
  };
  CAPTURE(measured);
  CAPTURE(in_fp32);
  CHECK(measured.starts_with("products: "));
  if (measured.find(" shapes") != std::string::npos && in_fp32.find(" shapes") != std::string::npos)
    CHECK(shapes(measured) > shapes(in_fp32));
  if (measured.starts_with("products: own")) CHECK(text_of(folder / "tune.json").find(" bf16=") != std::string::npos);
}

TEST_CASE("Our products compute those in bf16 of a run in amp_bf16, and the bits are those of any number of threads") {
  if (!kernels::has_gemm()) return;
  const auto weights = [](Products products, int threads) {
    const Threads count(threads);
    TrainerOptions options = mlp_options();
    options.precision = Precision::AMP_BF16;
    options.products = products;
    Trainer trainer(std::move(options));
    kernels::ProductRecorder recorder;
    trainer.fit();
    const bool has_bf16 =
        std::ranges::any_of(recorder.shapes(), [](const auto& shape) { return shape.first.type == at::kBFloat16; });
    CHECK(has_bf16);
    return trainer.state().model->parameters();
  };
  const auto ours = weights(Products::OWN, 1), theirs = weights(Products::LIBRARY, 1);
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(at::allclose(ours[i], theirs[i], 1e-2, 1e-3));
  CHECK(equal(weights(Products::OWN, 2), ours));
}

// What tune_process asks of trainers, for this scope.
class RacesProducts {
 public:
  RacesProducts() { ask(true); }
  ~RacesProducts() { ask(false); }
  RacesProducts(const RacesProducts&) = delete;
  RacesProducts& operator=(const RacesProducts&) = delete;

 private:
  static void ask(bool products) {
    tune_process({.caching_allocator = false, .huge_pages = false, .flush_denormals = false, .products = products});
  }
};

TEST_CASE(
    "What tune_process asks for disturbs no optimizer that steps in backward, no deterministic run and no find_lr") {
  if (!kernels::has_gemm()) return;
  const RacesProducts races;
  const Folder folder;
  const QuietMachine quiet;
  const auto trained = [&](const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = mlp_options();
    options.tune_cache = folder / "tune.json";
    change(options);
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.tuning().empty());
    CHECK_FALSE(fs::exists(folder / "tune.json"));
    return trainer.state().model->parameters();
  };
  const auto adamw = [](bool in_backward) {
    return [in_backward](TrainerOptions& options) {
      options.optimizer = optim::adamw({.lr = 1e-3, .step_in_backward = in_backward});
      options.products = in_backward ? Products::TUNED : Products::LIBRARY;
    };
  };
  CHECK(equal(trained(adamw(true)), trained(adamw(false))));
  trained([](TrainerOptions& options) { options.deterministic_mode = true; });
  TrainerOptions options = mlp_options();
  options.tune_cache = folder / "tune.json";
  Trainer trainer(std::move(options));
  trainer.find_lr({.num_batches = 3});
  CHECK_FALSE(fs::exists(folder / "tune.json"));
}

TEST_CASE("A run goes on with the products it began with, though nobody asks for them any more, or on fewer threads") {
  if (!kernels::has_gemm()) return;
  const Folder folder;
  const QuietMachine quiet;
  const auto options = [&](bool resumed) {
    TrainerOptions options = mlp_options();
    options.tune_cache = folder / (resumed ? "other.json" : "tune.json");
    options.save_folder = folder / "run";
    options.save_interval = "1ba";
    return options;
  };
  const std::vector<at::Tensor> ours = trained(Products::OWN);
  for (const bool asks : {false, true}) {
    CAPTURE(asks);
    fs::remove_all(folder / "run");
    {
      const Threads two(2);
      const RacesProducts races;
      TrainerOptions measured = mlp_options();
      measured.tune_cache = folder / "tune.json";
      Trainer(std::move(measured)).fit();
      choose(folder / "tune.json", "others=1");
      Trainer(options(false)).fit("1ba");
    }
    const Threads one(1);
    const auto predicted = [&](Products products) {  // before any fit
      TrainerOptions with = options(true);
      with.products = products;
      Trainer trainer(std::move(with));
      return trainer.predict(mlp_options().train_dataloader).at(0).only();
    };
    CHECK(predicted(Products::TUNED).equal(predicted(Products::OWN)));
    CHECK_FALSE(predicted(Products::TUNED).equal(predicted(Products::LIBRARY)));
    const std::optional<RacesProducts> races = asks ? std::make_optional<RacesProducts>() : std::nullopt;
    Trainer trainer(options(true));
    trainer.fit();
    CHECK(equal(trainer.state().model->parameters(), ours));
    CHECK_FALSE(fs::exists(folder / "other.json"));
  }
}

TEST_CASE("What an earlier version has found, which did not race products, is not taken for libtorch's products") {
  if (!kernels::has_gemm()) return;
  const Folder folder;
  const QuietMachine quiet;
  const auto tuned = [&] {
    TrainerOptions options = mlp_options();
    options.tune = true;
    options.tune_cache = folder / "tune.json";
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning();
  };
  const auto found_before = [](const std::string& line) {
    return line.find("as was found before") != std::string::npos;
  };
  tuned();
  CHECK(std::ranges::all_of(tuned(), found_before));
  std::string text = text_of(folder / "tune.json");
  REQUIRE(text.find("\"products\"") != std::string::npos);
  text.replace(text.find("\"products\""), 10, "\"others\"");
  std::ofstream(folder / "tune.json") << text;
  CHECK(std::ranges::none_of(tuned(), found_before));
}

TEST_CASE("On a processor without the instructions our products are libtorch's, which a warning says") {
  if (!kernels::has_gemm()) return;
  const Threads one(1);
  const std::vector<at::Tensor> theirs = trained(Products::LIBRARY);
  kernels::use_gemm_instructions("none");
  const Warnings warnings;
  const std::vector<at::Tensor> ours = trained(Products::OWN);
  kernels::use_gemm_instructions(nullptr);
  CHECK(equal(ours, theirs));
  CHECK(warnings.say("products: libtorch's are used"));
}

TEST_CASE("A race without memory for our kernels' copies keeps libtorch's products, and training goes on") {
  if (!kernels::has_gemm()) return;
  const Folder folder;
  const QuietMachine quiet;
  const Threads one(1);
  const std::vector<at::Tensor> theirs = trained(Products::LIBRARY);
  std::vector<at::Tensor> weights;
  std::vector<std::string> tuning;
  const auto train = [&] {  // on a thread that has no copies of an earlier product
    const Threads one_here(1);
    const QuietMachine quiet_here;
    const NoAlignedMemory none;
    TrainerOptions options = mlp_options();
    options.tune = true;
    options.tune_cache = folder / "tune.json";
    Trainer trainer(std::move(options));
    trainer.fit();
    weights = trainer.state().model->parameters();
    tuning = trainer.tuning();
  };
  std::async(std::launch::async, train).get();
  CHECK(equal(weights, theirs));
  CHECK(std::ranges::any_of(tuning, [](const std::string& line) { return line.starts_with("products: libtorch's"); }));
}

TEST_CASE("A trainer that has not been asked leaves products as the program has them around it") {
  if (!kernels::has_gemm()) return;
  const Threads one(1);
  const std::vector<at::Tensor> ours = trained(Products::OWN), theirs = trained(Products::LIBRARY);
  kernels::ProductTable all;
  all.set_others(true);
  const kernels::ProductScope scope(all);
  CHECK(equal(trained(Products::TUNED), ours));
  CHECK(equal(trained(Products::LIBRARY), theirs));
}

TEST_CASE("tune_process lets trainers race products, and nothing else, without tune") {
  if (!kernels::has_gemm()) return;
  const Folder folder;
  const QuietMachine quiet;
  const auto lines = [&] {
    TrainerOptions options = mlp_options();
    options.tune_cache = folder / "tune.json";
    Trainer trainer(std::move(options));
    trainer.fit();
    return trainer.tuning();
  };
  CHECK(lines().empty());
  ProcessOptions process{.caching_allocator = false, .huge_pages = false, .flush_denormals = false, .products = true};
  const auto done = tune_process(process);
  CHECK(std::ranges::any_of(done, [](const std::string& line) { return line.starts_with("products: "); }));
  const std::vector<std::string> measured = lines();
  process.products = false;
  tune_process(process);
  REQUIRE(measured.size() == 1);
  CHECK(measured[0].starts_with("products: "));
  CHECK(lines().empty());
}

}  // namespace
}  // namespace composer::test::own_products_test
