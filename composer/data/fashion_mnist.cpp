#include "composer/data/fashion_mnist.h"

#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/data/idx.h"

namespace composer::data {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kSide = 28, kClasses = 10;

// Finds a file under the names that are in use: some programs unpack the files with a dot before "idx", and torchvision
// puts them into subfolders.
fs::path find(const fs::path& folder, const std::string& name, const std::string& kind) {
  for (const char* below : {"", "raw", "FashionMNIST/raw"})
    for (const char* before : {"-", "."})
      for (const char* suffix : {"", ".gz"}) {
        const fs::path file = folder / below / (name + before + kind + suffix);
        if (fs::exists(file)) return file;
      }
  throw DataError("FashionMnist: ", folder.string(), " has neither ", name, '-', kind, " nor ", name, '-', kind,
                  ".gz, nor does FashionMNIST/raw in it; on Debian `apt-get install dataset-fashion-mnist` puts them ",
                  "into /usr/share/datasets/fashion-mnist");
}

Batch read(const fs::path& folder, const std::string& prefix) {
  const fs::path image_file = find(folder, prefix + "-images", "idx3-ubyte");
  const fs::path label_file = find(folder, prefix + "-labels", "idx1-ubyte");
  const at::Tensor images = read_idx(image_file);
  if (images.dim() != 3 || images.size(1) != kSide || images.size(2) != kSide)
    throw DataError(image_file.string(), ": expected images [N, 28, 28], found ", images.sizes());
  const at::Tensor labels = read_idx(label_file);
  if (labels.dim() != 1 || labels.size(0) != images.size(0))
    throw DataError(label_file.string(), ": expected one label for each of ", images.size(0), " images, found ",
                    labels.sizes());
  const auto* label = labels.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < labels.size(0); ++i)
    if (label[i] >= kClasses)
      throw DataError(label_file.string(), ": expected labels from 0 to 9, found ", int{label[i]}, " for image ", i);
  return {{"input", images.unsqueeze(1)}, {"target", labels.to(at::kLong)}};
}

}  // namespace

FashionMnist::FashionMnist(const fs::path& folder) : train(read(folder, "train")), test(read(folder, "t10k")) {}

}  // namespace composer::data
