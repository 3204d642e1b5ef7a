// algorithms.json: what algorithms make of batches of images and of tokens.
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/algorithms/colout.h"
#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/gyro_dropout.h"
#include "composer/algorithms/progressive_resizing.h"
#include "composer/algorithms/selective_backprop.h"
#include "composer/algorithms/seq_length_warmup.h"
#include "composer/models/classifier.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/errors.h"
#include "tests/replay/recorded.h"
#include "tests/support/fake_run.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;
using algorithms::CutMixBox;

constexpr Tolerance kSingleImages{1e-6, 1e-7};

Json box_to_json(const CutMixBox& box) { return {box.top, box.left, box.bottom, box.right}; }

Outcome cutmix_batch(const Json& c, const Recorded& tensors) {
  const at::Tensor input = tensors.at("in.input"), target = tensors.at("in.target");
  CutMixBox box;
  at::Tensor permutation;
  if (c.contains("bbox")) {
    const auto sides = c.at("bbox").get<std::vector<std::int64_t>>();
    box = {sides[0], sides[1], sides[2], sides[3]};
    permutation = tensors.at("in.indices");
  } else {
    RandomLog random(c.at("random_log"));
    permutation = random.permutation(input.size(0));
    const double length = c.contains("length") ? c.at("length").get<double>()
                                               : std::sqrt(1 - random.next("np.random.beta").at("value").get<double>());
    box = algorithms::cutmix_box(input.size(2), input.size(3), length, c.value("uniform_sampling", false),
                                 [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); });
    if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  }
  const auto cut = algorithms::cutmix_batch(input, target, permutation, box);
  Json recorded = {{"lambda", c.at("returned_lambda")},
                   {"box", c.at("returned_bbox")},
                   {"target", to_json(tensors.at("out.permuted_target"))}};
  Json got = {{"lambda", cut.kept}, {"box", box_to_json(box)}, {"target", to_json(cut.other_target)}};
  if (!c.contains("length")) {  // a rule can tell another box, but not what is in it
    recorded["input"] = to_json(tensors.at("out.input"));
    got["input"] = to_json(cut.input);
  }
  return judge(c, recorded, got, image_rules(), kSingleImages);
}

Outcome cutmix_boxes(const Json& c, const Recorded&) {
  return judge_rows(c, image_rules(), [](const Json& row) -> RecordedAndGot {
    const auto rows = row.at("W").get<std::int64_t>(), columns = row.at("H").get<std::int64_t>();
    bool is_row = true;
    const CutMixBox box = algorithms::cutmix_box(
        rows, columns, std::sqrt(1 - row.at("cutmix_lambda").get<double>()), false, [&](std::int64_t, std::int64_t) {
          return row.at(std::exchange(is_row, false) ? "cx" : "cy").get<std::int64_t>();
        });
    const at::Tensor images = at::zeros({1, 1, rows, columns});
    const double kept = algorithms::cutmix_batch(images, at::zeros({1}), at::zeros({1}, at::kLong), box).kept;
    return {{row.at("bbox"), row.at("adjusted_lambda")}, {box_to_json(box), kept}};
  });
}

Outcome colout_batch(const Json& c, const Recorded& tensors) {
  const at::Tensor input = tensors.at("in.input");
  RandomLog random(c.at("random_log"));
  const algorithms::ColOutOptions defaults;
  const auto kept =
      algorithms::colout_kept(input.size(2), input.size(3), c.value("p_row", defaults.p_row),
                              c.value("p_col", defaults.p_col), [&](std::int64_t n) { return random.permutation(n); });
  Json recorded = Json::array({to_json(tensors.at("out.input"))}),
       got = Json::array({to_json(algorithms::colout_batch(input, kept))});
  if (c.at("target_resized").get<bool>()) {
    recorded.push_back(to_json(tensors.at("out.target")));
    got.push_back(to_json(algorithms::colout_batch(tensors.at("in.target"), kept)));
  }
  return judge(c, recorded, got, image_rules());
}

Outcome resize_batch(const Json& c, const Recorded& tensors) {
  RandomLog random(c.at("random_log"));
  Json bounds = Json::array(), recorded_bounds = Json::array();
  const auto sample = [&](std::int64_t high) {
    const Json& draw = random.next("torch.randint");
    bounds.push_back(high);
    recorded_bounds.push_back(draw.at("args").at(0));
    return draw.at("value").at(0).get<std::int64_t>();
  };
  const auto mode = c.at("mode") == "crop" ? algorithms::ResizingMode::CROP : algorithms::ResizingMode::RESIZE;
  const auto [input, target] =
      algorithms::resize_batch(tensors.at("in.input"), tensors.at("in.target"), c.at("scale_factor").get<double>(),
                               mode, c.at("resize_targets").get<bool>(), sample);
  if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, {to_json(tensors.at("out.input")), to_json(tensors.at("out.target")), recorded_bounds},
               {to_json(input), to_json(target), bounds}, image_rules());
}

// A run without a trainer: its timestamp is before a batch when `at_batch` is called.
class BareRun {
 public:
  BareRun(const Json& c, std::int64_t samples)
      : samples_(samples), batches_per_epoch_(c.at("dataloader_len").get<std::int64_t>()) {
    run.state.max_duration = Time::parse(c.at("max_duration").get<std::string>());
    run.state.dataloader_len = batches_per_epoch_;
  }
  template <class AtBatch>
  void go(AtBatch&& at_batch) {
    Timestamp& now = run.state.timestamp;
    while (run.state.elapsed_duration() < 1) {
      at_batch(now.batch);
      now = now.to_next_batch(samples_, 0, Seconds(0));
      if (now.batch_in_epoch == batches_per_epoch_) now = now.to_next_epoch();
    }
  }
  test::FakeRun run;

 private:
  std::int64_t samples_, batches_per_epoch_;
};

Outcome progressive_resizing(const Json& c, const Recorded&) {
  const Json& given = c.at("params");
  algorithms::ProgressiveResizing algorithm({.initial_scale = given.at("initial_scale"),
                                             .finetune_fraction = given.at("finetune_fraction"),
                                             .delay_fraction = given.at("delay_fraction"),
                                             .size_increment = given.at("size_increment")});
  const auto size = c.at("input_size").get<std::vector<std::int64_t>>();
  BareRun bare(c, 2);
  Json rows = Json::array(), logged = Json::object();
  bare.go([&](std::int64_t batch) {
    bare.run.state.batch = {{"input", at::zeros({2, 1, size[0], size[1]})}, {"target", at::zeros({2})}};
    algorithm.apply(Event::AFTER_DATALOADER, bare.run.state, bare.run.logger);
    rows.push_back({batch, bare.run.state.batch["input"].sizes().vec()});
    for (const auto& [key, values] : bare.run.log.values) logged[key].push_back({batch, values.back()});
  });
  return judge(c, {c.at("rows"), c.at("logged")}, {rows, logged}, image_rules());
}

Json tensors_of(const Batch& batch) {
  Json all = Json::object();
  for (const auto& [name, tensor] : batch) all[name] = to_json(tensor);
  return all;
}

Outcome set_batch_sequence_length(const Json& c, const Recorded& tensors) {
  if (c.contains("misuse")) {
    const bool lacks_mask = c.at("misuse") == "no_mask";
    const Batch batch{{lacks_mask ? "input_ids" : "labels", at::zeros({2, 8}, at::kLong)}};
    const Json recorded = without_message(c.at("result"));
    const auto set = [&]() -> Json {
      return tensors_of(algorithms::set_batch_sequence_length(
          batch, 4, {.truncate = lacks_mask, .preserve_end_of_sequence = lacks_mask}));
    };
    return judge(c, recorded, result_of(recorded, set), image_rules());
  }
  Batch batch;
  Json recorded = Json::object();
  for (const std::string name : {"input_ids", "attention_mask", "labels"}) {
    batch.set(name, tensors.at("in." + name));
    recorded[name] = to_json(tensors.at("out." + name));
  }
  const Batch got = algorithms::set_batch_sequence_length(
      batch, c.at("curr_seq_len").get<std::int64_t>(),
      {.truncate = c.at("truncate"), .preserve_end_of_sequence = c.at("preserve_end_of_sequence")});
  return judge(c, recorded, tensors_of(got), image_rules());
}

Outcome seq_length_warmup(const Json& c, const Recorded&) {
  const Json& given = c.at("params");
  algorithms::SeqLengthWarmup algorithm({.duration = given.at("duration"),
                                         .min_seq_length = given.at("min_seq_length"),
                                         .max_seq_length = given.at("max_seq_length"),
                                         .step_size = given.at("step_size"),
                                         .truncate = given.value("truncate", true)});
  const auto shape = c.at("batch_shape").get<std::vector<std::int64_t>>();
  BareRun bare(c, shape.front());
  Json rows = Json::array();
  bare.go([&](std::int64_t batch) {
    bare.run.state.batch = {{"input_ids", at::zeros(shape, at::kLong)}};
    algorithm.apply(Event::AFTER_DATALOADER, bare.run.state, bare.run.logger);
    const auto last = [&](const char* key) {
      return static_cast<std::int64_t>(bare.run.log.values.at(std::string("seq_length_warmup/") + key).back());
    };
    rows.push_back({batch, bare.run.state.batch["input_ids"].sizes().vec(), last("curr_seq_len"), last("curr_bs")});
  });
  return judge(c, {{"rows", c.at("rows")}, {"fails", !c.at("error").is_null()}}, {{"rows", rows}, {"fails", false}},
               image_rules());
}

Outcome should_selective_backprop(const Json& c, const Recorded&) {
  return judge_rows(c, image_rules(), [](const Json& row) -> RecordedAndGot {
    return {row.at("result"), algorithms::should_selective_backprop(
                                  row.at("current_duration"), row.at("batch_idx"),
                                  {.start = row.at("start"), .end = row.at("end"), .interrupt = row.at("interrupt")})};
  });
}

// The recorded classifier: linear, or of images.
nn::Sequential recorded_net(const Recorded& tensors) {
  const bool of_images = tensors.contains("in.0.weight");
  nn::Sequential net = of_images ? nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding(1)),
                                                  nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(3, 4))
                                 : nn::Sequential(nn::Linear(5, 4));
  net->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& one : net->named_parameters())
    one.value().copy_(tensors.at("in." + (of_images ? one.key() : one.key().substr(2))));
  return net;
}

Outcome select_using_loss(const Json& c, const Recorded& tensors) {
  const at::Tensor input = tensors.at("in.input"), target = tensors.at("in.target");
  const double keep = c.at("keep");
  at::Tensor losses;
  algorithms::SelectiveBackprop algorithm({.start = 0,
                                           .end = 1,
                                           .keep = keep,
                                           .scale_factor = c.at("scale_factor"),
                                           .interrupt = 0,
                                           .loss = [&](const Outputs& outputs, const Batch& batch) {
                                             return losses = at::cross_entropy_loss(outputs.only(), batch["target"], {},
                                                                                    at::Reduction::None);
                                           }});
  test::FakeRun run;
  run.state.model = Handle<Model>(
      std::make_shared<models::Classifier>(recorded_net(tensors), models::ClassifierOptions{.num_classes = 4}));
  run.state.batch = {{"input", input}, {"target", target}};
  algorithm.apply(Event::AFTER_DATALOADER, run.state, run.logger);

  const Json& draw = c.at("random_log").at(0);
  Json weights;
  const at::Tensor selected =
      algorithms::select_using_loss(losses, keep, [&](const std::vector<double>& given, std::int64_t n) {
        if (n != c.at("n_select")) throw std::runtime_error("another number of samples was recorded");
        weights = given;
        return draw.at("value").get<std::vector<std::int64_t>>();
      });
  return judge(
      c,
      {to_json(tensors.at("out.losses")), draw.at("kwargs").at("p"), to_json(tensors.at("out.input")),
       to_json(tensors.at("out.target"))},
      {to_json(losses), weights, to_json(input.index_select(0, selected)), to_json(target.index_select(0, selected))},
      image_rules(), {1e-10, 1e-12});
}

Outcome gyro_dropout(const Json& c, const Recorded& tensors) {
  const algorithms::GyroDropoutOptions options{.p = c.at("p"), .sigma = c.at("sigma"), .tau = c.at("tau")};
  const std::int64_t period = algorithms::gyro_dropout_period(
      c.at("iters_per_epoch").get<std::int64_t>() * c.at("max_epoch").get<std::int64_t>(), options);
  Json recorded = {{"period", c.at("iter_num")}}, got = {{"period", period}};
  at::Tensor all, chosen;
  for (std::size_t i = 0; i < c.at("calls").size(); ++i) {
    const Json& call = c.at("calls").at(i);
    if (call.contains("error")) continue;  // the period was recorded as 0
    RandomLog random(call.at("random_log"));
    const std::string number = std::to_string(i);
    const at::Tensor x = tensors.at("in.input" + number);
    if (i == 0) {
      std::vector<float> numbers;
      for (const Json& row : random.next("torch.rand").at("value"))
        for (const Json& one : row) numbers.push_back(one.get<float>());
      all = at::tensor(numbers, at::kFloat).view({options.sigma, -1}).gt(options.p);
    }
    if (static_cast<std::int64_t>(i) % period == 0)
      chosen = all.index_select(
          0, at::tensor(random.next("np.random.choice").at("value").get<std::vector<std::int64_t>>(), at::kLong));
    if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
    recorded["out" + number] = to_json(tensors.at("out" + number));
    got["out" + number] = to_json(algorithms::drop_by_masks(x, chosen, options.p));
  }
  return judge(c, recorded, got, image_rules(), kSingleImages);
}

// The share that is kept over all rounds, which was recorded with other random numbers.
Outcome gyro_dropout_statistics(const Json& c, const Recorded&) {
  const auto sigma = c.at("sigma").get<std::int64_t>(), tau = c.at("tau").get<std::int64_t>();
  nn::Sequential model{nn::Dropout()};
  const auto position = std::make_shared<algorithms::GyroDropoutPosition>();
  algorithms::gyro_dropout(*model, {.p = c.at("p"), .sigma = sigma, .tau = tau}, position);
  double kept = 0;
  for (; position->round < sigma / tau; ++position->round)
    kept += model->forward(at::ones({tau, c.at("features").get<std::int64_t>()}))
                .ne(0)
                .to(at::kDouble)
                .mean()
                .item<double>();
  return judge(c, c.at("kept_fraction"), kept / static_cast<double>(position->round), image_rules(), {0, 0.02});
}

// The lengths of "20sp" in batches of 4, which Composer does not train.
bool is_in_samples(const Json& c) {
  return c.at("function") == "SeqLengthWarmup at after_dataloader" && c.at("max_duration") == "20sp";
}

}  // namespace

const Rules& image_rules() {
  static const Rules all = {
      {.name = "cutmix_length_is_the_side",
       .applies_to = "A length for CutMix, in the functional form",
       .composer_does =
           "Makes the box larger than that: the area of a box of this length is taken for the area to keep.",
       .we_do = "Sides of the box are the length times those of the image.",
       .why = "It is what Composer's documentation says.",
       .matches = [](const Json& c) { return c.at("function") == "cutmix_batch" && c.contains("length"); },
       .ours =
           [](Json& expected, const Json& c) {
             std::vector<std::int64_t> box(4);
             double kept = 1;
             for (std::size_t side = 0; side < 2; ++side) {
               const Json& draw = c.at("random_log").at(side + 1);  // the first is the permutation
               const auto size = draw.at("args").at(0).get<std::int64_t>(),
                          centre = draw.at("value").get<std::int64_t>();
               const auto half =
                   static_cast<std::int64_t>(c.at("length").get<double>() * static_cast<double>(size)) / 2;
               box[side] = std::max<std::int64_t>(centre - half, 0);
               box[side + 2] = std::min(centre + half, size);
               kept *= static_cast<double>(box[side + 2] - box[side]) / static_cast<double>(size);
             }
             expected["box"] = box;
             expected["lambda"] = 1 - kept;
           }},
      {.name = "crops_reach_the_last_row_and_column",
       .applies_to = "`CROP` of ProgressiveResizing",
       .composer_does = "Draws the first row from one too few, so that no crop contains the last row, and likewise the "
                        "last column.",
       .we_do = "Every row and every column can be in a crop.",
       .why = "A bound of `randint` is not drawn itself.",
       .matches = [](const Json& c) { return c.at("function") == "resize_batch" && c.at("mode") == "crop"; },
       .ours =
           [](Json& expected, const Json&) {
             for (Json& bound : expected.at(2)) bound = bound.get<std::int64_t>() + 1;
           }},
      {.name = "sequence_lengths_grow_in_any_unit",
       .applies_to = "SeqLengthWarmup in a run whose max_duration is in samples",
       .composer_does = "Raises NotImplementedError at the first batch.",
       .we_do = "Grows with the share of the run that is done, as for tokens and seconds.",
       .why = "Language models are trained for a number of tokens.",
       .matches = is_in_samples,
       .ours =
           [](Json& expected, const Json& c) {
             if (c.at("params") !=
                 Json{{"duration", 0.8}, {"min_seq_length", 4}, {"max_seq_length", 32}, {"step_size", 4}})
               return;
             expected["fails"] = false;
             const std::vector<int> lengths = {4, 8, 16, 24, 32};
             for (std::size_t i = 0; i < lengths.size(); ++i)
               expected["rows"].push_back({i, {4, lengths[i]}, lengths[i], 4});
           }},
      {.name = "gyro_dropout_of_short_runs",
       .applies_to = "GyroDropout in a run of fewer batches than sigma",
       .composer_does = "Divides by zero at the first batch.",
       .we_do = "Chooses masks with each batch.",
       .why = "A first try of a few batches is such a run.",
       .matches = [](const Json& c) { return c.at("function") == "GyroDropoutLayer" && c.at("iter_num") == 0; },
       .ours = [](Json& expected, const Json&) { expected["period"] = 1; }},
  };
  return all;
}

Handlers image_handlers() {
  return {{"cutmix_batch", cutmix_batch},
          {"_rand_bbox and _adjust_lambda", cutmix_boxes},
          {"colout_batch", colout_batch},
          {"resize_batch", resize_batch},
          {"ProgressiveResizing in a training", progressive_resizing},
          {"set_batch_sequence_length", set_batch_sequence_length},
          {"SeqLengthWarmup at after_dataloader", seq_length_warmup},
          {"GyroDropoutLayer", gyro_dropout},
          {"GyroDropoutLayer mask statistics", gyro_dropout_statistics},
          {"should_selective_backprop", should_selective_backprop},
          {"select_using_loss", select_using_loss}};
}

}  // namespace composer::replay
