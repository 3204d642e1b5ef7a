// Ranks that train the same have the same weights to the bit, and those that do not are told so at the end of the epoch
// and at each checkpoint: code of one's own may do on one rank what it does on no other.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/algorithms/freeze_until.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/swa.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/optim/lamb.h"
#include "composer/optim/muon.h"
#include "composer/optim/refit.h"
#include "composer/optim/schedule.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/trainer.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/trainer/algorithm_at.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::ranks_equal_test {
namespace {

std::shared_ptr<Model> normed_model() {
  torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 3));
  const at::NoGradGuard no_grad;
  double phase = 0;
  for (at::Tensor& parameter : net->parameters())
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kFloat) + ++phase).view(parameter.sizes()));
  return std::make_shared<models::Classifier>(net,
                                              models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics()});
}

TrainerOptions given_to(const WorldPointer& world) {
  TrainerOptions options = tiny_options();
  options.model = normed_model();
  options.train_dataloader = tiny_loader(32, 8);
  options.max_duration = "2ep";
  options.seed = 17;
  options.world = world;
  return options;
}

// The error of each rank; "ended" without one.
std::vector<std::string> ends_of(int ranks, const RankChange& change) {
  auto ends = dist::test::errors_in_ranks(ranks, [&](const WorldPointer& world) {
    TrainerOptions options = given_to(world);
    change(options, world->rank());
    fit_in(world, std::move(options));
  });
  for (std::string& end : ends)
    if (end.empty()) end = "ended";
  return ends;
}

// While it lives, what any rank warns of is kept.
struct WarningsOfAll {
  WarningsOfAll()
      : before(redirect_warnings([this](const std::string& text) {
          const std::lock_guard lock(mutex);
          texts.push_back(text);
        })) {}
  ~WarningsOfAll() { redirect_warnings(before); }
  WarningsOfAll(const WarningsOfAll&) = delete;
  WarningsOfAll& operator=(const WarningsOfAll&) = delete;

  std::int64_t count(const std::string& what) const {
    return std::ranges::count_if(texts, [&](const std::string& text) { return text.find(what) != std::string::npos; });
  }

  std::mutex mutex;
  std::vector<std::string> texts;
  WarningSink before;
};

Algorithms on_last_rank(int ranks, int rank, EventSet events, const AlgorithmAt::Do& function) {
  return AlgorithmAt(events, [=](Event event, State& state) {
    if (rank == ranks - 1) function(event, state);
  });
}

TEST_CASE("What own code does on one rank alone is an error on all after the epoch, which names ranks and weights") {
  struct Row {
    const char* text;
    RankChange change;
  };
  const auto at_batch_3 = [](EventSet events, const AlgorithmAt::Do& function) {
    return [=](TrainerOptions& options, int rank) {
      options.algorithms = on_last_rank(3, rank, events, [=](Event event, State& state) {
        if (state.timestamp.batch == 3) function(event, state);
      });
    };
  };
  const std::vector<Row> rows = {
      {"after epoch 1, batch 4: the ranks differ: rank 0 has learning rate of group 0 = 0.1; rank 2 has learning rate "
       "of group 0 = 0.01",
       at_batch_3({Event::BATCH_START},
                  [](Event, State& state) { state.optimizer->param_groups()[0].options().set_lr(0.01); })},
      {"differ after epoch 1, batch 4: rank 2 and rank 0 have another module.0.weight",
       at_batch_3({Event::BATCH_END},
                  [](Event, State& state) {
                    const at::NoGradGuard no_grad;
                    state.model->parameters()[0].mul_(2);
                  })},
      {"after epoch 1, batch 4: the ranks differ: rank 0 has nothing more; rank 2 has module.1 in evaluation mode",
       at_batch_3({Event::BATCH_END}, [](Event, State& state) { state.model->named_modules()["module.1"]->eval(); })},
      {"rank 2 and rank 0 have another module.0.weight",
       [](TrainerOptions& options, int rank) {  // equal at each batch that is compared before the fit
         options.schedulers = {
             [rank](const optim::ScheduleContext& now) { return now.timestamp.batch == 2 && rank == 2 ? 0.5 : 1.0; }};
       }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    for (const std::string& end : ends_of(3, row.change)) {
      CAPTURE(end);
      CHECK(end.find(row.text) != std::string::npos);
      CHECK(end.find("on all: look at algorithms, callbacks, schedules and optimizers") != std::string::npos);
    }
  }
}

TEST_CASE("Weights that differ are an error soon after a checkpoint within an epoch, and before one that ranks share") {
  for (const std::int64_t stage : {0, 1}) {
    CAPTURE(stage);
    const Folder folder;
    const auto ends = ends_of(2, [&](TrainerOptions& options, int rank) {
      options.distributed.zero_stage = stage;
      options.save_folder = (folder / "run").string();
      options.save_interval = "2ba";
      options.algorithms = on_last_rank(2, rank, {Event::BATCH_END}, [](Event, State& state) {
        const at::NoGradGuard no_grad;
        if (state.timestamp.batch == 2) state.model->parameters()[0].mul_(2);
      });
    });
    for (const std::string& end : ends) {
      CAPTURE(end);
      CHECK(end.find("differ after epoch 0, batch 2: rank 1 and rank 0") != std::string::npos);
    }
  }
}

TEST_CASE("What one rank does at the end of an epoch, an iteration or a fit is noticed, whatever was compared before") {
  for (const Event event : {Event::EPOCH_END, Event::ITERATION_END, Event::FIT_END}) {
    CAPTURE(to_string(event));
    const Folder folder;
    check_all_say(ends_of(2,
                          [&](TrainerOptions& options, int rank) {
                            options.max_duration = "1ep";
                            options.iteration_length = "1ep";
                            options.save_folder = (folder / "run").string();
                            options.save_interval = "2ba";
                            options.algorithms = on_last_rank(2, rank, {event}, [](Event, State& state) {
                              const at::NoGradGuard no_grad;
                              state.model->parameters()[0].mul_(3);
                            });
                          }),
                  "batch 4: rank 1 and rank 0 have another module.0.weight");
  }
}

TEST_CASE("A fit that counts from zero again is compared at batches of the same numbers") {
  const auto errors = dist::test::errors_in_ranks(2, [](const WorldPointer& world) {
    TrainerOptions options = given_to(world);
    options.max_duration = std::nullopt;
    bool is_second = false;
    options.algorithms = on_last_rank(2, world->rank(), {Event::BATCH_END}, [&](Event, State& state) {
      if (is_second && state.timestamp.batch == 1) state.model->parameters()[0].detach().mul_(1.1);
    });
    Trainer trainer(std::move(options));
    trainer.fit("1ep");
    is_second = true;
    trainer.fit({.duration = "1ep", .reset_time = true});
  });
  check_all_say(errors, "differ after epoch 1, batch 4: rank 1 and rank 0 have another module.0.weight");
}

TEST_CASE(
    "Weights that differ are an error before a checkpoint by hand, and before the batch after one of a callback") {
  for (const bool by_hand : {true, false}) {
    CAPTURE(by_hand);
    const Folder folder;
    const auto errors = dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
      TrainerOptions options = given_to(world);
      options.save_folder = (folder / "run").string();
      if (!by_hand)
        options.callbacks.add(callbacks::CheckpointSaver({.folder = folder / "more", .save_interval = "2ba"}));
      options.algorithms = on_last_rank(2, world->rank(), {Event::BATCH_END}, [](Event, State& state) {
        const at::NoGradGuard no_grad;
        if (state.timestamp.batch == 2) state.model->parameters()[0].mul_(3);
      });
      Trainer trainer(std::move(options));
      trainer.begin();
      trainer.step();
      trainer.step();
      if (by_hand) trainer.save_checkpoint("by_hand");
      trainer.step();
    });
    check_all_say(errors, "differ after epoch 0, batch 2: rank 1 and rank 0 have another module.0.weight");
    CHECK_FALSE(std::filesystem::exists(folder / "run" / "by_hand"));
  }
}

TEST_CASE("Weights that a rank has set by itself before the first fit are an error, and stay what it has set") {
  for (const bool by_hand : {true, false}) {
    CAPTURE(by_hand);
    const Folder folder;
    std::vector<at::Tensor> set(2), left(2);
    const auto errors = dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
      const auto rank = static_cast<std::size_t>(world->rank());
      TrainerOptions options = given_to(world);
      options.save_folder = (folder / "run").string();
      Trainer trainer(std::move(options));
      if (rank == 1) trainer.state().model->parameters()[0].detach().mul_(2);
      set[rank] = weights_of(trainer);
      try {
        by_hand ? static_cast<void>(trainer.save_checkpoint("by_hand")) : trainer.fit();
      } catch (...) {
        left[rank] = weights_of(trainer);
        throw;
      }
    });
    check_all_say(errors, "differ after epoch 0, batch 0: rank 1 and rank 0 have another module.0.weight");
    for (const std::size_t rank : {0, 1}) CHECK(at::equal(set[rank], left[rank]));
    CHECK_FALSE(std::filesystem::exists(folder / "run" / "by_hand"));
  }
}

TEST_CASE("A checkpoint by hand may be written while one rank alone evaluates with the model") {
  const Folder folder;
  const auto errors = dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
    TrainerOptions options = given_to(world);
    options.save_folder = (folder / "run").string();
    options.model->named_modules()["module.1"]->eval();
    Trainer trainer(std::move(options));
    trainer.fit();
    if (world->rank() == 0) trainer.state().model->eval();
    trainer.save_checkpoint("by_hand");
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(std::filesystem::exists(folder / "run" / "by_hand"));
}

TEST_CASE("A rank that trains in evaluation mode, or has frozen something, is an error on all before the next batch") {
  struct Row {
    const char* text;
    AlgorithmAt::Do change;
  };
  for (const Row& row : std::vector<Row>{
           {"model after batch 2: the ranks differ: rank 0 has training mode; rank 1 has evaluation mode",
            [](Event, State& state) { state.model->eval(); }},
           {"rank 0 has module.0.weight: Float [6, 4]; rank 1 has module.0.weight: Float [6, 4], frozen",
            [](Event, State& state) { state.model->parameters()[0].set_requires_grad(false); }},
       }) {
    CAPTURE(row.text);
    check_all_say(ends_of(2,
                          [&](TrainerOptions& options, int rank) {
                            options.algorithms =
                                on_last_rank(2, rank, {Event::BATCH_END}, [&](Event event, State& state) {
                                  if (state.timestamp.batch == 2) row.change(event, state);
                                });
                          }),
                  row.text);
  }
}

struct Headed final : Model {
  Headed() {
    body = register_module("body", torch::nn::Linear(4, 6));
    head = register_module("head", torch::nn::Linear(6, 3));
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.fill_(0.1);
  }
  // Of values that each rank draws for itself.
  void replace_head(State& state) {
    const auto before = optim::parameters_of(*this);
    head = replace_module("head", torch::nn::Linear(6, 3));
    optim::refit(*state.optimizer, before, optim::parameters_of(*this));
  }
  Outputs forward(const Batch& batch) override { return {{"logits", head(at::relu(body(batch.at("input"))))}}; }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return {{"total", at::cross_entropy_loss(outputs.at("logits"), batch.at("target"))}};
  }
  torch::nn::Linear body{nullptr}, head{nullptr};
};

struct Strategy {
  const char* name;
  std::function<void(TrainerOptions&)> change;
};

std::vector<Strategy> strategies() {
  return {
      {"once", [](auto&) {}},
      {"every microbatch",
       [](auto& o) {
         o.distributed.ddp_sync_strategy = dist::SyncStrategy::MULTI_AUTO_SYNC, o.device_train_microbatch_size = 2;
       }},
      {"forced", [](auto& o) { o.distributed.ddp_sync_strategy = dist::SyncStrategy::FORCED_SYNC; }},
      {"a rank without samples", [](auto& o) { o.train_dataloader = tiny_loader(4, 1); }},
      {"shards", [](auto& o) { o.distributed.virtual_shards = 4, o.train_dataloader = tiny_loader(32, 16); }},
      {"stage 1", [](auto& o) { o.distributed.zero_stage = 1; }},
      {"stage 2", [](auto& o) { o.distributed.zero_stage = 2; }},
      {"without broadcasts of buffers", [](auto& o) { o.distributed.broadcast_buffers = false; }},
  };
}

TEST_CASE("New parameters are those of rank 0 on all ranks, however gradients are reduced and whenever they come") {
  for (const Strategy& strategy : strategies())
    for (const Event event : {Event::FIT_START, Event::BATCH_END, Event::EPOCH_END, Event::FIT_END}) {
      CAPTURE(strategy.name);
      CAPTURE(to_string(event));
      std::vector<at::Tensor> heads(2);
      const auto errors = dist::test::errors_in_ranks(2, [&](const WorldPointer& world) {
        TrainerOptions options = given_to(world);
        options.model = std::make_shared<Headed>();
        strategy.change(options);
        options.algorithms = AlgorithmAt({event}, [](Event, State& state) {
          if (state.timestamp.batch % 2 == 0) dynamic_cast<Headed&>(*state.model).replace_head(state);
        });
        Trainer trainer(std::move(options));
        trainer.fit();
        heads[static_cast<std::size_t>(world->rank())] = trainer.state().model->parameters()[2].detach().clone();
      });
      for (const std::string& error : errors) CHECK(error == "");
      CHECK(at::equal(heads[0], heads[1]));
    }
}

TEST_CASE("Parameters that are new on one rank alone are an error on all, instead of messages that do not fit") {
  for (const Strategy& strategy : strategies()) {
    CAPTURE(strategy.name);
    check_all_say(
        ends_of(2,
                [&](TrainerOptions& options, int rank) {
                  options.model = std::make_shared<Headed>();
                  strategy.change(options);
                  options.algorithms = on_last_rank(2, rank, {Event::BATCH_END}, [](Event, State& state) {
                    if (state.timestamp.batch == 1) dynamic_cast<Headed&>(*state.model).replace_head(state);
                  });
                }),
        "model after batch 1: the ranks differ: rank 0 has head.weight: Float [3, 6]; rank 1 has head.weight: "
        "Float [3, 6], new");
  }
}

TEST_CASE("A difference that rounding explains is a warning, once") {
  const WarningsOfAll warnings;
  const auto ends = ends_of(2, [](TrainerOptions& options, int rank) {
    options.algorithms = on_last_rank(2, rank, {Event::BATCH_END}, [](Event, State& state) {
      const at::NoGradGuard no_grad;
      state.model->parameters()[0].mul_(1 + 1e-6);
    });
  });
  for (const std::string& end : ends) CHECK(end == "ended");
  CHECK(warnings.count("rank 1 and rank 0 have another module.0.weight, by up to ") == 1);
  CHECK(warnings.count("the weights of the ranks differ") == 1);
}

TEST_CASE("A difference that rounding explains does not hide a larger one in a later parameter") {
  check_all_say(ends_of(2,
                        [](TrainerOptions& options, int rank) {
                          options.algorithms = on_last_rank(2, rank, {Event::BATCH_END}, [](Event, State& state) {
                            if (state.timestamp.batch != 2) return;
                            const at::NoGradGuard no_grad;
                            state.model->parameters().front().mul_(1 + 1e-5);
                            state.model->parameters().back().mul_(2);
                          });
                        }),
                "differ after epoch 1, batch 4: rank 1 and rank 0 have another module.2.bias");
}

TEST_CASE("Ranks that train the same have equal bits, whatever the precision, the stage and the number of ranks") {
  struct Row {
    const char* name;
    std::function<void(TrainerOptions&)> change;
  };
  const std::vector<Row> rows = {
      {"plain", [](auto&) {}},
      {"bf16", [](auto& o) { o.precision = Precision::AMP_BF16; }},
      {"a scaler", [](auto& o) { o.grad_scaler.emplace(); }},
      {"gradients in bf16", [](auto& o) { o.distributed.gradients_in_bf16 = true; }},
      {"every microbatch",
       [](auto& o) {
         o.distributed.ddp_sync_strategy = dist::SyncStrategy::MULTI_AUTO_SYNC, o.device_train_microbatch_size = 2;
       }},
      {"forced", [](auto& o) { o.distributed.ddp_sync_strategy = dist::SyncStrategy::FORCED_SYNC; }},
      {"stage 1", [](auto& o) { o.distributed.zero_stage = 1; }},
      {"stage 2", [](auto& o) { o.distributed.zero_stage = 2; }},
      {"shards", [](auto& o) { o.distributed.virtual_shards = 4, o.train_dataloader = tiny_loader(32, 16); }},
      {"shards, stage 1",
       [](auto& o) {
         o.distributed.virtual_shards = 4, o.distributed.zero_stage = 1, o.train_dataloader = tiny_loader(32, 16);
       }},
      {"lamb", [](auto& o) { o.optimizer = optim::lamb({.lr = 0.01}); }},
      {"muon", [](auto& o) { o.optimizer = optim::muon({.lr = 0.01}); }},
      {"frozen", [](auto& o) { o.model->parameters()[0].set_requires_grad(false); }},
      {"frozen at first",
       [](auto& o) { o.algorithms = {algorithms::FreezeUntil({.parameters = {"*.weight"}, .until = "1ep"})}; }},
      {"bf16 parameters",
       [](auto& o) {
         as_module(*o.model).to(at::kBFloat16);
         o.precision = Precision::AMP_BF16;
       }},
      {"algorithms",
       [](auto& o) {
         o.algorithms = {algorithms::EMA({.half_life = "2ba"}), algorithms::SWA({.swa_start = "1ep", .swa_end = "2ep"}),
                         algorithms::GradientClipping({.clipping_threshold = 0.1}),
                         algorithms::LayerFreezing({.freeze_start = 0.5})};
         o.eval_dataloader = tiny_loader(8, 4);
       }},
  };
  for (const Row& row : rows)
    for (const int ranks : {2, 4}) {
      CAPTURE(row.name);
      CAPTURE(ranks);
      const WarningsOfAll warnings;
      const Folder folder;
      const auto ends = ends_of(ranks, [&](TrainerOptions& options, int) {
        row.change(options);
        options.save_folder = (folder / "run").string();
        options.save_interval = "1ba";
      });
      for (const std::string& end : ends) CHECK(end == "ended");
      CHECK(warnings.count("the weights of the ranks differ") == 0);
    }
}

TEST_CASE("Checksums tell tensors of every type apart, and do not depend on their layout") {
  const at::Tensor base = at::sin(at::arange(2 * 3 * 5 * 7, at::kDouble)).view({2, 3, 5, 7});
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kChar}) {
    CAPTURE(at::toString(type));
    const at::Tensor tensor = base.mul(100).to(type);
    at::Tensor other = tensor.clone();
    other[1][2][4][6] += 1;
    const at::Tensor odd = tensor.flatten().slice(0, 1);
    const std::vector<at::Tensor> all = {tensor,
                                         tensor.contiguous(at::MemoryFormat::ChannelsLast),
                                         other,
                                         odd,
                                         tensor.slice(3, 0, 7, 2),
                                         at::zeros({0}, type)};
    const auto sums = checksums_of(all);
    CHECK(sums[0] == sums[1]);
    CHECK(sums[0] != sums[2]);
    CHECK(sums[3] == checksums_of({odd})[0]);
    CHECK(sums[4] == checksums_of({tensor.slice(3, 0, 7, 2).contiguous()})[0]);
    CHECK(sums[5] == 0);
  }
  CHECK(checksums_of({}).empty());
}

TEST_CASE("Checksums see factors, signs and places, also where they are computed on a device") {
  const std::int64_t many = (std::int64_t{1} << 20) + 256;  // more than a piece
  for (const std::int64_t size : {std::int64_t{512}, many})
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kChar}) {
      CAPTURE(size);
      CAPTURE(at::toString(type));
      const at::Tensor tensor = at::sin(at::arange(size, at::kDouble)).mul(100).to(type);
      const at::Tensor swapped = tensor.clone();
      swapped.slice(0, 0, 1).copy_(tensor.slice(0, size - 1));
      swapped.slice(0, size - 1).copy_(tensor.slice(0, 0, 1));
      const std::vector<at::Tensor> all = {
          tensor, tensor.mul(0.5).to(type), tensor.neg(), tensor.flip({0}).contiguous(), tensor.roll(1), swapped};
      const auto sums = checksums_of(all);
      for (std::size_t i = 1; i < all.size(); ++i) {
        CAPTURE(i);
        CHECK(sums[i] != sums[0]);
        CHECK_FALSE(at::equal(checksum_on_device(all[i]), checksum_on_device(all[0])));
      }
      CHECK(checksums_of({tensor.clone()}) == std::vector<std::uint64_t>{sums[0]});
      CHECK(at::equal(checksum_on_device(tensor.clone()), checksum_on_device(tensor)));
    }
}

TEST_CASE("The difference of weights is a share of the largest, and infinite where one of them alone is NaN") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(relative_difference(at::tensor({1., -4.}), at::tensor({1., -3.})) == 0.25);
  CHECK(relative_difference(at::tensor({1., kNan}), at::tensor({1., kNan})) == 0);
  CHECK(relative_difference(at::tensor({1., 2.}), at::tensor({1., kNan})) == std::numeric_limits<double>::infinity());
  CHECK(relative_difference(at::zeros({2}), at::ones({2})) == std::numeric_limits<double>::infinity());
  CHECK(relative_difference(at::zeros({0}), at::zeros({0})) == 0);
}

}  // namespace
}  // namespace composer::test::ranks_equal_test
