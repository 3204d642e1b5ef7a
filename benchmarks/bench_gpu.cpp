// On a GPU, is a step of the trainer as fast as that of a loop by hand, and what does a CUDA graph save?
//   bench_gpu [--only TEXT] [--seconds N] [--json FILE]   on the first CUDA device; without one nothing is measured
//   bench_gpu --device cpu --tiny                         small networks on the CPU, which shows that the program works
// Batches are on the device. The contenders train the same network from the same weights: first a few steps, whose
// losses are compared, then in turns. peers/gpu.py measures the same in Python.
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "benchmarks/bench.h"
#include "benchmarks/contender/fused_update.h"
#include "composer/algorithms/channels_last.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/models/resnet.h"
#include "composer/models/resnet_cifar.h"
#include "composer/trainer/trainer.h"

namespace composer::bench {
namespace {

using Json = nlohmann::ordered_json;
using models::Classifier;

constexpr std::size_t kBatches = 4;  // the steps use them in turn
constexpr int kFirstSteps = 10;      // before the measurement; a graph is captured in the fourth
// Of the first steps: later losses show the growth of rounding errors, not errors of the program.
constexpr int kComparedSteps = 6;
constexpr int kRounds = 5;     // that are measured
constexpr int kHostSteps = 5;  // per round, in which the time on the host is measured
constexpr double kMiB = 1 << 20;
// For SGD: with a larger rate, the losses of small batches diverge after a few steps.
constexpr double kGentleLr = 1e-3;

struct GpuOptions {
  at::Device device{at::kCUDA};
  bool tiny = false;
  std::string only, json;
  double seconds = 0;  // for all contenders; 0: no limit
};

GpuOptions parse_gpu(std::span<char*> arguments) {
  GpuOptions options;
  const auto usage = [&] {
    std::cerr << "usage: " << arguments[0] << " [--device cuda] [--tiny] [--only TEXT] [--seconds N] [--json FILE]\n";
    std::exit(2);
  };
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    if (name == "--tiny") {
      options.tiny = true;
      continue;
    }
    if (++i == arguments.size()) usage();
    const std::string value = arguments[i];
    if (name == "--device" && (value == "cpu" || value == "cuda")) {
      options.device = at::Device(value);
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (name == "--seconds") {
      const auto read = std::from_chars(value.data(), value.data() + value.size(), options.seconds);
      if (read.ec != std::errc() || !(options.seconds > 0)) usage();
    } else {
      usage();
    }
  }
  return options;
}

// The device ------------------------------------------------------------------------------------------------------

void wait_for(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

struct Memory {
  std::int64_t allocated = 0, reserved = 0;  // bytes
};

// Memory of the device's allocator; nothing on a CPU.
class DeviceMemory {
 public:
  explicit DeviceMemory(at::Device device)
      : allocator_(device.is_cpu() ? nullptr : dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()))) {}
  // Measures from here on, apart from the memory in use now.
  void begin() {
    if (!allocator_) return;
    allocator_->emptyCache();
    allocator_->resetPeakStats(0);
    before_ = read(&c10::CachingAllocator::Stat::current);
  }
  std::optional<Memory> peak() const {
    if (!allocator_) return std::nullopt;
    const Memory peak = read(&c10::CachingAllocator::Stat::peak);
    return Memory{peak.allocated - before_.allocated, peak.reserved - before_.reserved};
  }

 private:
  Memory read(std::int64_t c10::CachingAllocator::Stat::*part) const {
    const c10::CachingDeviceAllocator::DeviceStats stats = allocator_->getDeviceStats(0);
    return {stats.allocated_bytes[0].*part, stats.reserved_bytes[0].*part};  // of all pools
  }

  c10::DeviceAllocator* allocator_;
  Memory before_;
};

// Workloads -------------------------------------------------------------------------------------------------------

// A model of the library without its training metrics, which a loop by hand does not compute either.
class Unmeasured final : public Model {
 public:
  explicit Unmeasured(std::shared_ptr<Classifier> model) : model_(std::move(model)) {
    register_module("model", model_);
  }
  Outputs forward(const Batch& batch) override { return model_->forward(batch); }
  Losses loss(const Outputs& outputs, const Batch& batch) override { return model_->loss(outputs, batch); }
  LossWeight loss_weight(const Batch& batch) const override { return model_->loss_weight(batch); }
  Metrics get_metrics(bool) const override { return {}; }

 private:
  std::shared_ptr<Classifier> model_;
};

struct GpuWorkload {
  std::string name;
  std::int64_t batch_size;
  std::vector<std::int64_t> sample;  // shape of one sample
  std::int64_t classes;              // or number of tokens in the vocabulary
  Update update;
  Precision precision;
  std::function<std::shared_ptr<Classifier>()> make;
  bool channels_last = false;

  bool is_text() const { return sample.size() == 1 && name == "gpt"; }
  std::int64_t items() const { return is_text() ? batch_size * sample[0] : batch_size; }
  const char* item() const { return is_text() ? "tokens" : name == "mlp" ? "samples" : "images"; }
};

// The small ones first, in the order of peers/gpu.py.
std::vector<GpuWorkload> workloads(bool tiny) {
  const std::int64_t side = tiny ? 48 : 224, classes = tiny ? 10 : 1000;
  const models::GptOptions gpt =
      tiny ? models::GptOptions{.vocabulary = 64, .sequence_length = 32, .width = 32, .depth = 2, .heads = 2}
           : models::GptOptions{.vocabulary = 50304};
  const auto resnet = [classes](std::int64_t depth) {
    return [depth, classes] { return models::resnet({.depth = depth, .num_classes = classes}); };
  };
  const auto resnet20 = [] { return models::resnet_cifar({.depth = 20, .in_channels = 1}); };
  return {{"mlp",
           tiny ? 32 : 512,
           {784},
           10,
           Update::ADAMW,
           Precision::FP32,
           [] {
             return models::mlp({.features = {784, 256, 256, 10}});
           }},
          {"resnet20", tiny ? 8 : 256, {1, 28, 28}, 10, Update::SGD, Precision::FP32, resnet20},
          {"resnet20_channels_last", tiny ? 8 : 256, {1, 28, 28}, 10, Update::SGD, Precision::FP32, resnet20, true},
          {"resnet18", tiny ? 8 : 256, {3, side, side}, classes, Update::SGD, Precision::AMP_BF16, resnet(18), true},
          {"gpt",
           tiny ? 4 : 8,
           {gpt.sequence_length},
           gpt.vocabulary,
           Update::ADAMW,
           Precision::AMP_BF16,
           [gpt] { return models::gpt(gpt); }},
          {"resnet50", tiny ? 8 : 128, {3, side, side}, classes, Update::SGD, Precision::AMP_BF16, resnet(50), true}};
}

// Makes a model with the same initial weights every time.
std::shared_ptr<Unmeasured> fresh_model(const GpuWorkload& workload) {
  at::manual_seed(0);
  const std::shared_ptr<Classifier> model = workload.make();
  if (workload.channels_last) algorithms::channels_last(*model);
  model->train();
  return std::make_shared<Unmeasured>(model);
}

std::vector<Batch> random_batches(const GpuWorkload& workload, at::Device device) {
  at::manual_seed(1);
  std::vector<std::int64_t> shape = {workload.batch_size};
  shape.insert(shape.end(), workload.sample.begin(), workload.sample.end());
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < kBatches; ++i) {
    const auto tokens = at::TensorOptions(device).dtype(at::kLong);
    if (workload.is_text()) {
      batches.push_back({{"input_ids", at::randint(workload.classes, shape, tokens)},
                         {"target", at::randint(workload.classes, shape, tokens)}});
      continue;
    }
    at::Tensor images = at::randn(shape, device);
    if (workload.channels_last) images = images.contiguous(at::MemoryFormat::ChannelsLast);
    batches.push_back({{"input", images}, {"target", at::randint(workload.classes, {workload.batch_size}, tokens)}});
  }
  return batches;
}

// Contenders ------------------------------------------------------------------------------------------------------

std::int64_t count(const torch::nn::Module& model) {
  std::int64_t sum = 0;
  for (const at::Tensor& parameter : model.parameters()) sum += parameter.numel();
  return sum;
}

class Stepper {
 public:
  virtual ~Stepper() = default;
  virtual void step(const Batch& batch) = 0;
  virtual at::Tensor loss() const = 0;  // of the last step
  virtual std::int64_t parameters() const = 0;
};

// Applies libtorch's autocast around forward and loss.
class Bf16 {
 public:
  Bf16(bool on, at::DeviceType device) : on_(on), device_(device) {
    if (!on_) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~Bf16() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Bf16(const Bf16&) = delete;
  Bf16& operator=(const Bf16&) = delete;

 private:
  bool on_;
  at::DeviceType device_;
};

// Uses libtorch alone. Its update is one fused operator, like that of torch.optim with fused=True: the optimizers of
// libtorch's C++ update one parameter after the other, in several kernels each.
class HandLoop final : public Stepper {
 public:
  HandLoop(const GpuWorkload& workload, at::Device device)
      : bf16_(workload.precision == Precision::AMP_BF16), device_(device), model_(fresh_model(workload)) {
    model_->to(device);
    update_.emplace(workload.update, model_->parameters(), kGentleLr);
  }

  void step(const Batch& batch) override {
    at::Tensor loss;
    {
      const Bf16 autocast(bf16_, device_.type());
      const at::Tensor logits = model_->forward(batch).only(), &target = batch["target"];
      loss = logits.dim() == 3 ? at::cross_entropy_loss(logits.flatten(0, 1), target.flatten())
                               : at::cross_entropy_loss(logits, target);
    }
    loss.backward();
    update_->step();
    loss_ = loss.detach();
  }
  at::Tensor loss() const override { return loss_; }
  std::int64_t parameters() const override { return count(*model_); }

 private:
  bool bf16_;
  at::Device device_;
  std::shared_ptr<Unmeasured> model_;
  std::optional<FusedUpdate> update_;
  at::Tensor loss_;
};

struct TrainerExtras {
  bool graph = false;
  Callbacks callbacks = {};
  Loggers loggers = {};
};

class TrainerSteps final : public Stepper {
 public:
  TrainerSteps(const GpuWorkload& workload, at::Device device, TrainerExtras extras = {})
      : trainer_({.model = fresh_model(workload),
                  .optimizer = workload.update == Update::ADAMW
                                   ? optim::adamw({.lr = kAdamLr, .weight_decay = kAdamDecay})
                                   : optim::sgd({.lr = kGentleLr, .momentum = kSgdMomentum, .weight_decay = kSgdDecay}),
                  .callbacks = std::move(extras.callbacks),
                  .loggers = std::move(extras.loggers),
                  .device = device,
                  .precision = workload.precision,
                  .cuda_graph = extras.graph,
                  .seed = 1,
                  .autoresume = false}) {
    trainer_.begin();
  }
  void step(const Batch& batch) override { trainer_.step(batch); }
  at::Tensor loss() const override { return trainer_.state().batch_loss.front(); }
  std::int64_t parameters() const override { return count(*trainer_.state().model); }

 private:
  Trainer trainer_;
};

// FLOPs of a step, as SpeedMonitor counts them, and of the device per second; 0: unknown.
struct Flops {
  double step = 0, peak = 0;
};

Flops count_flops(const GpuWorkload& workload, at::Device device, const std::vector<Batch>& batches) {
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  TrainerSteps steps(workload, device, {.callbacks = {callbacks::SpeedMonitor({.window_size = 1})}, .loggers = {log}});
  for (const Batch& batch : batches) steps.step(batch);
  wait_for(device);
  const auto logged = [&](std::string_view key) {
    try {
      return log->most_recent(key).number();
    } catch (const ConfigError&) {
      return 0.0;
    }
  };
  const double rate = logged("throughput/flops_per_sec"), steps_per_s = logged("throughput/batches_per_sec");
  const double mfu = logged("throughput/device/mfu");
  return {steps_per_s > 0 ? rate / steps_per_s : 0, mfu > 0 ? rate / mfu : 0};
}

// Measuring -------------------------------------------------------------------------------------------------------

struct Row {
  std::string name;
  std::function<std::unique_ptr<Stepper>()> make;
  std::unique_ptr<Stepper> steps = {};
  std::vector<double> step_ms = {}, host_ms = {};  // step_ms: one entry per round; host_ms: one entry per step
  std::vector<double> losses = {};                 // of the first steps
  std::optional<Memory> memory = {};               // the peak so far
  std::vector<std::string> notes = {};             // warnings, or the reason of a failure
  bool failed = false;

  bool lives() const { return steps != nullptr; }
};

double milliseconds() { return microseconds(CLOCK_MONOTONIC) * 1e-3; }

class Measurement {
 public:
  Measurement(const GpuOptions& options, const GpuWorkload& workload, const std::function<double()>& left)
      : options_(options), workload_(workload), left_(left), batches_(random_batches(workload, options.device)) {
    add("hand", [this] { return std::make_unique<HandLoop>(workload_, options_.device); });
    add("trainer", [this] { return std::make_unique<TrainerSteps>(workload_, options_.device); });
    add("trainer_graph",
        [this] { return std::make_unique<TrainerSteps>(workload_, options_.device, TrainerExtras{.graph = true}); });
  }

  void run() {
    try_to_count_flops();
    for (Row& row : rows_) attempt(row, [&] { start(row); });
    const int steps = steps_of_a_round();
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < rows_.size(); ++i) order.push_back(i);
    std::mt19937 random(17);
    for (; rounds_ < kRounds && (rounds_ == 0 || left_() > 0); ++rounds_) {
      std::ranges::shuffle(order, random);
      for (const std::size_t i : order) attempt(rows_[i], [&] { measure(rows_[i], steps); });
    }
    print(steps);
  }

  // Whether all contenders ran, with the losses of the first contender.
  bool is_right() const {
    return std::ranges::all_of(rows_, [this](const Row& row) { return !row.failed && apart(row) <= tolerance(); });
  }

  void add_to(Json& results) const {
    for (const Row& row : rows_) {
      if (row.step_ms.empty()) continue;
      const double ms = median(row.step_ms);
      Json entry = {{"value", ms * 1e3},
                    {"unit", "us"},
                    {"fastest", quantile(row.step_ms, 0) * 1e3},
                    {"slowest", quantile(row.step_ms, 1) * 1e3},
                    {"host", median(row.host_ms) * 1e3},
                    {"items_per_second", static_cast<double>(workload_.items()) / ms * 1e3},
                    {"items", workload_.item()},
                    {"parameters", parameters_},
                    {"flops", flops_.step},
                    {"peak_flops_per_second", flops_.peak},
                    {"losses", row.losses},
                    {"loss_apart", apart(row)},
                    {"notes", row.notes}};
      if (const double ratio = of_first(row); ratio > 0) entry["of_hand"] = ratio;
      if (row.memory) {
        entry["allocated_mib"] = static_cast<double>(row.memory->allocated) / kMiB;
        entry["reserved_mib"] = static_cast<double>(row.memory->reserved) / kMiB;
      }
      results[workload_.name + ", " + row.name] = std::move(entry);
    }
  }

 private:
  void add(std::string name, std::function<std::unique_ptr<Stepper>()> make) {
    rows_.push_back({.name = std::move(name), .make = std::move(make)});
  }

  // Runs a part of a contender's work; an error excludes only that contender.
  void attempt(Row& row, const std::function<void()>& act) {
    if (rounds_ >= 0 && !row.lives()) return;  // it has failed before
    try {
      const WarningSink before = redirect_warnings([&](const std::string& text) { row.notes.push_back(text); });
      try {
        act();
      } catch (...) {
        redirect_warnings(before);
        throw;
      }
      redirect_warnings(before);
    } catch (const std::exception& error) {
      row.notes.push_back("failed: " + composer::describe(error));
      row.failed = true;
      row.steps.reset();
      row.step_ms.clear();
    }
  }

  void try_to_count_flops() {
    try {
      flops_ = count_flops(workload_, options_.device, batches_);
    } catch (const std::exception& error) {
      std::printf("  operations are not counted: %s\n", composer::describe(error).c_str());
    }
  }

  void step(Row& row) { row.steps->step(batches_[next_++ % kBatches]); }

  void start(Row& row) {
    DeviceMemory memory(options_.device);
    memory.begin();
    row.steps = row.make();
    next_ = 0;
    std::vector<at::Tensor> losses;
    for (int i = 0; i < kFirstSteps; ++i) {
      step(row);
      losses.push_back(row.steps->loss());
    }
    for (const at::Tensor& loss : losses) row.losses.push_back(loss.item<double>());
    row.memory = memory.peak();
    parameters_ = row.steps->parameters();
  }

  double time_of(Row& row, int steps) {
    wait_for(options_.device);
    const double begin = milliseconds();
    for (int i = 0; i < steps; ++i) step(row);
    wait_for(options_.device);
    return (milliseconds() - begin) / steps;
  }

  // The number of steps that the slowest contender does in a fifth of two seconds.
  int steps_of_a_round() {
    const double round_ms = (options_.tiny ? 200 : 2000) / static_cast<double>(kRounds);
    double slowest = 0;
    rounds_ = 0;
    for (Row& row : rows_)
      attempt(row, [&] {
        const double guess = time_of(row, 3);
        slowest = std::max(slowest, time_of(row, std::clamp(static_cast<int>(round_ms / 4 / guess), 2, 1000)));
      });
    return slowest > 0 ? std::clamp(static_cast<int>(round_ms / slowest), 3, 5000) : 3;
  }

  void measure(Row& row, int steps) {
    row.step_ms.push_back(time_of(row, steps));
    for (int i = 0; i < kHostSteps; ++i) {  // each begins with an empty queue
      wait_for(options_.device);
      const double begin = milliseconds();
      step(row);
      row.host_ms.push_back(milliseconds() - begin);
    }
    wait_for(options_.device);
  }

  // The time of a step relative to that of the first contender, within the rounds; 0 if the first has none.
  double of_first(const Row& row) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(row.step_ms.size(), rows_[0].step_ms.size()); ++i)
      ratios.push_back(row.step_ms[i] / rows_[0].step_ms[i]);
    return ratios.empty() ? 0 : median(ratios);
  }

  // In bf16, batch norms over a few images amplify rounding errors.
  double tolerance() const {
    if (workload_.precision == Precision::FP32) return 2e-3;
    return options_.tiny ? 0.2 : 2e-2;
  }
  // The largest relative difference of the first losses from those of the first contender.
  double apart(const Row& row) const {
    const auto first = std::ranges::find_if(rows_, [](const Row& other) { return !other.losses.empty(); });
    double largest = 0;
    for (std::size_t i = 0; i < kComparedSteps && i < row.losses.size(); ++i) {
      const double apart = std::abs(row.losses[i] - first->losses[i]) / std::abs(first->losses[i]);
      largest = std::max(largest, std::isfinite(apart) ? apart : 1e9);
    }
    return largest;
  }

  void print(int steps) const {
    std::string shape;
    for (const std::int64_t size : workload_.sample) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    std::printf("%s: %lld parameters, batch %lld of %s, %s%s, %s", workload_.name.c_str(),
                static_cast<long long>(parameters_), static_cast<long long>(workload_.batch_size), shape.c_str(),
                std::string(to_string(workload_.precision)).c_str(), workload_.channels_last ? ", channels last" : "",
                workload_.update == Update::ADAMW ? "AdamW" : "SGD with momentum");
    if (flops_.step > 0) std::printf(", %.4g GFLOP a step", flops_.step * 1e-9);
    std::printf("; %d rounds of %d steps\n", rounds_, steps);
    std::printf("  %-14s %9s %19s %11s %9s %8s %9s %9s %8s %6s %9s %9s\n", "", "ms a step", "(all rounds)",
                (std::string(workload_.item()) + "/s").c_str(), "host, ms", "of hand", "peak MiB", "reserved",
                "TFLOP/s", "MFU", "loss", "apart");
    for (const Row& row : rows_) print(row);
    std::printf("\n");
    std::fflush(stdout);
  }

  void print(const Row& row) const {
    std::printf("  %-14s", row.name.c_str());
    if (row.step_ms.empty()) {
      std::printf(" not measured\n");
    } else {
      const double ms = median(row.step_ms), rate = flops_.step / ms * 1e3;
      std::printf(" %9.4f %9.4f %9.4f %11.0f %9.4f", ms, quantile(row.step_ms, 0), quantile(row.step_ms, 1),
                  static_cast<double>(workload_.items()) / ms * 1e3, median(row.host_ms));
      print_if(of_first(row) > 0, " %8.3f", of_first(row), 9);
      print_if(row.memory.has_value(), " %9.0f", row.memory ? static_cast<double>(row.memory->allocated) / kMiB : 0,
               10);
      print_if(row.memory.has_value(), " %9.0f", row.memory ? static_cast<double>(row.memory->reserved) / kMiB : 0, 10);
      print_if(rate > 0, " %8.2f", rate * 1e-12, 9);
      print_if(rate > 0 && flops_.peak > 0, " %5.1f%%", flops_.peak > 0 ? rate / flops_.peak * 100 : 0, 7);
      std::printf(" %9.5f %9.1e%s\n", row.losses.empty() ? 0 : row.losses.back(), apart(row),
                  apart(row) <= tolerance() ? "" : "  DIFFERS");
    }
    for (const std::string& note : row.notes) std::printf("    %s\n", note.c_str());
  }
  static void print_if(bool known, const char* format, double value, int width) {
    if (known)
      std::printf(format, value);  // NOLINT(clang-diagnostic-format-nonliteral)
    else
      std::printf("%*s", width, "-");
  }

  const GpuOptions& options_;
  const GpuWorkload& workload_;
  const std::function<double()>& left_;
  std::vector<Batch> batches_;
  std::vector<Row> rows_;
  std::int64_t parameters_ = 0;
  Flops flops_;
  std::size_t next_ = 0;
  int rounds_ = -1;  // -1: before the first
};

int measure_gpu(std::span<char*> arguments) {
  const GpuOptions options = parse_gpu(arguments);
  Json results = Json::object();
  if (options.device.is_cuda() && !torch::cuda::is_available()) {
    std::printf("libtorch finds no CUDA device, so nothing is measured; --device cpu --tiny tries the program\n");
    write_json(options.json, results);
    return 0;
  }
  // For all contenders: the trainer's default precision of fp32, and the fastest algorithms of cuDNN for these shapes.
  for (const at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN})
    if (options.device.is_cuda())
      at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, op, at::Float32Precision::TF32);
  at::globalContext().setBenchmarkCuDNN(true);
  std::printf("libtorch %s on %s, fp32 as TF32 on a GPU; a step by hand updates with one fused operator\n\n",
              TORCH_VERSION, options.device.str().c_str());
  std::fflush(stdout);
  const double begin = milliseconds();
  const std::function<double()> left = [&] {
    return options.seconds > 0 ? options.seconds - (milliseconds() - begin) * 1e-3 : 1e9;
  };
  bool right = true;
  for (const GpuWorkload& workload : workloads(options.tiny)) {
    if (workload.name.find(options.only) == std::string::npos) continue;
    if (left() <= 0) {
      std::printf("%s: not measured, the time is up\n", workload.name.c_str());
      continue;
    }
    try {
      Measurement measurement(options, workload, left);
      measurement.run();
      right = measurement.is_right() && right;
      measurement.add_to(results);
    } catch (const std::exception& error) {
      std::printf("%s: failed: %s\n", workload.name.c_str(), composer::describe(error).c_str());
      right = false;
    }
    write_json(options.json, results);
  }
  if (!right) std::printf("a contender failed, or its losses differ by more than rounding\n");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) try {
  return composer::bench::measure_gpu({argv, static_cast<std::size_t>(argc)});
} catch (const std::exception& error) {
  std::cerr << composer::describe(error) << '\n';
  return 1;
}
