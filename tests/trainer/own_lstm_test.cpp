// LSTMs by our kernels, chosen in the trainer's options or by tune.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "composer/core/error.h"
#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"
#include "composer/tuning/product_race.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/machines.h"
#include "tests/support/tiny.h"

namespace composer::test::own_lstm_test {
namespace {

constexpr std::int64_t kSteps = 12, kInputs = 5, kHidden = 24, kBatch = 8;

class ReaderImpl : public torch::nn::Module {
 public:
  ReaderImpl()
      : lstm_(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kInputs, kHidden).batch_first(true)))),
        head_(register_module("head", torch::nn::Linear(kHidden, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return head_->forward(std::get<0>(lstm_->forward(x)).select(1, -1)); }

 private:
  torch::nn::LSTM lstm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Reader);

TrainerOptions lstm_options(Products products) {
  at::manual_seed(3);
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<models::Classifier>(Reader(), models::ClassifierOptions{.num_classes = 3});
  options.train_dataloader =
      data::in_memory({{"input", at::sin(at::arange(32 * kSteps * kInputs, at::kFloat)).view({32, kSteps, kInputs})},
                       {"target", at::arange(32).remainder(3)}},
                      {.batch_size = kBatch, .shuffle = false});
  options.max_duration = "2ep";
  options.products = products;
  return options;
}

std::vector<at::Tensor> trained(TrainerOptions options) {
  Trainer trainer(std::move(options));
  trainer.fit();
  return trainer.state().model->parameters();
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("Trainers compute LSTMs with our kernels where their options say so, also after a resume") {
  if (!kernels::has_gemm()) return;
  const auto library = trained(lstm_options(Products::LIBRARY)), own = trained(lstm_options(Products::OWN));
  CHECK_FALSE(equal(own, library));
  CHECK(equal(trained(lstm_options(Products::TUNED)), library));
  for (std::size_t i = 0; i < own.size(); ++i) CHECK(at::allclose(own[i], library[i], 1e-4, 1e-5));
  const Folder folder;
  const auto saved = [&] {
    TrainerOptions options = lstm_options(Products::OWN);
    options.save_folder = folder / "run";
    options.save_interval = "1ba";
    return options;
  };
  {
    Trainer trainer(saved());
    trainer.fit("3ba");
  }
  CHECK(equal(trained(saved()), own));
}

TEST_CASE("tune races the LSTM of a model, keeps the choice, and a resumed run has it") {
  if (!kernels::has_gemm()) return;
  const Folder folder;
  const QuietMachine quiet;
  const auto options = [&] {
    TrainerOptions options = lstm_options(Products::TUNED);
    options.tune = true;
    options.tune_cache = folder / "tune.json";
    options.save_folder = folder / "run";
    options.save_interval = "1ba";
    return options;
  };
  {
    Trainer trainer(options());
    trainer.fit("3ba");
    CHECK(trainer.tuning().back().starts_with("products: "));
  }
  const std::string chosen = text_of(folder / "tune.json");
  CAPTURE(chosen);
  // Libtorch's, if whole steps are no faster.
  CHECK((chosen.find("12x8x24x5 LL=") != std::string::npos || chosen.find("\"others=0\"") != std::string::npos));
  // The cache now says the contrary; the checkpoint decides.
  const bool own = chosen.find("12x8x24x5 LL=1") != std::string::npos;
  const auto by_option = [&](const char* folder_name) {
    TrainerOptions other = lstm_options(Products::TUNED);
    other.tune = true;
    other.tune_cache = folder / "other.json";
    other.save_folder = folder / folder_name;
    return other;
  };
  Trainer trainer(by_option("run"));
  trainer.fit();
  CHECK(trainer.tuning().back() ==
        join("products: ", own || chosen.find("=1") != std::string::npos ? "own kernels" : "libtorch's",
             ", as was found before"));
  CHECK_FALSE(std::filesystem::exists(folder / "other.json"));
}

TEST_CASE("A race times LSTMs beside products") {
  if (!kernels::has_gemm()) return;
  const auto lstm = kernels::lstm_shape(kSteps, kBatch, kHidden, kInputs);
  const kernels::ProductShape product{
      .batch = 1, .m = 8, .n = 3, .k = 24, .a = kernels::Layout::ROWS, .b = kernels::Layout::COLUMNS, .adds = true};
  const kernels::ProductRecorder recorder;
  double patience = 0;
  const kernels::ProductTable table = race_products(
                                          {{lstm, 1}, {product, 1}}, 0, [] {}, patience)
                                          .table;
  CHECK(table.find(lstm).has_value());
  CHECK(table.find(product).has_value());
  CHECK(recorder.shapes().at(lstm) >= 4);
}

}  // namespace composer::test::own_lstm_test
