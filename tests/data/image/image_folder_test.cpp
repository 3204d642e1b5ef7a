#include "composer/data/image/image_folder.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/data_spec.h"
#include "composer/data/for_rank.h"
#include "composer/data/image/write_image.h"
#include "tests/data/image/recorded.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"
#include "tests/support/warnings.h"

namespace composer::image_folder_test {

using namespace test;
using data::ImageFiles;
using data::ImageFolder;

namespace {

// Images of one color: that of cats is their number, that of dogs 100 and their number.
struct Pets {
  Pets() {
    for (int i = 0; i < 4; ++i) add("cat/" + std::to_string(i) + ".png", i);
    for (int i = 0; i < 3; ++i) add("dog/old/" + std::to_string(i) + ".PNG", 100 + i);
  }
  void add(const std::string& name, int color) const {
    data::write_png(at::full({3, 6, 8}, color, at::kByte), folder / name);
  }
  void file(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((folder / name).parent_path());
    write(folder / name, bytes);
  }
  TemporaryFolder folder;
};

std::vector<int> colors_of(const ImageFiles& files) {
  std::vector<int> colors;
  for (std::int64_t i = 0; i < files.size(); ++i)
    colors.push_back(files.get(i, RandomStream(1))["input"][0][0][0].item<int>());
  return colors;
}

std::string error_of(const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("Folders are classes, sorted by name, and their images are found in folders below, in any case of letters") {
  const Pets pets;
  const ImageFolder folder(pets.folder.path());
  CHECK(folder.classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(folder.targets() == std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1});
  CHECK(colors_of(folder) == std::vector<int>{0, 1, 2, 3, 100, 101, 102});
  CHECK(folder.file(5) == pets.folder / "dog/old/1.PNG");
  const data::Sample sample = folder.get(6, RandomStream(1));
  CHECK((sample["input"].sizes() == at::IntArrayRef({3, 6, 8})));
  CHECK(sample["target"].equal(at::scalar_tensor(1, at::kLong)));
  CHECK_THROWS_WITH_AS(folder.file(7), doctest::Contains("no file 7 of 7"), DataError);
}

TEST_CASE("Given classes have the given numbers, and may have no folder") {
  const Pets pets;
  const ImageFolder folder(pets.folder.path(), {.classes = {"dog", "bird", "cat"}});
  CHECK(folder.classes() == std::vector<std::string>{"dog", "bird", "cat"});
  CHECK(folder.targets() == std::vector<std::int64_t>{0, 0, 0, 2, 2, 2, 2});
}

TEST_CASE("A folder that is no set of classes is an error that says what to do") {
  const Pets pets;
  const TemporaryFolder empty;
  const auto& root = pets.folder.path();
  const auto fails = [](const auto& folder, data::ImageFolderOptions options = {}) {
    return error_of([&] { ImageFolder(folder, options); });
  };
  CHECK(fails(root / "none").find("is not a folder") != std::string::npos);
  CHECK(fails(empty.path()).find("has no folders; expected one for each class") != std::string::npos);
  CHECK(fails(root, {.classes = {"cat"}}).find("has a folder dog, which is not among the 1 classes") !=
        std::string::npos);
  CHECK(fails(root, {.classes = {"cat", "dog", "cat"}}).find("has cat twice") != std::string::npos);
  CHECK(fails(root, {.extensions = {".jpg"}}).find("contains no images (.jpg)") != std::string::npos);
  CHECK(fails(root, {.recursive = false}).find("dog contains no images") != std::string::npos);
  CHECK(fails(root, {.extensions = {}}).find("extensions must not be empty") != std::string::npos);
  std::filesystem::create_directories(root / "bird");
  CHECK(fails(root).find("bird contains no images") != std::string::npos);
  CHECK(fails(root).find("remove the folder") != std::string::npos);
}

TEST_CASE("Files that are left out are told in one warning, hidden ones are not") {
  const Pets pets;
  pets.file("readme.txt", "x");
  pets.file("cat/notes.doc", "x");
  pets.file("cat/.DS_Store", "x");
  pets.file(".git/cat.png", "x");
  pets.file("dog/.thumbs/cat.png", "x");
  Warnings warnings;
  const ImageFolder folder(pets.folder.path());
  CHECK(folder.size() == 7);
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.say("left out 2 files that are no images of a class: readme.txt, cat/notes.doc"));
}

TEST_CASE("Links to folders are followed, and those that lead into themselves once") {
  const Pets pets;
  const TemporaryFolder elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.path(), pets.folder / "cat/more");
  std::filesystem::create_directory_symlink(pets.folder.path(), pets.folder / "cat/all");
  std::filesystem::create_directory_symlink(pets.folder / "dog", pets.folder / "dog/old/again");
  std::filesystem::create_directory_symlink(pets.folder / "none", pets.folder / "dog/broken");
  data::write_png(at::full({3, 6, 8}, 50, at::kByte), elsewhere / "50.png");
  Warnings warnings;
  const ImageFolder folder(pets.folder.path());
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < folder.size(); ++i)
    names.push_back(folder.file(i).lexically_relative(pets.folder.path()).string());
  CHECK(names == std::vector<std::string>{"cat/0.png", "cat/1.png", "cat/2.png", "cat/3.png", "cat/all/dog/old/0.PNG",
                                          "cat/all/dog/old/1.PNG", "cat/all/dog/old/2.PNG", "cat/more/50.png",
                                          "dog/old/0.PNG", "dog/old/1.PNG", "dog/old/2.PNG"});
  CHECK(warnings.say("left out 2 files that are no images of a class: cat/all/dog/broken, dog/broken"));
}

TEST_CASE("With verify, files that are damaged are named at once; without, when they are read") {
  const Pets pets;
  for (int i = 0; i < 5; ++i) pets.file("cat/bad" + std::to_string(i) + ".jpg", "no image");
  const std::string error = error_of([&] { ImageFolder(pets.folder.path(), {.verify = true}); });
  CHECK(error.find("5 of 12 files cannot be used") != std::string::npos);
  for (const char* name : {"bad0.jpg", "bad1.jpg", "bad2.jpg", "; and others"})
    CHECK(error.find(name) != std::string::npos);
  const ImageFolder folder(pets.folder.path());
  CHECK_THROWS_WITH_AS(folder.get(4, RandomStream(1)), doctest::Contains("bad0.jpg: is not an image"), DataError);
}

TEST_CASE("ImageFiles takes files of a table and looks whether they exist") {
  const Pets pets;
  const std::vector<std::filesystem::path> files = {pets.folder / "dog/old/2.PNG", pets.folder / "cat/1.png"};
  const ImageFiles images(files, {5, 3});
  CHECK(colors_of(images) == std::vector<int>{102, 1});
  CHECK(images.targets() == std::vector<std::int64_t>{5, 3});
  CHECK(error_of([&] { ImageFiles(files, {1}); }).find("2 files and 1 targets") != std::string::npos);
  const std::string error = error_of([&] { ImageFiles({files[0], "none.png"}, {1, 2}); });
  CHECK(error.find("1 of 2 files cannot be used: none.png: there is no such file") != std::string::npos);
}

TEST_CASE("A transform that fails names the file") {
  const Pets pets;
  const ImageFolder folder(pets.folder.path(), {.transform = {data::RandomCrop{.size = 50}}});
  const std::string error = error_of([&] { folder.get(1, RandomStream(1)); });
  CHECK(error.find("cat/1.png: cannot be transformed") != std::string::npos);
  CHECK(error.find("has no part of 50 x 50") != std::string::npos);
}

TEST_CASE("A JPEG that is decoded smaller looks the same after Resize and RandomResizedCrop") {
  const TemporaryFolder folder;
  const at::Tensor y = at::arange(480).view({1, -1, 1}), x = at::arange(640).view({1, 1, -1}),
                   c = at::arange(3).view({-1, 1, 1});
  std::filesystem::create_directories(folder / "a");
  data::write_jpeg((y * 0.02 + x * 0.03 + c).sin().mul(100).add(127).to(at::kByte), folder / "a/1.jpg", 95);
  for (const data::Transforms& transform :
       {data::Transforms{data::Resize{60}}, data::Transforms{data::RandomResizedCrop{.size = 40, .scale = {0.5, 1}}}})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const ImageFolder fast(folder.path(), {.transform = transform});
      const ImageFolder exact(folder.path(), {.transform = transform, .scaled_decoding = false});
      const at::Tensor a = fast.get(0, RandomStream(seed))["input"], b = exact.get(0, RandomStream(seed))["input"];
      REQUIRE((a.sizes() == b.sizes()));
      // A part of a smaller image begins at whole pixels of that.
      const bool whole = a.size(2) == 80;
      CHECK(a.to(at::kFloat).sub(b.to(at::kFloat)).abs().mean().item<double>() < (whole ? 1 : 6));
    }
}

TEST_CASE("Batches of a folder are the same wherever reading begins, with workers and in ranks") {
  const Pets pets;
  const data::Transforms augment{data::RandomResizedCrop{.size = 4}, data::RandomHorizontalFlip{},
                                 data::ColorJitter{0.4, 0.4, 0.4, 0.1}, data::imagenet_normalize()};
  const ImageFolder folder(pets.folder.path(), {.transform = augment});
  const auto loader = [&](std::int64_t workers) {
    return data::map_style(folder, {.batch_size = 3, .num_workers = workers});
  };
  std::vector<Batch> batches;
  const auto straight = loader(0);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    straight->seek(epoch, 0);
    while (const auto batch = straight->next()) batches.push_back(*batch);
  }
  REQUIRE(batches.size() == 6);
  CHECK_FALSE(batches[0]["input"].equal(batches[3]["input"]));
  for (const std::int64_t workers : {0, 2})
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto resumed = loader(workers);
      resumed->seek(i / 3, i % 3);
      const auto batch = resumed->next();
      REQUIRE(batch);
      CHECK((*batch)["input"].equal(batches[static_cast<std::size_t>(i)]["input"]));
      CHECK((*batch)["target"].equal(batches[static_cast<std::size_t>(i)]["target"]));
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        const auto share = data::for_rank(DataSpec(loader(workers)), rank, 2);
        share.dataloader->seek(i / 3, i % 3);
        parts.push_back((*share.dataloader->next())["input"]);
      }
      CHECK(at::cat(parts).equal(batches[static_cast<std::size_t>(i)]["input"]));
    }
}

}  // namespace composer::image_folder_test
