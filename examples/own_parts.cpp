// A model, a metric, an algorithm, a callback, a logger and a loader of one's own, trained and evaluated together. The
// pages in docs/ explain the parts. The program checks that they behave as described, and returns 1 if they do not.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <composer/core/algorithm.h>
#include <composer/core/callback.h>
#include <composer/core/error.h>
#include <composer/core/logger.h>
#include <composer/core/model.h>
#include <composer/core/state.h>
#include <composer/core/state_dict.h>
#include <composer/data/in_memory.h>
#include <composer/data/loader.h>
#include <composer/loggers/background_logger.h>
#include <composer/metrics/classification.h>
#include <composer/metrics/regression.h>
#include <composer/optim/any_optimizer.h>
#include <composer/trainer/trainer.h>
#include <composer/util/loss.h>
#include <composer/util/random.h>

namespace nn = torch::nn;
using namespace composer;

// docs/reference/models.md: two outputs, two losses
class TwoHeads : public Model {
 public:
  TwoHeads() {
    register_module("trunk", trunk_);
    register_module("height", height_);
    register_module("side", side_);
  }

  Outputs forward(const Batch& batch) override {
    const at::Tensor features = at::relu(trunk_->forward(batch["input"]));
    return {{"height", height_->forward(features).squeeze(1)}, {"side", side_->forward(features)}};
  }

  // The sum is minimised. The losses are logged as loss/train/height, loss/train/side and loss/train/total.
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return {{"height", mean_squared_error(outputs["height"], batch["height"])},
            {"side", 0.1 * at::cross_entropy_loss(outputs["side"], batch["side"])}};
  }

  Metrics get_metrics(bool is_train) const override;

 private:
  nn::Linear trunk_{2, 32}, height_{32, 1}, side_{32, 2};
};

// docs/reference/metrics.md: the largest error of all samples
class MaxError : public Metric {
 public:
  std::string name() const override { return "MaxError"; }
  Better better() const override { return Better::LOWER; }

  void update(const Outputs& outputs, const Batch& batch) override {
    const at::NoGradGuard no_grad;
    const at::Tensor error = (outputs["height"] - batch["height"]).abs().max().to(at::kDouble);
    largest_ = largest_.defined() ? at::maximum(largest_, error) : error;
  }
  at::Tensor compute() const override {
    return largest_.defined() ? largest_ : at::scalar_tensor(std::nan(""), at::kDouble);
  }
  void reset() override { largest_.reset(); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MaxError>(); }

 private:
  at::Tensor largest_;  // 0-d, on the device of the outputs; it is copied to the host only when compute() is logged
};

Metrics TwoHeads::get_metrics(bool is_train) const {
  if (is_train) return {};
  return {MaxError(), metrics::MeanSquaredError({.output = "height", .target = "height"}),
          metrics::MulticlassAccuracy({.output = "side", .target = "side"})};
}

// docs/reference/algorithms/writing.md: adds noise to inputs, and halves the learning rate every few epochs
class NoisyInputs : public Algorithm {
 public:
  explicit NoisyInputs(std::int64_t halve_every) : halve_every_(halve_every) {}

  EventSet events() const override { return {Event::BEFORE_FORWARD, Event::EPOCH_END}; }
  bool match(Event event, const State& state) const override {
    return event == Event::BEFORE_FORWARD || state.timestamp.epoch % halve_every_ == 0;
  }

  void apply(Event event, State& state, Logger& logger) override {
    if (event == Event::BEFORE_FORWARD) {
      const at::Tensor& input = state.batch["input"];
      state.batch.set("input", input + 0.01 * at::randn_like(input));  // assigns a new tensor, never input.add_(...)
      return;
    }
    const double lr = optim::learning_rates(*state.optimizer).front() / 2;
    optim::set_learning_rate(*state.optimizer, 0, lr);
    ++halved_;
    logger.log_metrics({{"noisy_inputs/lr", lr}});
  }

  void visit_state(StateVisitor& visit) override { visit("halved", halved_); }  // is stored in checkpoints
  std::int64_t halved() const { return halved_; }

 private:
  std::int64_t halve_every_, halved_ = 0;
};

// docs/reference/callbacks/writing.md: logs the norm of the gradients, and ends the run when it exceeds a limit
class GradientNorm : public Callback {
 public:
  explicit GradientNorm(double limit) : limit_(limit) {}

  void after_train_batch(const State& state, Logger& logger) override {
    std::vector<at::Tensor> norms;
    for (const at::Tensor& parameter : state.model->parameters())
      if (parameter.grad().defined()) norms.push_back(parameter.grad().norm());
    const at::Tensor norm = at::stack(norms).norm();
    logger.log_metrics({{"gradient_norm", norm}});  // logs a tensor, so the step does not wait for its value
    largest_ = at::maximum(largest_.to(norm.device()), norm);
  }

  void epoch_end(const State& state, Logger&) override {
    if (largest_.item<double>() > limit_) state.stop.ask("the gradients have become too large", Stop::FINISHED);
  }

  void visit_state(StateVisitor& visit) override { visit("largest", largest_); }  // is stored in checkpoints
  double largest() const { return largest_.item<double>(); }

 private:
  double limit_;
  at::Tensor largest_ = at::zeros({});
};

// docs/reference/loggers/writing.md: one line of text for each value
class CsvLogger : public LoggerDestination {
 public:
  explicit CsvLogger(std::ostream& out) : out_(out) {}

  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
    for (const auto& [key, value] : metrics) rows_.push_back({step, std::string(key), value});
  }
  void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State&) override {
    for (const auto& [key, value] : hyperparameters) rows_.push_back({0, std::string(key), value});
  }

  void epoch_end(const State&, Logger&) override { flush(); }  // a logger is also a callback
  void close(const State&, Logger&) override { flush(); }
  void flush() override {
    for (const auto& [step, key, value] : rows_) {
      out_ << step << ',' << key << ',';
      if (const auto* text = std::get_if<std::string>(&value))
        out_ << *text << '\n';
      else
        out_ << to_number(value) << '\n';  // copies a tensor to the host, and waits for a GPU
    }
    rows_.clear();
    out_.flush();
  }

 private:
  struct Row {
    std::int64_t step;
    std::string key;
    LogValue value;
  };
  std::ostream& out_;
  std::vector<Row> rows_;
};

// docs/reference/data.md: points of a surface, computed on request
class Surface : public Loader {
 public:
  Surface(std::int64_t batches, std::int64_t batch_size) : batches_(batches), batch_size_(batch_size) {}

  void seek(std::int64_t epoch, std::int64_t batch) override {
    epoch_ = epoch;
    batch_ = batch;
  }

  std::optional<Batch> next() override {
    if (batch_ == batches_) return std::nullopt;
    RandomStream random(hash64(seed_, epoch_, batch_++));  // depends only on the position
    at::Tensor points = at::empty({batch_size_, 2});
    auto* const xy = points.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < points.numel(); ++i) xy[i] = static_cast<float>(random.uniform() * 2 - 1);
    const at::Tensor height = points.select(1, 0) * points.select(1, 1);
    return Batch{{"input", points}, {"height", height}, {"side", height.gt(0).to(at::kLong)}};
  }

  std::optional<std::int64_t> num_batches() const override { return batches_; }
  std::optional<std::int64_t> batch_size() const override { return batch_size_; }
  void set_default_seed(std::uint64_t seed) override { seed_ = seed; }

 private:
  std::int64_t batches_, batch_size_;
  std::int64_t epoch_ = 0, batch_ = 0;
  std::uint64_t seed_ = 17;
};

// docs/reference/loggers/writing.md: writes on a background thread
class LinesWriter : public loggers::RecordWriter {
 public:
  explicit LinesWriter(std::string path) : path_(std::move(path)), file_(path_) {}
  std::string where() const override { return path_; }

 protected:
  void write(loggers::Records records) override {
    for (const Record* record : records)
      for (const auto& [key, value] : record->entries())
        if (!std::holds_alternative<std::string>(value))
          file_ << record->step() << ' ' << key << ' ' << to_number(value) << '\n';
    if (!file_.flush()) throw Error(path_, " cannot be written");
  }

 private:
  std::string path_;
  std::ofstream file_;
};

class LinesLogger : public loggers::BackgroundLogger {
 public:
  explicit LinesLogger(std::string path) : BackgroundLogger("LinesLogger", {}), path_(std::move(path)) {}

 protected:
  std::shared_ptr<loggers::RecordWriter> make_writer(const State&) override {
    return std::make_shared<LinesWriter>(path_);
  }

 private:
  std::string path_;
};

int main() {
  const auto noise = std::make_shared<NoisyInputs>(10);
  const auto gradients = std::make_shared<GradientNorm>(1e6);
  std::ostringstream log;
  const std::string lines = std::filesystem::temp_directory_path() / ("own_parts-" + std::to_string(::getpid()));
  const auto same = std::make_shared<Surface>(1, 4096);  // other points than those of training: it keeps its own seed
  const auto corner = [&] {                              // makes a quarter of these points
    const Batch all = *Surface(1, 4096).next();
    const at::Tensor where = all["input"].gt(0).all(1).nonzero().squeeze(1);
    Batch part;
    for (const auto& [name, tensor] : all) part.set(name, tensor.index_select(0, where));
    return data::in_memory(part, {.batch_size = 256, .shuffle = false});
  }();

  Trainer trainer(TrainerOptions{
      .model = std::make_shared<TwoHeads>(),
      .train_dataloader = std::make_shared<Surface>(50, 64),
      // docs/reference/evaluators.md
      .eval_dataloader =
          {{.label = "all", .dataloader = same, .eval_interval = "5ep"},
           {.label = "corner", .dataloader = corner, .metrics = Metrics(MaxError()), .eval_interval = "200ba"}},
      .optimizer = optim::adamw({.lr = 1e-2}),
      .max_duration = "30ep",
      .algorithms = {noise},
      .callbacks = {gradients},
      .loggers = {CsvLogger(log), LinesLogger(lines)},
      .device = at::Device(at::kCPU),
      .seed = 3,
  });
  trainer.fit();
  trainer.close();

  const State& state = trainer.state();
  for (const auto& [label, values] : state.metrics.all())
    for (const auto& [name, reported] : values)
      std::cout << label << '/' << name << ' ' << reported.value.item<double>() << '\n';
  const bool learned =
      state.metrics.at("all", "MeanSquaredError") < 0.01 && state.metrics.at("corner", "MaxError") < 0.5;
  const bool halved = noise->halved() == 3 && optim::learning_rates(*state.optimizer).front() == 1e-2 / 8;
  const bool logged = gradients->largest() > 0 && log.str().find("\n1499,gradient_norm,") != std::string::npos &&
                      log.str().find("\n0,rank_zero_seed,3\n") != std::string::npos;
  std::ostringstream written;
  written << std::ifstream(lines).rdbuf();
  std::filesystem::remove(lines);
  const bool has_lines = written.str().find("\n1499 gradient_norm ") != std::string::npos;
  return learned && halved && logged && has_lines ? 0 : 1;
}
