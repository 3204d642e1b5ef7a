#include "composer/loggers/registry.h"

namespace composer::loggers {

// Each function is defined beside its class.
namespace entries {
Entry<Loggers> console();
Entry<Loggers> csv();
Entry<Loggers> file();
Entry<Loggers> in_memory();
Entry<Loggers> json_lines();
Entry<Loggers> mlflow();
Entry<Loggers> progress_bar();
Entry<Loggers> remote_uploader();
Entry<Loggers> slack();
Entry<Loggers> tensorboard();
Entry<Loggers> wandb();
}  // namespace entries

const Registry<Loggers>& registry() {
  static const Registry<Loggers> entries = {
      entries::console(),    entries::csv(),         entries::file(),         entries::in_memory(),
      entries::json_lines(), entries::mlflow(),      entries::progress_bar(), entries::remote_uploader(),
      entries::slack(),      entries::tensorboard(), entries::wandb(),
  };
  return entries;
}

}  // namespace composer::loggers
