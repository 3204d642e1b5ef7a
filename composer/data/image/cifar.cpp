#include "composer/data/image/cifar.h"

#include <cstdint>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"

namespace composer::data {
namespace {

constexpr std::int64_t kCifarSide = 32, kCifarColors = 3, kCifarPixels = kCifarColors * kCifarSide * kCifarSide;

// A number before the pixels of each image.
struct CifarLabel {
  const char* name;
  int classes;
};

std::filesystem::path cifar_file(const std::filesystem::path& folder, const char* below, const std::string& name) {
  for (const std::filesystem::path& at : {folder / name, folder / below / name})
    if (std::filesystem::exists(at)) return at;
  throw DataError("Cifar: neither ", folder.string(), " nor ", (folder / below).string(), " contains ", name,
                  "; unpack the binary version of https://www.cs.toronto.edu/~kriz/cifar.html there");
}

// A file of images, each after its labels.
Batch read_cifar(const std::filesystem::path& file, const std::vector<CifarLabel>& labels) {
  const auto header = static_cast<std::int64_t>(labels.size()), record = header + kCifarPixels;
  std::error_code error;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file, error));
  if (error) throw DataError(file.string(), ": cannot be read: ", error.message());
  if (size == 0 || size % record != 0)
    throw DataError(file.string(), ": expected images of ", record, " bytes each, found ", size,
                    " bytes: it is cut off, or another version of CIFAR");
  const std::int64_t count = size / record;
  at::Tensor bytes = at::empty({count, record}, at::kByte);
  const auto stream = detail::open_bytes(file);
  if (stream->read(bytes.mutable_data_ptr(), static_cast<std::size_t>(size)) != static_cast<std::size_t>(size))
    throw DataError(file.string(), ": ended before its ", size, " bytes were read");
  const auto* value = bytes.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < header; ++k)
      if (const int label = value[i * record + k]; label >= labels[static_cast<std::size_t>(k)].classes)
        throw DataError(file.string(), ": expected a ", labels[static_cast<std::size_t>(k)].name, " from 0 to ",
                        labels[static_cast<std::size_t>(k)].classes - 1, " for image ", i, ", found ", label);
  Batch batch{{"input",
               bytes.narrow(1, header, kCifarPixels).contiguous().view({count, kCifarColors, kCifarSide, kCifarSide})}};
  for (std::int64_t k = header; k-- > 0;)
    batch.set(labels[static_cast<std::size_t>(k)].name, bytes.select(1, k).to(at::kLong));
  return batch;
}

}  // namespace

Cifar10::Cifar10(const std::filesystem::path& folder) {
  constexpr const char* kBelow = "cifar-10-batches-bin";
  const std::vector<CifarLabel> labels = {{"target", 10}};
  std::vector<at::Tensor> images, targets;
  for (const char* number : {"1", "2", "3", "4", "5"}) {
    const Batch part = read_cifar(cifar_file(folder, kBelow, join("data_batch_", number, ".bin")), labels);
    images.push_back(part["input"]);
    targets.push_back(part["target"]);
  }
  train = {{"input", at::cat(images)}, {"target", at::cat(targets)}};
  test = read_cifar(cifar_file(folder, kBelow, "test_batch.bin"), labels);
}

std::vector<std::string> Cifar10::classes() {
  return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
}

Normalize Cifar10::normalize() { return {.mean = {0.4914, 0.4822, 0.4465}, .stddev = {0.2470, 0.2435, 0.2616}}; }

Cifar100::Cifar100(const std::filesystem::path& folder) {
  constexpr const char* kBelow = "cifar-100-binary";
  const std::vector<CifarLabel> labels = {{"group", 20}, {"target", 100}};
  train = read_cifar(cifar_file(folder, kBelow, "train.bin"), labels);
  test = read_cifar(cifar_file(folder, kBelow, "test.bin"), labels);
}

Normalize Cifar100::normalize() { return {.mean = {0.5071, 0.4865, 0.4409}, .stddev = {0.2673, 0.2564, 0.2762}}; }

}  // namespace composer::data
