#pragma once
// The folder files/ of an offline run of W&B.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/log_records.h"
#include "composer/loggers/wandb_file.h"
#include "composer/loggers/wandb_media.h"

namespace composer::loggers {

// Writes media and users' files into this folder, and returns the records that the run's file needs for them.
class WandBFiles {
 public:
  explicit WandBFiles(std::int64_t max_images) : max_images_(max_images) {}
  void set_folder(std::string run_folder) { folder_ = std::move(run_folder) + "/files/"; }

  struct Added {
    std::vector<WandBContent> contents;
    std::string json;  // value in the row
  };
  Added add_media(const WandBMedia& media) const;
  Added add_images(const std::string& key, std::int64_t step, const LogImages& images);
  WandBContent add_file(const LogFile& file) const;  // throws Error for the name of a file that W&B writes itself
  void forget_labels() { labels_.clear(); }  // to be called if returned records were not written to the run's file

 private:
  std::int64_t max_images_;
  std::string folder_;
  std::map<std::string, std::string> labels_;  // class labels of masks that are in the run's file
};

}  // namespace composer::loggers
