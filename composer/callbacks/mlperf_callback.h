#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/export.h"

namespace composer::callbacks {

enum class MLPerfBenchmark : std::uint8_t {
  RESNET,  // epoch_num counts epochs
  BERT     // epoch_num counts samples
};
enum class MLPerfStatus : std::uint8_t { ONPREM, CLOUD, PREVIEW };

struct MLPerfCallbackOptions {
  std::string root_folder = {};  // required: folder of the submission; placeholders as in the names of checkpoints
  std::int64_t index = -1;       // required, >= 0: number of this run among those of a submission
  MLPerfBenchmark benchmark = MLPerfBenchmark::RESNET;  // RESNET: epoch_num counts epochs; BERT: it counts samples
  double target = 0.759;                                // finite; the run is successful when the metric is greater
  std::string division = "open";                        // "open" is the only value
  std::string metric_name = "MulticlassAccuracy";       // the metric that must reach the target
  std::string metric_label = "eval";                    // label of the only evaluator
  std::string submitter = "MosaicML";                   // name of your organisation
  std::string system_name = {};                         // name of the machine; empty: <processes>x<device>_composer
  MLPerfStatus status = MLPerfStatus::ONPREM;           // ONPREM, CLOUD or PREVIEW
  std::string cache_clear_cmd = {};           // run at INIT, split at spaces; empty: none is run, with a warning
  std::int64_t host_processors_per_node = 0;  // >= 0; 0: unknown
  std::int64_t train_samples = 0;             // >= 0; size of the training data; 0: that of the first epoch
  std::int64_t eval_samples = 0;              // >= 0; size of the evaluation data; 0: that of the first evaluation
  bool exit_at_target = false;                // ends training when the metric is greater than the target
};

// Logs the times and results of a run in the format of MLPerf Training, as lines ":::MLLOG {json}" of the file
// <root_folder>/results/<system_name>/<benchmark>/result_<index>.txt. Describes the machine in
// <root_folder>/systems/<system_name>.json. Only rank 0 writes. Throws ConfigError from the constructor, for a fit
// without exactly one evaluator that has the metric, and if the result exists. Two runs accept an existing result: a
// resumed run continues its own, from which it removes what was logged after the checkpoint; and a run that was killed
// before its first checkpoint renames it and begins again.
class COMPOSER_EXPORT MLPerfCallback final : public Callback {
 public:
  explicit MLPerfCallback(MLPerfCallbackOptions options);
  ~MLPerfCallback() override;
  MLPerfCallback(MLPerfCallback&&) noexcept;
  StateDict local_hparams() const override;

  void check_fit(const FitOutline& fit, const State& state) const override;
  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void epoch_start(const State& state, Logger& logger) override;
  void batch_start(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void eval_start(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  struct Log;
  std::string path_in_root(const State& state, const char* folder) const;
  void write_batch_size(const State& state, std::int64_t samples);

  MLPerfCallbackOptions options_;
  std::string root_;          // from INIT on: the absolute root folder
  std::unique_ptr<Log> log_;  // null on other ranks, and before INIT
};

}  // namespace composer::callbacks
