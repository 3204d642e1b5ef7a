// The example examples/finetune.cpp, with small images and few of them.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <ATen/ATen.h>

#include "composer/data/image/write_image.h"
#include "composer/formats/weights.h"
#include "composer/models/resnet.h"
#include "composer/predict/predictor.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"

namespace composer::finetune_test {

TEST_CASE("The example of fine-tuning trains on a folder of images, and leaves a predictor that knows its classes") {
  const test::Folder folder;
  at::manual_seed(1);
  for (const auto& [name, channel] : {std::pair("green", 1), std::pair("red", 0)})
    for (int i = 0; i < 10; ++i) {
      at::Tensor image = at::randint(90, {3, 40, 44 + i}, at::kByte);
      image[channel].add_(150);
      data::write_png(image, folder / "images" / name / (std::to_string(i) + ".png"));
    }
  const auto trained = models::resnet({.depth = 18});
  save_weights(*trained, folder / "resnet18.pth", {.rename = {{"module.", ""}}});  // the names of torchvision
  const std::string command = test::beside_this_program("finetune") + " " + (folder / "resnet18.pth").string() + " " +
                              (folder / "images").string() + " " + (folder / "model").string() + " 2ep 32 > " +
                              (folder / "out").string();
  REQUIRE(std::system(command.c_str()) == 0);
  const auto predictor = Predictor::load(folder / "model");
  CHECK(predictor.classes() == std::vector<std::string>{"green", "red"});
  CHECK(predictor_info(folder / "model").metadata.contains("accuracy"));
}

}  // namespace composer::finetune_test
