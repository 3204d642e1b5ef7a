#include "composer/models/generate.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/text/tokenizer.h"
#include "composer/models/gpt.h"
#include "composer/models/incremental_decoder.h"
#include "composer/models/language_model.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/position_bias.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"

namespace composer::generate_test {
namespace {

using models::generate;
using models::GenerateOptions;
using models::TokenList;

constexpr models::GptOptions kSmall{.vocabulary = 37, .sequence_length = 24, .width = 32, .depth = 3, .heads = 4};

// Weights at which the likeliest token depends on all of the text.
std::shared_ptr<models::Classifier> small_gpt(models::GptOptions options = kSmall, std::int64_t seed = 1) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  auto model = models::gpt(options);
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : model->parameters())
    if (weight.dim() == 2) weight.normal_(0, 0.25);
  model->eval();
  return model;
}

models::IncrementalDecoder& decoder(models::Classifier& model) {
  return dynamic_cast<models::IncrementalDecoder&>(*model.named_children()["module"]);
}

at::Tensor whole(models::Classifier& model, const at::Tensor& tokens) {
  return model.forward({{"input_ids", tokens}}).only();
}

// A bias that falls with the distance, as of Alibi.
at::Tensor distance_bias(std::int64_t tokens, const at::Tensor& like) {
  const at::Tensor places = at::arange(tokens, like.options());
  const at::Tensor distance = places.unsqueeze(1) - places.unsqueeze(0);
  const at::Tensor slopes = at::tensor({0.5, 0.25, 0.125, 0.0625}, like.options()).view({1, 4, 1, 1});
  return (-slopes * distance).masked_fill(distance < 0, -std::numeric_limits<double>::infinity());
}

struct Growing final : Model {  // the likeliest token after n is n + 1
  Outputs forward(const Batch& batch) override {
    widths.push_back(batch["input_ids"].size(1));
    return at::one_hot((batch["input_ids"] + 1).remainder(50), 50).to(at::kFloat) * 4;
  }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  std::vector<std::int64_t> widths;
};

}  // namespace

TEST_CASE("Logits of a GPT that keeps keys and values are those of a whole pass, however the text is appended") {
  const at::NoGradGuard no_grad;
  for (const bool tied : {true, false})
    for (const bool biased : {true, false}) {
      models::GptOptions options = kSmall;
      options.tied = tied;
      const auto model = small_gpt(options);
      if (biased)
        dynamic_cast<LearnsPositions&>(*model->named_children()["module"]).set_position_bias(distance_bias, 40);
      const at::Tensor tokens = at::randint(37, {3, 24}, at::kLong);
      const at::Tensor expected = whole(*model, tokens);
      for (const std::vector<std::int64_t>& parts :
           {std::vector<std::int64_t>(24, 1), {24}, {7, 1, 1, 5, 10}, {1, 23}, {10, 1, 1, 1}}) {
        const auto texts = decoder(*model).begin(3, 24, {});
        REQUIRE(texts);
        std::int64_t at = 0;
        for (const std::int64_t part : parts) {
          const at::Tensor logits = texts->append(tokens.narrow(1, at, part));
          at += part;
          CHECK(at::allclose(logits, expected.select(1, at - 1), 1e-5, 1e-5));
        }
      }
    }
}

TEST_CASE("Texts with padding before them have the logits that they have alone") {
  const at::NoGradGuard no_grad;
  for (const bool biased : {true, false}) {
    const auto model = small_gpt();
    if (biased) dynamic_cast<LearnsPositions&>(*model->named_children()["module"]).set_position_bias(distance_bias, 40);
    const at::Tensor tokens = at::randint(37, {4, 20}, at::kLong), padding = at::tensor({0, 3, 9, 11}, at::kLong);
    const auto texts = decoder(*model).begin(4, 20, padding);
    for (const auto& [from, count] : {std::pair(0, 12), {12, 1}, {13, 4}, {17, 1}, {18, 1}}) {
      const at::Tensor logits = texts->append(tokens.narrow(1, from, count));
      for (std::int64_t row = 0; row < 4; ++row) {
        const std::int64_t before = padding[row].item<std::int64_t>();
        const at::Tensor alone = tokens.narrow(0, row, 1).narrow(1, before, from + count - before);
        CHECK(at::allclose(logits[row], whole(*model, alone).select(1, alone.size(1) - 1)[0], 1e-5, 1e-5));
      }
    }
  }
}

TEST_CASE("The text is the same with and without a cache, for prompts of all lengths, also beyond the context") {
  const auto model = small_gpt();
  const std::vector<TokenList> prompts{{1}, {2, 3, 4, 5, 6}, {7, 8}, TokenList(20, 9), TokenList(30, 11)};
  for (const std::size_t count : {1, 3, 4, 5})
    for (const double temperature : {0.0, 0.8})
      for (const std::int64_t context : {0, 6}) {
        GenerateOptions options{.max_new_tokens = 12, .temperature = temperature, .context = context};
        const std::vector<TokenList> some(prompts.begin(), prompts.begin() + static_cast<std::ptrdiff_t>(count));
        options.cache = true;
        const std::vector<TokenList> kept = generate(*model, some, options);
        options.cache = false;
        CHECK(kept == generate(*model, some, options));
        for (const TokenList& text : kept) CHECK(text.size() == 12);
      }
}

TEST_CASE("A GPT of which a block was replaced still continues a text, without keeping anything") {
  struct Around final : torch::nn::Module {
    explicit Around(Layer inner) : inner(std::move(inner)) {}
    at::Tensor forward(const at::Tensor& x) { return inner(x); }
    Layer inner;
  };
  const auto model = small_gpt();
  const TokenList before = generate(*model, {{1, 2, 3}}, {.max_new_tokens = 8})[0];
  int replaced = 0;
  for (const auto& item : model->named_modules())
    if (auto* layer = dynamic_cast<LayerImpl*>(item.value().get()); layer && item.key() == "module.h.1") {
      layer->hold(std::make_shared<Around>(Layer(std::dynamic_pointer_cast<LayerImpl>(item.value())).lift()));
      ++replaced;
    }
  REQUIRE(replaced == 1);
  CHECK_FALSE(decoder(*model).begin(1, 9, {}));
  CHECK(generate(*model, {{1, 2, 3}}, {.max_new_tokens = 8})[0] == before);
}

TEST_CASE("What is drawn depends on the seed, the prompt's number and the token's alone") {
  const auto model = small_gpt();
  const std::vector<TokenList> prompts{{1, 2}, {3, 4}, {1, 2}};
  const GenerateOptions options{.max_new_tokens = 10, .temperature = 1, .seed = 4};
  at::manual_seed(1);
  const auto first = generate(*model, prompts, options);
  const at::Tensor number = at::rand({1});
  at::manual_seed(1);
  CHECK(at::rand({1}).equal(number));  // libtorch's generator was not used
  CHECK(generate(*model, prompts, options) == first);
  CHECK(generate(*model, {{1, 2}, {3, 4}}, options) == std::vector<TokenList>{first[0], first[1]});
  CHECK(first[0] != first[2]);
  GenerateOptions other = options;
  other.seed = 5;
  CHECK(generate(*model, prompts, other) != first);
}

TEST_CASE("top_k and top_p draw from the likeliest tokens, in their proportions") {
  struct Fixed final : Model {
    Outputs forward(const Batch& batch) override {
      const at::Tensor logits = at::tensor({0.1, 0.4, 0.05, 0.25, 0.2}).log();
      return logits.expand({batch["input_ids"].size(0), batch["input_ids"].size(1), 5}).clone();
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  } model;
  const std::vector<TokenList> prompts(4000, TokenList{0});
  const auto shares = [&](GenerateOptions options) {
    options.max_new_tokens = 1;
    std::map<std::int64_t, double> share;
    for (const TokenList& text : generate(model, prompts, options)) share[text[0]] += 1.0 / 4000;
    return share;
  };
  const auto near = [](double value) { return doctest::Approx(value).epsilon(0.08); };
  auto share = shares({.temperature = 1});
  CHECK(share.size() == 5);
  CHECK(share[1] == near(0.4));
  CHECK(share[2] == doctest::Approx(0.05).epsilon(0.3));
  share = shares({.temperature = 1, .top_k = 2});
  CHECK(share.size() == 2);
  CHECK(share[1] == near(0.4 / 0.65));
  share = shares({.temperature = 1, .top_p = 0.6});  // 0.4 + 0.25 are the first that have 0.6
  CHECK(share.size() == 2);
  CHECK(share[3] == near(0.25 / 0.65));
  CHECK(shares({.temperature = 1, .top_p = 0}).size() == 1);
  CHECK(shares({.temperature = 1, .top_k = 3, .top_p = 0.7}).size() == 2);  // of 0.85: 0.47, 0.29
  share = shares({.temperature = 0.5});
  CHECK(share[1] == near(0.16 / (0.01 + 0.16 + 0.0025 + 0.0625 + 0.04)));
}

TEST_CASE("top_p finds its tokens among many that are about equally likely") {
  struct Flat final : Model {
    Outputs forward(const Batch& batch) override {
      return at::zeros({batch["input_ids"].size(0), batch["input_ids"].size(1), 1000});
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  } model;
  std::map<std::int64_t, int> seen;
  for (const TokenList& text : generate(model, std::vector<TokenList>(20000, TokenList{0}),
                                        {.max_new_tokens = 1, .temperature = 1, .top_p = 0.5}))
    ++seen[text[0]];
  CHECK(seen.size() > 480);
  CHECK(seen.size() <= 502);
}

TEST_CASE("Stop tokens end a text alone, and each new token is told") {
  Growing model;
  std::vector<std::pair<std::int64_t, std::int64_t>> told;
  GenerateOptions options{.max_new_tokens = 20, .stop_tokens = {6, 30}};
  options.on_token = [&](std::int64_t prompt, std::int64_t token) { told.emplace_back(prompt, token); };
  const auto texts = generate(model, {{1, 2, 3}, {28}}, options);
  CHECK(texts == std::vector<TokenList>{{4, 5}, {29}});
  CHECK(told == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 4}, {1, 29}, {0, 5}});
  CHECK(model.widths == std::vector<std::int64_t>{3, 4, 5});
}

TEST_CASE("Prompts as a tensor may be padded at either end") {
  Growing model;
  const at::Tensor tokens = at::tensor({1, 2, 0, 0, 9, 9, 7, 8}, at::kLong).view({2, 4});
  const at::Tensor mask = at::tensor({1, 1, 0, 0, 0, 0, 1, 1}, at::kLong).view({2, 4});
  CHECK(generate(model, tokens, mask, {.max_new_tokens = 2}) == std::vector<TokenList>{{3, 4}, {9, 10}});
  CHECK(generate(model, tokens, {}, {.max_new_tokens = 1}) == std::vector<TokenList>{{1}, {9}});
}

TEST_CASE("A text is continued by a tokenizer, and the model trains on as before") {
  struct Letters final : Model {
    Letters() { register_parameter("weight", at::zeros({1})); }
    Outputs forward(const Batch& batch) override {
      CHECK_FALSE(is_training());
      CHECK_FALSE(at::GradMode::is_enabled());
      return at::one_hot(batch["input_ids"] + 1, 256).to(at::kFloat);
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  } model;
  model.train();
  CHECK(generate(model, data::ByteTokenizer(), "abc", {.max_new_tokens = 3}) == "def");
  CHECK(model.is_training());
  CHECK(at::GradMode::is_enabled());
}

TEST_CASE("A model takes no more tokens than it can, whatever the context") {
  const auto model = small_gpt();
  for (const bool cache : {true, false})
    CHECK(generate(*model, {{1, 2, 3}, TokenList(30, 4)}, {.max_new_tokens = 40, .context = 100, .cache = cache}) ==
          generate(*model, {{1, 2, 3}, TokenList(30, 4)}, {.max_new_tokens = 40, .context = 24, .cache = cache}));
}

TEST_CASE("A text has only tokens of its tokenizer, and ends where the tokenizer says") {
  struct Letters final : Model {  // the next letter, and even likelier a token that no tokenizer has
    Outputs forward(const Batch& batch) override {
      const at::Tensor next = batch["input_ids"] + 1;
      return (at::one_hot(next, 300) * 30 + at::one_hot(at::full_like(next, 280), 300) * 60).to(at::kFloat);
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  } model;
  struct EndsAtF final : data::Tokenizer {
    std::string name() const override { return "ends"; }
    std::int64_t size() const override { return 256; }
    void append(std::string_view text, TokenList& tokens) const override { bytes.append(text, tokens); }
    std::string decode(std::span<const std::int64_t> tokens) const override { return bytes.decode(tokens); }
    std::size_t last_border(std::string_view text) const override { return text.size(); }
    std::optional<std::int64_t> end_of_text() const override { return 'f'; }
    void visit_state(StateVisitor&) override {}
    data::ByteTokenizer bytes;
  };
  for (const double temperature : {0., 0.5}) {
    CAPTURE(temperature);
    GenerateOptions options{.max_new_tokens = 6, .temperature = temperature};
    CHECK(generate(model, data::ByteTokenizer(), "abc", options) == "defghi");
    CHECK(generate(model, EndsAtF(), "abc", options) == "de");
    options.stop_tokens = {'e'};
    CHECK(generate(model, EndsAtF(), "abc", options) == "d");
    CHECK(generate(model, {{'a'}}, {.max_new_tokens = 1})[0] == TokenList{280});
  }
}

TEST_CASE("Prompts, options and logits that cannot be are refused") {
  Growing model;
  CHECK(generate(model, std::vector<TokenList>{}).empty());
  CHECK_THROWS_WITH_AS(generate(model, {TokenList{}}), "generate: a prompt must have at least one token", ConfigError);
  CHECK_THROWS_WITH_AS(generate(model, {{1, -2}}), "generate: tokens must be >= 0, got -2", ConfigError);
  CHECK_THROWS_WITH_AS(generate(model, {{1}}, {.max_new_tokens = 0}), "generate: max_new_tokens must be >= 1, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(generate(model, {{1}}, {.top_p = 1.5}), "generate: top_p must be from 0 to 1, got 1.5",
                       ConfigError);
  CHECK_THROWS_WITH_AS(generate(model, at::zeros({2})), doctest::Contains("must be int64 [N, T]"), ConfigError);
  CHECK_THROWS_WITH_AS(generate(model, at::zeros({2, 2}, at::kLong), at::ones({2, 3})),
                       doctest::Contains("attention_mask must be [2, 2]"), ConfigError);
  struct Odd final : Model {
    Outputs forward(const Batch& batch) override {
      return nan ? at::full({1, batch["input_ids"].size(1), 3}, std::nan("")) : at::zeros({1, 3});
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
    bool nan = false;
  } odd;
  CHECK_THROWS_WITH_AS(generate(odd, {{1, 2}}), doctest::Contains("the model must give logits [1, 2, vocabulary]"),
                       DataError);
  odd.nan = true;
  CHECK_THROWS_WITH_AS(generate(odd, {{1, 2}}),
                       "generate: the logits of text 0 are not finite; has the training diverged?", DataError);
  CHECK_THROWS_WITH_AS(generate(odd, {{1, 2}}, {.temperature = 1}), doctest::Contains("are not finite"), DataError);
  CHECK_THROWS_WITH_AS(generate(*small_gpt(), {{99}}),
                       doctest::Contains("token 99 of sample 0, at position 0, is out of range"), DataError);
}

}  // namespace composer::generate_test
