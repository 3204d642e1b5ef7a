// Each option of a plug-in that is a list or a map, alone. A compiler that ignores designators may find a copy or a
// move equally well, which is an error at compile time.
#include "composer/algorithms/load_checkpoint.h"
#include "composer/callbacks/activation_monitor.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/export_for_inference.h"
#include "composer/callbacks/generate.h"
#include "composer/callbacks/image_visualizer.h"
#include "composer/callbacks/memory_monitor.h"
#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/slack_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "tests/support/doctest.h"

namespace composer::test::brace_options_test {
namespace {

TEST_CASE("A plug-in can be made with one option that is a list or a map, of one element or of several") {
  const loggers::WandBLogger wandb({.tags = {"a"}}), wandb2({.tags = {"a", "b"}}), wandb3({.tags = {"a", "b", "c"}});
  const loggers::MLFlowLogger tags({.tags = {{"a", "b"}}}), tags2({.tags = {{"a", "b"}, {"c", "d"}}});
  const loggers::MLFlowLogger renamed({.rename_metrics = {{"a", "b"}}}),
      renamed2({.rename_metrics = {{"a", "b"}, {"c", "d"}}});
  const loggers::MLFlowLogger ignored({.ignore_metrics = {"a"}}), ignored2({.ignore_metrics = {"a", "b"}});
  const loggers::MLFlowLogger fewer({.ignore_hyperparameters = {"a"}}), fewer2({.ignore_hyperparameters = {"a", "b"}});
  const callbacks::CheckpointSaver saver({.ignore_keys = {"a"}}), saver2({.ignore_keys = {"a", "b"}});
  const callbacks::ActivationMonitor monitor({.ignore_module_types = {"bn"}}),
      monitor2({.ignore_module_types = {"bn", "fc"}});
  const callbacks::Generate generate({.prompts = {{1}}}), generate2({.prompts = {{1, 2}, {3}}});
  const callbacks::ImageVisualizer mean({.mean = {0.5}}), mean2({.mean = {0.5, 0.5, 0.5}}),
      deviation({.stddev = {0.5}});
  const callbacks::MemoryMonitor memory({.memory_keys = {{"allocated_bytes.all.current", "a"}}});
  const Loggers all{loggers::WandBLogger({.tags = {"a"}}), loggers::MLFlowLogger({.ignore_metrics = {"a"}})};
  CHECK(all.size() == 2);
  // Others are required as well; it is enough that these compile.
  CHECK_THROWS_AS(loggers::SlackLogger({.include_keys = {"loss"}}), ConfigError);
  CHECK_THROWS_AS(loggers::SlackLogger({.include_keys = {"loss", "metrics"}}), ConfigError);
  CHECK_THROWS_AS(callbacks::ExportForInferenceCallback({.input_names = {"input"}}), ConfigError);
  CHECK_THROWS_AS(callbacks::ExportForInferenceCallback({.input_names = {"input", "mask"}}), ConfigError);
  CHECK_THROWS_AS(algorithms::LoadCheckpoint({.ignore_keys = {"a"}}), ConfigError);
  CHECK_THROWS_AS(algorithms::LoadCheckpoint({.ignore_keys = {"a", "b"}}), ConfigError);
}

}  // namespace
}  // namespace composer::test::brace_options_test
