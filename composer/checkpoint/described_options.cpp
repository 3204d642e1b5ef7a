#include "composer/checkpoint/described_options.h"

namespace composer::saving {

std::vector<Option<RunSaverOptions>> run_saver_options() {
  using O = RunSaverOptions;
  return all_options(
      option("folder", &O::folder).refuses({"", "a/{batch}"}), option("filename", &O::filename).refuses({"{foo}"}),
      option("latest_filename", &O::latest_filename).refuses({"{foo}"}),
      option("save_interval", &O::save_interval).refuses({"1", "often"}),
      option("overwrite", &O::overwrite).refuses({"1"}), option("weights_only", &O::weights_only).refuses({"1"}),
      option("num_checkpoints_to_keep", &O::num_checkpoints_to_keep)
          .at_least(0)
          .or_else(-1, "all")
          .refuses({"-2", "some"}),
      part("best", &O::best, "a metric"),
      option("on_failure", &O::on_failure,
             {{"fail", OnFailure::FAIL}, {"retry", OnFailure::RETRY}, {"continue", OnFailure::CONTINUE}})
          .refuses({"ignore"}),
      option("async", &O::async).refuses({"1"}), part("ignore_keys", &O::ignore_keys, "patterns"));
}

}  // namespace composer::saving
