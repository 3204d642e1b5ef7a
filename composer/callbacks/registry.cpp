#include "composer/callbacks/registry.h"

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/callbacks/threshold_stopper.h"

namespace composer::callbacks {
namespace {

using Directions = std::vector<std::pair<std::string, std::optional<Better>>>;
Directions directions() { return {{"auto", std::nullopt}, {"higher", Better::HIGHER}, {"lower", Better::LOWER}}; }

Entry<Callbacks> checkpoint_saver() {
  using O = CheckpointSaverOptions;
  using saving::OnFailure;
  return entry<CheckpointSaver, O>(
      "checkpoint_saver", "Writes checkpoints beside those of the trainer",
      {option("folder", &O::folder).refuses({"", "a/{batch}"}), option("filename", &O::filename).refuses({"{foo}"}),
       option("latest_filename", &O::latest_filename).refuses({"{foo}"}),
       option("save_interval", &O::save_interval).refuses({"1", "often"}),
       option("overwrite", &O::overwrite).refuses({"1"}), option("weights_only", &O::weights_only).refuses({"1"}),
       option("num_checkpoints_to_keep", &O::num_checkpoints_to_keep).refuses({"-2", "some"}),
       option("on_failure", &O::on_failure,
              {{"fail", OnFailure::FAIL}, {"retry", OnFailure::RETRY}, {"continue", OnFailure::CONTINUE}})
           .refuses({"ignore"}),
       option("async", &O::async).refuses({"1"})});
}

Entry<Callbacks> early_stopper() {
  using O = EarlyStopperOptions;
  return entry<EarlyStopper, O>("early_stopper", "Stops once a metric no longer improves",
                                {option("monitor", &O::monitor).example("MulticlassAccuracy").refuses({""}),
                                 option("dataloader_label", &O::dataloader_label).example("eval").refuses({""}),
                                 option("better", &O::better, directions()).refuses({"greater"}),
                                 option("min_delta", &O::min_delta).refuses({"-1"}),
                                 option("patience", &O::patience).refuses({"3sp", "0.5dur", "-1ep", "2"})});
}

Entry<Callbacks> threshold_stopper() {
  using O = ThresholdStopperOptions;
  return entry<ThresholdStopper, O>("threshold_stopper", "Stops once a metric is better than a threshold",
                                    {option("monitor", &O::monitor).example("MulticlassAccuracy").refuses({""}),
                                     option("dataloader_label", &O::dataloader_label).example("eval").refuses({""}),
                                     option("threshold", &O::threshold).example("0.99").refuses({"high"}),
                                     option("better", &O::better, directions()).refuses({"greater"}),
                                     option("stop_on_batch", &O::stop_on_batch).refuses({"1"})});
}

Entry<Callbacks> speed_monitor() {
  using O = SpeedMonitorOptions;
  return entry<SpeedMonitor, O>("speed_monitor", "Logs throughput and the time training takes",
                                {option("window_size", &O::window_size).refuses({"0", "-1", "1e9"}),
                                 option("gpu_flops_available", &O::gpu_flops_available).refuses({"-1", "inf"}),
                                 option("time_unit", &O::time_unit,
                                        {{"seconds", WallClockUnit::SECONDS},
                                         {"minutes", WallClockUnit::MINUTES},
                                         {"hours", WallClockUnit::HOURS},
                                         {"days", WallClockUnit::DAYS}})
                                     .refuses({"weeks"})});
}

}  // namespace

const Registry<Callbacks>& registry() {
  static const Registry<Callbacks> entries = {
      checkpoint_saver(),
      early_stopper(),
      entry<LRMonitor>("lr_monitor", "Logs the learning rate of each parameter group"),
      entry<NaNMonitor>("nan_monitor", "Ends the run with an error when a loss is NaN"),
      speed_monitor(),
      threshold_stopper(),
  };
  return entries;
}

}  // namespace composer::callbacks
