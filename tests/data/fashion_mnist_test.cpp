#include "composer/data/fashion_mnist.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"

namespace composer::fashion_mnist_test {

using namespace test;
using data::FashionMnist;

namespace {

const Bytes kImages = idx({3, 28, 28}, Bytes(3 * 28 * 28, '\7'));
const Bytes kLabels = idx({3}, {0, 9, 5});

// A small data set with one of its files replaced; compressed ones and plain ones mixed.
void make(const TemporaryFolder& folder, const std::string& name = "", const Bytes& bytes = "") {
  write(folder / "train-images-idx3-ubyte.gz", gzip(kImages));
  write(folder / "train-labels-idx1-ubyte", kLabels);
  write(folder / "t10k-images-idx3-ubyte", kImages);
  write(folder / "t10k-labels-idx1-ubyte.gz", gzip(kLabels));
  if (!name.empty()) write(folder / name, bytes);
}

void refuse(const char* name, const Bytes& bytes, const char* text) {
  const TemporaryFolder folder;
  make(folder, name, bytes);
  CHECK_THROWS_WITH_AS(FashionMnist(folder.path()), doctest::Contains(text), DataError);
  CHECK_THROWS_WITH_AS(FashionMnist(folder.path()), doctest::Contains(name), DataError);
}

}  // namespace

TEST_CASE("A folder of idx files gives images and labels") {
  const TemporaryFolder folder;
  make(folder);
  const FashionMnist set(folder.path());
  for (const Batch& batch : {set.train, set.test}) {
    CHECK((batch["input"].sizes() == at::IntArrayRef({3, 1, 28, 28})));
    CHECK((batch["input"].scalar_type() == at::kByte));
    CHECK(batch["input"].eq(7).all().item<bool>());
    CHECK(batch["target"].equal(at::tensor({0, 9, 5}, at::kLong)));
  }
}

TEST_CASE("The names that unpacking programs write, and the folders of torchvision, are found") {
  const TemporaryFolder folder;
  const auto raw = folder / "FashionMNIST/raw";
  std::filesystem::create_directories(raw);
  write(raw / "train-images.idx3-ubyte", kImages);
  write(raw / "train-labels.idx1-ubyte.gz", gzip(kLabels));
  write(raw / "t10k-images-idx3-ubyte", kImages);
  write(raw / "t10k-labels-idx1-ubyte", kLabels);
  for (const auto& root : {folder.path(), folder / "FashionMNIST", raw})
    CHECK(FashionMnist(root).train["target"].equal(at::tensor({0, 9, 5}, at::kLong)));
}

TEST_CASE("Files that do not belong together are refused") {
  refuse("train-labels-idx1-ubyte", idx({2}, {0, 1}), "expected one label for each of 3 images, found [2]");
  refuse("train-labels-idx1-ubyte", kImages, "expected one label for each of 3 images, found [3, 28, 28]");
  refuse("train-labels-idx1-ubyte", idx({3}, {0, 1, 10}), "expected labels from 0 to 9, found 10 for image 2");
  refuse("t10k-images-idx3-ubyte", kLabels, "expected images [N, 28, 28], found [3]");
  refuse("t10k-images-idx3-ubyte", idx({3, 28, 27}, Bytes(3 * 28 * 27, '\0')), "found [3, 28, 27]");
  refuse("t10k-images-idx3-ubyte", kImages.substr(0, 100), "more than the file can hold");
}

TEST_CASE("A missing data set is an error that tells how to get it") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(FashionMnist(folder.path()), doctest::Contains("apt-get install dataset-fashion-mnist"),
                       DataError);
  CHECK_THROWS_WITH_AS(FashionMnist(folder / "none"), doctest::Contains("neither train-images-idx3-ubyte nor"),
                       DataError);
}

TEST_CASE("The data set of Debian's package has its 70000 images" *
          doctest::skip(!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))) {
  const FashionMnist set;
  CHECK((set.train["input"].sizes() == at::IntArrayRef({60000, 1, 28, 28})));
  CHECK((set.test["input"].sizes() == at::IntArrayRef({10000, 1, 28, 28})));
  CHECK(set.train["target"].bincount().eq(6000).all().item<bool>());
  CHECK(set.test["target"].bincount().eq(1000).all().item<bool>());
  const at::Tensor pixels = set.train["input"].to(at::kFloat).div_(255);
  CHECK(pixels.mean().item<double>() == doctest::Approx(0.286).epsilon(0.001));
  CHECK(pixels.std().item<double>() == doctest::Approx(0.353).epsilon(0.001));
}

}  // namespace composer::fashion_mnist_test
