// Ranks that are told different things: an error on all of them that names the difference, instead of ranks that wait
// for each other or weights that drift apart.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "composer/algorithms/load_checkpoint.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "composer/core/option.h"
#include "composer/core/registry.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/registry.h"
#include "composer/optim/schedule.h"
#include "tests/support/folder.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_differ_test {
namespace {

using dist::test::errors_in_ranks;
using dist::test::results_in_ranks;

std::shared_ptr<Model> model_without_bias() {
  return std::make_shared<models::Classifier>(torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)),
                                              models::ClassifierOptions{.num_classes = 3});
}

std::shared_ptr<Model> model_with_norm() {
  return std::make_shared<models::Classifier>(torch::nn::Sequential(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3)),
                                              models::ClassifierOptions{.num_classes = 3});
}

torch::nn::Module& first_norm(const torch::nn::Module& model) {
  for (const auto& module : model.modules())
    if (module->as<torch::nn::BatchNorm1d>()) return *module;
  throw Error("there is no batch norm");
}

TEST_CASE("An eval() of another part of the data on one rank is an error on all of them") {
  const auto errors = errors_in_ranks(2, [](const WorldPointer& world) {
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.device.reset();
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.eval({.subset_num_batches = world->rank() == 0 ? -1 : 1});
  });
  check_all_say(errors, "subset_num_batches = 1");
}

TEST_CASE("Ranks with different options are a ConfigError on all, which names the first difference") {
  struct Row {
    const char* text;
    std::function<void(TrainerOptions&)> change;  // of rank 1
    std::function<void(TrainerOptions&)> both = [](TrainerOptions&) {};
  };
  const auto always = [](double factor) {
    return optim::Scheduler([factor](const optim::ScheduleContext&) { return factor; });
  };
  const auto evaluated = [](TrainerOptions& options) { options.eval_dataloader = tiny_loader(8, 4); };
  for (const Row& row : std::vector<Row>{
           {"max_duration = 1ep; rank 1 has max_duration = 2ep", [](auto& o) { o.max_duration = "2ep"; }},
           {"algorithms = none; rank 1 has algorithms = MixUp", [](auto& o) { o.algorithms = {algorithms::MixUp()}; }},
           {"optimizer/lr = 0.1; rank 1 has optimizer/lr = 0.2",
            [](auto& o) { o.optimizer = optim::sgd({.lr = 0.2}); }},
           {"precision = fp32; rank 1 has precision = amp_bf16", [](auto& o) { o.precision = Precision::AMP_BF16; }},
           {"bias: Float [3]; rank 1 has nothing more", [](auto& o) { o.model = model_without_bias(); }},
           {"train_batch_size = 4; rank 1 has train_batch_size = 8",
            [](auto& o) { o.train_dataloader = tiny_loader(16, 8); }},
           {"train_samples = 16; rank 1 has train_samples = 12",
            [](auto& o) { o.train_dataloader = tiny_loader(12, 4); }},
           {"batches in train_dataloader = 4; rank 1 has batches in train_dataloader = 3",
            [](auto& o) { o.train_dataloader = data::in_memory(tiny_data(14), {.batch_size = 4, .drop_last = true}); },
            [](auto& o) { o.train_dataloader = tiny_loader(14, 4); }},
           {"batch size of evaluator eval = 4; rank 1 has batch size of evaluator eval = 2",
            [](auto& o) { o.eval_dataloader = tiny_loader(8, 2); }, evaluated},
           {"batches of evaluator eval = 2; rank 1 has batches of evaluator eval = 3",
            [](auto& o) { o.eval_dataloader = tiny_loader(12, 4); }, evaluated},
           {"growth_interval=2000; rank 1 has grad_scaler = init_scale=1024, growth_factor=2",
            [](auto& o) { o.grad_scaler->init_scale = 1024; }, [](auto& o) { o.grad_scaler.emplace(); }},
           {"grad_scaler = none; rank 1 has grad_scaler = init_scale=65536", [](auto& o) { o.grad_scaler.emplace(); }},
           {"; rank 1 has factors of schedulers = 0.5", [&](auto& o) { o.schedulers = {always(0.5)}; },
            [&](auto& o) { o.schedulers = {always(1)}; }},
           {"rank 1 has evaluator = eval, every 1ep", [](auto& o) { o.eval_dataloader = tiny_loader(8, 4); }},
           {"zero_stage = 0; rank 1 has zero_stage = 1", [](auto& o) { o.distributed.zero_stage = 1; }},
           {"virtual_shards = 0; rank 1 has virtual_shards = 2", [](auto& o) { o.distributed.virtual_shards = 2; }},
           {"bias = true; rank 1 has requires_grad of ",
            [](auto& o) { o.model->parameters().back().set_requires_grad(false); }},
           {"rank 1 has module in evaluation mode = ", [](auto& o) { first_norm(*o.model).eval(); },
            [](auto& o) { o.model = model_with_norm(); }},
           {"device_train_microbatch_size = a number; rank 1 has device_train_microbatch_size = auto",
            [](auto& o) { o.device_train_microbatch_size = "auto"; }},
       }) {
    check_refused(row.text, [&](TrainerOptions& options, int rank) {
      row.both(options);
      if (rank == 1) row.change(options);
    });
  }
}

std::string first_error(const std::function<void(TrainerOptions&)>& both,
                        const std::function<void(TrainerOptions&)>& change) {
  const auto errors = errors_of_fits(2, [&](TrainerOptions& options, int rank) {
    both(options);
    if (rank == 1) change(options);
  });
  CHECK(errors[0] == errors[1]);
  return errors[0];
}

// A rate that is called differently, and what nobody knows.
struct OwnOptions final : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  explicit OwnOptions(double given) : warmth(given) {}
  double get_lr() const override { return 0.1; }
  void set_lr(double) override {}
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("warmth", c10::IValue(warmth));
  }
  void serialize(torch::serialize::InputArchive&) override {}
  double warmth;
};
struct OwnOptimizer final : torch::optim::Optimizer {
  OwnOptimizer(std::vector<at::Tensor> parameters, double warmth)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<OwnOptions>(warmth)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST_CASE("Each option of libtorch's optimizers, and of one's own that it serializes, is compared by group") {
  namespace lt = torch::optim;
  const auto one = [](auto made, auto options) {
    using O = typename decltype(made)::type;
    return std::function(
        [options](TrainerOptions& o) { o.optimizer = std::make_shared<O>(o.model->parameters(), options); });
  };
  const std::type_identity<lt::SGD> sgd;
  const std::type_identity<lt::Adam> adam;
  const std::type_identity<lt::AdamW> adamw;
  const std::type_identity<lt::Adagrad> adagrad;
  const std::type_identity<lt::RMSprop> rmsprop;
  const auto two_groups = [](double decay) {
    return [decay](TrainerOptions& o) {
      const std::vector<at::Tensor> all = o.model->parameters();
      std::vector<lt::OptimizerParamGroup> groups;
      groups.emplace_back(std::vector<at::Tensor>{all[0]});
      groups.emplace_back(std::vector<at::Tensor>{all[1]},
                          std::make_unique<lt::AdamOptions>(lt::AdamOptions(0.1).weight_decay(decay)));
      o.optimizer = std::make_shared<lt::Adam>(groups, lt::AdamOptions(0.1));
    };
  };
  const auto own = [](double warmth) {
    return [warmth](TrainerOptions& o) { o.optimizer = std::make_shared<OwnOptimizer>(o.model->parameters(), warmth); };
  };
  using Set = std::function<void(TrainerOptions&)>;
  struct Row {
    const char* text;
    Set rank_0, rank_1;
  };
  for (const Row& row : std::vector<Row>{
           {"optimizer/momentum = 0.5; rank 1 has optimizer/momentum = 0.9",
            one(sgd, lt::SGDOptions(0.1).momentum(0.5)), one(sgd, lt::SGDOptions(0.1).momentum(0.9))},
           {"optimizer/nesterov = false; rank 1", one(sgd, lt::SGDOptions(0.1).momentum(0.5)),
            one(sgd, lt::SGDOptions(0.1).momentum(0.5).nesterov(true))},
           {"learning rates = 0.1; rank 1 has learning rates = 0.2", one(sgd, lt::SGDOptions(0.1)),
            one(sgd, lt::SGDOptions(0.2))},
           {"optimizer/betas = 0.9, 0.99; rank 1 has optimizer/betas = 0.9, 0.9",
            one(adam, lt::AdamOptions(0.1).betas({0.9, 0.99})), one(adam, lt::AdamOptions(0.1).betas({0.9, 0.9}))},
           {"optimizer/amsgrad = false; rank 1", one(adam, lt::AdamOptions(0.1)),
            one(adam, lt::AdamOptions(0.1).amsgrad(true))},
           {"optimizer/weight_decay = 0.01; rank 1", one(adamw, lt::AdamWOptions(0.1)),
            one(adamw, lt::AdamWOptions(0.1).weight_decay(0.5))},
           {"optimizer/lr_decay = 0; rank 1 has optimizer/lr_decay = 0.5", one(adagrad, lt::AdagradOptions(0.1)),
            one(adagrad, lt::AdagradOptions(0.1).lr_decay(0.5))},
           {"optimizer/centered = false; rank 1", one(rmsprop, lt::RMSpropOptions(0.1)),
            one(rmsprop, lt::RMSpropOptions(0.1).centered(true))},
           {"optimizer/1/weight_decay = 0.1; rank 1 has optimizer/1/weight_decay = 0.3", two_groups(0.1),
            two_groups(0.3)},
           {"optimizer/warmth = 1; rank 1 has optimizer/warmth = 2", own(1), own(2)},
           {"optimizer/class = SGD; rank 1 has optimizer/class = OwnOptimizer", one(sgd, lt::SGDOptions(0.1)), own(1)},
       }) {
    check_all_say({first_error(row.rank_0, row.rank_1)}, row.text);
  }
}

// Another value of an option than its default or example, and what it needs of others to be valid.
Settings other_value(const OptionInfo& option) {
  const std::map<std::string, Settings> given = {
      {"smoothing", {{"smoothing", "0.25"}}},
      {"max_sequence_length", {{"max_sequence_length", "24"}}},
      {"swa_lr", {{"swa_lr", "0.01"}, {"schedule_swa_lr", "true"}}},
      {"end", {{"end", "0.75"}}},
      {"swa_start", {{"swa_start", "0.5dur"}}},
      {"swa_end", {{"swa_end", "0.9dur"}}},
      {"half_life", {{"half_life", "2ba"}}},
      {"ema_start", {{"ema_start", "0.5dur"}}},
      {"drop_warmup", {{"drop_warmup", "0.1dur"}}},
      {"act_fn", {{"act_fn", "relu"}}},
      {"average", {{"average", option.default_text == "macro" ? "weighted" : "macro"}, {"num_classes", "3"}}},
      {"k", {{"k", "2"}}},
      {"thresholds", {{"thresholds", "5"}}},
      {"class_names", {{"class_names", "a,b,c"}, {"num_classes", "3"}, {"num_labels", "3"}}},
      {"per_class", {{"per_class", "true"}, {"num_classes", "3"}, {"num_labels", "3"}}},
  };
  if (const auto found = given.find(option.name); found != given.end()) return found->second;
  const std::string now = option.example.value_or(option.default_text);
  if (option.type == "true or false") return {{option.name, now == "true" ? "false" : "true"}};
  if (const auto separator = option.type.find(" or "); separator != std::string::npos) {
    const std::string first = option.type.substr(0, separator);
    const std::string rest = option.type.substr(separator + 4);
    return {{option.name, now == first ? rest.substr(0, rest.find(" or ")) : first}};
  }
  if (option.type == "text") return {{option.name, now == "other" ? "another" : "other"}};
  if (option.type == "whole number") return {{option.name, now.empty() ? "1" : std::to_string(std::stoll(now) + 1)}};
  if (option.type == "number") return {{option.name, now == "0.125" ? "0.25" : "0.125"}};
  return {{option.name, now == "2ba" ? "3ba" : "2ba"}};
}

// Other options that a changed one needs.
template <class List>
Settings settings_with(const Entry<List>& entry, const Settings& changed) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  for (const auto& [name, text] : changed)
    if (std::ranges::find(entry.options, name, &OptionInfo::name) != entry.options.end()) settings[name] = text;
  return settings;
}

// Calls visit(name, what, described with it, described without) for each option of each plug-in.
template <class List, class Described>
void for_each_option(
    const Registry<List>& registry, const Described& described,
    const std::function<void(const std::string& option, const StateDict& other, const StateDict& usual)>& visit) {
  for (const std::string& name : registry.names()) {
    CAPTURE(name);
    const Entry<List>& entry = registry.find(name);
    for (const OptionInfo& option : entry.options) {
      CAPTURE(option.name);
      const Settings changed = other_value(option);
      Settings usual = changed;
      usual.erase(option.name);
      visit(option.name, described(entry.make(settings_with(entry, changed))),
            described(entry.make(settings_with(entry, usual))));
    }
  }
}

void check_told(const std::string& option, const StateDict& other, const StateDict& usual) {
  REQUIRE(other.find(option));
  REQUIRE(usual.find(option));
  CHECK(text_of(*other.find(option)) != text_of(*usual.find(option)));
}

TEST_CASE("Every option of every algorithm and metric that can be made by name is told to those who compare it") {
  for_each_option(
      algorithms::registry(), [](const Algorithms& list) { return list.list().front().object->local_hparams(); },
      check_told);
  for_each_option(
      metrics::registry(), [](const Metrics& list) { return (*list.begin())->local_hparams(); }, check_told);
}

TEST_CASE("An algorithm of which a rank has another option is a ConfigError on all, before it does anything") {
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    const Entry<Algorithms>& entry = algorithms::registry().find(name);
    for (const OptionInfo& option : entry.options) {
      CAPTURE(option.name);
      const Settings changed = other_value(option);
      Settings usual = changed;
      usual.erase(option.name);
      const auto set = [&](const Settings& settings) {
        return [&entry, settings = settings_with(entry, settings)](TrainerOptions& options) {
          options.algorithms = entry.make(settings);
        };
      };
      const std::string error = first_error(set(usual), set(changed));
      check_all_say({error}, "the ranks differ: rank 0 has ");
      check_all_say({error}, '/' + option.name + " = ");
    }
  }
}

TEST_CASE("LoadCheckpoint of which a rank has another option is a ConfigError on all") {
  using O = algorithms::LoadCheckpointOptions;
  const auto& [load_path, load_weights_only, strict_model_weights, ignore_keys, event] = O{};
  static_cast<void>(std::tie(load_path, load_weights_only, strict_model_weights, ignore_keys, event));
  const std::vector<std::pair<const char*, std::function<void(O&)>>> rows = {
      {"load_path", [](O& o) { o.load_path = "other"; }},
      {"load_weights_only", [](O& o) { o.load_weights_only = false; }},
      {"strict_model_weights", [](O& o) { o.strict_model_weights = false; }},
      {"ignore_keys", [](O& o) { o.ignore_keys = {"model/*"}; }},
      {"event", [](O& o) { o.event = Event::EPOCH_END; }},
  };
  for (const auto& [option, change] : rows) {
    CAPTURE(option);
    O usual{.load_path = "weights", .load_weights_only = true, .event = Event::BATCH_END};
    if (std::string(option) == "load_weights_only") usual.event = Event::AFTER_LOAD;
    O other = usual;
    change(other);
    const auto set = [](const O& options) {
      return [options](TrainerOptions& o) { o.algorithms = {algorithms::LoadCheckpoint(options)}; };
    };
    check_all_say({first_error(set(usual), set(other))},
                  join("the ranks differ: rank 0 has LoadCheckpoint/", option, " = "));
  }
}

TEST_CASE("Metrics of training and evaluation are compared with their options, and of one's own with what they tell") {
  const auto evaluated = [](std::optional<std::int64_t> ignored) {
    return [ignored](TrainerOptions& o) {
      o.eval_dataloader =
          Evaluator{.label = "eval",
                    .dataloader = tiny_loader(8, 4),
                    .metrics = Metrics(metrics::MulticlassAccuracy({.num_classes = 3, .ignore_index = ignored}))};
    };
  };
  const auto trained = [](std::int64_t k) {
    return [k](TrainerOptions& o) {
      o.model = std::make_shared<models::Classifier>(
          torch::nn::Linear(4, 3),
          models::ClassifierOptions{.num_classes = 3,
                                    .train_metrics = Metrics(metrics::MulticlassAccuracy({.top_k = k}))});
    };
  };
  check_all_say({first_error(evaluated({}), evaluated(1))},
                "rank 0 has metric eval/MulticlassAccuracy/ignore_index = ; rank 1 has metric "
                "eval/MulticlassAccuracy/ignore_index = 1");
  check_all_say({first_error(trained(1), trained(2))},
                "rank 0 has metric train/MulticlassAccuracy/top_k = 1; rank 1 has metric "
                "train/MulticlassAccuracy/top_k = 2");
}

TEST_CASE("A save_folder of some ranks alone is a ConfigError where all of them save, and fine where rank 0 does") {
  const Folder folder;
  for (const std::int64_t stage : {0, 1}) {
    CAPTURE(stage);
    const auto errors = errors_of_fits(2, [&](TrainerOptions& options, int rank) {
      if (rank == 0) options.save_folder = (folder / std::to_string(stage)).string();
      options.distributed.zero_stage = stage;
    });
    for (const std::string& error : errors)
      CHECK(contains(error, "rank 0 has save_folder = set; rank 1 has save_folder = none") == (stage == 1));
  }
}

TEST_CASE("After an error that all ranks have, such as a checkpoint that cannot be written, they can go on") {
  const Folder folder;
  const auto batches = results_in_ranks(2, [&](const WorldPointer& world) {
    TrainerOptions options = tiny_options();
    options.save_folder = (folder / "run").string();
    options.world = world;
    Trainer trainer(std::move(options));
    trainer.begin();
    trainer.step();
    try {
      trainer.save_checkpoint("no/../name");
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("no/../name") != std::string::npos);
    }
    while (trainer.step()) {
    }
    trainer.end();
    return trainer.state().timestamp.batch;
  });
  CHECK(batches == std::vector<std::int64_t>{4, 4});
}

// Counts, and cannot say what.
struct Secretive final : Metric {
  std::string name() const override { return "Secretive"; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs&, const Batch&) override {}
  at::Tensor compute() const override { return at::ones({}); }
  void reset() override {}
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<Secretive>(); }
};

TEST_CASE("Several ranks refuse a metric without sums before the first batch, in training and evaluation") {
  for (const bool in_training : {true, false}) {
    CAPTURE(in_training);
    std::vector<std::int64_t> batches(2);
    check_refused("Secretive: has no sums", [&](TrainerOptions& options, int rank) {
      if (in_training) {
        options.model = std::make_shared<models::Classifier>(
            torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3, .train_metrics = {Secretive()}});
      } else {
        options.eval_dataloader =
            Evaluator{.label = "eval", .dataloader = tiny_loader(8, 4), .metrics = {{Secretive()}}};
      }
      options.callbacks = {At([&](Event event, const State&) {
        if (event == Event::BATCH_START) ++batches[static_cast<std::size_t>(rank)];
      })};
    });
    CHECK(batches == std::vector<std::int64_t>{0, 0});
  }
}

// Its losses have the given names, with the values 1, 10, 100 ...
struct NamedLosses final : models::Classifier {
  explicit NamedLosses(std::function<std::vector<std::string>()> names)
      : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}), names_(std::move(names)) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    Losses losses = Classifier::loss(outputs, batch);
    double value = 1;
    for (const std::string& name : names_()) {
      losses.set(name, at::full({}, value));
      value *= 10;
    }
    return losses;
  }

 private:
  std::function<std::vector<std::string>()> names_;
};

TEST_CASE("Losses are added up over ranks by their names, also those that some ranks do not have") {
  struct Row {
    std::vector<std::string> of_rank_0, of_rank_1;
    std::vector<std::pair<std::string, double>> expected;  // slices of a batch are equal
  };
  for (const std::int64_t shards : {0, 2})
    for (const Row& row : std::vector<Row>{
             {{"a", "b"}, {"a", "b"}, {{"a", 1}, {"b", 10}}},
             {{"a", "b"}, {"b", "a"}, {{"a", 5.5}, {"b", 5.5}}},
             {{"a"}, {"b"}, {{"a", 0.5}, {"b", 0.5}}},
             {{}, {"a", "b", "c"}, {{"a", 0.5}, {"b", 5}, {"c", 50}}},
         }) {
      CAPTURE(shards);
      const auto losses = results_in_ranks(2, [&](const WorldPointer& world) {
        TrainerOptions options = tiny_options();
        options.model = std::make_shared<NamedLosses>(
            [&, rank = world->rank()] { return rank == 0 ? row.of_rank_0 : row.of_rank_1; });
        options.distributed.virtual_shards = shards;
        Losses last;
        options.callbacks = {At([&](Event event, const State& state) {
          if (event == Event::AFTER_TRAIN_BATCH) last = state.batch_loss;
        })};
        fit_in(world, std::move(options));
        return last;
      });
      for (const Losses& of_rank : losses) {
        CHECK(of_rank.size() == row.expected.size() + 1);
        for (const auto& [name, value] : row.expected) CHECK(of_rank.at(name).item<double>() == doctest::Approx(value));
        CHECK(at::equal(of_rank.at("total"), losses[0].at("total")));
      }
    }
}

TEST_CASE("A loss that appears on one rank in the middle of a fit counts from the next batch on, and goes likewise") {
  const auto seen = results_in_ranks(2, [&](const WorldPointer& world) {
    TrainerOptions options = tiny_options();
    std::int64_t batch = 0;
    options.model = std::make_shared<NamedLosses>([&, rank = world->rank()] {
      return rank == 1 && batch >= 1 && batch < 3 ? std::vector<std::string>{"late"} : std::vector<std::string>{};
    });
    options.train_dataloader = tiny_loader(24, 4);
    std::vector<double> late;  // -1: there is none
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::AFTER_TRAIN_BATCH)
        late.push_back(state.batch_loss.contains("late") ? state.batch_loss.at("late").item<double>() : -1);
      if (event == Event::BATCH_END) ++batch;
    })};
    fit_in(world, std::move(options));
    return late;
  });
  CHECK(seen[0] == std::vector<double>{-1, -1, 0.5, -1, -1, -1});
  CHECK(seen[0] == seen[1]);
}

TEST_CASE("Where a rank has no tokens of the loss left after microbatch_transforms, the others train the batch") {
  const auto losses = [](const WorldPointer& world) {
    TrainerOptions options = tiny_options();
    const at::Tensor numbers = at::arange(24, at::kFloat);
    DataSpec spec;
    spec.dataloader = data::in_memory({{"input", numbers.unsqueeze(1).expand({24, 4}).div(24).contiguous()},
                                       {"target", numbers.to(at::kLong).remainder(3)}},
                                      {.batch_size = 8, .shuffle = false});
    spec.get_num_tokens_in_batch = [](const Batch& batch) {
      const at::Tensor& target = batch.at("target");
      return TokenCount(target.size(0), target.ne(-100).sum().item<std::int64_t>());
    };
    spec.microbatch_transforms = [](Batch& batch) {  // samples 12 to 15: those of rank 1 in the second batch
      const at::Tensor first = batch.at("input").select(1, 0).mul(24);
      batch.set("target", batch.at("target").masked_fill(first.ge(11.5).logical_and(first.lt(15.5)), -100));
    };
    options.train_dataloader = spec;
    options.accumulate_train_batch_on_tokens = true;
    options.device_train_microbatch_size = 4;
    std::vector<double> losses;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::AFTER_TRAIN_BATCH) losses.push_back(state.batch_loss.at("total").item<double>());
    })};
    fit_in(world, std::move(options));
    return losses;
  };
  const std::vector<double> alone = losses(dist::World::alone());
  CHECK(alone.size() == 3);
  for (const std::vector<double>& of_rank : results_in_ranks(2, losses)) {
    REQUIRE(of_rank.size() == alone.size());
    for (std::size_t batch = 0; batch < alone.size(); ++batch)
      CHECK(of_rank[batch] == doctest::Approx(alone[batch]).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace composer::test::ranks_differ_test
