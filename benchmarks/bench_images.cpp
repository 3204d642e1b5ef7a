// What does an image cost, from its file to the sample that a model gets? benchmarks/images.py asks torchvision the
// same of the same files, which remain where COMPOSER_BENCH_IMAGES says.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "benchmarks/bench.h"
#include "composer/core/error.h"
#include "composer/data/image/image_folder.h"
#include "composer/data/image/write_image.h"
#include "composer/util/environment.h"
#include "composer/util/temporary.h"

namespace composer::bench {
namespace {

namespace fs = std::filesystem;
constexpr int kFiles = 20;

// Noise of all scales, which has about as many details as a photograph.
at::Tensor photograph(std::int64_t height, std::int64_t width) {
  at::Tensor sum = at::zeros({1, 3, height, width});
  for (std::int64_t scale = 2; scale <= 128; scale *= 2) {
    const at::Tensor noise = at::randn({1, 3, height / scale + 2, width / scale + 2});
    sum.add_(at::upsample_bicubic2d(noise, {height, width}, false), std::pow(static_cast<double>(scale), 0.9));
  }
  return sum.sub_(sum.mean()).div_(sum.std()).mul_(55).add_(120).clamp_(0, 255).to(at::kByte)[0];
}

void write_photographs(const fs::path& folder, std::int64_t height, std::int64_t width, int different) {
  for (int i = 0; i < kFiles; ++i) {
    const fs::path file = folder / "class" / (std::to_string(100 + i) + ".jpg");
    if (i < different)
      data::write_jpeg(photograph(height, width), file);
    else
      fs::copy_file(folder / "class" / (std::to_string(100 + i % different) + ".jpg"), file,
                    fs::copy_options::overwrite_existing);
  }
}

std::function<void(int)> samples_of(const data::ImageFolder& folder) {
  return [folder, index = std::int64_t{0}](int calls) mutable {
    for (; calls > 0; --calls, ++index)
      folder.get(index % folder.size(), RandomStream(static_cast<std::uint64_t>(index)));
  };
}

// Decoding at a smaller size shows the same.
void check_equal(const data::ImageFolder& whole, const data::ImageFolder& smaller) {
  const at::Tensor difference =
      whole.get(0, RandomStream(1))["input"].sub(smaller.get(0, RandomStream(1))["input"]).abs();
  if (difference.mean().item<double>() > 0.05) throw Error("an image that is decoded smaller looks different");
}

void measure_images(int argc, char** argv) {
  at::set_num_threads(1);
  at::manual_seed(1);
  Report report(parse(argc, argv));
  const util::Temporary temporary(util::TemporaryKind::FOLDER, "bench_images");
  const fs::path root = environment_if_set("COMPOSER_BENCH_IMAGES").value_or(temporary.path().string());
  const data::Transforms augment{data::RandomResizedCrop{224}, data::RandomHorizontalFlip{},
                                 data::imagenet_normalize()};
  const data::Transforms prepare{data::Resize{256}, data::CenterCrop{224}, data::imagenet_normalize()};

  const std::string small = "JPEG of 500 x 375";
  if (report.wants(small)) {
    write_photographs(root / "small", 375, 500, kFiles);
    const data::ImageFolder folder(root / "small");
    report.compare(small,
                   {{"read_image", samples_of(folder)},
                    {"augmented, 224 x 224", samples_of(data::ImageFolder(root / "small", {.transform = augment}))},
                    {"prepared, 224 x 224", samples_of(data::ImageFolder(root / "small", {.transform = prepare}))}},
                   15, 40);
  }
  const std::string large = "JPEG of 4000 x 3000";
  if (report.wants(large)) {
    write_photographs(root / "large", 3000, 4000, 1);
    const data::ImageFolder whole(root / "large", {.transform = prepare, .scaled_decoding = false});
    const data::ImageFolder smaller(root / "large", {.transform = prepare});
    check_equal(whole, smaller);
    report.compare(large, {{"prepared, whole", samples_of(whole)}, {"prepared, decoded smaller", samples_of(smaller)}},
                   9, 2);
  }
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::measure_images(argc, argv); }
