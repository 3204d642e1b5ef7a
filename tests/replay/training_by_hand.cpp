// Training without a trainer.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/optim/optimizer.h"
#include "composer/util/loss.h"
#include "tests/replay/program.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

Batch slice(const Batch& batch, std::int64_t begin, std::int64_t count) {
  const std::int64_t end = std::min(begin + count, batch.front().size(0));
  return {{"input", batch.at("input").slice(0, begin, end)}, {"target", batch.at("target").slice(0, begin, end)}};
}

std::int64_t size(const Batch& batch) { return batch.front().size(0); }

double as_float(double value) { return static_cast<float>(value); }

double right(const at::Tensor& logits, const Batch& batch) {
  return logits.argmax(1).eq(batch.at("target")).sum().item<double>();
}

class Loop {
 public:
  Loop(const Json& c, const Context& context, const ByHand& how)
      : config_(c.at("config")),
        how_(how),
        run_(make_training_run(c, context)),
        base_(optim::learning_rates(*run_.optimizer)),
        algorithms_(config_.value("algorithms", Json::array())),
        max_duration_(time_of(config_.value("max_duration", "30ba"))),
        len_((size(run_.train) + run_.batch_size - 1) / run_.batch_size),
        factors_(schedule_factors(config_, size(run_.train), run_.batch_size, how.rates)),
        random_(c.at("random_log")) {
    for (const Json& algorithm : algorithms_)
      if (algorithm["class"] != "GradientClipping" && algorithm["class"] != "LabelSmoothing" &&
          algorithm["class"] != "SAM" && (algorithm["class"] != "MixUp" || algorithm.value("interpolate_loss", false)))
        throw Unsupported{"a plain loop with " + algorithm["class"].get<std::string>()};
    result_ = {{"rows", Json::array()}};
    if (config_.contains("eval")) result_["eval_history"] = Json::object();
  }

  Json run() {
    run_.model->train();
    while (!now_.reached(max_duration_)) {
      prescribe_bias();
      set_rates();
      const Batch batch = slice(run_.train, now_.batch_in_epoch * run_.batch_size, run_.batch_size);
      train(batch);
      now_ = now_.to_next_batch(size(batch));
      prescribe_bias();
      evaluate_every(TimeUnit::BATCH, now_.batch);
      if (now_.batch_in_epoch < len_) continue;
      now_ = now_.to_next_epoch();
      evaluate_every(TimeUnit::EPOCH, now_.epoch);
    }
    if (config_.contains("eval") && evaluated_at_ != now_.batch) evaluate();
    result_.update(final_json(config_, *run_.model, *run_.optimizer));
    return result_;
  }

 private:
  void set_rates() {
    for (std::size_t group = 0; group < base_.size(); ++group)
      optim::set_learning_rate(*run_.optimizer, group,
                               base_[group] * factors_.at(static_cast<std::size_t>(now_.batch)));
  }

  void prescribe_bias() {
    if (!how_.bias) return;
    const at::NoGradGuard no_grad;
    for (auto& item : run_.model->named_parameters())
      if (item.key() == kNoisyBias) item.value().copy_(how_.bias->values.at(static_cast<std::size_t>(now_.batch)));
  }

  std::optional<algorithms::MixUpDraw> draw_mixup(const Batch& batch) {
    for (const Json& algorithm : algorithms_)
      if (algorithm["class"] == "MixUp") return next_mixup(random_, algorithm.value("alpha", 0.2), size(batch));
    return std::nullopt;
  }

  static at::Tensor mixed(const at::Tensor& values, const algorithms::MixUpDraw& draw) {
    return values.mul(1 - draw.mixing).add_(values.index_select(0, draw.permutation), draw.mixing);
  }

  // The batch that the model gets.
  static Batch seen(const Batch& batch, const std::optional<algorithms::MixUpDraw>& draw) {
    Batch changed = batch;
    if (draw) changed.set("input", mixed(batch.at("input"), *draw));
    return changed;
  }

  // The batch that the loss gets.
  Batch judged(const Batch& batch, const at::Tensor& logits, const std::optional<algorithms::MixUpDraw>& draw) const {
    Batch changed = batch;
    if (draw) {
      const at::Tensor target = changed.at("target");
      const at::Tensor dense = target.dim() == 1 ? at::one_hot(target, logits.size(1)).to(at::kFloat) : target;
      changed.set("target", mixed(dense, *draw));
    }
    for (const Json& algorithm : algorithms_) {
      if (algorithm["class"] != "LabelSmoothing") continue;
      const double smoothing = algorithm.value("smoothing", 0.1);
      const std::int64_t classes = logits.size(1);
      const at::Tensor target = changed.at("target");
      const at::Tensor dense = target.dim() == 1 ? at::one_hot(target, classes).to(at::kFloat) : target;
      changed.set("target", dense * (1 - smoothing) + smoothing / static_cast<double>(classes));
    }
    return changed;
  }

  void clip() {
    const std::vector<at::Tensor> parameters = run_.model->parameters();
    for (const Json& algorithm : algorithms_) {
      if (algorithm["class"] != "GradientClipping") continue;
      const auto threshold = algorithm.at("clipping_threshold").get<double>();
      if (algorithm["clipping_type"] == "norm")
        torch::nn::utils::clip_grad_norm_(parameters, threshold);
      else if (algorithm["clipping_type"] == "value")
        torch::nn::utils::clip_grad_value_(parameters, threshold);
      else
        algorithms::apply_gradient_clipping(parameters, algorithms::ClippingType::ADAPTIVE, threshold,
                                            /*min_weight_norm=*/0);
    }
  }

  // Returns how many samples the model gets right.
  double differentiate(const Batch& batch, std::map<std::string, double>& losses) {
    const std::int64_t given = config_.value("device_train_microbatch_size", std::int64_t{0});
    const std::int64_t step = given == 0 ? size(batch) : given;
    double correct = 0;
    run_.optimizer->zero_grad();
    for (std::int64_t begin = 0; begin < size(batch); begin += step) {
      const Batch part = slice(batch, begin, step);
      const double share = static_cast<double>(size(part)) / static_cast<double>(size(batch));
      const auto draw = draw_mixup(part);
      const Outputs outputs = run_.model->forward(seen(part, draw));
      at::Tensor sum, total;
      for (const auto& [name, loss] : run_.model->loss(outputs, judged(part, outputs.only(), draw))) {
        const at::Tensor mean = loss.mean();
        sum = sum.defined() ? sum + mean : mean;
        if (name == "total")
          total = mean;
        else
          losses["loss/train/" + name] += mean.item<double>() * share;
      }
      if (!total.defined()) total = sum;
      losses["loss/train/total"] += total.item<double>() * share;
      (total * share).backward();
      correct += right(outputs.only(), part);
    }
    return correct;
  }

  // The second pass of SAM, if it is its turn. Returns how many samples it gets right.
  std::optional<double> second_pass(const Batch& batch, const std::vector<at::Tensor>& buffers) {
    for (const Json& algorithm : algorithms_) {
      if (algorithm["class"] != "SAM" || (now_.batch + 1) % algorithm.value("interval", 1) != 0) continue;
      const at::NoGradGuard no_grad;
      const std::vector<at::Tensor> parameters = run_.model->parameters();
      std::vector<at::Tensor> steps;
      double squares = 0;
      for (const at::Tensor& one : parameters) squares += one.grad().square().sum().item<double>();
      for (const at::Tensor& one : parameters)
        steps.push_back(one.grad() * (algorithm.value("rho", 0.05) / (std::sqrt(squares) + 1e-12)));
      for (std::size_t i = 0; i < steps.size(); ++i) parameters[i].add_(steps[i]);
      for (std::size_t i = 0; i < buffers.size() && !how_.both_passes; ++i) run_.model->buffers()[i].copy_(buffers[i]);
      const at::AutoGradMode enable_grad(true);
      std::map<std::string, double> uphill;
      const double correct = differentiate(batch, uphill);
      const at::NoGradGuard none;
      for (std::size_t i = 0; i < steps.size(); ++i) parameters[i].sub_(steps[i]);
      return correct;
    }
    return std::nullopt;
  }

  void train(const Batch& batch) {
    std::vector<at::Tensor> buffers;
    for (const at::Tensor& buffer : run_.model->buffers()) buffers.push_back(buffer.clone());
    std::map<std::string, double> losses;
    double correct = differentiate(batch, losses);
    auto counted = static_cast<double>(size(batch));
    if (const auto again = second_pass(batch, buffers); again && how_.both_passes) correct += *again, counted *= 2;
    clip();
    run_.optimizer->step();
    result_["rows"].push_back({now_.batch + 1,
                               optim::learning_rates(*run_.optimizer),
                               losses,
                               {{"MulticlassAccuracy", as_float(correct / counted)}}});
  }

  void evaluate_every(TimeUnit unit, std::int64_t count) {
    if (!config_.contains("eval")) return;
    const Time interval = time_of(config_["eval"]);
    if (interval.unit() == unit && count % interval.count() == 0) evaluate();
  }

  void evaluate() {
    const at::NoGradGuard no_grad;
    run_.model->eval();
    double cross_entropy = 0, correct = 0;
    std::int64_t batches = 0;
    for (std::int64_t begin = 0; begin < size(run_.eval); begin += 20, ++batches) {
      const Batch batch = slice(run_.eval, begin, 20);
      const at::Tensor logits = run_.model->forward(batch).only();
      cross_entropy += soft_cross_entropy(logits, batch.at("target")).item<double>();
      correct += right(logits, batch);
    }
    run_.model->train();
    evaluated_at_ = now_.batch;
    const Json values = {{"CrossEntropy", cross_entropy / static_cast<double>(batches)},
                         {"MulticlassAccuracy", as_float(correct / static_cast<double>(size(run_.eval)))}};
    for (const auto& [name, value] : values.items())
      result_["eval_history"]["metrics/eval/" + name].push_back({now_.batch, value});
    result_["final_eval_metrics"] = values;
  }

  const Json& config_;
  ByHand how_;
  TrainingRun run_;
  std::vector<double> base_;
  const Json algorithms_;
  Time max_duration_;
  std::int64_t len_;
  std::vector<double> factors_;
  RandomLog random_;
  Timestamp now_;
  std::int64_t evaluated_at_ = -1;
  Json result_;
};

}  // namespace

Json train_by_hand(const Json& c, const Context& context, const ByHand& how) { return Loop(c, context, how).run(); }

}  // namespace composer::replay
