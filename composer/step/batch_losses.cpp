#include "composer/step/batch_losses.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/step/nan_culprit.h"

namespace composer {
namespace {

at::Tensor mean_of(const at::Tensor& loss) { return loss.dim() == 0 ? loss : loss.mean(); }

bool is_nan(const at::Tensor& loss) {
  if (loss.is_cpu() && loss.scalar_type() == at::kFloat) return std::isnan(*loss.const_data_ptr<float>());
  return std::isnan(loss.item<double>());
}

}  // namespace

at::Tensor total_of(const Losses& losses) {
  if (const at::Tensor* given = losses.find("total")) return mean_of(*given);
  at::Tensor total;
  for (const auto& [name, loss] : losses) total = total.defined() ? total + mean_of(loss) : mean_of(loss);
  return total;
}

void BatchLosses::add(const at::Tensor& total, const LossWeight& share) {
  add("total", total, share);
  for (const auto& [name, loss] : state_.loss)
    if (name != "total") add(name, mean_of(loss), share);
}

void BatchLosses::add(std::string_view name, const at::Tensor& mean, const LossWeight& share) {
  const at::Tensor value = mean.variable_data();  // like detach(), without a view to keep track of
  const at::Tensor part = share.times(value);
  const at::Tensor* sum = state_.batch_loss.find(name);
  state_.batch_loss.set(name, sum ? *sum + part : part);
}

std::span<const LogEntry> BatchLosses::log(std::int64_t microbatch_size) {
  watch_for_nan();
  if (logger_.empty()) return {};
  constexpr std::string_view kPrefix = "loss/train/";
  keys_.resize(state_.batch_loss.size());
  entries_.resize(1 + state_.batch_loss.size());
  entries_[0] = {"trainer/device_train_microbatch_size", microbatch_size};
  for (std::size_t i = 0; const auto& [name, loss] : state_.batch_loss) {
    std::string& key = keys_[i++];
    if (key.empty() || std::string_view(key).substr(kPrefix.size()) != name) key = join(kPrefix, name);
    entries_[i].key = key;  // the first entry is the size
    entries_[i].value = loss;
  }
  logger_.log_metrics(entries_);
  return std::span(entries_).subspan(1);
}

void BatchLosses::stop_if_nan(const at::Tensor& total) const {
  if (!stops_if_nan() || !total.is_cpu() || !is_nan(total)) return;
  throw Error("the training loss is NaN", nan::cause_in_run(state_, /*gradients=*/false).text,
              "\nset the trainer's option nan = OnNaN::WARN to train on in spite of a NaN");
}

void BatchLosses::stop_if_last_is_nan() const {
  const at::Tensor* total = state_.batch_loss.find("total");
  if (on_nan_ != OnNaN::STOP || !state_.run || !total || total->is_cpu() || total->is_meta() || !is_nan(*total)) return;
  throw Error("the training loss of batch ", state_.timestamp.batch - 1, " is NaN, and perhaps that of earlier ones; ",
              "the callback NaNMonitor looks after each batch. Set the trainer's option nan = OnNaN::WARN to train on "
              "in spite of a NaN");
}

// Trials are not watched: their losses may become NaN.
void BatchLosses::watch_for_nan() {
  const at::Tensor* total = state_.batch_loss.find("total");
  if (on_nan_ != OnNaN::WARN || expects_nan_ || !state_.run || !total || !total->is_cpu() ||
      total->scalar_type() != at::kFloat)
    return;
  if (!is_nan(*total)) return nan_since_.reset();
  if (nan_since_) return;
  nan_since_ = state_.timestamp.batch;
  if (std::exchange(warned_of_nan_, true)) return;
  warn(join("the training loss of batch ", state_.timestamp.batch, " is NaN; the callback NaNMonitor ends a run then"));
}

std::optional<std::int64_t> BatchLosses::nan_since() const {
  const at::Tensor* total = state_.batch_loss.find("total");
  if (on_nan_ != OnNaN::WARN || expects_nan_ || !total || total->is_cpu() || total->is_meta() ||
      total->scalar_type() != at::kFloat || !is_nan(*total))
    return nan_since_;
  return state_.timestamp.batch - 1;
}

void BatchLosses::warn_of_nan() const {
  const std::optional<std::int64_t> since = nan_since();
  if (!since) return;
  warn(join("the training loss has been NaN since batch ", *since, state_.device.is_cpu() ? "" : " or before",
            ", up to the end of this fit at batch ", state_.timestamp.batch,
            ": nothing was learnt from there on. The callback NaNMonitor ends a run at the first ",
            "NaN, and says where it comes from"));
}

}  // namespace composer
