#pragma once
// Values of W&B that are more than a number: JSON, and files that it refers to.
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/log_records.h"

namespace composer::loggers {

struct WandBMedia {
  struct File {
    std::string path, data;  // below the run's folder files/
  };
  std::vector<File> files;
  std::string json;
};

// The first `most` images, with their masks. Throws Error for a mask with classes outside of 0 to 255.
WandBMedia wandb_images(const std::string& key, std::int64_t step, const LogImages& images, std::int64_t most);
WandBMedia wandb_table(const std::string& key, std::int64_t step, const LogTable& table);
// Neighbors are merged if there are more than 512 bins.
std::string wandb_histogram(const LogHistogram& histogram);
// For the config, at _wandb, mask/class_labels, and this key.
std::string wandb_labels_key(const std::string& key, const LogMask& mask);
std::string wandb_labels(const std::string& labels_key, const LogImages& images);

// A path below a folder, without what would leave the folder.
std::string path_below(const std::string& path);

}  // namespace composer::loggers
