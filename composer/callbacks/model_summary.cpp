#include "composer/callbacks/model_summary.h"

#include <string>
#include <utility>
#include <vector>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/logger.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/predict/summary.h"

namespace composer::callbacks {
namespace {

std::vector<Option<ModelSummaryOptions>> model_summary_options() {
  using O = ModelSummaryOptions;
  return all_options(option("depth", &O::depth).at_least(1), part("example", &O::example, "a batch"));
}

std::string shape_of(const LayerSummary& layer) { return layer.output.empty() ? "" : "[" + listed(layer.output) + "]"; }

LogTable table_of(const composer::ModelSummary& summary, std::int64_t depth) {
  const bool ran = summary.samples > 0;
  LogTable table{.columns = {"layer", "type", "parameters", "trainable"}, .rows = {}};
  if (ran) table.columns.insert(table.columns.end(), {"output", "FLOPs"});
  const auto add = [&](std::vector<LogValue> row, const std::string& output, std::int64_t flops) {
    if (ran) row.insert(row.end(), {LogValue(output), LogValue(flops)});
    table.rows.push_back(std::move(row));
  };
  for (const LayerSummary& layer : summary.layers)
    if (layer.depth <= depth)
      add({layer.name, layer.type, layer.parameters, layer.trainable}, shape_of(layer), layer.flops);
  add({std::string("(all)"), summary.type, summary.parameters, summary.trainable}, "", summary.flops);
  return table;
}

}  // namespace

ModelSummary::ModelSummary(ModelSummaryOptions options)
    : options_(checked("ModelSummary", std::move(options), model_summary_options())) {}

void ModelSummary::init(const State&, Logger&) { has_logged_ = false; }

void ModelSummary::fit_start(const State& state, Logger& logger) {
  if (!state.run || state.rank != 0 || std::exchange(has_logged_, true) || logger.empty()) return;
  state.run->with_model(WeightsUse::EXPORT, state.seed, [&](Model& model) {
    const bool runs = !options_.example.empty();
    logger.log_table("model_summary",
                     table_of(runs ? summarize(model, options_.example) : summarize(model), options_.depth));
  });
}

void ModelSummary::visit_state(StateVisitor& visit) { visit("has_logged", has_logged_); }

StateDict ModelSummary::local_hparams() const { return describe(options_, model_summary_options()); }

namespace entries {

Entry<Callbacks> model_summary() {
  return entry<ModelSummary>("model_summary", "Logs the layers of the model and their parameters as a table",
                             model_summary_options());
}

}  // namespace entries
}  // namespace composer::callbacks
