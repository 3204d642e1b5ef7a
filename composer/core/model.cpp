#include "composer/core/model.h"

#include "composer/core/state_dict.h"

namespace composer {

Model::~Model() = default;
Outputs Model::eval_forward(const Batch& batch, const Outputs* outputs) { return outputs ? *outputs : forward(batch); }
LossWeight Model::loss_weight(const Batch&) const { return {}; }
Metrics Model::get_metrics(bool) const { return {}; }
void Model::update_metric(const Batch& batch, const Outputs& outputs, Metric& metric) { metric.update(outputs, batch); }
std::optional<double> Model::flops_per_batch(const Batch&) const { return std::nullopt; }
StateDict Model::local_hparams() const { return {}; }

}  // namespace composer
