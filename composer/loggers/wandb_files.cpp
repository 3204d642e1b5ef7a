#include "composer/loggers/wandb_files.h"

#include <functional>
#include <set>
#include <span>
#include <string_view>

#include "composer/core/error.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/logged_file.h"
#include "composer/util/output_file.h"

namespace composer::loggers {

WandBFiles::Added WandBFiles::add_media(const WandBMedia& media) const {
  std::vector<std::string> paths;
  for (const auto& [path, data] : media.files) {
    util::OutputFile file(kWandBLogger, folder_ + path, util::FileMode::OVERWRITE, util::Writers::MANY);
    file.write(data);
    file.close();
    paths.push_back(path);
  }
  return {{wandb_files(paths, WandBFileType::MEDIA)}, media.json};
}

WandBFiles::Added WandBFiles::add_images(const std::string& key, std::int64_t step, const LogImages& images) {
  Added added = add_media(wandb_images(key, step, images, max_images_));
  if (images.class_labels.empty()) return added;
  for (const LogMask& mask : images.masks) {
    const std::string labels_key = wandb_labels_key(key, mask);
    const std::string labels = wandb_labels(labels_key, images);
    if (std::exchange(labels_[labels_key], labels) != labels)
      added.contents.push_back(wandb_nested_config({"_wandb", "mask/class_labels", labels_key}, labels));
  }
  return added;
}

WandBContent WandBFiles::add_file(const LogFile& file) const {
  static const std::set<std::string, std::less<>> of_wandb = {"config.yaml", "output.log", "requirements.txt",
                                                              "wandb-metadata.json", "wandb-summary.json"};
  const std::string path = valid_utf8(path_below(file.name));
  if (of_wandb.contains(path)) throw Error("W&B writes ", path, " itself; upload the file by another name");
  copy_logged_file(file, folder_ + path);
  return wandb_files(std::span(&path, 1), WandBFileType::OTHER);
}

}  // namespace composer::loggers
