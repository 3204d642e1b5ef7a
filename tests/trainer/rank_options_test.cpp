// Ranks agree on everything that decides what follows: every field of the options of a trainer, a fit and an evaluator
// is compared between ranks, or is named here as free to differ, with the reason. So is what the hyperparameters say of
// a trainer. The structured bindings below do not compile once a field is added: give it a row, and the bindings its
// name.
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "composer/algorithms/ema.h"
#include "composer/core/error.h"
#include "composer/loggers/format.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "composer/trainer/trainer.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::rank_options_test {
namespace {

template <class... Fields>
constexpr std::size_t count(const Fields&...) {
  return sizeof...(Fields);
}

std::size_t fields_of(const TrainerOptions& options) {
  const auto& [model, train_dataloader, train_dataloader_label, train_subset_num_batches, eval_dataloader,
               eval_interval, eval_subset_num_batches, optimizer, schedulers, scale_schedule_ratio,
               step_schedulers_every_batch, max_duration, iteration_length, algorithms, algorithm_passes, callbacks,
               loggers, run_name, device, precision, grad_scaler, allow_tf32, device_train_microbatch_size,
               microbatch_memory, copy_ahead, cuda_graph, accumulate_train_batch_on_tokens, seed, deterministic_mode,
               world, distributed, auto_log_hparams, tune, tune_cache, products, inference_mode, fold_batch_norms,
               save_folder, save_filename, save_latest_filename, save_interval, save_overwrite, save_weights_only,
               save_num_checkpoints_to_keep, save_best, save_on_failure, save_async, save_ignore_keys,
               save_staging_folder, save_upload_timeout, autoresume, resume_with, load_path, load_weights_only,
               load_strict_model_weights, load_rename, load_ignore_keys, handle_signals, grace_period] = options;
  return count(model, train_dataloader, train_dataloader_label, train_subset_num_batches, eval_dataloader,
               eval_interval, eval_subset_num_batches, optimizer, schedulers, scale_schedule_ratio,
               step_schedulers_every_batch, max_duration, iteration_length, algorithms, algorithm_passes, callbacks,
               loggers, run_name, device, precision, grad_scaler, allow_tf32, device_train_microbatch_size,
               microbatch_memory, copy_ahead, cuda_graph, accumulate_train_batch_on_tokens, seed, deterministic_mode,
               world, distributed, auto_log_hparams, tune, tune_cache, products, inference_mode, fold_batch_norms,
               save_folder, save_filename, save_latest_filename, save_interval, save_overwrite, save_weights_only,
               save_num_checkpoints_to_keep, save_best, save_on_failure, save_async, save_ignore_keys,
               save_staging_folder, save_upload_timeout, autoresume, resume_with, load_path, load_weights_only,
               load_strict_model_weights, load_rename, load_ignore_keys, handle_signals, grace_period);
}

std::size_t fields_of(const FitOptions& options) {
  const auto& [train_dataloader, train_dataloader_label, train_subset_num_batches, duration, reset_time, schedulers,
               scale_schedule_ratio, step_schedulers_every_batch, eval_dataloader, eval_interval,
               eval_subset_num_batches, device_train_microbatch_size, precision] = options;
  return count(train_dataloader, train_dataloader_label, train_subset_num_batches, duration, reset_time, schedulers,
               scale_schedule_ratio, step_schedulers_every_batch, eval_dataloader, eval_interval,
               eval_subset_num_batches, device_train_microbatch_size, precision);
}

std::size_t fields_of(const Evaluator& evaluator) {
  const auto& [label, dataloader, metrics, metric_names, eval_interval, subset_num_batches,
               device_eval_microbatch_size] = evaluator;
  return count(label, dataloader, metrics, metric_names, eval_interval, subset_num_batches,
               device_eval_microbatch_size);
}

template <class Options>
struct Row {
  const char* field;
  const char* free;                           // why ranks may differ; null: they must not
  std::function<void(Options&)> change = {};  // of rank 1, to something else
  const char* unlogged = nullptr;             // of a trainer: why it is no hyperparameter; null: it is
};

// What both ranks are given, and what rank 1 is given in addition.
struct Given {
  std::function<void(TrainerOptions&)> trainer = [](TrainerOptions&) {};
  std::function<void(FitOptions&)> fit = [](FitOptions&) {};
};

std::vector<std::string> errors_of(const Folder& folder, const Given& both, const Given& rank_1) {
  return dist::test::errors_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.model = tiny_model(/*train_metrics=*/true);
    options.eval_dataloader = tiny_loader(8, 4);
    options.schedulers = {optim::linear({.alpha_f = 0.5})};
    options.save_folder = folder / "ck";
    options.run_name = "two";
    options.device.reset();
    FitOptions fit;
    both.trainer(options), both.fit(fit);
    if (world->rank() == 1) rank_1.trainer(options), rank_1.fit(fit);
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.fit(std::move(fit));
  });
}

constexpr const char* kOfRank0 = "rank 0 alone saves, loads and logs, and tells the others what is due";
constexpr const char* kOfMachine = "the machines of the ranks may differ";

constexpr const char* kSame = "the results are the same, up to rounding";
constexpr const char* kWrites = "decides what is written, not what is trained";
constexpr const char* kBegins = "a run that goes on has begun already";
constexpr const char* kName = "a name trains nothing";

std::map<std::string, std::string> hyperparameters(const std::function<void(TrainerOptions&)>& change) {
  const Warnings warnings;
  const auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.schedulers = {optim::linear({.alpha_f = 0.5})};
  options.loggers = {memory};
  options.seed = 7;
  change(options);
  Trainer(std::move(options)).fit();
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : memory->hyperparameters()) texts[name] = loggers::format_unquoted(value);
  return texts;
}

// What a run says that goes on with other options than it had, or the error of one that cannot.
std::string told(const std::function<void(TrainerOptions&)>& before, const std::function<void(TrainerOptions&)>& now) {
  const Sandbox here;
  const Folder folder;
  Warnings warnings;
  const auto run = [&](const char* until, const std::function<void(TrainerOptions&)>& change) {
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.schedulers = {optim::linear({.alpha_f = 0.5, .t_max = "8ep"})};
    options.save_folder = folder / "ck";
    options.seed = 7;
    options.max_duration = Time::parse(until);
    change(options);
    Trainer(std::move(options)).fit();
  };
  run("3ep", before);
  warnings.texts.clear();
  const std::string error = error_of([&] { run("4ep", now); });
  std::string all = error == "no error" ? "" : error;
  for (const std::string& text : warnings.texts)
    if (text.find("checkpoint: the run goes on with") != std::string::npos) all += text + '\n';
  return all;
}

template <class Options>
void check_row(const Row<Options>& row, const std::function<Given(const std::function<void(Options&)>&)>& given,
               const Given& both = {}) {
  CAPTURE(row.field);
  if (!row.change) {
    CHECK(row.free != nullptr);
    return;
  }
  const Sandbox here;
  const Folder folder;
  for (const std::string& error : errors_of(folder, both, given(row.change))) {
    CAPTURE(error);
    CHECK((error.find("the ranks differ: rank 0 has ") != std::string::npos) == (row.free == nullptr));
    CHECK(error.empty() == (row.free != nullptr));
  }
}

TEST_CASE("Every option of a trainer is compared between ranks and is a hyperparameter, or is not for a reason") {
  using O = TrainerOptions;
  const std::vector<Row<O>> rows = {
      {"model", nullptr, [](O& o) { o.model = model_with_memory(); }},
      {"train_dataloader", nullptr, [](O& o) { o.train_dataloader = tiny_loader(12, 4); }},
      {"train_dataloader_label", nullptr, [](O& o) { o.train_dataloader_label = "other"; }, kName},
      {"train_subset_num_batches", nullptr, [](O& o) { o.train_subset_num_batches = 2; }},
      {"eval_dataloader", nullptr, [](O& o) { o.eval_dataloader = tiny_loader(4, 4); },
       "is measured, and trains nothing"},
      {"eval_interval", nullptr, [](O& o) { o.eval_interval = "1ba"; }},
      {"eval_subset_num_batches", nullptr, [](O& o) { o.eval_subset_num_batches = 1; }},
      {"optimizer", nullptr, [](O& o) { o.optimizer = optim::sgd({.lr = 0.2}); }},
      {"schedulers", nullptr, [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.25})}; }},
      {"scale_schedule_ratio", nullptr, [](O& o) { o.scale_schedule_ratio = 2; }},
      {"step_schedulers_every_batch", nullptr, [](O& o) { o.step_schedulers_every_batch = false; }},
      {"max_duration", nullptr, [](O& o) { o.max_duration = "2ep"; }},
      {"iteration_length", nullptr, [](O& o) { o.iteration_length = "1ep"; }},
      {"algorithms", nullptr, [](O& o) { o.algorithms = {algorithms::EMA()}; }},
      {"algorithm_passes", nullptr, [](O& o) { o.algorithm_passes.emplace_back([](Event, auto&) {}); }},
      {"callbacks", "one that makes no collective may be on some ranks alone",
       [](O& o) { o.callbacks.add(EventLog()); }, "of a callback, the options that it tells are"},
      {"loggers", kOfRank0, {}, kWrites},
      {"run_name", nullptr, [](O& o) { o.run_name = "other"; }, kName},
      {"device", "of each rank its own: cuda:0, cuda:1", [](O& o) { o.device = at::Device(at::kCPU); },
       "is one, of which a CPU has no other"},
      {"precision", nullptr, [](O& o) { o.precision = Precision::AMP_BF16; }},
      {"grad_scaler", nullptr, [](O& o) { o.grad_scaler.emplace(); }},
      {"allow_tf32", "has no meaning on a CPU; compared on a GPU", [](O& o) { o.allow_tf32 = false; },
       "is one on a GPU"},
      {"device_train_microbatch_size", "GPUs may have different memory; only \"auto\" is compared",
       [](O& o) { o.device_train_microbatch_size = 1; }},
      {"microbatch_memory", kOfMachine, [](O& o) { o.microbatch_memory = 1 << 30; }, kSame},
      {"copy_ahead", "the results are the same", [](O& o) { o.copy_ahead = true; }, kSame},
      {"cuda_graph", "is refused with several ranks", {}, kSame},
      {"accumulate_train_batch_on_tokens", nullptr, [](O& o) { o.accumulate_train_batch_on_tokens = true; }},
      {"seed", "that of rank 0 counts", [](O& o) { o.seed = 99; }},
      {"deterministic_mode",
       "is compared between processes; ranks that are threads of one have it in common",
       {},
       "is one (hyperparameters_test.cpp)"},
      {"world",
       "is what makes it this rank",
       {},
       "of the number of ranks, the results are the same, up to rounding, or the batch size says it"},
      {"distributed", nullptr, [](O& o) { o.distributed.virtual_shards = 2; }},
      {"auto_log_hparams", kOfRank0, [](O& o) { o.auto_log_hparams = false; }, kWrites},
      {"tune", nullptr, [](O& o) { o.tune = true; }, "what it chooses is one"},
      {"tune_cache", kOfMachine, [](O& o) { o.tune_cache = "other.json"; }, "what tune chooses is one"},
      {"products", nullptr, [](O& o) { o.products = Products::LIBRARY; }},
      {"inference_mode", "the results are the same", [](O& o) { o.inference_mode = false; }, kSame},
      {"fold_batch_norms", "the results are the same up to rounding", [](O& o) { o.fold_batch_norms = true; }, kSame},
      {"save_folder", nullptr, [](O& o) { o.save_folder += "-other"; }, kWrites},
      {"save_filename", kOfRank0, [](O& o) { o.save_filename = "other-{batch}"; }, kWrites},
      {"save_latest_filename", kOfRank0, [](O& o) { o.save_latest_filename = "other"; }, kWrites},
      {"save_interval", kOfRank0, [](O& o) { o.save_interval = "1ba"; }, kWrites},
      {"save_overwrite", kOfRank0, [](O& o) { o.save_overwrite = true; }, kWrites},
      {"save_weights_only", "likewise; compared with zero_stage", [](O& o) { o.save_weights_only = true; }, kWrites},
      {"save_num_checkpoints_to_keep", kOfRank0, [](O& o) { o.save_num_checkpoints_to_keep = 1; }, kWrites},
      {"save_best", kOfRank0, {}, kWrites},
      {"save_on_failure", kOfRank0, [](O& o) { o.save_on_failure = saving::OnFailure::CONTINUE; }, kWrites},
      {"save_async", kOfRank0, [](O& o) { o.save_async = false; }, kWrites},
      {"save_ignore_keys", "likewise; compared with sharded_checkpoints",
       [](O& o) { o.save_ignore_keys = {"optimizer/*"}; }, kWrites},
      {"save_staging_folder", kOfRank0, [](O& o) { o.save_staging_folder = "other"; }, kWrites},
      {"save_upload_timeout", kOfRank0, [](O& o) { o.save_upload_timeout = Seconds(1); }, kWrites},
      {"autoresume", kOfRank0, [](O& o) { o.autoresume = false; }, kBegins},
      {"resume_with", kOfRank0, {}, kBegins},
      {"load_path", nullptr, [](O& o) { o.load_path = "other"; }, kBegins},
      {"load_weights_only", nullptr, [](O& o) { o.load_weights_only = true; }, kBegins},
      {"load_strict_model_weights", nullptr, [](O& o) { o.load_strict_model_weights = false; }, kBegins},
      {"load_rename", nullptr, [](O& o) { o.load_rename = {{.from = "a", .to = "b"}}; }, kBegins},
      {"load_ignore_keys", nullptr, [](O& o) { o.load_ignore_keys = {"optimizer/*"}; }, kBegins},
      {"handle_signals", "ranks tell each other of the signals that they get", {}, "ends a run, and trains nothing"},
      {"grace_period", kOfMachine, [](O& o) { o.grace_period = Seconds(1); }, "ends a run, and trains nothing"},
  };
  CHECK(rows.size() == fields_of(TrainerOptions{}));
  for (const Row<O>& row : rows)
    check_row<O>(row, [](const std::function<void(O&)>& change) { return Given{.trainer = change}; });

  const auto unchanged = hyperparameters([](O&) {});
  CHECK(hyperparameters([](O&) {}) == unchanged);
  for (const Row<O>& row : rows) {
    CAPTURE(row.field);
    if (row.unlogged == nullptr) CHECK((row.change && hyperparameters(row.change) != unchanged));
  }

  // A run that goes on is told of each change, there and back.
  const auto same = [](O&) {};
  const std::string only =
      "checkpoint: the run goes on with other hyperparameters than it had:\n  max_duration: 3ep -> 4ep\n";
  CHECK(told(same, same) == only);
  for (const Row<O>& row : rows) {
    if (row.unlogged != nullptr || std::string_view(row.field) == "max_duration") continue;
    CAPTURE(row.field);
    CHECK(told(same, row.change) != only);
    CHECK(told(row.change, same) != only);
  }
}

TEST_CASE("Every option of a fit is compared between ranks, or free to differ for a reason") {
  using O = FitOptions;
  const std::vector<Row<O>> rows = {
      {"train_dataloader", nullptr, [](O& o) { o.train_dataloader = tiny_loader(12, 4); }},
      {"train_dataloader_label", nullptr,
       [](O& o) { o.train_dataloader = tiny_loader(16, 4), o.train_dataloader_label = "other"; }},
      {"train_subset_num_batches", nullptr, [](O& o) { o.train_subset_num_batches = 2; }},
      {"duration", nullptr, [](O& o) { o.duration = "2ba"; }},
      {"reset_time", "where training is, is compared", [](O& o) { o.reset_time = true; }},
      {"schedulers", nullptr, [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.25})}; }},
      {"scale_schedule_ratio", nullptr,
       [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.5})}, o.scale_schedule_ratio = 2; }},
      {"step_schedulers_every_batch", nullptr,
       [](O& o) { o.schedulers = {optim::linear({.alpha_f = 0.5})}, o.step_schedulers_every_batch = false; }},
      {"eval_dataloader", nullptr, [](O& o) { o.eval_dataloader = tiny_loader(4, 4); }},
      {"eval_interval", nullptr, [](O& o) { o.eval_dataloader = tiny_loader(8, 4), o.eval_interval = "1ba"; }},
      {"eval_subset_num_batches", nullptr,
       [](O& o) { o.eval_dataloader = tiny_loader(8, 4), o.eval_subset_num_batches = 1; }},
      {"device_train_microbatch_size", "as of the trainer", [](O& o) { o.device_train_microbatch_size = 1; }},
      {"precision", nullptr, [](O& o) { o.precision = Precision::AMP_BF16; }},
  };
  CHECK(rows.size() == fields_of(FitOptions{}));
  for (const Row<O>& row : rows)
    check_row<O>(row, [](const std::function<void(O&)>& change) { return Given{.fit = change}; });
}

TEST_CASE("Every field of an evaluator is compared between ranks, or free to differ for a reason") {
  using O = Evaluator;
  const std::vector<Row<O>> rows = {
      {"label", nullptr, [](O& o) { o.label = "other"; }},
      {"dataloader", nullptr, [](O& o) { o.dataloader = tiny_loader(4, 4); }},
      {"metrics", nullptr, [](O& o) { o.metrics = Metrics(); }},
      {"metric_names", nullptr, [](O& o) { o.metric_names = {"Multi.*"}; }},
      {"eval_interval", nullptr, [](O& o) { o.eval_interval = "1ba"; }},
      {"subset_num_batches", nullptr, [](O& o) { o.subset_num_batches = 1; }},
      {"device_eval_microbatch_size", "GPUs may have different memory",
       [](O& o) { o.device_eval_microbatch_size = 1; }},
  };
  CHECK(rows.size() == fields_of(Evaluator{}));
  const auto evaluated = [](const std::function<void(O&)>& change) {
    return [=](TrainerOptions& options) {
      Evaluator evaluator{.label = "own", .dataloader = tiny_loader(8, 4)};
      change(evaluator);
      options.eval_dataloader = evaluator;
    };
  };
  for (const Row<O>& row : rows)
    check_row<O>(row, [&](const std::function<void(O&)>& change) { return Given{.trainer = evaluated(change)}; },
                 {.trainer = evaluated([](O&) {})});
}

TEST_CASE("Ranks that evaluate or predict different numbers of batches are a ConfigError on all") {
  for (const bool predicts : {false, true}) {
    CAPTURE(predicts);
    const auto errors = dist::test::errors_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
      const Warnings warnings;
      TrainerOptions options = tiny_options();
      options.world = world;
      Trainer trainer(std::move(options));
      const auto loader = tiny_loader(world->rank() == 0 ? 8 : 12, 4);
      predicts ? static_cast<void>(trainer.predict(loader)) : trainer.eval({.eval_dataloader = loader});
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(error.find(predicts ? "predict: the ranks differ: rank 0 has batches = 2; rank 1 has batches = 3"
                                : "eval: the ranks differ: rank 0 has batches of evaluator eval = 2; rank 1 has "
                                  "batches of evaluator eval = 3") != std::string::npos);
    }
  }
}

TEST_CASE("A rank may leave run_name and save_folder to rank 0, and save by hand all the same") {
  const Folder folder;
  const auto paths = dist::test::results_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.run_name = world->rank() == 0 ? "two" : "";
    options.save_folder = world->rank() == 0 ? (folder / "ck").string() : "";
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().run_name == "two");
    return trainer.save_checkpoint("by-hand");
  });
  CHECK(paths[0] == (folder / "ck/by-hand").string());
  CHECK(paths[1] == paths[0]);
}

}  // namespace
}  // namespace composer::test::rank_options_test
