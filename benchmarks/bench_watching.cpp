// How much do callbacks and loggers add to a step, each alone and all together, also while a disk or a server fails?
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "benchmarks/bench.h"
#include "benchmarks/server_process.h"
#include "composer/callbacks/activation_monitor.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/export_for_inference.h"
#include "composer/callbacks/image_visualizer.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/memory_monitor.h"
#include "composer/callbacks/memory_snapshot.h"
#include "composer/callbacks/mlperf_callback.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/oom_observer.h"
#include "composer/callbacks/optimizer_monitor.h"
#include "composer/callbacks/profiler.h"
#include "composer/callbacks/runtime_estimator.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/callbacks/system_metrics_monitor.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/loggers/remote_uploader.h"
#include "composer/loggers/slack_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "composer/models/mnist_cnn.h"
#include "composer/optim/optimizer.h"
#include "composer/trainer/trainer.h"
#include "tests/support/http_server.h"

namespace composer::bench {
namespace {

namespace fs = std::filesystem;
using test::HttpCall;
using test::HttpReply;
using test::HttpServer;

struct Task {
  std::string name;
  std::function<std::shared_ptr<Model>()> make;
  std::vector<std::int64_t> image;
  std::int64_t batch_size, batches;  // batches: per epoch
  int rounds, calls;                 // a round takes whole epochs, and whole intervals of all callbacks
};

std::shared_ptr<Model> mlp() {
  torch::nn::Sequential net(torch::nn::Linear(784, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
  return std::make_shared<models::Classifier>(net,
                                              models::ClassifierOptions{.num_classes = 10, .train_metrics = Metrics()});
}

// The tasks of bench_overhead.
std::vector<Task> tasks() {
  return {{"mlp 784-32-10, batch 32", mlp, {784}, 32, 100, 20, 200},
          {"mnist_cnn, batch 64", [] { return models::mnist_cnn(); }, {1, 28, 28}, 64, 10, 8, 10}};
}

Batch data_of(const Task& task) {
  at::manual_seed(1);
  std::vector<std::int64_t> shape = {task.batch_size * task.batches};
  shape.insert(shape.end(), task.image.begin(), task.image.end());
  return {{"input", at::randn(shape)}, {"target", at::randint(10, {shape.front()}, at::kLong)}};
}

using Destinations = std::vector<std::shared_ptr<LoggerDestination>>;

struct Plugins {
  Callbacks callbacks;
  Destinations loggers = {};
};

class Trained {
 public:
  Trained(const Task& task, const Batch& data, Plugins plugins)
      : loggers_(std::move(plugins.loggers)),
        trainer_({.model = model_of(task),
                  .train_dataloader = data::in_memory(data, {.batch_size = task.batch_size, .seed = 17}),
                  .eval_dataloader = data::in_memory(data, {.batch_size = task.batch_size}),
                  .eval_interval = "100000000ba",  // only to give stoppers something to watch
                  .optimizer = optim::sgd({.lr = 0.01, .momentum = 0.9}),
                  .max_duration = "1000000000ba",
                  .callbacks = std::move(plugins.callbacks),
                  .loggers = listed(loggers_),
                  .run_name = "run" + std::to_string(++runs_),
                  .device = at::Device(at::kCPU),
                  .seed = 17}) {
    trainer_.begin();
  }

  void run(int steps) {
    const std::int64_t until = trainer_.state().timestamp.batch + steps;
    while (trainer_.state().timestamp.batch < until) trainer_.step();
  }
  void flush() {
    for (const auto& logger : loggers_) logger->flush();
  }
  const State& state() const { return trainer_.state(); }

 private:
  static std::shared_ptr<Model> model_of(const Task& task) {
    at::manual_seed(2);
    return task.make();
  }
  static Loggers listed(const Destinations& loggers) {
    Loggers all;
    for (const auto& logger : loggers) all.add(logger);
    return all;
  }

  static inline int runs_ = 0;
  Destinations loggers_;
  Trainer trainer_;
};

// A server that fails: it takes 10 s for each answer, or dies.
class FailingServer {
 public:
  explicit FailingServer(bool is_slow) : is_slow_(is_slow) {}
  ~FailingServer() { die(); }
  FailingServer(const FailingServer&) = delete;
  FailingServer& operator=(const FailingServer&) = delete;

  std::string url() const { return server_->url(); }
  void die() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    server_.reset();
  }

 private:
  HttpReply answer(const HttpCall& call) {
    if (is_slow_ && call.target.find("log-batch") != std::string::npos) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::seconds(10), [&] { return ends_; });
    }
    return answer_of_service(call);
  }

  const bool is_slow_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::unique_ptr<HttpServer> server_ =
      std::make_unique<HttpServer>([this](const HttpCall& call) { return answer(call); });
};

// A set of plug-ins, compared with the same trainer without plug-ins, or with others.
struct Subject {
  std::string name;
  std::function<Plugins()> make;
  bool of_cnn = false;                          // its cost depends on the model
  bool fails = false;                           // does not wait until everything is written
  std::function<void()> in_the_middle = [] {};  // called in the middle of the rounds
  std::function<void()> at_the_end = [] {};     // called before the trainer is closed
  std::function<Plugins()> beside = [] { return Plugins{}; };
};

template <class T>
Destinations one(T logger) {
  return {std::make_shared<T>(std::move(logger))};
}

struct Facilities {
  Facilities(fs::path given, const ServerProcess& its_server) : folder(std::move(given)), server(its_server) {}

  fs::path folder;
  std::ofstream nowhere{"/dev/null"};
  const ServerProcess& server;
  FailingServer slow{/*is_slow=*/true}, dying{/*is_slow=*/false};

  std::string path(const char* name) { return (folder / (std::to_string(++count_) + name)).string(); }

  loggers::SlackLoggerOptions slack(const std::string& url, Time interval) const {
    return {.include_keys = {"loss/", "metrics/"}, .log_interval = interval, .webhook_url = url + "/slack"};
  }

  std::vector<Subject> loggers_alone() {
    using namespace loggers;
    return {
        {"console",
         [this] {
           return Plugins{{}, one(ConsoleLogger({.stream = nowhere}))};
         }},
        {"csv",
         [this] {
           return Plugins{{}, one(CsvLogger({.path = path(".csv")}))};
         }},
        {"file",
         [this] {
           return Plugins{{}, one(FileLogger({.path = path(".txt")}))};
         }},
        {"in_memory",
         [] {
           return Plugins{{}, one(InMemoryLogger())};
         }},
        {"json_lines",
         [this] {
           return Plugins{{}, one(JsonLinesLogger({.path = path(".jsonl")}))};
         }},
        {"mlflow, folder",
         [this] {
           return Plugins{{}, one(MLFlowLogger({.tracking_uri = path("runs")}))};
         }},
        {"mlflow, server",
         [this] {
           return Plugins{{}, one(MLFlowLogger({.tracking_uri = server.url()}))};
         }},
        {"progress_bar",
         [this] {
           return Plugins{{}, one(ProgressBar({.stream = nowhere}))};
         }},
        {"remote_uploader",
         [this] {
           return Plugins{{}, one(RemoteUploader({.uri = "file://" + path("up")}))};
         }},
        {"slack",
         [this] {
           return Plugins{{}, one(SlackLogger(slack(server.url(), "1ep")))};
         }},
        {"tensorboard",
         [this] {
           return Plugins{{}, one(TensorBoardLogger({.folder = path("board")}))};
         }},
        {"wandb",
         [this] {
           return Plugins{{}, one(WandBLogger({.folder = path("wandb")}))};
         }},
    };
  }

  std::vector<Subject> callbacks_alone() {
    using namespace callbacks;
    return {
        {"activation_monitor", [] { return Plugins{{ActivationMonitor()}}; }, true},
        {"checkpoint_saver", [this] { return Plugins{{CheckpointSaver({.folder = path("saved")})}}; }, true},
        {"early_stopper", [] { return Plugins{{early_stopper()}}; }},
        {"export_for_inference", [this] { return Plugins{{ExportForInferenceCallback({.save_path = path(".pt")})}}; }},
        {"image_visualizer", [] { return Plugins{{ImageVisualizer()}}; }, true},
        {"lr_monitor", [] { return Plugins{{LRMonitor()}}; }},
        {"memory_monitor", [] { return Plugins{{MemoryMonitor()}}; }},
        {"memory_snapshot", [] { return Plugins{{MemorySnapshot()}}; }},
        {"mlperf", [this] { return Plugins{{MLPerfCallback({.root_folder = path("mlperf"), .index = 0})}}; }},
        {"nan_monitor", [] { return Plugins{{NaNMonitor()}}; }, true},
        {"nan_monitor, without culprit", [] { return Plugins{{NaNMonitor({.find_culprit = false})}}; }},
        {"nan_monitor, culprit alone", [] { return Plugins{{NaNMonitor()}}; }, true, false, [] {}, [] {},
         [] { return Plugins{{NaNMonitor({.find_culprit = false})}}; }},
        {"nan_monitor, check_gradients", [] { return Plugins{{NaNMonitor({.check_gradients = true})}}; }, true},
        {"oom_observer", [] { return Plugins{{OOMObserver()}}; }},
        {"optimizer_monitor", [] { return Plugins{{OptimizerMonitor()}}; }, true},
        {"profiler, idle", [] { return Plugins{{Profiler({.skip_first = 1'000'000, .print = false})}}; }, true},
        {"profiler", [] { return Plugins{{Profiler({.print = false})}}; }, true},
        {"runtime_estimator", [] { return Plugins{{RuntimeEstimator()}}; }},
        {"speed_monitor", [] { return Plugins{{SpeedMonitor()}}; }},
        {"system_metrics_monitor", [] { return Plugins{{SystemMetricsMonitor()}}; }},
        {"threshold_stopper", [] { return Plugins{{threshold_stopper()}}; }},
    };
  }

  std::vector<Subject> together() {
    return {{"3 callbacks, in_memory",
             [] {
               return Plugins{{callbacks::SpeedMonitor(), callbacks::LRMonitor(), callbacks::NaNMonitor()},
                              one(loggers::InMemoryLogger())};
             },
             true},
            {"10 callbacks", [] { return Plugins{ten_callbacks()}; }, true},
            {"all loggers",
             [this] {
               return Plugins{{}, all_loggers()};
             },
             true},
            {"all loggers, 10 callbacks",
             [this] {
               return Plugins{ten_callbacks(), all_loggers()};
             },
             true}};
  }

  std::vector<Subject> faults() {
    using namespace loggers;
    return {{"json_lines, disk full",
             [] {
               return Plugins{{}, one(JsonLinesLogger({.path = "/dev/full", .append = true}))};
             },
             true, true},
            {"slack, server refuses",
             [this] {
               return Plugins{{}, one(SlackLogger(slack(test::refusing_url(), "1ba")))};
             },
             true, true},
            {"mlflow, server needs 10 s",
             [this] {
               return Plugins{{}, one(MLFlowLogger({.tracking_uri = slow.url()}))};
             },
             true, true, [] {}, [this] { slow.die(); }},
            {"mlflow, server dies",
             [this] {
               return Plugins{{}, one(MLFlowLogger({.tracking_uri = dying.url()}))};
             },
             true, true, [this] { dying.die(); }}};
  }

 private:
  static callbacks::EarlyStopper early_stopper() {
    return callbacks::EarlyStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval"});
  }
  static callbacks::ThresholdStopper threshold_stopper() {
    return callbacks::ThresholdStopper(
        {.monitor = "MulticlassAccuracy", .dataloader_label = "eval", .threshold = 0.99});
  }

  static Callbacks ten_callbacks() {
    using namespace callbacks;
    return {SpeedMonitor(),         LRMonitor(),        NaNMonitor(),    RuntimeEstimator(),  MemoryMonitor(),
            SystemMetricsMonitor(), OptimizerMonitor(), early_stopper(), threshold_stopper(), OOMObserver()};
  }

  Destinations all_loggers() {
    Destinations all;
    for (const Subject& subject : loggers_alone())
      for (const auto& logger : subject.make().loggers) all.push_back(logger);
    return all;
  }

  int count_ = 0;
};

// Microseconds per step: CPU time of the training thread, wall time, and CPU time of all threads until everything is
// written.
struct Cost {
  double thread, wall, process;
};

Cost measure_once(Trained& trained, int calls, bool flushes) {
  trained.run(std::max(1, calls / 20));  // fills the caches again after other contenders
  if (flushes) trained.flush();
  const double thread = microseconds(CLOCK_THREAD_CPUTIME_ID), wall = microseconds(CLOCK_MONOTONIC),
               process = microseconds(CLOCK_PROCESS_CPUTIME_ID);
  trained.run(calls);
  Cost cost{microseconds(CLOCK_THREAD_CPUTIME_ID) - thread, microseconds(CLOCK_MONOTONIC) - wall, 0};
  if (flushes) trained.flush();
  cost.process = microseconds(CLOCK_PROCESS_CPUTIME_ID) - process;
  return {cost.thread / calls, cost.wall / calls, cost.process / calls};
}

struct Pair {
  Pair(const Task& task, const Batch& data, const Subject& given)
      : subject(given), plain(task, data, given.beside()), watched(task, data, given.make()) {}

  void measure(int calls, bool plain_first) {
    Cost a{}, b{};
    if (plain_first) a = measure_once(plain, calls, false);
    b = measure_once(watched, calls, !subject.fails);
    if (!plain_first) a = measure_once(plain, calls, false);
    base.push_back(a.thread);
    more.push_back(b.thread - a.thread);
    ratio.push_back(b.thread / a.thread);
    wall_more.push_back(b.wall - a.wall);
    wall_ratio.push_back(b.wall / a.wall);
    process_more.push_back(b.process - a.process);
  }

  void check() const {
    const auto left = plain.state().model->parameters(), right = watched.state().model->parameters();
    for (std::size_t i = 0; i < left.size(); ++i)
      if (!left[i].equal(right[i])) throw Error(subject.name, ": the weights are not those of the plain trainer");
  }

  Subject subject;
  Trained plain, watched;
  std::vector<double> base, more, ratio, wall_more, wall_ratio, process_more;
};

void print(const std::vector<double>& values, const char* format) {
  for (const double share : {0.5, 0.25, 0.75}) std::printf(format, quantile(values, share));
}

void measure(const Task& task, const std::string& group, std::vector<Subject> subjects, const Options& options,
             nlohmann::ordered_json& results) {
  const Batch data = data_of(task);
  const int rounds = std::max(3, static_cast<int>(task.rounds * options.effort));
  std::vector<std::unique_ptr<Pair>> pairs;
  std::mt19937 random(17);
  for (const Subject& subject : subjects) {
    if ((group + ", " + subject.name).find(options.only) == std::string::npos) continue;
    pairs.push_back(std::make_unique<Pair>(task, data, subject));
  }
  if (pairs.empty()) return;
  for (int round = 0; round < rounds; ++round)
    for (const auto& pair : pairs) {
      if (round == rounds / 2) pair->subject.in_the_middle();
      pair->measure(task.calls, random() % 2 == 0);
    }
  std::printf("%s: %d pairs of %d steps, each median with the middle half of the pairs\n", group.c_str(), rounds,
              task.calls);
  std::printf("%-30s %9s %25s %23s %25s %23s %10s\n", "", "us plain", "more us, this thread", "ratio", "more us, wall",
              "ratio, wall", "all, us");
  for (const auto& pair : pairs) {
    pair->check();
    pair->subject.at_the_end();
    std::printf("  %-28s %9.1f", pair->subject.name.c_str(), median(pair->base));
    print(pair->more, " %8.2f");
    print(pair->ratio, " %7.4f");
    print(pair->wall_more, " %8.2f");
    print(pair->wall_ratio, " %7.4f");
    std::printf(" %9.2f\n", median(pair->process_more));
    results[group + ", " + pair->subject.name] = {{"value", median(pair->base) + median(pair->more)}, {"unit", "us"}};
  }
  std::printf("\n");
}

void measure_watching(const Options& options, const fs::path& folder, const ServerProcess& server) {
  nlohmann::ordered_json results = nlohmann::ordered_json::object();
  const int all_threads = at::get_num_threads();
  for (const int threads : all_threads > 1 ? std::vector{1, all_threads} : std::vector{1}) {
    at::set_num_threads(threads);
    for (const Task& task : tasks()) {
      const bool is_small = task.image.size() == 1;
      const std::string group = task.name + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
      Facilities facilities(folder / group, server);
      fs::create_directory(facilities.folder);
      const auto some = [&](std::vector<Subject> all) {
        if (!is_small || threads > 1) std::erase_if(all, [](const Subject& subject) { return !subject.of_cnn; });
        return all;
      };
      Task longer = task;
      if (is_small) longer.calls *= 5;  // so that loggers which write many records at once do so within a round
      measure(longer, group, some(facilities.together()), options, results);
      measure(task, group + ", a callback", some(facilities.callbacks_alone()), options, results);
      measure(task, group + ", a logger", some(facilities.loggers_alone()), options, results);
      measure(task, group + ", a fault", some(facilities.faults()), options, results);
    }
  }
  write_json(options.json, results);
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  const composer::bench::Options options = composer::bench::parse(argc, argv);
  const composer::bench::ServerProcess server;
  std::string folder = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for temporary files");
  std::filesystem::current_path(folder);
  composer::bench::measure_watching(options, folder, server);
  std::filesystem::current_path("/");
  std::filesystem::remove_all(folder);
}
