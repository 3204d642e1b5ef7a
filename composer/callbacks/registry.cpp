#include "composer/callbacks/registry.h"

namespace composer::callbacks {

// Each entry is defined beside its class.
namespace entries {
Entry<Callbacks> activation_monitor();
Entry<Callbacks> checkpoint_saver();
Entry<Callbacks> early_stopper();
Entry<Callbacks> export_for_inference();
Entry<Callbacks> image_visualizer();
Entry<Callbacks> lr_monitor();
Entry<Callbacks> memory_monitor();
Entry<Callbacks> memory_snapshot();
Entry<Callbacks> mlperf();
Entry<Callbacks> model_summary();
Entry<Callbacks> nan_monitor();
Entry<Callbacks> oom_observer();
Entry<Callbacks> optimizer_monitor();
Entry<Callbacks> profiler();
Entry<Callbacks> runtime_estimator();
Entry<Callbacks> speed_monitor();
Entry<Callbacks> system_metrics_monitor();
Entry<Callbacks> threshold_stopper();
}  // namespace entries

const Registry<Callbacks>& registry() {
  static const Registry<Callbacks> entries = {
      entries::activation_monitor(),  // one line for each
      entries::checkpoint_saver(),
      entries::early_stopper(),
      entries::export_for_inference(),
      entries::image_visualizer(),
      entries::lr_monitor(),
      entries::memory_monitor(),
      entries::memory_snapshot(),
      entries::mlperf(),
      entries::model_summary(),
      entries::nan_monitor(),
      entries::oom_observer(),
      entries::optimizer_monitor(),
      entries::profiler(),
      entries::runtime_estimator(),
      entries::speed_monitor(),
      entries::system_metrics_monitor(),
      entries::threshold_stopper(),
  };
  return entries;
}

}  // namespace composer::callbacks
