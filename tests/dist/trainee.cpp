// One rank of a run that trains, evaluates and saves, in which a chosen rank fails at a chosen moment;
// tests/dist/trainer_faults.py and cut_cable.py run it. It writes checkpoints/ below the folder that it is started in,
// and goes on from them. Started again by a launcher, no rank fails.
//   dist_trainee KIND MOMENT VICTIM [DEAD_AFTER_MS [COLLECTIVE_TIMEOUT_MS [VIRTUAL_SHARDS]]]
//   KIND: kill, stop, exit, throw, hang, sleep (for a second), busy (for a minute), or another for none
//   MOMENT: an event as to_string() names it, "worker" (in a thread of the data loader) or "close" (of a callback)
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/data/map_style.h"
#include "composer/dist/world.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/models/classifier.h"
#include "composer/optim/adam.h"
#include "composer/trainer/trainer.h"

namespace composer {
namespace {

namespace nn = torch::nn;
using namespace std::chrono_literals;

constexpr std::int64_t kFeatures = 16, kClasses = 4, kBatchSize = 16, kBatches = 6;  // of an epoch

struct Fault {
  std::string kind, moment;
  bool is_mine = false;
  std::chrono::milliseconds heartbeat{500};

  bool is_due(std::string_view now) const { return is_mine && moment == now; }
  // The pause lets a heartbeat tell where this rank is.
  void happen(const std::string& where) const {
    std::this_thread::sleep_for(3 * heartbeat);
    std::printf("FAULT at %s\n", where.c_str());
    std::fflush(stdout);
    if (kind == "kill") std::raise(SIGKILL);
    if (kind == "stop") std::raise(SIGSTOP);
    if (kind == "exit") std::exit(1);
    if (kind == "throw") throw std::runtime_error("a bug of one rank");
    while (kind == "hang") std::this_thread::sleep_for(1s);
    if (kind == "sleep") std::this_thread::sleep_for(1s);
    if (kind == "busy") std::this_thread::sleep_for(60s);
  }
};

std::string position(Event event, const State& state) {
  return join(to_string(event), ", epoch ", state.timestamp.epoch, ", batch ", state.timestamp.batch);
}

// Fails once, in the second epoch or at its end, when there are checkpoints; before the first epoch at once.
class Failing final : public Callback {
 public:
  explicit Failing(Fault fault) : fault_(std::move(fault)) {}
  void run_event(Event event, const State& state, Logger&) override {
    const bool is_early = event < Event::EPOCH_START;
    if (!fault_.is_due(to_string(event)) || (!is_early && state.timestamp.batch <= kBatches)) return;
    if (!std::exchange(happened_, true)) fault_.happen(position(event, state));
  }
  void close(const State& state, Logger&) override {
    if (fault_.is_due("close")) fault_.happen(position(Event::FIT_END, state));
  }

 private:
  Fault fault_;
  bool happened_ = false;
};

// Points around the centre of their class. The victim's worker fails in the middle of the second epoch.
class Points {
 public:
  Points(std::int64_t samples, double phase, Fault fault, int ranks)
      : samples_(samples), phase_(phase), fault_(std::move(fault)), fatal_(samples * 3 / 2 / ranks) {}
  std::int64_t size() const { return samples_; }
  data::Sample get(std::int64_t index) const {
    if (fault_.is_due("worker") && ++read_ == fatal_) fault_.happen("epoch 1");
    const at::Tensor noise =
        at::sin(at::arange(index * kFeatures, (index + 1) * kFeatures, at::kDouble) * 1.7 + phase_);
    const at::Tensor centre = at::cos(at::arange(kFeatures, at::kDouble) * static_cast<double>(1 + index % kClasses));
    data::Sample sample;
    sample.set("input", (noise + centre * 0.5).to(at::kFloat));
    sample.set("target", at::scalar_tensor(index % kClasses, at::kLong));
    return sample;
  }

 private:
  std::int64_t samples_;
  double phase_;
  Fault fault_;
  std::int64_t fatal_;
  mutable std::atomic<std::int64_t> read_ = 0;
};

std::shared_ptr<Model> model() {
  constexpr std::int64_t kWidth = 32;
  at::manual_seed(5);
  nn::Sequential net(nn::Linear(kFeatures, kWidth), nn::BatchNorm1d(kWidth), nn::ReLU(), nn::Dropout(0.2),
                     nn::Linear(kWidth, kClasses));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = kClasses});
}

TrainerOptions options_of(const Fault& fault, int ranks, std::int64_t virtual_shards) {
  const auto points = [&](std::int64_t samples, double phase, const Fault& failing) {
    return std::make_shared<Points>(samples, phase, failing, ranks);
  };
  TrainerOptions options{.model = model()};
  options.train_dataloader =
      data::map_style(points(kBatches * kBatchSize, 0, fault), {.batch_size = kBatchSize, .num_workers = 1});
  options.eval_dataloader =
      data::map_style(points(2 * kBatchSize, 0.3, {}), {.batch_size = kBatchSize, .shuffle = false});
  options.optimizer = optim::adamw({.lr = 0.01});
  options.max_duration = "3ep";
  options.callbacks = {std::make_shared<Failing>(fault)};
  options.loggers = {loggers::JsonLinesLogger({.path = "log.jsonl"})};
  options.seed = 7;
  options.distributed.virtual_shards = virtual_shards;
  options.run_name = "trainee";
  options.device = at::Device(at::kCPU);
  options.save_folder = "checkpoints";
  options.save_interval = "2ba";
  options.save_num_checkpoints_to_keep = 3;
  return options;
}

int train(const Fault& fault, std::int64_t virtual_shards) {
  Trainer trainer(options_of(fault, dist::World::of_process()->size(), virtual_shards));
  std::printf("%s\n", trainer.resumed_from().empty() ? "begins" : ("goes on from " + trainer.resumed_from()).c_str());
  std::fflush(stdout);
  trainer.fit();
  trainer.close();
  return trainer.interrupted_by() == 0 ? 0 : 128 + trainer.interrupted_by();
}

}  // namespace
}  // namespace composer

int main(int argc, char** argv) {
  using composer::Fault;
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: dist_trainee KIND MOMENT VICTIM [DEAD_AFTER_MS [COLLECTIVE_TIMEOUT_MS [VIRTUAL_SHARDS]]]\n");
    return 2;
  }
  at::set_num_threads(1);
  composer::dist::Options options;
  if (argc > 4) options.dead_after = std::chrono::milliseconds(std::atoi(argv[4]));
  if (argc > 5) options.collective_timeout = std::chrono::milliseconds(std::atoi(argv[5]));
  options.shutdown_timeout = options.collective_timeout;
  options.heartbeat = options.dead_after / 10;
  options.unwind = std::min<std::chrono::milliseconds>(options.dead_after, std::chrono::seconds(3));
  return composer::dist::run(
      [&] {
        const composer::dist::Environment& me = composer::dist::World::of_process()->environment();
        const bool is_mine = me.rank == std::atoi(argv[3]) && me.restart_count == 0;
        return composer::train(Fault{argv[1], argv[2], is_mine, options.heartbeat}, argc > 6 ? std::atoi(argv[6]) : 0);
      },
      options);
}
