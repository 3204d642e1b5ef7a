#include "composer/algorithms/seq_length_warmup.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::test::seq_length_warmup_test {
namespace {

using algorithms::SeqLengthWarmup;
using algorithms::SeqLengthWarmupOptions;
using algorithms::set_batch_sequence_length;

at::Tensor numbers(std::initializer_list<std::int64_t> values, std::int64_t rows = 1) {
  return at::tensor(values, at::kLong).view({rows, -1});
}

// The length of sequences of `tokens` tokens after so many batches.
std::int64_t length_after(const SeqLengthWarmupOptions& options, Time max_duration, std::int64_t batches,
                          std::int64_t tokens = 64, std::int64_t samples_per_batch = 4) {
  SeqLengthWarmup warmup(options);
  FakeRun run;
  run.state.max_duration = max_duration;
  run.state.dataloader_len = 10;
  for (std::int64_t i = 0; i < batches; ++i)
    run.state.timestamp = run.state.timestamp.to_next_batch(samples_per_batch, 0, Seconds(0));
  run.state.batch = {{"input_ids", at::zeros({4, tokens}, at::kLong)}};
  warmup.apply(Event::AFTER_DATALOADER, run.state, run.logger);
  const at::Tensor& got = run.state.batch["input_ids"];
  CHECK(run.log.values.at("seq_length_warmup/curr_seq_len").back() == static_cast<double>(got.size(1)));
  CHECK(run.log.values.at("seq_length_warmup/curr_bs").back() == static_cast<double>(got.size(0)));
  return got.size(1);
}

TEST_CASE("set_batch_sequence_length truncates every tensor of tokens, and leaves others and the batch as they are") {
  const at::Tensor ids = at::arange(12, at::kLong).view({2, 6}), hidden = at::rand({2, 6, 3}), classes = at::ones({2});
  const Batch got = set_batch_sequence_length({{"input_ids", ids}, {"hidden", hidden}, {"target", classes}}, 4);
  CHECK(at::equal(got["input_ids"], ids.slice(1, 0, 4)));
  CHECK(at::equal(got["hidden"], hidden.slice(1, 0, 4)));
  CHECK(got["target"].is_same(classes));
  CHECK(at::equal(ids, at::arange(12, at::kLong).view({2, 6})));
  CHECK(set_batch_sequence_length({{"input_ids", ids}}, 6)["input_ids"].is_same(ids));
}

TEST_CASE("set_batch_sequence_length puts the last token of each sequence at its end if asked to") {
  const SeqLengthWarmupOptions options{.preserve_end_of_sequence = true};
  const at::Tensor ids = numbers({10, 11, 12, 13, 14, 15, 20, 21, 22, 0, 0, 0, 30, 31, 0, 0, 0, 0}, 3),
                   mask = numbers({1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0}, 3), before = ids.clone();
  const Batch got = set_batch_sequence_length({{"input_ids", ids}, {"attention_mask", mask}}, 3, options);
  CHECK(at::equal(got["input_ids"], numbers({10, 11, 15, 20, 21, 22, 30, 31, 0}, 3)));
  CHECK(at::equal(got["attention_mask"], numbers({1, 1, 1, 1, 1, 1, 1, 1, 0}, 3)));
  CHECK(at::equal(ids, before));
  CHECK_THROWS_WITH_AS(
      set_batch_sequence_length({{"input_ids", ids}}, 3, options),
      "SeqLengthWarmup: preserve_end_of_sequence needs \"attention_mask\" in the batch to find the ends", DataError);
}

TEST_CASE("set_batch_sequence_length leaves the loader's memory as it is, also of a single sequence") {
  const SeqLengthWarmupOptions options{.preserve_end_of_sequence = true};
  const at::Tensor ids = numbers({10, 11, 12, 13}), mask = at::ones({1, 4}, at::kLong), before = ids.clone();
  const Batch got = set_batch_sequence_length({{"input_ids", ids}, {"attention_mask", mask}}, 2, options);
  CHECK(at::equal(got["input_ids"], numbers({10, 13})));
  CHECK(at::equal(ids, before));
}

TEST_CASE("set_batch_sequence_length rejects an attention mask of another size than the tokens") {
  const at::Tensor ids = at::ones({2, 4}, at::kLong);
  CHECK_THROWS_WITH_AS(
      set_batch_sequence_length({{"input_ids", ids}, {"attention_mask", at::ones({2, 1, 1, 4})}}, 2,
                                {.preserve_end_of_sequence = true}),
      "SeqLengthWarmup: preserve_end_of_sequence needs \"attention_mask\" of the size [2, 4] of the tokens, got "
      "[2, 1, 1, 4]",
      DataError);
}

TEST_CASE("set_batch_sequence_length makes more and shorter sequences instead, without the rest") {
  const SeqLengthWarmupOptions options{.truncate = false};
  const at::Tensor ids = at::arange(12, at::kLong).view({2, 6});
  const Batch got = set_batch_sequence_length({{"input_ids", ids}, {"labels", ids + 1}}, 5, options);
  CHECK(at::equal(got["input_ids"], at::arange(10, at::kLong).view({2, 5})));
  CHECK(at::equal(got["labels"], at::arange(1, 11, at::kLong).view({2, 5})));
  CHECK_THROWS_WITH_AS(set_batch_sequence_length({{"input_ids", ids}, {"target", at::zeros({2})}}, 5, options),
                       "SeqLengthWarmup: without truncate every tensor needs the shape of \"input_ids\", [2, 6]; "
                       "\"target\" is [2]",
                       DataError);
}

TEST_CASE("SeqLengthWarmup grows by step_size until max_seq_length, in batches and in epochs") {
  const SeqLengthWarmupOptions options{.duration = 0.5, .min_seq_length = 8, .max_seq_length = 32};
  struct Row {
    std::int64_t batch, length;
  };
  for (const Time limit : {Time("20ba"), Time("2ep")})
    for (const auto& [batch, length] : {Row{0, 8}, Row{2, 8}, Row{3, 16}, Row{8, 24}, Row{9, 32}, Row{19, 32}}) {
      CAPTURE(batch);
      CHECK(length_after(options, limit, batch) == length);
    }
}

TEST_CASE("SeqLengthWarmup grows with the share of a run in samples") {
  const SeqLengthWarmupOptions options{.duration = 0.5, .min_seq_length = 8, .max_seq_length = 32};
  CHECK(length_after(options, "80sp", 0) == 8);
  CHECK(length_after(options, "80sp", 4) == 16);
  CHECK(length_after(options, "80sp", 10) == 32);
}

TEST_CASE("SeqLengthWarmup reaches max_seq_length in time where it has more steps than batches, or no step at all") {
  CHECK(length_after({.duration = 0.5, .min_seq_length = 8, .max_seq_length = 64}, "4ba", 1) == 32);
  CHECK(length_after({.duration = 0.5, .min_seq_length = 8, .max_seq_length = 64}, "4ba", 2) == 64);
  CHECK(length_after({.duration = 0, .min_seq_length = 8, .max_seq_length = 64}, "4ba", 0) == 64);
  CHECK(length_after({.min_seq_length = 8, .max_seq_length = 8}, "4ba", 0) == 8);
  CHECK(length_after({.min_seq_length = 8, .max_seq_length = 128}, "4ba", 4, 64) == 64);  // as long as they are
}

// The mean of the embeddings of tokens, as logits.
struct BagOfTokens final : Model {
  BagOfTokens() {
    const at::NoGradGuard no_grad;
    embedding->weight.copy_(at::cos(at::arange(33, at::kFloat)).view({11, 3}));
  }
  Outputs forward(const Batch& batch) override { return embedding(batch["input_ids"]).mean(1); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(11, 3));
};

TEST_CASE("A run with SeqLengthWarmup that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_options();
        with.model = std::make_shared<BagOfTokens>();
        with.train_dataloader =
            data::in_memory({{"input_ids", at::arange(16 * 12, at::kLong).remainder(11).view({16, 12})},
                             {"target", at::arange(16, at::kLong).remainder(3)}},
                            {.batch_size = 4, .shuffle = false});
        with.max_duration = "2ep";
        with.algorithms = {SeqLengthWarmup({.duration = 1, .min_seq_length = 2, .max_seq_length = 12, .step_size = 2})};
        return with;
      },
      3);
}

TEST_CASE("SeqLengthWarmup refuses batches without tokens, and options that make no sense") {
  SeqLengthWarmup warmup;
  FakeRun run;
  run.state.batch = {{"input", at::zeros({2, 4})}};
  CHECK_THROWS_AS(warmup.apply(Event::AFTER_DATALOADER, run.state, run.logger), DataError);
  CHECK_THROWS_WITH_AS(SeqLengthWarmup({.duration = 1.5}), "SeqLengthWarmup: duration must be from 0 to 1, got 1.5",
                       ConfigError);
  CHECK_THROWS_WITH_AS(SeqLengthWarmup({.min_seq_length = 10, .max_seq_length = 5}),
                       "SeqLengthWarmup: max_seq_length must be at least min_seq_length, 10, got 5", ConfigError);
  CHECK_THROWS_AS(SeqLengthWarmup({.min_seq_length = 0}), ConfigError);
  CHECK_THROWS_AS(SeqLengthWarmup({.step_size = 0}), ConfigError);
  CHECK_THROWS_AS(SeqLengthWarmup({.truncate = false, .preserve_end_of_sequence = true}), ConfigError);
}

}  // namespace
}  // namespace composer::test::seq_length_warmup_test
