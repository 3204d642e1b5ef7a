// What does the trainer cost compared with the same loop by hand?
#include <array>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "benchmarks/bench.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/optimizer.h"
#include "composer/trainer/trainer.h"
#include "composer/util/own_random.h"

namespace composer::bench {
namespace {

// A net for a loop by hand, and the model of it for the trainer; both have the same weights.
struct Net {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::shared_ptr<models::Classifier> model;
};

struct Task {
  std::string name;
  std::function<Net()> make;
  std::vector<std::int64_t> image;
  std::int64_t batch_size, batches;  // batches: per epoch
  int rounds, calls;
};

models::ClassifierOptions no_train_metrics() { return {.num_classes = 10, .train_metrics = Metrics()}; }

Net mlp() {
  torch::nn::Sequential net(torch::nn::Linear(784, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
  return {[net](const at::Tensor& x) mutable { return net->forward(x); },
          std::make_shared<models::Classifier>(net, no_train_metrics())};
}

// Makes both from a model, whose module is used only through it.
Net of(std::shared_ptr<models::Classifier> model) {
  return {[model](const at::Tensor& x) { return model->forward(x).only(); }, model};
}

std::vector<Task> tasks() {
  return {{"mlp 784-32-10, batch 32", mlp, {784}, 32, 64, 60, 256},
          {"mnist_cnn, batch 64", [] { return of(models::mnist_cnn()); }, {1, 28, 28}, 64, 8, 40, 1},
          {"resnet20, batch 128", [] { return of(models::resnet_cifar({.depth = 20})); }, {3, 32, 32}, 128, 4, 12, 1}};
}

std::shared_ptr<Loader> loader_of(const Task& task) {
  at::manual_seed(1);
  std::vector<std::int64_t> shape = {task.batch_size * task.batches};
  shape.insert(shape.end(), task.image.begin(), task.image.end());
  const at::Tensor target = at::randint(10, {shape.front()}, at::kLong);
  return data::in_memory({{"input", at::randn(shape)}, {"target", target}},
                         {.batch_size = task.batch_size, .seed = 17});
}

// Dropout then depends only on the number of the step, so that all contenders draw the same.
void seed_step(std::int64_t step) { at::manual_seed(static_cast<std::uint64_t>(step)); }

// A loop with libtorch alone.
struct ByHand {
  explicit ByHand(const Task& task)
      : loader(loader_of(task)),
        net(task.make()),
        optimizer(optim::parameters_of(*net.model), {.lr = 0.01, .momentum = 0.9}) {
    loader->seek(0, 0);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      std::optional<Batch> batch = loader->next();
      if (!batch) {
        loader->seek(++epoch, 0);
        batch = loader->next();
      }
      optimizer.zero_grad();
      loss = at::cross_entropy_loss(net.forward(batch->at("input")), batch->at("target"));
      loss.backward();
      optimizer.step();
    }
  }

  std::shared_ptr<Loader> loader;
  Net net;
  optim::SGD optimizer;
  std::int64_t epoch = 0;
  at::Tensor loss;
};

// Within a fit a trainer draws from its own generators; this stores its generator for the CPU, to seed it.
class TakeGenerator final : public Callback {
 public:
  explicit TakeGenerator(at::Generator& taken) : taken_(taken) {}
  void fit_start(const State&, Logger&) override { taken_ = current_generator(at::kCPU); }

 private:
  at::Generator& taken_;
};

struct Trained {
  Trained(const Task& task, Callbacks callbacks, Loggers loggers)
      : net(task.make()),
        trainer({.model = net.model,
                 .train_dataloader = loader_of(task),
                 .optimizer = optim::sgd({.lr = 0.01, .momentum = 0.9}),
                 .max_duration = "1000000000ba",
                 .callbacks = with(std::move(callbacks), TakeGenerator(random)),
                 .loggers = std::move(loggers),
                 .device = at::Device(at::kCPU)}) {
    trainer.begin();
  }

  void run(int steps) {
    random.set_current_seed(at::detail::getDefaultCPUGenerator().current_seed());  // as seed_step() has set it
    const std::int64_t until = trainer.state().timestamp.batch + steps;
    while (trainer.state().timestamp.batch < until) trainer.step();
  }

  static Callbacks with(Callbacks callbacks, TakeGenerator take) {
    callbacks.add(std::move(take));
    return callbacks;
  }

  Net net;
  at::Generator random;
  Trainer trainer;
};

void check_same(const Net& a, const Net& b, const std::string& who) {
  const auto left = a.model->parameters(), right = b.model->parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!left[i].equal(right[i])) throw Error(who, ": the weights are not those of the loop by hand");
}

void measure(const Task& task, Report& report) {
  ByHand by_hand(task);
  Trained plain(task, {}, {});
  Trained watched(task, {callbacks::SpeedMonitor(), callbacks::LRMonitor(), callbacks::NaNMonitor()},
                  {loggers::InMemoryLogger()});
  {
    const at::NoGradGuard no_grad;
    const auto start = by_hand.net.model->parameters();
    for (const Trained* other : {&plain, &watched})
      for (std::size_t i = 0; i < start.size(); ++i) other->net.model->parameters()[i].copy_(start[i]);
  }
  std::array<std::int64_t, 3> done{};
  const auto seeded = [&](int who, auto& loop) {
    return [&done, who, &loop](int steps) {
      seed_step(done[who]);
      done[who] += steps;
      loop.run(steps);
    };
  };
  report.compare(task.name,
                 {{"by hand", seeded(0, by_hand)},
                  {"trainer", seeded(1, plain)},
                  {"trainer, 3 callbacks, logger", seeded(2, watched)}},
                 task.rounds, task.calls);
  check_same(by_hand.net, plain.net, task.name);
  check_same(by_hand.net, watched.net, task.name);
  for (const Trained* other : {&plain, &watched})
    if (!other->trainer.state().batch_loss.at("total").equal(by_hand.loss.detach()))
      throw Error(task.name, ": the last loss is not that of the loop by hand");
}

void measure_overhead(int argc, char** argv) {
  at::set_num_threads(1);
  Report report(parse(argc, argv));
  for (const Task& task : tasks())
    if (report.wants(task.name)) measure(task, report);
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_overhead(argc, argv); }
