#include "composer/models/generate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/model_access.h"
#include "composer/core/option.h"
#include "composer/data/text/tokenizer.h"
#include "composer/models/classifier.h"
#include "composer/models/incremental_decoder.h"
#include "composer/models/language_model.h"
#include "composer/util/random.h"

namespace composer::models {
namespace {

constexpr std::int64_t kLikely = 256;  // tokens among which those of top_p are usually found

std::vector<Option<GenerateOptions>> generate_options() {
  using O = GenerateOptions;
  return all_options(option("max_new_tokens", &O::max_new_tokens).at_least(1),
                     option("temperature", &O::temperature).at_least(0).finite(),
                     option("top_k", &O::top_k).at_least(0), option("top_p", &O::top_p).from_to(0, 1),
                     part("seed", &O::seed, "a number"), part("stop_tokens", &O::stop_tokens, "tokens"),
                     option("context", &O::context).at_least(0), option("cache", &O::cache),
                     option("input", &O::input).not_empty(), part("on_token", &O::on_token, "a function"));
}

// What the model's forward() runs, if that keeps keys and values. A class derived from Classifier may have a forward()
// of its own, so only the classes themselves are trusted.
IncrementalDecoder* decoder_of(Model& model) {
  if (auto* decoder = dynamic_cast<IncrementalDecoder*>(&model)) return decoder;
  if (typeid(model) != typeid(Classifier) && typeid(model) != typeid(LanguageModel)) return nullptr;
  for (const auto& [name, child] : named_children(model))
    if (name == "module") return dynamic_cast<IncrementalDecoder*>(child.get());
  return nullptr;
}

// The texts of several prompts, which grow by one token at a time.
class TextWriter {
 public:
  // `vocabulary`: logits of this token and those after it are left out; 0: none are.
  TextWriter(Model& model, const std::vector<TokenList>& prompts, const GenerateOptions& options,
             std::int64_t vocabulary)
      : model_(model),
        options_(options),
        vocabulary_(vocabulary),
        decoder_(decoder_of(model)),
        device_(at::kCPU),
        texts_(prompts),
        done_(prompts.size(), false) {
    if (const std::vector<at::Tensor> all = parameters(model); !all.empty()) device_ = all.front().device();
    context_ = options.context;
    if (decoder_) context_ = context_ == 0 ? decoder_->max_tokens() : std::min(context_, decoder_->max_tokens());
  }

  std::vector<TokenList> write() {
    const at::NoGradGuard no_grad;
    std::vector<TokenList> made(texts_.size());
    for (std::int64_t step = 0; step < options_.max_new_tokens && !std::ranges::all_of(done_, std::identity());
         ++step) {
      const std::vector<std::int64_t> next = choose(logits(), step);
      for (std::size_t row = 0; row < next.size(); ++row) {
        if (done_[row]) continue;
        done_[row] = std::ranges::find(options_.stop_tokens, next[row]) != options_.stop_tokens.end();
        if (done_[row]) continue;
        texts_[row].push_back(next[row]);
        made[row].push_back(next[row]);
        if (options_.on_token) options_.on_token(static_cast<std::int64_t>(row), next[row]);
      }
    }
    return made;
  }

 private:
  std::int64_t longest() const {
    return std::ssize(*std::ranges::max_element(texts_, {}, [](const TokenList& text) { return text.size(); }));
  }
  std::int64_t count() const { return std::ssize(texts_); }

  // Logits of the token after each text, float [N, vocabulary].
  at::Tensor logits() {
    at::Tensor next = decoder_ && options_.cache ? cached_logits() : at::Tensor();
    if (!next.defined()) next = whole_logits();
    if (vocabulary_ > 0 && next.size(1) > vocabulary_) next = next.narrow(1, 0, vocabulary_);
    return next.to(at::kFloat);
  }

  // Undefined if they are not kept.
  at::Tensor cached_logits() {
    if (kept_) {
      if (columns_ == capacity_) {
        kept_.reset();
        decoder_ = nullptr;
        return {};
      }
      at::Tensor last = at::empty({count(), 1}, at::kLong);
      for (std::int64_t row = 0; row < count(); ++row)
        last.mutable_data_ptr<std::int64_t>()[row] = texts_[static_cast<std::size_t>(row)].back();
      ++columns_;
      return kept_->append(last.to(device_));
    }
    columns_ = longest();
    capacity_ = std::min(context_, columns_ + options_.max_new_tokens);
    if (columns_ > capacity_) return {};
    at::Tensor tokens = at::zeros({count(), columns_}, at::kLong), padding = at::zeros({count()}, at::kLong);
    bool is_padded = false;
    for (std::int64_t row = 0; row < count(); ++row) {
      const TokenList& text = texts_[static_cast<std::size_t>(row)];
      const std::int64_t before = columns_ - std::ssize(text);
      is_padded = is_padded || before > 0;
      padding.mutable_data_ptr<std::int64_t>()[row] = before;
      std::ranges::copy(text, tokens.mutable_data_ptr<std::int64_t>() + row * columns_ + before);
    }
    kept_ = decoder_->begin(count(), capacity_, is_padded ? padding.to(device_) : at::Tensor());
    return kept_ ? kept_->append(tokens.to(device_)) : at::Tensor();
  }

  at::Tensor whole_logits() {
    const std::int64_t width = context_ > 0 ? std::min(longest(), context_) : longest();
    at::Tensor tokens = at::zeros({count(), width}, at::kLong), last = at::empty({count(), 1, 1}, at::kLong);
    for (std::int64_t row = 0; row < count(); ++row) {
      const TokenList& text = texts_[static_cast<std::size_t>(row)];
      const std::int64_t used = std::min(std::ssize(text), static_cast<std::ptrdiff_t>(width));
      std::copy(text.end() - used, text.end(), tokens.mutable_data_ptr<std::int64_t>() + row * width);
      last.mutable_data_ptr<std::int64_t>()[row] = used - 1;
    }
    const Outputs outputs = forward_of(model_, Batch{{options_.input, tokens.to(device_)}});
    const at::Tensor& all = outputs.front();
    if (all.dim() != 3 || all.size(0) != count() || all.size(1) != width)
      throw DataError("generate: for tokens of shape ", tokens.sizes(), " the model must give logits [", count(), ", ",
                      width, ", vocabulary], got ", all.sizes());
    return all.gather(1, last.to(all.device()).expand({-1, 1, all.size(2)})).squeeze(1);
  }

  std::vector<std::int64_t> choose(const at::Tensor& logits, std::int64_t step) const {
    if (options_.temperature == 0) {
      const auto [most, best] = logits.max(-1);  // NaN if one of them is
      const at::Tensor both = at::stack({most.to(at::kDouble), best.to(at::kDouble)}).to(at::kCPU);  // in one copy
      const auto* const of_most = both.const_data_ptr<double>();
      std::vector<std::int64_t> chosen;
      for (std::int64_t row = 0; row < best.numel(); ++row) {
        check_finite(of_most[row], row);
        chosen.push_back(static_cast<std::int64_t>(of_most[best.numel() + row]));
      }
      return chosen;
    }
    at::Tensor weights = logits / options_.temperature, tokens;
    if (options_.top_k > 0 && options_.top_k < weights.size(1))
      std::tie(weights, tokens) = weights.topk(options_.top_k);
    weights = weights.softmax(-1);
    if (options_.top_p < 1 && !tokens.defined()) {
      std::tie(weights, tokens) = weights.topk(std::min(kLikely, weights.size(1)));
      if (weights.size(1) < logits.size(1) && weights.sum(-1).min().item<float>() < options_.top_p)
        std::tie(weights, tokens) = (logits / options_.temperature).softmax(-1).sort(-1, /*descending=*/true);
    }
    weights = weights.to(at::kCPU).contiguous();
    if (tokens.defined()) tokens = tokens.to(at::kCPU).contiguous();
    std::vector<std::int64_t> chosen;
    for (std::int64_t row = 0; row < weights.size(0); ++row) {
      const std::int64_t at = draw(weights.const_data_ptr<float>() + row * weights.size(1), weights.size(1), row, step);
      chosen.push_back(tokens.defined() ? tokens.const_data_ptr<std::int64_t>()[row * weights.size(1) + at] : at);
    }
    return chosen;
  }

  static void check_finite(double value, std::int64_t row) {
    if (!std::isfinite(value))
      throw DataError("generate: the logits of text ", row, " are not finite; has the training diverged?");
  }

  // Draws from probabilities, of which those beyond top_p have no chance.
  std::int64_t draw(const float* weights, std::int64_t size, std::int64_t row, std::int64_t step) const {
    double total = 0;
    std::int64_t used = 0;
    while (used < size && (used == 0 || options_.top_p == 1 || total < options_.top_p)) total += weights[used++];
    check_finite(total, row);
    const double aim = RandomStream(hash64(options_.seed, static_cast<std::uint64_t>(row), step)).uniform() * total;
    double sum = 0;
    std::int64_t last = 0;  // with a chance
    for (std::int64_t i = 0; i < used; ++i) {
      if (weights[i] <= 0) continue;
      sum += weights[i];
      last = i;
      if (sum > aim) break;
    }
    return last;
  }

  Model& model_;
  const GenerateOptions& options_;
  std::int64_t vocabulary_;
  IncrementalDecoder* decoder_;
  at::Device device_;
  std::vector<TokenList> texts_;  // with their prompts
  std::vector<bool> done_;
  std::int64_t context_;                             // 0: no limit
  std::unique_ptr<IncrementalDecoder::Texts> kept_;  // of all texts, which end together in columns_ tokens
  std::int64_t columns_ = 0, capacity_ = 0;
};

}  // namespace

IncrementalDecoder::Texts::~Texts() = default;
IncrementalDecoder::~IncrementalDecoder() = default;

namespace {

std::vector<TokenList> generated(Model& model, const std::vector<TokenList>& prompts, const GenerateOptions& options,
                                 std::int64_t vocabulary) {
  check(options, generate_options(), "generate: ", "");
  if (prompts.empty()) return {};
  for (const TokenList& prompt : prompts) {
    if (prompt.empty()) throw ConfigError("generate: a prompt must have at least one token");
    if (std::ranges::min(prompt) < 0)
      throw ConfigError("generate: tokens must be >= 0, got ", std::ranges::min(prompt));
  }
  const EvaluationMode evaluation(model);
  return TextWriter(model, prompts, options, vocabulary).write();
}

}  // namespace

std::vector<TokenList> generate(Model& model, const std::vector<TokenList>& prompts, const GenerateOptions& options) {
  return generated(model, prompts, options, /*vocabulary=*/0);
}

std::vector<TokenList> generate(Model& model, const at::Tensor& prompts, const at::Tensor& attention_mask,
                                const GenerateOptions& options) {
  if (prompts.dim() != 2 || prompts.scalar_type() != at::kLong)
    throw ConfigError("generate: prompts must be int64 [N, T], got ", prompts.scalar_type(), ' ', prompts.sizes());
  if (attention_mask.defined() && attention_mask.sizes() != prompts.sizes())
    throw ConfigError("generate: the attention_mask must be ", prompts.sizes(), " as the prompts, got ",
                      attention_mask.sizes());
  const at::Tensor tokens = prompts.to(at::kCPU).contiguous();
  const at::Tensor mask = attention_mask.defined() ? attention_mask.ne(0).to(at::kCPU).contiguous() : at::Tensor();
  std::vector<TokenList> lists(static_cast<std::size_t>(tokens.size(0)));
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    if (!mask.defined() || mask.const_data_ptr<bool>()[i])
      lists[static_cast<std::size_t>(i / tokens.size(1))].push_back(tokens.const_data_ptr<std::int64_t>()[i]);
  return generate(model, lists, options);
}

std::string generate(Model& model, const data::Tokenizer& tokenizer, std::string_view prompt,
                     const GenerateOptions& options) {
  GenerateOptions own = options;
  if (const std::optional<std::int64_t> end = tokenizer.end_of_text()) own.stop_tokens.push_back(*end);
  return tokenizer.decode(generated(model, {tokenizer.encode(prompt)}, own, tokenizer.size()).front());
}

}  // namespace composer::models
