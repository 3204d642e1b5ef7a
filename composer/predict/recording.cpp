#include "composer/predict/recording.h"

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
  if (example.empty()) throw ConfigError(who, ": the example has no tensors");
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

}  // namespace

Recording record(const std::string& who, Model& model, const Batch& example, const ExportOptions& options) {
  check(options, export_options(), who + ": ", "");
  check_dynamic(who, example, options.dynamic);
  const Batch sample = few_samples(example);
  std::vector<std::string> names = names_in(who, options, sample);
  const std::vector<at::Tensor> tensors = parameters(as_module(model));
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().device();

  Recording made{.function = function_of(model, names, sample, device)};
  torch::jit::Module program = formats::trace(as_module(model), made.function);
  if (const auto used = used_of(program, names); options.inputs.empty() && used != names) {
    names = used;
    made.function = function_of(model, names, sample, device);
    program = formats::trace(as_module(model), made.function);
  }
  {
    const at::NoGradGuard no_grad;
    Batch batch;
    for (std::size_t i = 0; i < names.size(); ++i) batch.set(names[i], made.function.examples[i]);
    for (const auto& [name, tensor] : eval_forward_of(model, batch, nullptr)) made.exported.outputs.push_back(name);
  }
  made.exported.inputs = names;
  if (!is_faithful(program, made.function))
    throw Error(
        who,
        ": the recorded program has other outputs than the model, because forward() makes a tensor from numbers "
        "(make it in the constructor), decides by the values of tensors, or draws random numbers");
  made.other = try_other_sizes(program, made.function, options.dynamic);
  made.exported.any_batch_size = made.other.works;
  if (!made.other.works) {
    if (!options.dynamic.empty())
      throw ConfigError(
          who,
          ": dynamic: the recorded program does not work for other sizes than those of the example, because "
          "the model's forward() uses them as numbers");
    warn(join(who, ": the program works for ", made.function.examples.front().size(0),
              " samples at once only, because the model's forward() uses that number"));
  }
  return made;
}

}  // namespace composer::predict
