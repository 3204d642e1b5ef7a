#include "composer/data/image/cifar.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"

namespace composer::cifar_test {

using namespace test;

namespace {

// An image for each of these labels, of which the pixels are the number of the image and of the channel.
std::string records(const std::vector<std::string>& labels) {
  std::string bytes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    bytes += labels[i];
    for (std::size_t c = 0; c < 3; ++c) bytes += std::string(1024, static_cast<char>(10 * i + c));
  }
  return bytes;
}

}  // namespace

TEST_CASE("The files of CIFAR-10 give images and targets in their order, from either folder") {
  for (const char* below : {"", "cifar-10-batches-bin/"}) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / below);
    for (char number = 1; number <= 5; ++number)
      write(folder / (std::string(below) + "data_batch_" + static_cast<char>('0' + number) + ".bin"),
            records({std::string(1, number), "\x09"}));
    write(folder / (std::string(below) + "test_batch.bin"), records({"\x03"}));
    const data::Cifar10 cifar(folder.path());
    CHECK((cifar.train["input"].sizes() == at::IntArrayRef({10, 3, 32, 32})));
    CHECK(cifar.train["target"].equal(at::tensor({1, 9, 2, 9, 3, 9, 4, 9, 5, 9}, at::kLong)));
    CHECK(cifar.train["input"].select(0, 1).select(0, 2).eq(12).all().item<bool>());
    CHECK(cifar.test["target"].equal(at::tensor({3}, at::kLong)));
    CHECK(data::Cifar10::classes().size() == 10);
  }
}

TEST_CASE("The files of CIFAR-100 give classes and groups") {
  const TemporaryFolder folder;
  write(folder / "train.bin", records({std::string("\x13\x63"), std::string("\0\x05", 2)}));
  write(folder / "test.bin", records({std::string("\x01\x02")}));
  const data::Cifar100 cifar(folder.path());
  CHECK(cifar.train["target"].equal(at::tensor({99, 5}, at::kLong)));
  CHECK(cifar.train["group"].equal(at::tensor({19, 0}, at::kLong)));
  CHECK((cifar.test["input"].sizes() == at::IntArrayRef({1, 3, 32, 32})));
}

TEST_CASE("Files that are missing, cut off or of another version are refused") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(data::Cifar10(folder.path()), doctest::Contains("contains data_batch_1.bin; unpack the binary"),
                       DataError);
  write(folder / "test.bin", records({std::string("\x01\x02")}));
  const std::pair<std::string, const char*> rows[] = {
      {"", "found 0 bytes"},
      {records({std::string("\x01\x02")}).substr(1), "expected images of 3074 bytes each, found 3073 bytes"},
      {records({std::string("\x14\x02")}), "expected a group from 0 to 19 for image 0, found 20"},
      {records({std::string("\x01\x02"), std::string("\x01\x64")}),
       "expected a target from 0 to 99 for image 1, found 100"}};
  for (const auto& [bytes, text] : rows) {
    write(folder / "train.bin", bytes);
    CHECK_THROWS_WITH_AS(data::Cifar100(folder.path()), doctest::Contains(text), DataError);
  }
}

}  // namespace composer::cifar_test
