#include "tests/property/parts.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::property {
namespace {

constexpr int kEndless = 60;

struct Span {
  Event opens, closes;
};
constexpr std::array kSpans = {
    Span{Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL}, Span{Event::EVAL_START, Event::EVAL_END},
    Span{Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END}, Span{Event::PREDICT_START, Event::PREDICT_END}};

// How many samples it has seen, and the mean of their outputs.
class Seen final : public Metric {
 public:
  Seen(HookPtr hook, bool mean) : hook_(std::move(hook)), mean_(mean) { reset(); }
  std::string name() const override { return mean_ ? "Mean" : "Seen"; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override {
    hook_->reach(Site::METRIC_UPDATE);
    seen_ += batch["id"].size(0);
    sum_ = sum_ + outputs.front().sum();
  }
  at::Tensor compute() const override {
    hook_->reach(Site::METRIC_COMPUTE);
    const at::Tensor seen = at::scalar_tensor(static_cast<double>(seen_), at::kDouble);
    return mean_ ? sum_ / seen : seen;
  }
  void reset() override {
    seen_ = 0;
    sum_ = at::scalar_tensor(0, at::kDouble);
  }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<Seen>(hook_, mean_); }

 private:
  HookPtr hook_;
  bool mean_;
  std::int64_t seen_ = 0;
  at::Tensor sum_;
};

}  // namespace

void Hook::reach(Site site) {
  if (plan_.action == Action::NONE || fired_ || site != plan_.site || ++seen_ < plan_.nth) return;
  fired_ = true;
  act_(plan_.action, site);
}

void Spans::reset() { counts_ = {}, open_.clear(), wrong_.clear(); }

void Spans::see(Event event) {
  ++counts_.at(static_cast<std::size_t>(event));
  for (const auto& [opens, closes] : kSpans) {
    if (event == opens) open_.push_back(event);
    if (event != closes) continue;
    if (open_.empty() || open_.back() != opens)
      wrong_ = join(composer::to_string(event), " closes what is not open");
    else
      open_.pop_back();
  }
}

std::string Spans::wrong() const {
  if (!wrong_.empty() || open_.empty()) return wrong_;
  return join(composer::to_string(open_.back()), " has no event that closes it");
}

TinyModel::TinyModel(const Setup& setup, HookPtr hook) : setup_(setup), hook_(std::move(hook)) {
  count_ = register_parameter("count", at::zeros({kIds}, at::kDouble));
  order_ = register_parameter("order", at::zeros({}, at::kDouble));
  noise_ = register_parameter("noise", at::zeros({}, at::kDouble));
}

Outputs TinyModel::forward(const Batch& batch) {
  hook_->reach(Site::FORWARD);
  return count_.index_select(0, batch["id"]) + order_;
}

// The derivative by count_[i] is the share of sample i, that by order_ is order_ - mean of the ids.
Losses TinyModel::loss(const Outputs& outputs, const Batch& batch) {
  hook_->reach(Site::LOSS);
  const at::Tensor id = batch["id"].to(at::kDouble);
  at::Tensor each = outputs.only() - order_ + 0.5 * (order_ - id).square();
  if (setup_.draws && is_training()) each = each + noise_ * at::rand({}, at::kDouble);
  return {(each * batch["mask"]).sum() / batch["mask"].sum()};
}

Metrics TinyModel::get_metrics(bool is_train) const {
  if (is_train && !setup_.train_metrics) return {};
  return {std::make_shared<Seen>(hook_, false), std::make_shared<Seen>(hook_, true)};
}

Weights TinyModel::weights_of(const at::Tensor& count, const at::Tensor& order, const at::Tensor& noise) {
  Weights weights;
  const at::Tensor counts = count.detach().contiguous();
  for (std::size_t i = 0; i < kIds; ++i) weights.count.at(i) = counts.data_ptr<double>()[i];
  weights.order = order.item<double>();
  weights.noise = noise.item<double>();
  return weights;
}

Weights TinyModel::weights() const { return weights_of(count_, order_, noise_); }

void Watch::run_event(Event event, const State& state, Logger&) {
  spans.see(event);
  if (event == Event::BATCH_START && ++batches_begun > kEndless) throw Endless();
  if (event == Event::BATCH_END) batches.emplace_back(state.timestamp.batch, ids_of(state.batch));
  hook_->reach(site_of(event));
}

void Swap::apply(Event event, State& state, Logger&) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : state.model->parameters())
    event == Event::EVAL_START ? parameter.mul_(kSwapped) : parameter.div_(kSwapped);
}

void Closer::close(const State& state, Logger&) try {
  if (!state.run) return;
  const StateDict snapshot = state.run->snapshot(/*weights_only=*/false);
  whole = snapshot.find("model") != nullptr && snapshot.find("timestamp") != nullptr;
} catch (const Error&) {  // may be said of a trainer whose constructor has failed
}

std::optional<Batch> TrainLoader::next() {
  if (hook) hook->reach(Site::LOADER);
  return inner_->next();
}

std::optional<std::int64_t> TrainLoader::num_batches() const { return unknown_ ? std::nullopt : inner_->num_batches(); }

}  // namespace composer::property
