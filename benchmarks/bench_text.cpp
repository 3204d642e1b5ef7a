// What does a batch of windows of a text cost, and a generated token?
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <sys/mman.h>

#include "benchmarks/bench.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/text/token_file.h"
#include "composer/models/generate.h"
#include "composer/models/gpt.h"
#include "composer/util/random.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kTokens = 1 << 24, kBatch = 12, kLength = 1024;

std::function<void(int)> batches_of(std::shared_ptr<Loader> loader) {
  return [loader, epoch = std::int64_t{0}](int calls) mutable {
    loader->seek(epoch++, 0);
    for (; calls > 0; --calls)
      if (!loader->next()) throw Error("a segment is longer than an epoch");
  };
}

// The loop of nanoGPT: slices of a mapped file, which are converted and stacked.
struct Stacked {
  at::Tensor mapped;  // uint16, as int16
  RandomStream random{1};
  Batch make() {
    std::vector<at::Tensor> inputs, targets;
    for (std::int64_t i = 0; i < kBatch; ++i) {
      const auto at = static_cast<std::int64_t>(random.below(kTokens - kLength));
      inputs.push_back(mapped.narrow(0, at, kLength).to(at::kLong));
      targets.push_back(mapped.narrow(0, at + 1, kLength).to(at::kLong));
    }
    return {{"input_ids", at::stack(inputs)}, {"target", at::stack(targets)}};
  }
};

// The same in one pass, into the memory of the last batch.
struct OnePass {
  const std::uint16_t* tokens;
  at::Tensor input = at::empty({kBatch, kLength}, at::kLong), target = at::empty({kBatch, kLength}, at::kLong);
  RandomStream random{1};
  void make() {
    for (std::int64_t i = 0; i < kBatch; ++i) {
      const std::uint16_t* from = tokens + random.below(kTokens - kLength);
      auto* to = input.mutable_data_ptr<std::int64_t>() + i * kLength;
      auto* next = target.mutable_data_ptr<std::int64_t>() + i * kLength;
      for (std::int64_t t = 0; t < kLength; ++t) to[t] = from[t];
      for (std::int64_t t = 0; t < kLength; ++t) next[t] = from[t + 1];
    }
  }
};

void windows(Report& report) {
  const std::string name = "windows of 1024 tokens, batch 12";
  if (!report.wants(name)) return;
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "composer-bench.tokens";
  data::TokenWriter writer(path);
  std::vector<std::int64_t> tokens(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(hash64(i) % 50257);
  writer.write(tokens);
  writer.commit();
  const int file = ::open(path.c_str(), O_RDONLY);
  void* const mapped = ::mmap(nullptr, kTokens * 2, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) throw Error("cannot map ", path.string());
  const at::Tensor all = at::tensor(tokens);
  const std::int64_t rows = kTokens / kLength - 1;
  const auto in_memory = data::in_memory({{"input_ids", all.narrow(0, 0, rows * kLength).view({rows, kLength})},
                                          {"target", all.narrow(0, 1, rows * kLength).view({rows, kLength})}},
                                         {.batch_size = kBatch});
  const auto loader =
      data::token_windows(data::TokenFile(path, {.vocabulary = 50257}), {.batch_size = kBatch, .length = kLength});
  report.compare(name,
                 {{"in_memory, int64", batches_of(in_memory)},
                  {"mapped, stack of slices",
                   [stacked = Stacked{at::from_blob(mapped, {kTokens}, at::kShort)}](int calls) mutable {
                     for (; calls > 0; --calls) stacked.make();
                   }},
                  {"mapped, one pass",
                   [pass = OnePass{static_cast<const std::uint16_t*>(mapped)}](int calls) mutable {
                     for (; calls > 0; --calls) pass.make();
                   }},
                  {"token_windows", batches_of(loader)},
                  {"token_windows, prefetch 2",
                   batches_of(data::token_windows(data::TokenFile(path),
                                                  {.batch_size = kBatch, .length = kLength, .prefetch = 2}))}},
                 30, 200);
  ::munmap(mapped, kTokens * 2);
  ::close(file);
  std::filesystem::remove(path);
}

// Microseconds for a text, divided by the number of its tokens in the name.
void generation(const std::string& name, const models::GptOptions& options, std::int64_t prompt, std::int64_t tokens,
                int rounds, Report& report) {
  if (!report.wants(name)) return;
  at::manual_seed(1);
  const auto model = models::gpt(options);
  const models::TokenList start(static_cast<std::size_t>(prompt), 7);
  const auto run = [&](bool cache) {
    return [&model, &start, tokens, cache](int calls) {
      for (; calls > 0; --calls) models::generate(*model, {start}, {.max_new_tokens = tokens, .cache = cache});
    };
  };
  report.compare(name, {{"cache", run(true)}, {"no cache", run(false)}}, rounds, 1);
}

void measure_text(int argc, char** argv) {
  at::set_num_threads(1);
  Report report(parse(argc, argv));
  windows(report);
  generation("8 tokens after 64, GPT of 124 M", {}, 64, 8, 3, report);
  generation("96 tokens after 32, GPT of 0.8 M",
             {.vocabulary = 256, .sequence_length = 128, .width = 128, .depth = 4, .heads = 4}, 32, 96, 10, report);
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_text(argc, argv); }
