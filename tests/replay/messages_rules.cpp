// What is no misuse of this library, or none that can be written down.
#include <algorithm>
#include <array>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/loggers/file_logger.h"
#include "composer/trainer/trainer.h"
#include "tests/replay/messages.h"

namespace composer::replay {
namespace {

template <class From>
concept FitsInteger = requires(From x) {
  std::int64_t{x};
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
template <class Key>
concept FindsInBatch = requires(const Batch batch, Key key) {
  batch.at(key);
};
template <class T>
concept NamesItsFile = requires(const T logger) {
  logger.filename();
}
|| requires(const T logger) { logger.path(); };

// What the tables below rest on.
static_assert(FitsInteger<int> && !FitsInteger<double> && !FitsInteger<const char*>);
static_assert(std::is_convertible_v<Evaluator, Evaluators> &&
              !std::is_convertible_v<std::shared_ptr<Loader>, Evaluator> &&
              !std::is_constructible_v<Evaluators, Evaluator, std::shared_ptr<Loader>>);
static_assert(!std::is_constructible_v<optim::AnyOptimizer, optim::AnyOptimizer, optim::AnyOptimizer>);
static_assert(!std::is_convertible_v<std::shared_ptr<torch::nn::Module>, std::shared_ptr<Model>>);
static_assert(std::is_constructible_v<AlgorithmPass, Pass, int> &&
              !std::is_constructible_v<AlgorithmPass, int, int, int>);
static_assert(!std::is_constructible_v<Time, int>);
static_assert(!std::is_assignable_v<decltype(Timestamp::batch)&, Time>);
static_assert(!std::is_assignable_v<decltype(Evaluator::metric_names)&, const char*>);
static_assert(!std::is_convertible_v<std::string, at::Tensor> && !std::is_convertible_v<const char*, at::Tensor> &&
              !std::is_convertible_v<int, at::Tensor>);
static_assert(!std::is_convertible_v<std::vector<std::string>, Batch>);
static_assert(Comparable<Precision, Precision> && !Comparable<Precision, const char*>);
static_assert(FindsInBatch<const char*> && !FindsInBatch<int>);
static_assert(!NamesItsFile<loggers::FileLogger>);

bool is(const Json& c, std::string_view area, std::string_view misuse) {
  return c["area"].get<std::string>() == area && c["misuse"].get<std::string>() == misuse;
}
bool begins(const Json& c, std::string_view area, std::string_view misuse) {
  return c["area"].get<std::string>() == area && c["misuse"].get<std::string>().starts_with(misuse);
}

bool has_wrong_type(const Json& c) {
  static constexpr std::array<std::array<std::string_view, 2>, 13> list = {{
      {"Trainer", "eval_dataloader mixes Evaluator and DataLoader"},
      {"Trainer", "two optimizers"},
      {"Trainer", "model is a plain torch module"},
      {"Trainer", "batch of a type that the default split function does not know"},
      {"Trainer", "algorithm_passes=[(1, 2, 3)]"},
      {"Time", "from_input(5)"},
      {"Timestamp", "Timestamp(batch='3ep')"},
      {"Evaluator", "metric_names='Accuracy'"},
      {"DataSpec", "a batch dictionary with a string value"},
      {"DataSpec", "a batch tuple with an element without shape"},
      {"default_split_batch", "a float microbatch size"},
      {"default_split_batch", "an unknown batch type"},
      {"NaNMonitor", "state.loss is a string"},
  }};
  return std::ranges::any_of(list, [&](const auto& entry) { return is(c, entry[0], entry[1]); });
}

bool asks_for_file(const Json& c) { return is(c, "FileLogger", "filename before init"); }

bool is_string_enum(const Json& c) { return c["area"] == "StringEnum"; }

bool has_position(const Json& c) {
  for (const char* area : {"batch_get", "batch_set"})
    for (const char* kind : {"tuple index:", "list index:", "slice:", "index out of range:"})
      if (begins(c, area, kind)) return true;
  return false;
}

void does_not_compile(Json& expected, const Json&) { expected = {{"compiles", false}}; }
void is_fine(Json& expected, const Json&) { expected = {{"error", nullptr}, {"result", nullptr}, {"warned", false}}; }

Rules rules_of_types() {
  return {
      {.name = "wrong_types_do_not_compile",
       .applies_to = "A value of a type that an option, a batch or a function does not take: a text for a number, a "
                     "fraction for a count, two optimizers, a model that is no `Model`, a batch of something else than "
                     "tensors",
       .composer_does = "Raises an error when it meets the value, some at the first batch.",
       .we_do = "Does not compile.",
       .why = "The compiler knows the types.",
       .matches = has_wrong_type,
       .ours = does_not_compile},
      {.name = "enums_are_no_strings",
       .applies_to = "Enums of strings",
       .composer_does = "Compares a member with a text, with a warning; checks how members are spelled when it starts.",
       .we_do = "`enum class`: a comparison with a text does not compile. `parse_event` and its like read texts.",
       .why = "The compiler knows the types.",
       .matches = is_string_enum,
       .ours = does_not_compile},
      {.name = "file_loggers_do_not_name_their_file",
       .applies_to = "Asking a `FileLogger` for the name of its file before the run has a name",
       .composer_does = "Raises `RuntimeError`.",
       .we_do = "There is no such function, so it does not compile. The path is an option.",
       .why = "A function that fails until INIT tells nothing that the option does not.",
       .matches = asks_for_file,
       .ours = does_not_compile},
      {.name = "items_of_batches_have_names",
       .applies_to = "Items of a batch by position, or by a slice",
       .composer_does = "Takes them from tuples and lists.",
       .we_do = "A batch is a few named tensors, found by name; a position does not compile.",
       .why = "`batch[\"target\"]` says what it is, and goes on to work when something is added.",
       .matches = has_position,
       .ours = does_not_compile},
  };
}

Rules rules_of_data() {
  return {
      {.name = "batches_take_new_items",
       .applies_to = "Setting an item of a batch that is not there",
       .composer_does = "Raises `KeyError`.",
       .we_do = "Adds it at the end.",
       .why = "An algorithm may have something to tell the model.",
       .matches = [](const Json& c) { return begins(c, "batch_set", "new dictionary key:"); },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", nullptr}, {"result", {{"a", 1}, {"z", 7}}}, {"warned", false}};
           }},
      {.name = "microbatch_size_zero",
       .applies_to = "`device_train_microbatch_size` 0",
       .composer_does = "Fails at the first batch.",
       .we_do = "Takes whole batches; this is the default.",
       .why = "There is one way to say it.",
       .matches = [](const Json& c) { return is(c, "Trainer", "device_train_microbatch_size=0 and fit"); },
       .ours = is_fine},
      {.name = "epochs_of_unknown_length",
       .applies_to = "A `max_duration` in epochs, with a training loader of unknown length",
       .composer_does = "Raises `ValueError`.",
       .we_do =
           "Trains; a schedule or an interval in epochs or shares of the run, which needs the length, is an error.",
       .why = "The loader says itself when an epoch is over.",
       .matches = [](const Json& c) { return is(c, "Trainer", "epochs with a loader of unknown length"); },
       .ours = is_fine},
      {.name = "microbatch_size_auto",
       .applies_to = "`device_train_microbatch_size` \"auto\" on a CPU",
       .composer_does = "Raises `ValueError`; on a GPU it halves the size until a batch fits.",
       .we_do = "Predicts the size from two trials, and halves it if memory is short all the same; on a CPU within the "
                "limit "
                "of the control group, what the machine has left, or `microbatch_memory`.",
       .why = "A process that takes too much is killed without an error.",
       .matches = [](const Json& c) { return is(c, "Trainer", "device_train_microbatch_size='auto' on a CPU"); },
       .ours = is_fine},
      {.name = "loaders_need_no_batch_size",
       .applies_to = "A training loader that does not know its batch size",
       .composer_does = "Raises `ValueError` unless there is a microbatch size.",
       .we_do = "Trains on its batches as they come.",
       .why = "The size of a batch is counted when it is there.",
       .matches = [](const Json& c) { return begins(c, "Trainer", "train loader without batch_size attribute"); },
       .ours = is_fine},
      {.name = "used_loaders",
       .applies_to = "A training loader from which batches have been taken",
       .composer_does = "Raises `ValueError`.",
       .we_do = "Places it where training begins (`Loader::seek`).",
       .why = "What a loader gives depends on epoch and batch alone.",
       .matches = [](const Json& c) { return is(c, "Trainer", "train loader with an active iterator"); },
       .ours = is_fine},
      {.name = "state_is_plain_data",
       .applies_to = "Writing to fields of `State` that depend on each other",
       .composer_does = "Checks each assignment.",
       .we_do = "Options and arguments are checked; who writes to the state itself must know what he does.",
       .why = "Callbacks get the state `const`, so only algorithms and the owner of the trainer can.",
       .matches = [](const Json& c) { return is(c, "State", "dataloader_len without dataloader"); },
       .ours = is_fine},
  };
}

Rules rules_of_trainer() {
  return {
      {.name = "amp_bf16_on_cpu",
       .applies_to = "`Precision::AMP_BF16` on a CPU",
       .composer_does = "Raises `ValueError`.",
       .we_do = "Trains with it.",
       .why = "libtorch has autocast to bfloat16 on CPUs.",
       .matches = [](const Json& c) { return is(c, "Trainer", "precision='amp_bf16' on a CPU"); },
       .ours = is_fine},
      {.name = "devices_are_libtorchs",
       .applies_to = "The name of a device that does not exist",
       .composer_does = "Raises `ValueError`.",
       .we_do = "The option is an `at::Device`, whose constructor throws libtorch's `c10::Error` (`RuntimeError` in "
                "Python).",
       .why = "A name is read by whom the type belongs to.",
       .matches = [](const Json& c) { return begins(c, "Trainer", "device='quantum'"); },
       .ours = [](Json& expected, const Json&) { expected["error"]["type"] = "RuntimeError"; }},
      {.name = "no_default_optimizer",
       .applies_to = "A trainer without an optimizer",
       .composer_does = "Warns, and takes `DecoupledSGDW(lr=0.1)` if the model has parameters.",
       .we_do = "Can evaluate and predict; `fit()` throws `ConfigError`.",
       .why = "A learning rate that nobody chose is no good one.",
       .matches =
           [](const Json& c) {
             return begins(c, "Trainer", "no optimizer:") || is(c, "Trainer", "fit of a model without parameters");
           },
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", {{"type", "ValueError"}}}, {"result", nullptr}, {"warned", false}};
           }},
      {.name = "seeds_are_64_bits",
       .applies_to = "`seed` -1",
       .composer_does = "Raises `ValueError`: a seed is from 0 to 2^32 - 2.",
       .we_do = "A seed is any unsigned number of 64 bits, and -1 as one is the largest.",
       .why = "libtorch's generators take 64 bits.",
       .matches = [](const Json& c) { return is(c, "Trainer", "seed=-1"); },
       .ours = is_fine},
      {.name = "schedulers_know_the_ratio",
       .applies_to = "`scale_schedule_ratio` with a scheduler that is a function of its own",
       .composer_does = "Raises `ValueError` if the function does not take the ratio as a second argument.",
       .we_do = "The ratio is in the `ScheduleContext` that every scheduler gets.",
       .why = "There is one signature.",
       .matches =
           [](const Json& c) { return is(c, "Trainer", "scale_schedule_ratio=0.5 with a scheduler of one argument"); },
       .ours = is_fine},
      {.name = "no_warning_of_two_consoles",
       .applies_to = "A progress bar and a console logger in one trainer",
       .composer_does = "Warns.",
       .we_do = "Does not warn.",
       .why = "The trainer knows no logger by its type; who lists both gets both.",
       .matches = [](const Json& c) { return begins(c, "Trainer", "progress_bar and log_to_console both on"); },
       .ours = is_fine},
  };
}

}  // namespace

bool refused_by_compiler(const Json& c) {
  return has_wrong_type(c) || is_string_enum(c) || has_position(c) || asks_for_file(c);
}

Rules messages_rules() {
  Rules all = rules_of_types();
  for (const Rules& more : {rules_of_data(), rules_of_trainer()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace composer::replay
