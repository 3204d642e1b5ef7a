#include "composer/callbacks/generate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/util/text.h"

namespace composer::callbacks {
namespace {

std::string numbers(const TokenList& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) text += join(text.empty() ? "" : " ", token);
  return text;
}

// Parses "1 2 3; 4 5".
std::vector<TokenList> parse_prompts(const std::string& text) {
  std::vector<TokenList> prompts;
  util::InText parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    util::InText words(part);
    TokenList& prompt = prompts.emplace_back();
    for (std::int64_t token = 0; words >> token;) prompt.push_back(token);
    if (!words.eof() || prompt.empty())
      throw ConfigError("Generate: prompt_tokens must be like \"1 2 3; 4 5\", got \"", text, '"');
  }
  return prompts;
}

// Generates the texts of several prompts at once.
class SampleWriter {
 public:
  SampleWriter(Model& model, const GenerateOptions& options, at::Device device, std::span<const TokenList> prompts)
      : model_(model), options_(options), device_(device) {
    for (const TokenList& prompt : prompts) longest_ = std::max(longest_, static_cast<std::int64_t>(prompt.size()));
    const auto count = static_cast<std::int64_t>(prompts.size());
    at::Tensor tokens = at::zeros({count, longest_ + options.max_new_tokens}, at::kLong);
    at::Tensor lengths = at::empty({count}, at::kLong);
    for (std::int64_t row = 0; row < count; ++row) {
      const TokenList& prompt = prompts[static_cast<std::size_t>(row)];
      std::ranges::copy(prompt, tokens[row].mutable_data_ptr<std::int64_t>());
      lengths.mutable_data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(prompt.size());
    }
    tokens_ = tokens.to(device);
    lengths_ = lengths.to(device);
    done_ = at::zeros({count}, tokens_.options().dtype(at::kBool));
    if (!options.stop_tokens.empty()) stops_ = at::tensor(options.stop_tokens, at::kLong).to(device);
  }

  // Returns the new tokens of each prompt.
  std::vector<TokenList> write() {
    const at::Tensor before = lengths_.to(at::kCPU);
    for (std::int64_t i = 0; i < options_.max_new_tokens; ++i) {
      append(choose(logits(longest_ + i)));
      if (stops_.defined() && done_.all().item<bool>()) break;
    }
    const at::Tensor tokens = tokens_.to(at::kCPU), after = lengths_.to(at::kCPU);
    std::vector<TokenList> texts;
    for (std::int64_t row = 0; row < tokens.size(0); ++row) {
      const auto* all = tokens[row].const_data_ptr<std::int64_t>();
      texts.emplace_back(all + before[row].item<std::int64_t>(), all + after[row].item<std::int64_t>());
    }
    return texts;
  }

 private:
  // Logits of the token after the last one of each text, [N, vocabulary]. No text has more than `longest` tokens.
  at::Tensor logits(std::int64_t longest) const {
    at::Tensor input = tokens_.narrow(1, 0, longest), last = lengths_ - 1;
    if (options_.context > 0 && longest > options_.context) {
      const at::Tensor first = (lengths_ - options_.context).clamp_min(0);
      input = input.gather(1, first.unsqueeze(1) + at::arange(options_.context, lengths_.options()).unsqueeze(0));
      last = last - first;
    }
    const Outputs outputs = forward_of(model_, Batch{{options_.input_key, input}});
    const at::Tensor& all = outputs.front();
    if (all.dim() != 3 || all.size(0) != input.size(0) || all.size(1) != input.size(1))
      throw DataError("Generate: for tokens of shape ", input.sizes(), " the model must give logits [", input.size(0),
                      ", ", input.size(1), ", vocabulary], got ", all.sizes());
    return all.gather(1, last.view({-1, 1, 1}).expand({-1, 1, all.size(2)})).squeeze(1).to(at::kFloat);
  }

  at::Tensor choose(at::Tensor logits) const {
    if (options_.temperature == 0) return logits.argmax(-1);
    logits = logits / options_.temperature;
    if (options_.top_k > 0 && options_.top_k < logits.size(1)) {
      const at::Tensor least = std::get<0>(logits.topk(options_.top_k)).narrow(1, options_.top_k - 1, 1);
      logits = logits.masked_fill(logits < least, -std::numeric_limits<double>::infinity());
    }
    return logits.softmax(-1).multinomial(1).squeeze(1);
  }

  void append(const at::Tensor& next) {
    tokens_.scatter_(1, lengths_.unsqueeze(1), at::where(done_, 0, next).unsqueeze(1));
    if (stops_.defined()) done_ = done_.logical_or(at::isin(next, stops_));
    lengths_ = lengths_ + done_.logical_not();
  }

  Model& model_;
  const GenerateOptions& options_;
  at::Device device_;
  std::int64_t longest_ = 0;  // tokens in the longest prompt
  // tokens_: [N, tokens], padded with 0 at the end; lengths_: number of tokens of each text; done_: whether it has
  // ended.
  at::Tensor tokens_, lengths_, done_;
  at::Tensor stops_;  // undefined: no stop tokens
};

std::vector<Option<GenerateOptions>> generate_options() {
  using O = GenerateOptions;
  return all_options(
      part("prompts", &O::prompts, "tokens")
          .must("have at least one, got none", [](const auto& prompts) { return !prompts.empty(); }),
      option("prompt_tokens", &O::prompt_tokens), option("interval", &O::interval),
      option("batch_size", &O::batch_size).at_least(0), option("max_new_tokens", &O::max_new_tokens).at_least(1),
      option("temperature", &O::temperature).at_least(0).finite(), option("top_k", &O::top_k).at_least(0),
      part("stop_tokens", &O::stop_tokens, "tokens"), option("context", &O::context).at_least(0),
      option("input_key", &O::input_key).not_empty(), part("to_text", &O::to_text, "a function"));
}

void check_generate(const GenerateOptions& options) {
  check(options, generate_options(), "Generate: ", "");
  for (const TokenList& prompt : options.prompts) {
    if (prompt.empty()) throw ConfigError("Generate: a prompt must have at least one token");
    if (std::ranges::min(prompt) < 0) throw ConfigError("Generate: tokens must be >= 0, got ", numbers(prompt));
  }
}

}  // namespace

Generate::Generate(GenerateOptions options) : options_(std::move(options)) {
  std::ranges::move(parse_prompts(options_.prompt_tokens), std::back_inserter(options_.prompts));
  options_.prompt_tokens.clear();
  check_generate(options_);
}

void Generate::check_fit(const FitOutline& fit, const State& state) const {
  fit.check_interval("Generate: interval", options_.interval, "so texts are generated by end() alone", state);
}

void Generate::init(const State&, Logger&) { last_batch_ = {}; }
// After a resume, the weights are those of the last texts. Until the fit the program may set others.
void Generate::after_load(const State& state, Logger&) {
  if (state.run) weights_ = state.run->weights_version();
}
void Generate::fit_start(const State& state, Logger&) { last_batch_.fit_begins(state.timestamp.batch); }
void Generate::batch_checkpoint(const State& state, Logger& logger) {
  generate_if_due(Event::BATCH_CHECKPOINT, state, logger);
}
void Generate::epoch_checkpoint(const State& state, Logger& logger) {
  generate_if_due(Event::EPOCH_CHECKPOINT, state, logger);
}
void Generate::iteration_checkpoint(const State& state, Logger& logger) {
  generate_if_due(Event::ITERATION_CHECKPOINT, state, logger);
}
void Generate::fit_end(const State& state, Logger& logger) { generate_if_due(Event::FIT_END, state, logger); }
void Generate::visit_state(StateVisitor& visit) { last_batch_.visit_state(visit); }

void Generate::generate_if_due(Event event, const State& state, Logger& logger) {
  if (state.rank != 0 || !state.run || !state.previous_timestamp) return;
  if (state.run->interrupted()) return;  // the process is about to end
  const std::int64_t batch = state.timestamp.batch;
  // Algorithms may have changed the weights since the texts were generated.
  const bool is_outdated = event == Event::FIT_END && state.run->weights_version() != weights_;
  if (batch == last_batch_.number() && !is_outdated) return;
  IntervalMoment moment = state.run->moment(event);
  moment.last_due_batch = is_outdated ? -1 : last_batch_.number();
  moment.last = state.max_duration && state.elapsed_duration() >= 1;
  const Interval::Function* function = options_.interval.function();
  if (!(function ? (*function)(event, state) : interval_due(options_.interval.time(), moment))) return;
  last_batch_.set(batch);
  weights_ = state.run->weights_version();
  logger.log_table("generations", generations(state));
}

LogTable Generate::generations(const State& state) const {
  LogTable table{.columns = {"prompt", "generation"}, .rows = {}};
  const std::span<const TokenList> prompts = options_.prompts;
  const std::size_t at_once = options_.batch_size > 0 ? static_cast<std::size_t>(options_.batch_size) : prompts.size();
  const auto to_text = [this](const TokenList& tokens) {
    return options_.to_text ? options_.to_text(tokens) : numbers(tokens);
  };
  const std::uint64_t seed = state.seed + static_cast<std::uint64_t>(state.timestamp.batch);
  state.run->with_model(WeightsUse::EVALUATION, seed, [&](Model& model) {
    for (std::size_t begin = 0; begin < prompts.size(); begin += at_once) {
      const auto some = prompts.subspan(begin, std::min(at_once, prompts.size() - begin));
      const std::vector<TokenList> texts = SampleWriter(model, options_, state.device, some).write();
      for (std::size_t i = 0; i < some.size(); ++i)
        table.rows.push_back({LogValue(to_text(some[i])), LogValue(to_text(texts[i]))});
    }
  });
  return table;
}

StateDict Generate::local_hparams() const { return describe(options_, generate_options()); }

}  // namespace composer::callbacks
