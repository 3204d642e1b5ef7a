#include "composer/core/empty_options.h"

#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/plugins.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/metrics/binary.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/language.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/regression.h"
#include "tests/support/doctest.h"

namespace composer::test::empty_options_test {
namespace {

using namespace composer::metrics;

TEST_CASE("Plug-ins whose options have defaults can be made with X(), X{} and X({}), which are the same") {
  const Algorithms algorithms{algorithms::MixUp({}), algorithms::LabelSmoothing({}), algorithms::MixUp{},
                              algorithms::MixUp()};
  const Callbacks callbacks{callbacks::SpeedMonitor({}), callbacks::CheckpointSaver({})};
  const loggers::ConsoleLogger console({});
  const loggers::ProgressBar bar({});
  const Metrics metrics{MulticlassAccuracy({}),   MulticlassRecall({}),   MulticlassPrecision({}),
                        MulticlassF1Score({}),    BinaryAccuracy({}),     BinaryF1Score({}),
                        CrossEntropy({}),         MeanSquaredError({}),   MeanAbsoluteError({}),
                        LanguageCrossEntropy({}), LanguagePerplexity({}), MaskedAccuracy({})};
  CHECK(algorithms.size() == 4);
  CHECK(algorithms::MixUp({}).interpolates_loss() == algorithms::MixUp().interpolates_loss());
  CHECK(algorithms::MixUp({.interpolate_loss = true}).interpolates_loss());
  CHECK(algorithms::MixUp{{.interpolate_loss = true}}.interpolates_loss());
}

}  // namespace
}  // namespace composer::test::empty_options_test
