// CUDA graphs, and copies on a stream of their own: as without them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/algorithms/stochastic_depth.h"
#include "composer/device/cuda/cuda.h"
#include "composer/device/device_graph.h"
#include "composer/device/side_stream.h"
#include "composer/models/classifier.h"
#include "tests/gpu/gpu.h"
#include "tests/support/supported_by.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_graphs_test {
namespace {

struct Counts {
  std::atomic<int> captures = 0, replays = 0;
};

// A graph of libtorch that counts.
class CountedGraph final : public DeviceGraph {
 public:
  CountedGraph(std::unique_ptr<DeviceGraph> graph, Counts& counts) : graph_(std::move(graph)), counts_(counts) {}
  void capture_begin() override { graph_->capture_begin(); }
  void capture_end() override {
    graph_->capture_end();
    ++counts_.captures;
  }
  void replay() override {
    graph_->replay();
    ++counts_.replays;
  }

 private:
  std::unique_ptr<DeviceGraph> graph_;
  Counts& counts_;
};

// While it lives, graphs are counted.
class Counting {
 public:
  const Counts& counts() const { return support_.counts; }

 private:
  struct Support final : CudaSupport {
    std::unique_ptr<DeviceGraph> make_graph() const override {
      return std::make_unique<CountedGraph>(CudaSupport::make_graph(), counts);
    }
    mutable Counts counts;
  };

  const Support support_;
  const SupportedBy supported_{at::kCUDA, support_};
};

constexpr int kWarmUps = 3;

std::string texts_of(const Warnings& warnings) {
  std::string all;
  for (const std::string& text : warnings.texts) all += text + "; ";
  return all;
}

// Batch norm writes to buffers and dropout draws random numbers.
std::shared_ptr<Model> net_with_memory() {
  const torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 64), torch::nn::BatchNorm1d(64),
                                  torch::nn::ReLU(), torch::nn::Dropout(0.3), torch::nn::Linear(64, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

void compare(const std::string& what, const std::function<TrainerOptions()>& make, double tolerance) {
  CAPTURE(what);
  const Warnings warnings;
  const std::vector<at::Tensor> plain = trained(make());
  const Counting counting;
  TrainerOptions options = make();
  options.cuda_graph = true;
  check_close(what, trained(std::move(options)), plain, tolerance);
  CHECK(counting.counts().captures == 1);
  CHECK(counting.counts().replays == kBatches - kWarmUps);
  CHECK(texts_of(warnings) == "");
}

TEST_CASE("A run whose steps are replayed from a CUDA graph ends with the weights of one whose steps are not" *
          on_gpu()) {
  for (const Net& net : nets())
    for (const Precision precision : {Precision::FP32, Precision::AMP_BF16, Precision::AMP_FP16})
      compare(
          std::string(net.name) + " in " + std::string(to_string(precision)),
          [&net, precision] {
            TrainerOptions options = options_of(net, kGpu);
            options.precision = precision;
            return options;
          },
          precision == Precision::FP32 ? 1e-5 : 1e-3);
}

TEST_CASE("A CUDA graph draws the random numbers of a run without it" * on_gpu()) {
  compare(
      "dropout and batch norm",
      [] {
        TrainerOptions options = options_of(nets().front(), kGpu);
        options.model = net_with_memory();
        return options;
      },
      1e-5);
}

TEST_CASE("A CUDA graph goes with Adam, with a scaler that grows, and with copies ahead" * on_gpu()) {
  compare(
      "Adam and a scaler",
      [] {
        TrainerOptions options = options_of(nets().front(), kGpu);
        options.optimizer = optim::adamw({.lr = 0.01});
        options.grad_scaler = optim::GradScalerOptions{.init_scale = 16, .growth_interval = 2};
        options.copy_ahead = true;
        return options;
      },
      1e-5);
}

TEST_CASE("A run whose batches are copied ahead ends with the weights of one whose batches are not" * on_gpu()) {
  for (const Net& net : nets())
    for (const bool pinned : {false, true}) {
      TrainerOptions options = options_of(net, kGpu);
      options.train_dataloader =
          data::in_memory(net.data(), {.batch_size = kBatchSize, .prefetch = pinned ? 2 : 0, .pin_memory = pinned});
      options.copy_ahead = true;
      check_close(std::string(net.name) + (pinned ? ", pinned" : ""), trained(std::move(options)),
                  trained(options_of(net, kGpu)), 1e-5);
    }
}

TEST_CASE("A step that reads a value on the host is trained as without a CUDA graph, after one warning" * on_gpu()) {
  struct Reader final : models::Classifier {
    Reader()
        : Classifier(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 3)),
                     models::ClassifierOptions{.num_classes = 3}) {}
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      Losses losses = Classifier::loss(outputs, batch);
      return Losses(losses.front() * (losses.front().item<float>() > 0 ? 1 : 2));
    }
  };
  const auto make = [] {
    TrainerOptions options = options_of(nets().front(), kGpu);
    at::manual_seed(3);
    options.model = std::make_shared<Reader>();
    return options;
  };
  const std::vector<at::Tensor> plain = trained(make());
  const Warnings warnings;
  TrainerOptions options = make();
  options.cuda_graph = true;
  check_close("a reader", trained(std::move(options)), plain, 1e-5);
  CAPTURE(texts_of(warnings));
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.say("a step could not be recorded"));
}

// Of tensors that are gone, whose memory is kept because another stream may still use it.
std::int64_t bytes_of_the_gone() {
  release_cached_memory(kGpu);  // waits for the other streams
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  return stats.active_bytes[kAll].current - stats.allocated_bytes[kAll].current;
}

// Reads a value on the host after dropout has drawn.
struct DropsAndReads final : models::Classifier {
  DropsAndReads()
      : Classifier(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Dropout(0.3), torch::nn::Linear(64, 3)),
                   models::ClassifierOptions{.num_classes = 3}) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    Losses losses = Classifier::loss(outputs, batch);
    return Losses(losses.front() * (losses.front().item<float>() > 0 ? 1 : 2));
  }
};

TEST_CASE("After a recording that failed, numbers are drawn, memory comes back, and the next step is recorded" *
          on_gpu()) {
  const auto make = [] {
    TrainerOptions options = options_of(nets().front(), kGpu);
    at::manual_seed(3);
    options.model = std::make_shared<DropsAndReads>();
    options.copy_ahead = true;
    return options;
  };
  const std::vector<at::Tensor> plain = trained(make());
  for (int run = 0; run < 2; ++run) {
    const Warnings warnings;
    TrainerOptions options = make();
    options.cuda_graph = true;
    check_close("after a recording that failed", trained(std::move(options)), plain, 1e-5);
    CAPTURE(texts_of(warnings));
    CHECK(warnings.say("a step could not be recorded"));
    at::dropout(at::ones({8}, at::TensorOptions(kGpu)), 0.5, true).sum().item<float>();  // libtorch's own numbers
    CHECK(bytes_of_the_gone() == 0);
  }
  compare(
      "the next one",
      [] {
        TrainerOptions options = options_of(nets().front(), kGpu);
        options.model = net_with_memory();
        options.copy_ahead = true;
        return options;
      },
      1e-5);
}

TEST_CASE("A step that drops blocks by a random number of the host is trained as without a CUDA graph" * on_gpu()) {
  const auto make = [] {
    TrainerOptions options = options_of(nets()[2], kGpu);
    REQUIRE(algorithms::stochastic_depth(*options.model, {.drop_rate = 0.5}) > 0);
    return options;
  };
  const std::vector<at::Tensor> plain = trained(make());
  const Warnings warnings;
  TrainerOptions options = make();
  options.cuda_graph = true;
  check_close("stochastic depth", trained(std::move(options)), plain, 2e-3);
  CAPTURE(texts_of(warnings));
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.say("a block is dropped or kept by a random number of the host"));
}

TEST_CASE("Trainers in threads record steps and copy ahead as each of them alone" * on_gpu()) {
  const auto make = [](std::size_t thread) {
    TrainerOptions options = options_of(nets().front(), kGpu);
    options.model = net_with_memory();
    options.seed = 7 + thread;
    options.copy_ahead = true;
    options.max_duration = "200ba";
    return options;
  };
  constexpr std::size_t kThreads = 4;
  std::vector<TrainerOptions> together;
  std::vector<std::vector<at::Tensor>> expected, got(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) {
    expected.push_back(trained(make(i)));
    together.push_back(make(i));
    together.back().cuda_graph = true;
  }
  const Counting counting;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] { got[i] = trained(std::move(together[i])); });
  }
  for (std::size_t i = 0; i < kThreads; ++i) check_close("in a thread", got[i], expected[i], 1e-5);
  CHECK(counting.counts().captures == kThreads);
}

TEST_CASE("A GPU's streams beside the default one are given to one user each, while there are any" * on_gpu()) {
  std::vector<SideStream> all;
  for (SideStream one = side_stream(kGpu); one; one = side_stream(kGpu)) {
    for (const SideStream& other : all) CHECK(*one != *other);
    all.push_back(std::move(one));
    REQUIRE(all.size() <= 64);
  }
  CHECK(all.size() >= 8);
  all.pop_back();
  CHECK(side_stream(kGpu));
}

// Microseconds of a call of `step`, the median of some times of many; read() waits for the GPU.
template <class Step, class Read>
double time_of(const Step& step, const Read& read) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 7, kSteps = 100;
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kSteps; ++i) step();
    read();
    if (round > 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kSteps);
  }
  std::ranges::sort(times);
  return times[kRounds / 2];
}

double time_of_trainer(const Net& net, bool graph) {
  TrainerOptions options = options_of(net, kGpu);
  options.train_dataloader = {};
  options.eval_dataloader = {};
  options.max_duration = std::nullopt;
  options.cuda_graph = graph;
  Trainer trainer(std::move(options));
  Batch batch;
  for (const auto& [name, tensor] : net.data()) batch.set(name, tensor.to(kGpu));
  trainer.begin();
  const double time =
      time_of([&] { trainer.step(batch); }, [&] { trainer.state().model->parameters()[0].flatten()[0].item<float>(); });
  trainer.end();
  return time;
}

// As PyTorch's C++ examples have it.
double time_by_hand(const Net& net) {
  const std::shared_ptr<Model> model = net.model();
  model->to(kGpu);
  Batch batch;
  for (const auto& [name, tensor] : net.data()) batch.set(name, tensor.to(kGpu));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  return time_of(
      [&] {
        optimizer.zero_grad();
        model->loss(model->forward(batch), batch).front().backward();
        optimizer.step();
      },
      [&] { model->parameters()[0].flatten()[0].item<float>(); });
}

TEST_CASE("A step takes less time if it is replayed from a CUDA graph" * on_gpu()) {
  for (const Net& net : nets()) {
    const double by_hand = time_by_hand(net), plain = time_of_trainer(net, false), graph = time_of_trainer(net, true);
    std::cout << "step of " << net.name << ", 64 samples: by hand " << by_hand << " us, trainer " << plain
              << " us, with a CUDA graph " << graph << " us" << std::endl;
    CAPTURE(std::string(net.name));
    CHECK(graph < plain);
  }
}

}  // namespace
}  // namespace composer::test::gpu_graphs_test
