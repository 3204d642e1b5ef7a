#include "composer/callbacks/generate.h"

#include <map>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::generate_test {
namespace {

using callbacks::Generate, callbacks::GenerateOptions, callbacks::TokenList;

constexpr std::int64_t kVocabulary = 10;

// The likeliest token after n is n + 1; the next likeliest n + 2. It has a weight and a dropout, to be trained.
struct Counter final : Model {
  Counter() : embedding(kVocabulary, 4), dropout(0.5), head(4, kVocabulary) {
    register_module("embedding", embedding);
    register_module("dropout", dropout);
    register_module("head", head);
    const at::NoGradGuard no_grad;
    embedding->weight.copy_(at::sin(at::arange(40, at::kFloat)).view({10, 4}));
    head->weight.copy_(at::cos(at::arange(40, at::kFloat)).view({10, 4}) / 1000);
    head->bias.zero_();
  }
  Outputs forward(const Batch& batch) override {
    const at::Tensor tokens = batch.at("input_ids");
    trained = trained || is_training();
    sizes.push_back(tokens.sizes().vec());
    if (!is_training()) modes_in_use.push_back(dropout->is_training() || at::GradMode::is_enabled());
    const at::Tensor right = at::one_hot((tokens + 1).remainder(kVocabulary), kVocabulary).to(at::kFloat);
    const at::Tensor next = at::one_hot((tokens + 2).remainder(kVocabulary), kVocabulary).to(at::kFloat);
    return head(dropout(embedding(tokens))) + right * 5 + next * 3;
  }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().square().mean(); }

  torch::nn::Embedding embedding;
  torch::nn::Dropout dropout;
  torch::nn::Linear head;
  bool trained = false;
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<bool> modes_in_use;
};

struct TableLog final : LoggerDestination {
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State&) override {
    CHECK(key == "generations");
    CHECK(table.columns == std::vector<std::string>{"prompt", "generation"});
    std::vector<std::string> texts;
    for (const auto& row : table.rows)
      texts.push_back(std::get<std::string>(row[0]) + " -> " + std::get<std::string>(row[1]));
    tables.emplace_back(step, texts);
  }
  std::vector<std::pair<std::int64_t, std::vector<std::string>>> tables;
};

struct Run {
  std::shared_ptr<Counter> model = std::make_shared<Counter>();
  std::shared_ptr<TableLog> log = std::make_shared<TableLog>();
  at::Tensor weights;

  // 4 batches in each epoch.
  explicit Run(const std::optional<GenerateOptions>& options, const std::function<void(TrainerOptions&)>& change = {}) {
    TrainerOptions with = tiny_options();
    with.model = model;
    with.seed = 5;
    with.train_dataloader = data::in_memory({{"input_ids", at::arange(48, at::kLong).remainder(10).view({16, 3})}},
                                            {.batch_size = 4, .shuffle = false});
    if (options) with.callbacks.add(Generate(*options));
    with.loggers.add(log);
    if (change) change(with);
    Trainer trainer(std::move(with));
    trainer.fit();
    CHECK(trainer.state().model->is_training());
    weights = weights_of(trainer);
  }
  const std::vector<std::string>& texts() const {
    REQUIRE(log->tables.size() == 1);
    return log->tables[0].second;
  }
};

TEST_CASE("Generate continues prompts of different lengths with the likeliest tokens") {
  for (const std::int64_t batch_size : {0, 1, 2}) {
    CAPTURE(batch_size);
    const Run run({{.prompts = {{1}, {5, 4, 3}, {7, 2}}, .batch_size = batch_size, .max_new_tokens = 3}});
    CHECK(run.texts() == std::vector<std::string>{"1 -> 2 3 4", "5 4 3 -> 4 5 6", "7 2 -> 3 4 5"});
    std::int64_t most = 0;
    for (const auto& size : run.model->sizes)
      if (size[0] != 4) most = std::max(most, size[0]);
    CHECK(most == (batch_size == 0 ? 3 : batch_size));
  }
}

TEST_CASE("A stop token ends its text alone, and all stopped texts end the work") {
  const Run run({{.prompts = {{1}, {4}}, .max_new_tokens = 50, .stop_tokens = {6, 0}}});
  CHECK(run.texts() == std::vector<std::string>{"1 -> 2 3 4 5", "4 -> 5"});
  CHECK(run.model->sizes.size() == 4 + 5);
}

TEST_CASE("Prompts as text, and tokens as text by a function") {
  GenerateOptions options{.prompt_tokens = "1 2; 3", .max_new_tokens = 2};
  options.to_text = [](const TokenList& tokens) {
    std::string text;
    for (const std::int64_t token : tokens) text += static_cast<char>('a' + token);
    return text;
  };
  CHECK(Run(options).texts() == std::vector<std::string>{"bc -> de", "d -> ef"});
}

TEST_CASE("With a context the model gets the last tokens of each text") {
  const Run run({{.prompts = {{9, 8, 7, 1}, {4}}, .max_new_tokens = 4, .context = 3}});
  CHECK(run.texts() == std::vector<std::string>{"9 8 7 1 -> 2 3 4 5", "4 -> 5 6 7 8"});
  for (const auto& size : run.model->sizes) CHECK(size[1] <= 3);
}

TEST_CASE("Tokens are drawn by temperature, from the likeliest only with top_k") {
  GenerateOptions options{.max_new_tokens = 1, .temperature = 1};
  options.prompts = std::vector<TokenList>(2000, TokenList{3});
  const auto count = [](const GenerateOptions& given) {
    std::map<std::string, int> counts;
    const Run run(given);
    for (const std::string& text : run.texts()) ++counts[text.substr(text.find("-> ") + 3)];
    return counts;
  };
  std::map<std::string, int> all = count(options);
  CHECK(all.size() > 4);
  // exp(5) : exp(3) : 8 * exp(0), but for the weights' hundredths
  CHECK(all["4"] == doctest::Approx(2000 * 148.41 / 176.5).epsilon(0.05));
  CHECK(all["5"] == doctest::Approx(2000 * 20.09 / 176.5).epsilon(0.2));
  options.top_k = 2;
  all = count(options);
  CHECK(all.size() == 2);
  CHECK(all["4"] == doctest::Approx(2000 * 148.41 / 168.5).epsilon(0.05));
  options.temperature = 1000;
  options.top_k = 0;
  CHECK(count(options)["4"] == doctest::Approx(200).epsilon(0.25));
  options.temperature = 0;
  CHECK(count(options).size() == 1);
}

TEST_CASE("Generate is due every interval and at the end of training, once in a batch") {
  const auto steps = [](Interval interval) {
    GenerateOptions options{.prompts = {{1}}, .interval = std::move(interval), .max_new_tokens = 1};
    std::vector<std::int64_t> seen;
    const Run run(options, [](TrainerOptions& with) { with.max_duration = "10ba"; });
    for (const auto& [step, texts] : run.log->tables) seen.push_back(step);
    return seen;
  };
  CHECK(steps("4ba") == std::vector<std::int64_t>{4, 8, 10});
  CHECK(steps("5ba") == std::vector<std::int64_t>{5, 10});
  CHECK(steps("1ep") == std::vector<std::int64_t>{4, 8, 10});
  CHECK(steps("0ba").empty());
  CHECK(steps([](Event event, const State& state) {
          return event == Event::BATCH_CHECKPOINT && state.timestamp.batch == 3;
        }) == std::vector<std::int64_t>{3});
}

TEST_CASE("Texts of the end of training are of the weights that it ends with") {
  for (const bool changes : {false, true}) {
    const GenerateOptions options{.prompts = {{1}}, .interval = "4ba", .max_new_tokens = 1};
    const Run run(options, [&](TrainerOptions& with) {
      with.max_duration = "1ep";
      if (!changes) return;
      with.algorithms = {AtAlgorithm({Event::EPOCH_END}, [](State& state) {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& weight : parameters(as_module(*state.model))) weight.zero_();
        parameters(as_module(*state.model)).back()[7] = 100;  // the bias of the head: 7 is the likeliest token
      })};
    });
    REQUIRE(run.log->tables.size() == (changes ? 2 : 1));
    CHECK(run.log->tables.back() ==
          std::pair(std::int64_t{4}, std::vector<std::string>{changes ? "1 -> 7" : "1 -> 2"}));
  }
}

TEST_CASE("A complete run that is started again generates from weights that its program has set, and not from others") {
  for (const bool sets : {false, true}) {
    const Folder folder;
    const Warnings quiet;
    for (const bool again : {false, true}) {
      const auto log = std::make_shared<TableLog>();
      TrainerOptions options = tiny_options();
      options.model = std::make_shared<Counter>();
      options.train_dataloader = data::in_memory({{"input_ids", at::arange(48, at::kLong).remainder(10).view({16, 3})}},
                                                 {.batch_size = 4, .shuffle = false});
      options.save_folder = folder / "ck";
      options.callbacks.add(Generate({.prompts = {{1}}, .interval = "4ba", .max_new_tokens = 1}));
      options.loggers.add(log);
      Trainer trainer(std::move(options));
      if (again && sets) {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& weight : parameters(as_module(*trainer.state().model))) weight.mul_(0.5);
      }
      trainer.fit();
      CHECK(log->tables.size() == (again && !sets ? 0 : 1));
    }
  }
}

TEST_CASE("Generate is due at the same batches again after time was reset") {
  const auto log = std::make_shared<TableLog>();
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Counter>();
  options.train_dataloader = data::in_memory({{"input_ids", at::arange(48, at::kLong).remainder(10).view({16, 3})}},
                                             {.batch_size = 4, .shuffle = false});
  options.callbacks.add(Generate({.prompts = {{1}}, .interval = "4ba", .max_new_tokens = 1}));
  options.loggers.add(log);
  Trainer trainer(std::move(options));
  trainer.fit("4ba");
  trainer.fit({.duration = "4ba", .reset_time = true});
  CHECK(log->tables.size() == 2);
  for (int i = 0; i < 2; ++i) trainer.fit({.duration = "1ba", .reset_time = true});
  CHECK(log->tables.size() == 4);
}

TEST_CASE("The model generates in evaluation mode without gradients, and trains on as without it, to the bit") {
  const Run without(std::nullopt);
  const Run with({{.prompts = {{1}, {2, 3}}, .interval = "1ba", .max_new_tokens = 5, .temperature = 1}});
  CHECK(with.log->tables.size() == 4);
  CHECK(with.weights.equal(without.weights));
  CHECK(with.model->trained);
  CHECK_FALSE(with.model->modes_in_use.empty());
  for (const bool wrong : with.model->modes_in_use) CHECK_FALSE(wrong);
}

TEST_CASE("A resumed run generates and trains as an uninterrupted one") {
  const GenerateOptions options{.prompts = {{1}, {2, 3}}, .interval = "3ba", .max_new_tokens = 5, .temperature = 2};
  const Run whole(options, [](TrainerOptions& with) { with.max_duration = "10ba"; });
  const Folder folder;
  std::vector<std::pair<std::int64_t, std::vector<std::string>>> tables;
  at::Tensor weights;
  for (const char* until : {"6ba", "10ba"}) {
    const Run part(options, [&](TrainerOptions& with) {
      with.max_duration = Time::parse(until);
      with.save_folder = folder.path().string();
      with.save_interval = "1ba";
    });
    tables.insert(tables.end(), part.log->tables.begin(), part.log->tables.end());
    weights = part.weights;
  }
  CHECK(weights.equal(whole.weights));
  CHECK(tables == whole.log->tables);
}

TEST_CASE("Generate says what is wrong with the logits") {
  TrainerOptions options = tiny_options();
  options.train_dataloader =
      data::in_memory({{"input", at::zeros({4, 4})}, {"target", at::zeros({4}, at::kLong)}}, {.batch_size = 4});
  options.callbacks.add(Generate({.prompts = {{1, 2, 3, 4}}, .input_key = "input"}));
  try {
    Trainer(std::move(options)).fit();
    FAIL("nothing was thrown");
  } catch (const std::exception& error) {
    CHECK(describe(error).find("Generate") != std::string::npos);
  }
}

TEST_CASE("Generate rejects prompts without tokens") {
  CHECK_THROWS_WITH_AS(Generate{GenerateOptions{}}, "Generate: prompts must have at least one, got none", ConfigError);
  CHECK_THROWS_WITH_AS(Generate({.prompts = {{}}}), "Generate: a prompt must have at least one token", ConfigError);
}

}  // namespace
}  // namespace composer::test::generate_test
