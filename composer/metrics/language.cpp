#include "composer/metrics/language.h"

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

struct Tokens {
  at::Tensor logits, targets;  // [N, vocabulary], [N]
};
Tokens tokens(const LanguageOptions& options, const Outputs& outputs, const Batch& batch) {
  const at::Tensor& logits = pick(outputs, options.output);
  const at::Tensor& target = batch.at(options.target);
  if (logits.dim() < 2 || logits.sizes().slice(0, static_cast<std::size_t>(logits.dim()) - 1) != target.sizes())
    throw DataError(options.name, ": expected outputs [..., vocabulary] of targets [...], got ", logits.sizes(),
                    " and ", target.sizes());
  return {logits.flatten(0, -2), whole_classes(options.name, target).flatten()};
}

}  // namespace

LanguageCrossEntropy::LanguageCrossEntropy(LanguageOptions options)
    : options_(named("LanguageCrossEntropy", std::move(options))) {}
LanguageCrossEntropy::~LanguageCrossEntropy() = default;

void LanguageCrossEntropy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const auto [logits, targets] = tokens(options_, outputs, batch);
  const at::Tensor losses = naming(name(), [&] {
    return soft_cross_entropy(at_least_float(logits), targets,
                              {.ignore_index = options_.ignore_index, .reduction = Reduction::NONE});
  });
  over_.add(losses.sum(at::kDouble));
  under_.add(not_ignored(targets, options_.ignore_index).sum());
}

LanguagePerplexity::LanguagePerplexity(LanguageOptions options)
    : LanguageCrossEntropy(named("LanguagePerplexity", std::move(options))) {}
LanguagePerplexity::~LanguagePerplexity() = default;

MaskedAccuracy::MaskedAccuracy(LanguageOptions options) : options_(named("MaskedAccuracy", std::move(options))) {}
MaskedAccuracy::~MaskedAccuracy() = default;

void MaskedAccuracy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const auto [logits, targets] = tokens(options_, outputs, batch);
  check_classes(targets, logits.size(1), options_.ignore_index, name());
  const at::Tensor valid = not_ignored(targets, options_.ignore_index);
  over_.add(logits.argmax(1).eq(targets).logical_and_(valid).sum());
  under_.add(valid.sum());
}

namespace {

std::vector<Option<LanguageOptions>> language_options() {
  return with_names<LanguageOptions>(option("ignore_index", &LanguageOptions::ignore_index));
}

}  // namespace

StateDict LanguageCrossEntropy::local_hparams() const { return describe(options_, language_options()); }
StateDict MaskedAccuracy::local_hparams() const { return describe(options_, language_options()); }

namespace entries {

Entry<Metrics> language_cross_entropy() {
  return entry<LanguageCrossEntropy>("language_cross_entropy", "Mean cross entropy of tokens", language_options());
}
Entry<Metrics> language_perplexity() {
  return entry<LanguagePerplexity>("language_perplexity", "Perplexity of tokens", language_options());
}
Entry<Metrics> masked_accuracy() {
  return entry<MaskedAccuracy>("masked_accuracy", "Share of tokens that were predicted", language_options());
}

}  // namespace entries
}  // namespace composer::metrics
