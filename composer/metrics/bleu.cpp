#include "composer/metrics/bleu.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 24;                       // of tokens compared at once
constexpr std::int64_t kAfterOutput = std::numeric_limits<std::int64_t>::min();  // differ, and are no tokens
constexpr std::int64_t kAfterReference = kAfterOutput + 1;

std::vector<Option<BLEUScoreOptions>> bleu_score_options() {
  using O = BLEUScoreOptions;
  return with_names<O>(option("n_gram", &O::n_gram).from_to(1, 16), option("smooth", &O::smooth),
                       option("ignore_index", &O::ignore_index), option("eos_token_id", &O::eos_token_id));
}

struct Sentences {
  at::Tensor tokens, lengths;  // [..., T] with the tokens that count first, and [...]
};

Sentences sentences(const at::Tensor& ids, const BLEUScoreOptions& options, std::int64_t filler) {
  at::Tensor left_out = ids.eq(options.ignore_index);
  if (options.eos_token_id) left_out = left_out.logical_or(ids.eq(*options.eos_token_id).cumsum(-1).gt(0));
  const at::Tensor order = left_out.argsort(/*stable=*/true, -1, /*descending=*/false);
  return {ids.masked_fill(left_out, filler).gather(-1, order), left_out.logical_not().sum(-1)};
}

struct Runs {
  at::Tensor matched, total;  // [n_gram]
};

// Compares all places of an output with all of itself and of its references, which needs no table of runs and therefore
// no reading on the host. A run counts as matched if fewer equal runs precede it in the output than a reference has.
Runs runs_of(const Sentences& output, const Sentences& reference, std::int64_t n_gram) {
  const at::Tensor &x = output.tokens, &y = reference.tokens;                // [N, T], [N, R, S]
  at::Tensor in_itself = x.unsqueeze(2).eq(x.unsqueeze(1));                  // [N, T, T]
  at::Tensor in_reference = x.unsqueeze(1).unsqueeze(3).eq(y.unsqueeze(2));  // [N, R, T, S]
  std::vector<at::Tensor> matched, total;
  for (std::int64_t n = 1; n <= n_gram; ++n) {
    const std::int64_t places = x.size(1) - n + 1;
    total.push_back((output.lengths - (n - 1)).clamp_min(0).sum());
    if (places <= 0 || y.size(2) < n) {
      matched.push_back(at::zeros({}, output.lengths.options()));
      continue;
    }
    if (n > 1) {  // runs of n: runs of n - 1 that go on alike
      const auto longer = [&](const at::Tensor& shorter, const at::Tensor& last) {
        return shorter.slice(-2, 0, -1).slice(-1, 0, -1).logical_and(last);
      };
      in_itself = longer(in_itself, x.slice(1, n - 1).unsqueeze(2).eq(x.slice(1, n - 1).unsqueeze(1)));
      in_reference =
          longer(in_reference, x.slice(1, n - 1).unsqueeze(1).unsqueeze(3).eq(y.slice(2, n - 1).unsqueeze(2)));
    }
    const at::Tensor before = in_itself.tril(-1).sum(2);
    const at::Tensor there = std::get<0>(in_reference.sum(3).max(1));
    const at::Tensor is_whole =
        at::arange(places, output.lengths.options()).unsqueeze(0).lt((output.lengths - (n - 1)).unsqueeze(1));
    matched.push_back(before.lt(there).logical_and(is_whole).sum());
  }
  return {at::stack(matched), at::stack(total)};
}

}  // namespace

BLEUScore::BLEUScore(BLEUScoreOptions options)
    : options_(checked("BLEUScore", std::move(options), bleu_score_options())) {}
BLEUScore::~BLEUScore() = default;

void BLEUScore::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& output = pick(outputs, options_.output);
  at::Tensor target = whole_classes(name(), batch.at(options_.target));
  const bool are_logits = output.is_floating_point();
  if (output.dim() != (are_logits ? 3 : 2) || output.is_complex() || (target.dim() != 2 && target.dim() != 3) ||
      target.size(0) != output.size(0))
    throw DataError(name(), ": expected token ids [N, T] or logits [N, T, vocabulary], and targets [N, T] or, for ",
                    "several references, [N, R, T], got ", output.sizes(), " of type ", output.scalar_type(), " and ",
                    target.sizes());
  if (target.dim() == 2) target = target.unsqueeze(1);
  if (output.size(0) == 0) return;
  const at::Tensor ids = are_logits ? output.argmax(2) : output.to(at::kLong);
  const Sentences predicted = sentences(ids, options_, kAfterOutput);
  const Sentences reference = sentences(target, options_, kAfterReference);

  // The length of the reference that is nearest, the first of equally near ones.
  at::Tensor nearest;
  if (target.size(1) > 0) {
    const at::Tensor far = (reference.lengths - predicted.lengths.unsqueeze(1)).abs();
    const at::Tensor is_empty = reference.lengths.eq(0);
    const at::Tensor place = far.masked_fill(is_empty, std::numeric_limits<std::int64_t>::max()).argmin(1);
    nearest = reference.lengths.gather(1, place.unsqueeze(1)).sum();
  } else {
    nearest = at::zeros({}, predicted.lengths.options());
  }
  lengths_.add(at::stack({predicted.lengths.sum(), nearest}));
  samples_.add(output.size(0), output.device());

  const std::int64_t samples = output.size(0), length = std::max<std::int64_t>(1, ids.size(1));
  const std::int64_t pairs = length * std::max({length, target.size(1) * target.size(2)});
  const std::int64_t at_once = std::max<std::int64_t>(1, kMostPairs / pairs);
  for (std::int64_t i = 0; i < samples; i += at_once) {
    const std::int64_t end = std::min(samples, i + at_once);
    const auto part = [&](const Sentences& all) {
      return Sentences{all.tokens.slice(0, i, end), all.lengths.slice(0, i, end)};
    };
    if (target.size(1) == 0) continue;
    const Runs runs = runs_of(part(predicted), part(reference), options_.n_gram);
    matched_.add(runs.matched);
    total_.add(runs.total);
  }
}

at::Tensor BLEUScore::compute() const {
  const at::NoGradGuard no_grad;
  const at::Tensor matched = matched_.value(), lengths = lengths_.value(), samples = samples_.value();
  if (matched.dim() == 0) return matched;
  at::Tensor over = matched, under = total_.value();
  if (options_.smooth) {
    at::Tensor more = at::ones_like(over);
    more.select(0, 0).zero_();
    over = over + more;
    under = under + more;
  }
  const at::Tensor mean = (over / under).log().mean().exp();
  const at::Tensor predicted = lengths.select(0, 0), wanted = lengths.select(0, 1);
  const at::Tensor brevity = at::where(predicted.gt(wanted), 0., 1 - wanted / predicted).exp();
  return at::where(matched.min().eq(0), 0., brevity * mean)
      .masked_fill(samples.eq(0), std::numeric_limits<double>::quiet_NaN());
}

void BLEUScore::reset() {
  for (Sum* sum : {&matched_, &total_, &lengths_, &samples_}) sum->reset();
}

void BLEUScore::visit_sums(const VisitSum& visit) {
  visit("matched", matched_.tensor());
  visit("total", total_.tensor());
  visit("lengths", lengths_.tensor());
  visit("samples", samples_.tensor());
}

StateDict BLEUScore::local_hparams() const { return describe(options_, bleu_score_options()); }

namespace entries {

Entry<Metrics> bleu_score() { return entry<BLEUScore>("bleu_score", "BLEU of token ids", bleu_score_options()); }

}  // namespace entries
}  // namespace composer::metrics
