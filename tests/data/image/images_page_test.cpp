#include <ATen/ATen.h>

#include "composer/data/image/image_folder.h"
#include "composer/data/image/image_preprocessing.h"
#include "composer/data/image/write_image.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"

namespace composer::images_page_test {
namespace {

// Images of pets in the current folder, which is temporary meanwhile.
struct InFolderOfPets {
  InFolderOfPets() : before(std::filesystem::current_path()) {
    std::filesystem::current_path(folder.path());
    for (const char* name : {"cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"})
      for (const char* part : {"pets/train/", "pets/valid/"})
        data::write_jpeg(at::randint(0, 256, {3, 60, 80}, at::kByte), std::string(part) + name);
  }
  ~InFolderOfPets() { std::filesystem::current_path(before); }
  InFolderOfPets(const InFolderOfPets&) = delete;
  InFolderOfPets& operator=(const InFolderOfPets&) = delete;

  test::TemporaryFolder folder;
  std::filesystem::path before;
};

}  // namespace

TEST_CASE("The page about images shows programs that run") {
  const InFolderOfPets pets;
  const data::ImagePreprocessing prepare({.resize = 256, .crop = 224, .normalize = data::imagenet_normalize()});
  const data::Transforms augment{data::RandomResizedCrop{224}, data::RandomHorizontalFlip{},
                                 data::imagenet_normalize()};
  const data::ImageFolder train("pets/train", {.transform = augment});
  const data::ImageFolder valid("pets/valid", {.classes = train.classes(), .transform = prepare.transforms()});
  const auto loader = data::map_style(train, {.batch_size = 64, .num_workers = 4});
  CHECK(((*loader->next())["input"].sizes() == at::IntArrayRef({4, 3, 224, 224})));
  CHECK((valid.get(0, RandomStream(0))["input"].sizes() == at::IntArrayRef({3, 224, 224})));

  const data::ImageFiles listed({"pets/train/cat/1.jpg", "pets/train/dog/2.jpg"}, {0, 1}, {.transform = augment});
  CHECK(listed.size() == 2);

  const at::Tensor image = data::read_image("pets/train/cat/1.jpg");
  const at::Tensor grey = data::read_image("pets/train/cat/1.jpg", {.channels = 1, .at_least = {224, 224}});
  data::write_png(grey, "grey.png");
  CHECK((data::read_image("grey.png", {.channels = 1}).equal(grey)));

  const data::Transforms own{data::Resize{256}, [](const at::Tensor& image, RandomStream& random) {
                               return random.uniform() < 0.1 ? at::Tensor(255 - image) : image;
                             }};
  const std::int64_t epoch = 0, index = 0;
  RandomStream random(hash64(17, epoch, index));
  const at::Tensor transformed = own(image, random);
  CHECK((transformed.sizes() == at::IntArrayRef({3, 256, 341})));

  const at::Tensor input = prepare.read("pets/train/cat/1.jpg").unsqueeze(0);
  CHECK((input.sizes() == at::IntArrayRef({1, 3, 224, 224})));
}

}  // namespace composer::images_page_test
