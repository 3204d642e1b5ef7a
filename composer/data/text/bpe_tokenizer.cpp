#include "composer/data/text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/text/bpe.h"
#include "composer/data/text/pre_tokens.h"
#include "composer/formats/byte_source.h"
#include "composer/util/new_file.h"

namespace composer::data {
namespace {

using detail::BpeParts;

constexpr std::uint64_t kLongestVocabulary = 256 << 20;  // bytes

std::vector<Option<BpeOptions>> bpe_options() {
  using O = BpeOptions;
  return all_options(option("split", &O::split, detail::kSplitRules),
                     part("special_tokens", &O::special_tokens, "numbers by name"),
                     option("special_in_text", &O::special_in_text));
}

std::vector<Option<BpeTrainOptions>> bpe_train_options() {
  using O = BpeTrainOptions;
  return all_options(option("size", &O::size).from_to(256, 1 << 24),
                     option("min_frequency", &O::min_frequency).at_least(1),
                     option("split", &O::split, detail::kSplitRules), option("special_tokens", &O::special_tokens));
}

std::string whole_vocabulary(const std::filesystem::path& path) {
  try {
    const auto file = formats::open_file(path);
    if (file->size() > kLongestVocabulary)
      throw DataError(path.string(), ": has ", file->size(), " bytes, and a vocabulary may have ", kLongestVocabulary);
    return file->read(0, static_cast<std::size_t>(file->size()));
  } catch (const CheckpointError& error) {
    throw DataError("BpeTokenizer: ", error.what());
  }
}

// Numbers of a vector as a tensor, and back.
at::Tensor int_tensor(const std::vector<std::int32_t>& numbers) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kInt);
  std::ranges::copy(numbers, tensor.mutable_data_ptr<std::int32_t>());
  return tensor;
}

std::span<const std::int32_t> int_span(const at::Tensor& tensor, const std::string& path) {
  if (tensor.dim() != 1 || tensor.scalar_type() != at::kInt || !tensor.is_contiguous() || !tensor.is_cpu())
    throw CheckpointError(path, ": expected int32 numbers, found ", tensor.scalar_type(), ' ', tensor.sizes());
  return {tensor.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

BpeTokenizer::BpeTokenizer() = default;
BpeTokenizer::~BpeTokenizer() = default;

BpeTokenizer::BpeTokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges,
                           BpeOptions options) {
  options = checked("BpeTokenizer", std::move(options), bpe_options());
  put(detail::read_gpt2_bpe(whole_vocabulary(vocabulary), vocabulary.string(), whole_vocabulary(merges),
                            merges.string()),
      vocabulary.string(), options);
}

BpeTokenizer::BpeTokenizer(BpeParts parts, const std::string& name, BpeOptions options) {
  put(std::move(parts), name, checked("BpeTokenizer", std::move(options), bpe_options()));
}

void BpeTokenizer::put(BpeParts parts, const std::string& name, const BpeOptions& options) {
  if (options.split != SplitRule::GPT2) parts.split = options.split;
  for (const auto& [text, number] : options.special_tokens) parts.special[text] = number;
  bpe_ = std::make_shared<const detail::Bpe>(std::move(parts), name);
  special_in_text_ = options.special_in_text;
}

BpeTokenizer BpeTokenizer::tiktoken(const std::filesystem::path& file, BpeOptions options) {
  return {detail::read_tiktoken_bpe(whole_vocabulary(file), file.string()), file.string(), std::move(options)};
}

BpeTokenizer BpeTokenizer::train(std::string_view text, BpeTrainOptions options) {
  options = checked("BpeTokenizer::train", std::move(options), bpe_train_options());
  const auto special = static_cast<std::int64_t>(options.special_tokens.size());
  if (options.size < 256 + special)
    throw ConfigError("BpeTokenizer::train: size must be at least 256 + the ", special, " special tokens, got ",
                      options.size);
  BpeParts parts = detail::train_bpe(text, options.size - special, options.min_frequency, options.split);
  BpeOptions made{.split = options.split};
  auto number = static_cast<std::int64_t>(parts.tokens.size());
  for (const std::string& token : options.special_tokens) made.special_tokens[token] = number++;
  return {std::move(parts), "BpeTokenizer::train", std::move(made)};
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  const std::string vocabulary = detail::vocabulary_json(bpe().parts()), merges = detail::merges_text(bpe().parts());
  util::write_whole_file(folder / "merges.txt", merges);
  util::write_whole_file(folder / "vocab.json", vocabulary);
}

const detail::Bpe& BpeTokenizer::bpe() const {
  if (!bpe_) throw ConfigError("BpeTokenizer: has no vocabulary; give it files, or load it");
  return *bpe_;
}

std::int64_t BpeTokenizer::token(std::string_view text) const {
  const std::int64_t number = bpe().find(text);
  if (number < 0) throw ConfigError("BpeTokenizer: there is no token \"", text, '"');
  return number;
}

std::int64_t BpeTokenizer::size() const { return bpe().size(); }

void BpeTokenizer::append(std::string_view text, std::vector<std::int64_t>& tokens) const {
  bpe().encode(text, tokens, special_in_text_);
}

std::string BpeTokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  bpe().decode(tokens, text);
  return text;
}

// A special token may contain a space, so text in which they count is not divided.
std::size_t BpeTokenizer::last_border(std::string_view text) const {
  if (special_in_text_ && !bpe().parts().special.empty()) {
    const auto has_space = [](const auto& item) { return item.first.find_first_of(" \n") != std::string::npos; };
    if (std::ranges::any_of(bpe().parts().special, has_space)) return 0;
  }
  return detail::last_border(bpe().parts().split, text);
}

std::optional<std::int64_t> BpeTokenizer::end_of_text() const {
  const auto& special = bpe().parts().special;
  const auto found = special.find("<|endoftext|>");
  if (found == special.end()) return {};
  return found->second;
}

void BpeTokenizer::visit_state(StateVisitor& visit) {
  BpeParts parts = visit.is_loading() ? BpeParts() : bpe().parts();
  std::string all;
  std::vector<std::int32_t> lengths, pairs;
  for (const std::string& token : parts.tokens) {
    all += token;
    lengths.push_back(static_cast<std::int32_t>(token.size()));
  }
  for (const auto [left, right, merged] : parts.merges) pairs.insert(pairs.end(), {left, right, merged});
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(all.size())}, at::kByte);
  std::ranges::copy(all, bytes.mutable_data_ptr<std::uint8_t>());
  at::Tensor length_tensor = int_tensor(lengths), merge_tensor = int_tensor(pairs);
  visit("bytes", bytes);
  visit("lengths", length_tensor);
  visit("merges", merge_tensor);
  visit("by_rank", parts.by_rank);
  visit("split", parts.split);
  visit("special", parts.special);
  visit("special_in_text", special_in_text_);
  if (!visit.is_loading()) return;

  if (bytes.dim() != 1 || bytes.scalar_type() != at::kByte || !bytes.is_contiguous())
    throw CheckpointError(visit.path(), ": expected the bytes of tokens, found ", bytes.scalar_type(), ' ',
                          bytes.sizes());
  if (parts.split != SplitRule::GPT2 && parts.split != SplitRule::CL100K)
    throw CheckpointError(visit.path(), ": the rule by which text is divided is of a newer library");
  const auto* from = reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>());
  std::int64_t left = bytes.numel();
  for (const std::int32_t length : int_span(length_tensor, visit.path())) {
    if (length < 0 || length > left)
      throw CheckpointError(visit.path(), ": the tokens have fewer bytes than their lengths say");
    parts.tokens.emplace_back(from, static_cast<std::size_t>(length));
    from += length;
    left -= length;
  }
  const auto numbers = int_span(merge_tensor, visit.path());
  if (numbers.size() % 3 != 0)
    throw CheckpointError(visit.path(), ": expected three numbers for each merge, found ", numbers.size());
  for (std::size_t i = 0; i + 2 < numbers.size(); i += 3)
    parts.merges.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  try {
    bpe_ = std::make_shared<const detail::Bpe>(std::move(parts), visit.path());
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace composer::data
