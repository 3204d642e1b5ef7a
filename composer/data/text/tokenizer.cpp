#include "composer/data/text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/text/bpe_tokenizer.h"
#include "composer/data/text/encode_parts.h"
#include "composer/util/utf8.h"

namespace composer::data {
namespace {

std::vector<Option<CharTokenizerOptions>> char_tokenizer_options() {
  using O = CharTokenizerOptions;
  return all_options(option("unknown", &O::unknown).must("be one character", [](const std::string& unknown) {
    return util::utf8_length(unknown) == unknown.size();
  }));
}

std::shared_ptr<Tokenizer> new_tokenizer(const std::string& name, const std::string& path) {
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (name == "character") return std::make_shared<CharTokenizer>();
  if (name == "bpe") return std::make_shared<BpeTokenizer>();
  throw CheckpointError(path, ": there is no tokenizer \"", name, "\"; there are byte, character and bpe");
}

// The character at this byte. Throws for one that is not UTF-8.
std::string_view utf8_character(std::string_view text, std::size_t at) {
  const std::size_t length = util::utf8_length(text.substr(at, 4));
  if (length == 0)
    throw detail::TextError("CharTokenizer: byte ", at,
                            " of the text is not UTF-8; use ByteTokenizer or BpeTokenizer for it");
  return text.substr(at, length);
}

// The bytes of a character as one number.
std::uint32_t number_of(std::string_view character) {
  std::uint32_t number = 0;
  for (const char c : character) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

}  // namespace

Tokenizer::~Tokenizer() = default;

std::optional<std::int64_t> Tokenizer::end_of_text() const { return {}; }

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  append(text, tokens);
  return tokens;
}

at::Tensor Tokenizer::encode_long(std::string_view text) const {
  const std::vector<std::vector<std::int64_t>> parts = detail::encode_parts(*this, text);
  std::size_t count = 0;
  for (const auto& part : parts) count += part.size();
  at::Tensor tokens = at::empty({static_cast<std::int64_t>(count)}, at::kLong);
  auto* to = tokens.mutable_data_ptr<std::int64_t>();
  for (const auto& part : parts) to = std::ranges::copy(part, to).out;
  return tokens;
}

void ByteTokenizer::append(std::string_view text, std::vector<std::int64_t>& tokens) const {
  const std::size_t before = tokens.size();
  tokens.resize(before + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) tokens[before + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteTokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int64_t token : tokens) {
    if (token < 0 || token > 255) throw DataError("ByteTokenizer: tokens are from 0 to 255, got ", token);
    text += static_cast<char>(token);
  }
  return text;
}

CharTokenizer::CharTokenizer(std::string_view text, CharTokenizerOptions options) {
  options = checked("CharTokenizer", std::move(options), char_tokenizer_options());
  fit(text, options.unknown);
}

void CharTokenizer::fit(std::string_view text, const std::string& unknown) {
  std::set<std::string_view> found;  // the order of UTF-8 is that of code points
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = utf8_character(text, at);
    found.insert(character);
    at += character.size();
  }
  if (!unknown.empty()) found.insert(unknown);
  if (found.empty()) throw DataError("CharTokenizer: the text has no characters");
  characters_.assign(found.begin(), found.end());
  wide_.clear();
  std::ranges::fill(ascii_, -1);
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    const std::string& character = characters_[i];
    if (character.size() == 1) {
      ascii_[static_cast<std::size_t>(character[0])] = static_cast<std::int64_t>(i);
    } else {
      wide_[number_of(character)] = static_cast<std::int64_t>(i);
    }
    if (character == unknown) unknown_ = static_cast<std::int64_t>(i);
  }
}

void CharTokenizer::append(std::string_view text, std::vector<std::int64_t>& tokens) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = utf8_character(text, at);
    std::int64_t token = -1;
    if (character.size() == 1) {
      token = ascii_[static_cast<std::size_t>(character[0])];
    } else if (const auto found = wide_.find(number_of(character)); found != wide_.end()) {
      token = found->second;
    }
    if (token < 0) token = unknown_;
    if (token < 0)
      throw detail::TextError(join("CharTokenizer: \"", character, "\" at byte "), at,
                              join(" is not in the vocabulary of ", characters_.size(),
                                   " characters; fit it on all of the text, or set unknown"));
    tokens.push_back(token);
    at += character.size();
  }
}

std::string CharTokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= size())
      throw DataError("CharTokenizer: tokens are from 0 to ", size() - 1, ", got ", token);
    text += characters_[static_cast<std::size_t>(token)];
  }
  return text;
}

std::size_t CharTokenizer::last_border(std::string_view text) const {
  for (std::size_t end = text.size(); end > 0 && end + 4 > text.size(); --end)
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, end); ++length)
      if (util::utf8_length(text.substr(end - length, length)) == length) return end;
  return text.size() < 4 ? 0 : text.size();  // no UTF-8: append() says where
}

void CharTokenizer::visit_state(StateVisitor& visit) {
  std::string text, unknown;
  for (const std::string& character : characters_) text += character;
  if (unknown_ >= 0) unknown = characters_[static_cast<std::size_t>(unknown_)];
  visit("characters", text);
  visit("unknown", unknown);
  if (!visit.is_loading()) return;
  try {
    check(CharTokenizerOptions{unknown}, char_tokenizer_options(), "", "");
    unknown_ = -1;
    fit(text, unknown);
  } catch (const Error& error) {
    throw CheckpointError(visit.path(), ": ", error.what());
  }
}

Tokens::Tokens(std::shared_ptr<Tokenizer> tokenizer, std::int64_t max_length, std::int64_t pad)
    : tokenizer_(std::move(tokenizer)), max_length_(max_length), pad_(pad) {
  if (!tokenizer_) throw ConfigError("Tokens: the tokenizer is null");
  if (max_length < 0) throw ConfigError("Tokens: max_length must be >= 0, where 0 is no limit, got ", max_length);
}

const Tokenizer& Tokens::tokenizer() const {
  if (!tokenizer_) throw ConfigError("Tokens: has no tokenizer; give it one, or load it");
  return *tokenizer_;
}

Batch Tokens::apply(const Batch& raw) const {
  const at::Tensor text = raw.at("text").cpu().contiguous(), lengths = raw.at("text_length").cpu().contiguous();
  if (text.dim() != 2 || text.scalar_type() != at::kByte || lengths.scalar_type() != at::kLong || lengths.dim() != 1 ||
      lengths.size(0) != text.size(0))
    throw DataError("Tokens: expected \"text\", uint8 [N, bytes], and \"text_length\", int64 [N], as text_batch() ",
                    "makes them, got ", text.scalar_type(), ' ', text.sizes(), " and ", lengths.scalar_type(), ' ',
                    lengths.sizes());
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t longest = 1;
  for (std::int64_t i = 0; i < text.size(0); ++i) {
    const std::int64_t length = lengths.const_data_ptr<std::int64_t>()[i];
    if (length < 0 || length > text.size(1))
      throw DataError("Tokens: text ", i, " has a length of ", length, ", and there are ", text.size(1), " bytes");
    const auto* bytes = reinterpret_cast<const char*>(text.const_data_ptr<std::uint8_t>()) + i * text.size(1);
    rows.push_back(tokenizer().encode(std::string_view(bytes, static_cast<std::size_t>(length))));
    if (max_length_ > 0 && rows.back().size() > static_cast<std::size_t>(max_length_))
      rows.back().resize(static_cast<std::size_t>(max_length_));
    longest = std::max(longest, rows.back().size());
  }
  const std::int64_t width = static_cast<std::int64_t>(longest);
  const at::Tensor ids = at::full({text.size(0), width}, pad_, at::kLong), mask = at::zeros_like(ids);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows[i], ids.mutable_data_ptr<std::int64_t>() + i * longest);
    std::fill_n(mask.mutable_data_ptr<std::int64_t>() + i * longest, rows[i].size(), 1);
  }
  Batch made;
  for (const auto& [name, tensor] : raw)
    if (name != "text" && name != "text_length") made.set(name, tensor);
  made.set("input_ids", ids);
  made.set("attention_mask", mask);
  return made;
}

void Tokens::visit_state(StateVisitor& visit) {
  std::string kind = tokenizer_ ? tokenizer_->name() : "";
  visit("tokenizer", kind);
  visit("max_length", max_length_);
  visit("pad", pad_);
  if (visit.is_loading() && (!tokenizer_ || tokenizer_->name() != kind)) tokenizer_ = new_tokenizer(kind, visit.path());
  if (!tokenizer_) throw ConfigError("Tokens: has no tokenizer to be saved");
  visit("state", *tokenizer_);
}

Batch text_batch(const std::vector<std::string>& texts) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  const auto count = static_cast<std::int64_t>(texts.size());
  const at::Tensor text = at::zeros({count, static_cast<std::int64_t>(longest)}, at::kByte);
  const at::Tensor lengths = at::empty({count}, at::kLong);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::memcpy(text.mutable_data_ptr<std::uint8_t>() + i * longest, texts[i].data(), texts[i].size());
    lengths.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(texts[i].size());
  }
  return {{"text", text}, {"text_length", lengths}};
}

}  // namespace composer::data
