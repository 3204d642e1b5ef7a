#pragma once
// Values of W&B that consist of JSON and of files that the JSON refers to.
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/log_records.h"

namespace composer::loggers {

struct WandBMedia {
  struct File {
    std::string path, data;  // path below the run's folder files/
  };
  std::vector<File> files;
  std::string json;
};

// Writes the first `most` images, with their masks. Throws Error for a mask with classes outside of 0 to 255.
WandBMedia wandb_images(const std::string& key, std::int64_t step, const LogImages& images, std::int64_t most);
WandBMedia wandb_table(const std::string& key, std::int64_t step, const LogTable& table);
// Merges neighboring bins if there are more than 512.
std::string wandb_histogram(const LogHistogram& histogram);
// The key of class labels in the config, below _wandb and mask/class_labels.
std::string wandb_labels_key(const std::string& key, const LogMask& mask);
std::string wandb_labels(const std::string& labels_key, const LogImages& images);

// The path relative to a folder, without parts that would leave the folder.
std::string path_below(const std::string& path);

}  // namespace composer::loggers
