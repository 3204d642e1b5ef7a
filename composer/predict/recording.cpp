#include "composer/predict/recording.h"

#include <exception>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/option.h"
#include "composer/formats/torch_trace.h"

namespace composer::predict {
namespace {

std::vector<Option<ExportOptions>> export_options() {
  using O = ExportOptions;
  return all_options(option("inputs", &O::inputs), part("dynamic", &O::dynamic, "dimensions by name"));
}

void check_dynamic(const std::string& who, const Batch& example, const DynamicSizes& dynamic) {
  for (const auto& [name, dimensions] : dynamic) {
    const at::Tensor* const tensor = example.find(name);
    if (!tensor)
      throw ConfigError(who, ": dynamic: the example has no \"", name,
                        "\"; there are: ", listed(example, [](const auto& item) { return item.first; }));
    for (const std::int64_t dimension : dimensions)
      if (dimension < 1 || dimension >= tensor->dim())
        throw ConfigError(who, ": dynamic: \"", name, "\" has the dimensions 1 to ", tensor->dim() - 1,
                          " besides the samples, got ", dimension);
      else if (tensor->size(dimension) < 3)
        throw ConfigError(who, ": dynamic: dimension ", dimension, " of \"", name,
                          "\" must be at least 3 in the example, so that other sizes can be tried, got ",
                          tensor->size(dimension));
  }
}

std::vector<std::string> names_in(const std::string& who, const ExportOptions& options, const Batch& example) {
  std::vector<std::string> names = options.inputs;
  for (const std::string& name : names)
    if (!example.contains(name))
      throw ConfigError(who, ": inputs: the example has no \"", name,
                        "\"; there are: ", listed(example, [](const auto& item) { return item.first; }));
  if (names.empty())
    for (const auto& [name, tensor] : example) names.push_back(name);
  return names;
}

// Those of the names whose tensors the recorded program uses. Its first input is the module.
std::vector<std::string> used_of(const torch::jit::Module& program, const std::vector<std::string>& names) {
  const auto graph = program.get_method("forward").graph();
  std::vector<std::string> used;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (graph->inputs()[i + 1]->hasUses()) used.push_back(names[i]);
  return used;
}

std::int64_t rows_of(const Batch& batch) {
  const at::Tensor& first = batch.begin()->second;
  return first.dim() == 0 ? 0 : first.size(0);
}

void check_agreement(const std::string& who, torch::jit::Module& program, const Model& model,
                     const formats::TracedFunction& function, formats::InPlace in_place) {
  const Agreement agreement = agreement_of(program, function);
  if (agreement == Agreement::EVERYWHERE) return;
  if (agreement == Agreement::FOR_EXAMPLES_ALONE)
    throw Error(who,
                ": the recorded program has the outputs of the model for the example, and other ones for other values, "
                "because forward() reads numbers from tensors, as item() does, or decides by them; compute with "
                "tensors instead");
  if (in_place == formats::InPlace::REPLACED) {
    torch::jit::Module kept = formats::trace(as_module(model), function);
    if (agreement_of(kept, function) == Agreement::EVERYWHERE)
      throw Error(who,
                  ": forward() writes into a part of a tensor, as y.narrow(1, 0, 2).sigmoid_() does, and the program "
                  "has no operators that write; put the parts together with at::cat() instead");
  }
  throw Error(who,
              ": the recorded program has other outputs than the model, because forward() makes a tensor from numbers "
              "(make it in the constructor), decides by the values of tensors, or draws random numbers");
}

Recording record_with(const Batch& sample, const std::string& who, Model& model, const ExportOptions& options,
                      formats::InPlace in_place) {
  std::vector<std::string> names = names_in(who, options, sample);
  const std::vector<at::Tensor> tensors = parameters(as_module(model));
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().device();

  Recording made{.function = function_of(model, names, sample, device)};
  torch::jit::Module program = formats::trace(as_module(model), made.function, in_place);
  if (const auto used = used_of(program, names); options.inputs.empty() && used != names) {
    names = used;
    made.function = function_of(model, names, sample, device);
    program = formats::trace(as_module(model), made.function, in_place);
  }
  {
    const at::NoGradGuard no_grad;
    Batch batch;
    for (std::size_t i = 0; i < names.size(); ++i) batch.set(names[i], made.function.examples[i].clone());
    for (const auto& [name, tensor] : eval_forward_of(model, batch, nullptr)) made.exported.outputs.push_back(name);
  }
  made.exported.inputs = names;
  check_agreement(who, program, model, made.function, in_place);
  made.other = try_other_sizes(program, made.function, options.dynamic);
  made.exported.any_batch_size = made.other.works;
  return made;
}

}  // namespace

Recording record(const std::string& who, Model& model, const Batch& example, const ExportOptions& options,
                 formats::InPlace in_place) {
  check(options, export_options(), who + ": ", "");
  check_dynamic(who, example, options.dynamic);
  if (example.empty()) throw ConfigError(who, ": the example has no tensors");
  const Batch sample = few_samples(example);
  const bool has_more = rows_of(example) > rows_of(sample);
  try {
    Recording made = record_with(sample, who, model, options, in_place);
    if (made.other.works || !has_more) return made;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception&) {  // perhaps the model takes as many samples as there are
    if (!has_more) throw;
  }
  return record_with(example, who, model, options, in_place);
}

void tell_of_sizes(const std::string& who, const Recording& recording, const DynamicSizes& dynamic,
                   const std::string& why) {
  if (recording.other.works) return;
  if (!dynamic.empty())
    throw ConfigError(
        who, ": dynamic: the recorded program does not work for other sizes than those of the example, because ", why);
  const auto& examples = recording.function.examples;
  const bool has_rows = !examples.empty() && examples.front().dim() > 0;
  warn(join(who, ": the program works for ", has_rows ? examples.front().size(0) : 0, " samples at once only, because ",
            why));
}

}  // namespace composer::predict
