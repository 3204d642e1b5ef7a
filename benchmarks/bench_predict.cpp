// What does a Predictor cost beside a call of its model, for one sample, and how long does it take to start?
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/bench.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/models/resnet.h"
#include "composer/predict/predictor.h"
#include "composer/util/tune_process.h"

namespace {

using namespace composer;  // NOLINT(google-build-using-namespace): a program of one file

struct Case {
  std::string name;
  std::shared_ptr<models::Classifier> model;
  Batch sample;
  int calls;
};

std::vector<Case> cases() {
  at::manual_seed(1);
  return {{"MLP 784-128-10", models::mlp(), at::rand({1, 784}), 200},
          {"ResNet-18, 224x224", models::resnet(), at::rand({1, 3, 224, 224}), 1},
          {"GPT of 4 blocks, width 128, 64 tokens",
           models::gpt({.vocabulary = 1000, .sequence_length = 64, .width = 128, .depth = 4, .heads = 4}),
           {{"input_ids", at::randint(1000, {1, 64}, at::kLong)}},
           10}};
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(bench::parse(argc, argv));
  tune_process({.threads = 1});
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "composer-bench-predict";
  for (Case& one : cases()) {
    if (!report.wants(one.name)) continue;
    one.model->eval();
    const Predictor predictor(one.model, {.threads = 1});
    const auto by_hand = [&one](int calls) {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < calls; ++i) one.model->forward(one.sample);
    };
    const auto predicted = [&](int calls) {
      for (int i = 0; i < calls; ++i) predictor(one.sample);
    };
    report.compare(one.name + ", one sample", {{"model", by_hand}, {"Predictor", predicted}}, 21, one.calls);
    save_predictor(folder, *one.model);
    report.compare(one.name + ", start",
                   {{"load",
                     [&](int calls) {
                       for (int i = 0; i < calls; ++i) Predictor::load(folder);
                     }}},
                   5, 1);
    std::filesystem::remove_all(folder);
  }
  report.write();
}
